//! The whole program with user-space guests: what two guests exchange is verified byte by byte
//! under every combination of features, over many reconnects, and beside a hostile guest.
//!
//! Each test starts its own `ringway run`; see `RingwayProcess` for where the binary comes from.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_net::{Features, HEADER_LEN, NetHeader};
use ringway_testkit::frames::{self, Link, Mac, Stamp};
use ringway_testkit::hostile::{RawDescriptor, WRITE};
use ringway_testkit::{
    AnyUserGuest, GuestOptions, HostileGuest, RingwayProcess, Rng, Scramble, Traffic,
};
use ringway_virtq::Format;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Longest frame with the MTU that ports have by default.
const FRAME_LEN_MAX: usize = 1514;

/// Longest wait until statistics show what happened.
const SHOWN_LIMIT: Duration = Duration::from_secs(5);

/// Each exchange has its own flow number, so that a late packet is never taken for a new one.
fn new_flow() -> u64 {
    static FLOW: AtomicU32 = AtomicU32::new(1);
    u64::from(FLOW.fetch_add(1, Ordering::Relaxed))
}

fn accepting(features: Features) -> GuestOptions {
    GuestOptions { accept: features, ..GuestOptions::default() }
}

fn attach_two(
    ringway: &RingwayProcess,
    options: [&GuestOptions; 2],
) -> Result<[AnyUserGuest; 2], Box<dyn std::error::Error>> {
    Ok([
        AnyUserGuest::attach(&ringway.socket("a"), options[0])?,
        AnyUserGuest::attach(&ringway.socket("b"), options[1])?,
    ])
}

fn verify_exchange(guests: &mut [AnyUserGuest; 2], packets: u64, len_max: usize) -> Outcome {
    let macs = [guests[0].mac(), guests[1].mac()];
    let mut traffic = Traffic::new(macs, new_flow(), len_max);
    traffic.settle(guests)?;
    traffic.exchange(guests, packets)?;
    assert_eq!(traffic.arrived(), packets * 2);
    Ok(())
}

fn detach_both(guests: [AnyUserGuest; 2]) -> Outcome {
    for guest in guests {
        guest.detach()?;
    }
    Ok(())
}

#[test]
fn guests_exchange_every_packet_in_every_combination_of_ring_features() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let choices = [
        Features::RING_PACKED,
        Features::MRG_RXBUF,
        Features::EVENT_IDX,
        Features::IN_ORDER,
        Features::INDIRECT_DESC,
    ];
    for bits in 0..1_u32 << choices.len() {
        let mut accept = Features::OFFERED;
        for (at, feature) in choices.into_iter().enumerate() {
            accept.set(feature, bits & (1 << at) != 0);
        }
        // The second guest has all features: formats and layouts meet in the middle.
        for peer in [accept, Features::OFFERED] {
            let several = GuestOptions { header_apart: true, rx_elements: 3, ..accepting(accept) };
            let mut guests = attach_two(&ringway, [&several, &accepting(peer)])?;
            assert_eq!(guests[0].negotiated().features.intersection(accept), accept);
            let packed = accept.contains(Features::RING_PACKED);
            assert_eq!(guests[0].format() == Format::Packed, packed);
            verify_exchange(&mut guests, 200, FRAME_LEN_MAX)
                .map_err(|error| format!("{accept}: {error}"))?;
            detach_both(guests)?;
        }
    }
    Ok(())
}

#[test]
fn every_offered_feature_is_right_when_negotiated_and_when_not() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for feature in Features::OFFERED.difference(Features::VERSION_1).iter() {
        let without = Features::OFFERED.difference(feature).drop_unmet();
        let only = with_needs(feature);
        for accept in [without, only] {
            let options = accepting(accept);
            let mut guests = attach_two(&ringway, [&options, &options])?;
            let negotiated = guests[0].negotiated().features;
            assert_eq!(negotiated.contains(feature), accept.contains(feature), "{feature}");
            verify_exchange(&mut guests, 100, FRAME_LEN_MAX)
                .map_err(|error| format!("{accept}: {error}"))?;
            detach_both(guests)?;
        }
    }
    Ok(())
}

/// A feature with the fewest others that it needs.
fn with_needs(feature: Features) -> Features {
    let enough = [
        Features::empty(),
        Features::CTRL_VQ,
        Features::CSUM,
        Features::GUEST_CSUM,
        Features::CSUM | Features::HOST_TSO4,
        Features::GUEST_CSUM | Features::GUEST_TSO4,
    ];
    let sets = enough.into_iter().map(|more| Features::VERSION_1 | feature | more);
    let mut right = sets.filter(|set| set.check_dependencies().is_ok());
    right.next().unwrap_or(Features::OFFERED)
}

#[test]
fn features_turned_off_on_the_command_line_are_not_offered() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", "packed=off,mrg_rxbuf=off"), ("b", "")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    assert!(!guests[0].negotiated().mergeable);
    assert_eq!(guests[0].format(), Format::Split);
    assert!(guests[1].negotiated().mergeable);
    assert_eq!(guests[1].format(), Format::Packed);
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)
}

#[test]
fn the_configuration_space_says_what_the_port_is() -> Outcome {
    let options = "mac=52:54:00:12:34:56,mtu=9000";
    let ringway = RingwayProcess::start(&[("a", options), ("b", "mtu=9000")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    let config = guests[0].config()?;
    assert_eq!(config.mac.0, [0x52, 0x54, 0, 0x12, 0x34, 0x56]);
    assert_eq!(config.mtu, 9000);
    assert!(config.link_up);
    assert_ne!(guests[1].config()?.mac, config.mac);
    verify_exchange(&mut guests, 500, 9014)
}

/// A packet the receiver has to be able to cut arrives whole, or not at all.
#[test]
fn a_receiver_never_sees_an_offload_it_did_not_accept() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let without = Features::OFFERED.difference(Features::GUEST_TSO4).drop_unmet();
    for accept in [Features::OFFERED, without] {
        let mut guests = attach_two(&ringway, [&accepting(Features::OFFERED), &accepting(accept)])?;
        verify_exchange(&mut guests, 10, FRAME_LEN_MAX)?;
        let link = Link { from: guests[0].mac(), to: guests[1].mac() };
        let large = Stamp { flow: new_flow() << 32, sequence: 0 };
        let small = Stamp { sequence: 1, ..large };
        let (header, packet) = frames::tcp_large(link, large, 60_000, 1448);
        assert_eq!(guests[0].send_with(&header, &packet)?, ringway_driver::Sent::Done);
        let last = frames::udp(link, small, 100);
        assert_eq!(guests[0].send(&last)?, ringway_driver::Sent::Done);
        guests[0].flush();
        let (seen, header) = receive_until(&mut guests[1], large.flow, small)?;
        if accept.contains(Features::GUEST_TSO4) {
            assert_eq!(seen, [large, small]);
            assert_eq!((header.gso_type, header.gso_size, header.flags), (1, 1448, 1));
        } else {
            assert!(!seen.contains(&large), "an offload that was not accepted");
        }
        detach_both(guests)?;
    }
    Ok(())
}

/// Stamps of a flow up to the last one, and the header of the first.
fn receive_until(
    guest: &mut AnyUserGuest,
    flow: u64,
    last: Stamp,
) -> Result<(Vec<Stamp>, NetHeader), Box<dyn std::error::Error>> {
    let deadline = Instant::now() + SHOWN_LIMIT;
    let mut seen = Vec::new();
    let mut first = NetHeader::default();
    while seen.last() != Some(&last) {
        if Instant::now() > deadline {
            return Err(format!("{last:?} does not arrive after {seen:?}").into());
        }
        guest.wait_call(Duration::from_millis(100))?;
        while let Some((header, packet)) = guest.receive()? {
            if let Some(stamp) = frames::read_stamp(&packet).filter(|stamp| stamp.flow == flow) {
                if seen.is_empty() {
                    first = header;
                }
                seen.push(stamp);
            }
        }
        guest.flush();
    }
    Ok((seen, first))
}

#[test]
fn control_commands_are_always_answered() -> Outcome {
    const CLASS_MAC: u8 = 1;
    const MAC_ADDR_SET: u8 = 1;
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for format in [Features::empty(), Features::RING_PACKED] {
        let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
        let options = accepting(accept);
        let mut guests = attach_two(&ringway, [&options, &options])?;
        let moved: Mac = [0x52, 0x54, 0, 1, 2, 3];
        assert_eq!(guests[0].command(CLASS_MAC, MAC_ADDR_SET, &moved)?, 0);
        // Not known, not offered, too short, too long: an error, but an answer.
        for (class, command, data) in [
            (0xee, 0, &[][..]),
            (4, 0, &[1, 0]),
            (CLASS_MAC, MAC_ADDR_SET, &[1]),
            (0, 0, &[7; 4000]),
        ] {
            assert_eq!(guests[0].command(class, command, data)?, 1, "{class} {command}");
        }
        verify_exchange(&mut guests, 50, FRAME_LEN_MAX)?;
        detach_both(guests)?;
    }
    Ok(())
}

#[test]
fn a_guest_may_reconnect_a_hundred_times() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let mut rng = Rng::from_environment("reconnect", 100);
    let mut stays = Some(AnyUserGuest::attach(&ringway.socket("b"), &GuestOptions::default())?);
    for round in 0..100 {
        let mut accept = Features::OFFERED;
        accept.set(Features::RING_PACKED, rng.one_in(2));
        accept.set(Features::MRG_RXBUF, rng.one_in(2));
        let comes = AnyUserGuest::attach(&ringway.socket("a"), &accepting(accept))?;
        let peer = stays.take().ok_or("the second guest is there")?;
        let mut guests = [comes, peer];
        verify_exchange(&mut guests, 20, FRAME_LEN_MAX)
            .map_err(|error| format!("round {round}: {error}"))?;
        let [goes, peer] = guests;
        stays = Some(peer);
        if rng.one_in(2) {
            goes.detach()?;
        } else {
            // As a guest that was killed: nothing is said.
            drop(goes);
        }
    }
    Ok(())
}

/// The queues that statistics show as broken on a port, with the reasons.
fn broken_queues(ringway: &RingwayProcess, port: &str) -> Result<Vec<String>, std::io::Error> {
    let stats = ringway.port_stats(port)?;
    let list = stats["broken"].as_array();
    let list = list.ok_or_else(|| std::io::Error::other(format!("no list of queues: {stats}")))?;
    Ok(list.iter().map(|entry| entry.as_str().unwrap_or_default().to_string()).collect())
}

/// Waits until a queue is shown as broken; it must be the only one.
fn wait_for_broken(ringway: &RingwayProcess, port: &str, queue: &str) -> Outcome {
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let broken = broken_queues(ringway, port)?;
        match &broken[..] {
            [only] if only.starts_with(queue) => return Ok(()),
            [] if Instant::now() < deadline => thread::sleep(Duration::from_millis(10)),
            _ => return Err(format!("{queue} is not the only one broken: {broken:?}").into()),
        }
    }
}

/// The names of the queues in statistics, by their index.
const QUEUE_NAMES: [&str; 3] = ["receiveq1", "transmitq1", "controlq"];

/// Runs `hostile` while two other guests exchange verified traffic; then the port must serve a
/// good guest again.
fn beside_good_guests(
    loss_allowed: bool,
    hostile: impl FnOnce(&RingwayProcess) -> Outcome,
) -> Outcome {
    let mut ringway = RingwayProcess::start(&[("a", ""), ("b", ""), ("h", "")])?;
    let all = GuestOptions::default();
    let mut guests = attach_two(&ringway, [&all, &all])?;
    let mut traffic = Traffic::new([guests[0].mac(), guests[1].mac()], new_flow(), FRAME_LEN_MAX);
    if loss_allowed {
        traffic = traffic.allow_loss();
    }
    traffic.settle(&mut guests)?;
    let over = AtomicBool::new(false);
    let (good, bad) = thread::scope(|scope| {
        let good = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                traffic.exchange(&mut guests, 100).map_err(|error| error.to_string())?;
            }
            Ok::<(), String>(())
        });
        let bad = hostile(&ringway);
        over.store(true, Ordering::Relaxed);
        (good.join(), bad)
    });
    assert!(ringway.is_running()?, "{}", ringway.log());
    bad?;
    good.map_err(|_| "the good guests panicked")??;
    println!("{} packets arrived, {} lost", traffic.arrived(), traffic.lost());
    assert!(traffic.arrived() > traffic.lost() * 4, "others were disturbed");
    // Undisturbed from here on, and the hostile guest's port is usable again.
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)?;
    let [one, two] = guests;
    two.detach()?;
    let mut guests = [one, AnyUserGuest::attach(&ringway.socket("h"), &all)?];
    verify_exchange(&mut guests, 500, FRAME_LEN_MAX)?;
    assert_eq!(broken_queues(&ringway, "h")?, [""; 0]);
    assert!(ringway.stop()?.success(), "{}", ringway.log());
    Ok(())
}

/// What each way to break a ring looks like; every one must stop that queue, and only that.
fn offences(guest: &HostileGuest) -> Vec<(&'static str, usize, Vec<RawDescriptor>)> {
    let inside = guest.scratch().device_address;
    let readable = RawDescriptor { address: inside, len: 100, id: 0, flags: 0 };
    let writable = RawDescriptor { flags: WRITE, ..readable };
    let (start, len) = guest.memory().ranges()[0];
    let header = u32::try_from(HEADER_LEN).unwrap_or(0);
    vec![
        ("outside memory", 1, vec![RawDescriptor { address: 0xdead_0000_0000, ..readable }]),
        ("over the end", 1, vec![RawDescriptor { address: start + len - 50, ..readable }]),
        ("overflow", 1, vec![RawDescriptor { address: u64::MAX - 50, ..readable }]),
        ("length zero", 1, vec![RawDescriptor { len: 0, ..readable }]),
        ("readable after writable", 1, vec![writable, readable]),
        ("wrong direction to device", 1, vec![writable]),
        ("no room for the header", 1, vec![RawDescriptor { len: header - 1, ..readable }]),
        ("indirect length", 1, vec![RawDescriptor { flags: 4, len: 17, ..readable }]),
        ("indirect of nothing", 1, vec![RawDescriptor { flags: 4, len: 0, ..readable }]),
        ("control without answer", 2, vec![readable]),
    ]
}

#[test]
fn each_offence_stops_that_queue_only() -> Outcome {
    for format in [Features::empty(), Features::RING_PACKED] {
        beside_good_guests(false, |ringway| {
            let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
            let mut at = 0;
            loop {
                let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
                let Some((name, queue, elements)) = offences(&guest).into_iter().nth(at) else {
                    return Ok(());
                };
                assert_eq!(broken_queues(ringway, "h")?, [""; 0], "before {name}");
                guest.offer(queue, &elements);
                wait_for_broken(ringway, "h", QUEUE_NAMES[queue])
                    .map_err(|error| format!("{name}: {error}"))?;
                at += 1;
            }
        })?;
    }
    Ok(())
}

#[test]
fn an_available_index_that_jumps_stops_the_queue() -> Outcome {
    beside_good_guests(false, |ringway| {
        let accept = Features::OFFERED.difference(Features::RING_PACKED);
        let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
        let queue = guest.queue(1);
        queue.set_available_index(queue.size() + 1);
        queue.kick();
        wait_for_broken(ringway, "h", QUEUE_NAMES[1])
    })
}

/// Random bytes in every descriptor, index, header and control command.
#[test]
fn nonsense_in_every_ring_never_disturbs_the_others() -> Outcome {
    let mut rng = Rng::from_environment("nonsense", 0x0bad_cafe);
    beside_good_guests(true, |ringway| {
        let mut rounds_broken = 0;
        for round in 0..60 {
            let mut accept = Features::OFFERED;
            accept.set(Features::RING_PACKED, round % 2 == 0);
            accept.set(Features::INDIRECT_DESC, rng.one_in(2));
            accept.set(Features::EVENT_IDX, rng.one_in(2));
            accept.set(Features::MRG_RXBUF, rng.one_in(2));
            let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
            let how = if rng.one_in(3) { Scramble::Bytes } else { Scramble::Plausible };
            for _ in 0..4 {
                guest.scramble(&mut rng, how);
                // The answer comes after everything the kicks have started.
                rounds_broken += usize::from(!broken_queues(ringway, "h")?.is_empty());
            }
            assert!(guest.memory().guards_intact(), "round {round}: written outside memory");
        }
        assert!(rounds_broken > 60, "nonsense went unnoticed: {rounds_broken}");
        Ok(())
    })
}
