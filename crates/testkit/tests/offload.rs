//! Guests with different offloads on one `ringway run`: each receives what it accepts, and
//! together that is what was sent.
//!
//! How: a guest with everything sends unsegmented packets of all kinds; what the others receive is
//! compared with the packet itself or with what `complete` makes of it, which other tests hold
//! against Linux and smoltcp.

use std::time::{Duration, Instant};

use ringway_driver::Sent;
use ringway_net::offload::complete;
use ringway_net::{Features, NetHeader};
use ringway_testkit::beside::{FRAME_LEN_MAX, Outcome, SHOWN_LIMIT, accepting, new_flow};
use ringway_testkit::frames::{self, BROADCAST, Link, Mac, STAMPED_LEN_MIN, Stamp};
use ringway_testkit::unsegmented::Unsegmented;
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess, Traffic};

/// Attempts to find a receiver that the machine does not keep waiting for longer than a hold.
const ATTEMPTS: usize = 20;

/// A packet with its header.
type Received = (NetHeader, Vec<u8>);

/// The features of receivers; a receiver must never see an offload that it lacks.
fn receivers() -> [(&'static str, Features); 5] {
    let tso = Features::GUEST_TSO4 | Features::GUEST_TSO6;
    let lacking = |features| (Features::OFFERED - features).drop_unmet();
    [
        ("everything", Features::OFFERED),
        ("no TSO", lacking(tso)),
        ("no USO over IPv6", lacking(Features::GUEST_USO6)),
        ("no checksums", lacking(Features::GUEST_CSUM)),
        ("nothing", Features::VERSION_1),
    ]
}

fn kinds(mac: Mac, to: Mac) -> Vec<Received> {
    let tcp4 = Unsegmented::new(20_000, 1448);
    let tcp6 = Unsegmented { is_ipv6: true, ..tcp4.clone() };
    let udp4 = Unsegmented { is_udp: true, ..tcp4.clone() };
    let udp6 = Unsegmented { is_udp: true, ..tcp6.clone() };
    let csum = Unsegmented { gso_size: 0, ..Unsegmented::new(1000, 1) };
    [tcp4, tcp6, udp4, udp6, csum].map(|packet| addressed(&packet, mac, to)).to_vec()
}

fn addressed(packet: &Unsegmented, from: Mac, to: Mac) -> Received {
    let (header, mut bytes) = packet.build();
    bytes[..6].copy_from_slice(&to);
    bytes[6..12].copy_from_slice(&from);
    (header, bytes)
}

/// The packets that this guest has to receive.
fn expected(guest: &AnyUserGuest, (header, bytes): &Received) -> Vec<Received> {
    let negotiated = guest.negotiated();
    if negotiated.accepts(header) {
        return vec![(*header, bytes.clone())];
    }
    let mut bytes = bytes.clone();
    let mut segments = complete(header, &mut bytes, negotiated.guest_csum).expect("a good packet");
    let mut all = Vec::new();
    while let Some(segment) = segments.cut() {
        all.push((segment.header, segment.bytes.to_vec()));
    }
    all
}

fn attach(ringway: &RingwayProcess, port: &str, options: &GuestOptions) -> AnyUserGuest {
    AnyUserGuest::attach(&ringway.socket(port), options).expect("a guest")
}

/// Waits until packets get through both ways.
fn settle(guests: [AnyUserGuest; 2]) -> Result<[AnyUserGuest; 2], Box<dyn std::error::Error>> {
    let mut guests = guests;
    let macs = [guests[0].mac(), guests[1].mac()];
    Traffic::new(macs, new_flow(), FRAME_LEN_MAX).settle(&mut guests)?;
    Ok(guests)
}

/// Sends the packet and a small one behind it, which ends what the receivers wait for.
fn send(guest: &mut AnyUserGuest, (header, bytes): &Received, to: Mac) -> Stamp {
    let last = Stamp { flow: new_flow() << 32, sequence: 0 };
    let link = Link { from: guest.mac(), to };
    assert_eq!(guest.send_with(header, bytes).expect("a good device"), Sent::Done);
    let end = frames::udp(link, last, STAMPED_LEN_MIN);
    assert_eq!(guest.send(&end).expect("a good device"), Sent::Done);
    guest.flush();
    last
}

/// All packets of `from` before the one with that stamp; without `num_buffers`.
fn receive_before(
    guest: &mut AnyUserGuest,
    from: Mac,
    last: Stamp,
) -> Result<Vec<Received>, Box<dyn std::error::Error>> {
    let deadline = Instant::now() + SHOWN_LIMIT;
    let mut seen = Vec::new();
    while Instant::now() < deadline {
        guest.wait_call(Duration::from_millis(100))?;
        while let Some((header, bytes)) = guest.receive()? {
            match frames::read_stamp(&bytes) {
                Some(stamp) if stamp == last => return Ok(seen),
                Some(_) => {}
                None if bytes[6..12] == from => {
                    seen.push((NetHeader { num_buffers: 0, ..header }, bytes));
                }
                None => {}
            }
        }
        guest.flush();
    }
    Err(format!("the end does not arrive after {} packets", seen.len()).into())
}

#[test]
fn every_receiver_gets_what_it_accepts() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    for format in [Features::empty(), Features::RING_PACKED] {
        for (what, features) in receivers() {
            let accept = (features - Features::RING_PACKED) | format;
            let sender = attach(&ringway, "a", &GuestOptions::default());
            let receiver = attach(&ringway, "b", &accepting(accept));
            let [mut sender, mut receiver] = settle([sender, receiver])?;
            for packet in kinds(sender.mac(), receiver.mac()) {
                let last = send(&mut sender, &packet, receiver.mac());
                let seen = receive_before(&mut receiver, sender.mac(), last)?;
                let expected = expected(&receiver, &packet);
                assert!(seen == expected, "{what}: {:?}, {} packets", packet.0, seen.len());
            }
            sender.detach()?;
            receiver.detach()?;
        }
    }
    Ok(())
}

#[test]
fn a_flood_reaches_each_receiver_as_it_accepts() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", ""), ("c", ""), ("d", "")])?;
    let sender = attach(&ringway, "a", &GuestOptions::default());
    let [(_, all), (_, no_tso), .., (_, nothing)] = receivers();
    let mut others = Vec::new();
    let mut sender = sender;
    for (port, accept) in [("b", no_tso), ("c", nothing), ("d", all)] {
        let settled = settle([sender, attach(&ringway, port, &accepting(accept))])?;
        let [first, other] = settled;
        sender = first;
        others.push(other);
    }
    for packet in kinds(sender.mac(), BROADCAST) {
        let last = send(&mut sender, &packet, BROADCAST);
        for receiver in &mut others {
            let seen = receive_before(receiver, sender.mac(), last)?;
            assert!(seen == expected(receiver, &packet), "{:?}: {} packets", packet.0, seen.len());
        }
    }
    Ok(())
}

/// A packet that twelve receivers need cut into 480 segments each: some get all of them, the others
/// none, and what comes behind it everybody.
#[test]
fn a_flood_of_segments_ends() -> Outcome {
    const RECEIVERS: usize = 12;
    let names: Vec<String> = (0..=RECEIVERS).map(|at| format!("g{at}")).collect();
    let ports: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "")).collect();
    let ringway = RingwayProcess::start(&ports)?;
    let without = (Features::OFFERED - Features::GUEST_CSUM).drop_unmet();
    let wide = GuestOptions { queue_size: 512, ..accepting(without) };
    let mut sender = attach(&ringway, "g0", &GuestOptions::default());
    let mut others = Vec::new();
    for name in &names[1..] {
        let [first, other] = settle([sender, attach(&ringway, name, &wide)])?;
        sender = first;
        others.push(other);
    }
    let packet = addressed(&Unsegmented::new(60_000, 125), sender.mac(), BROADCAST);
    let last = send(&mut sender, &packet, BROADCAST);
    let mut reached = 0;
    for (at, receiver) in others.iter_mut().enumerate() {
        let seen = receive_before(receiver, sender.mac(), last)?;
        assert!(seen.is_empty() || reached == at, "{at}: one before it was left out");
        if !seen.is_empty() {
            assert!(seen == expected(receiver, &packet), "{at}: {} packets", seen.len());
            reached += 1;
        }
    }
    // 480 segments and as many bytes as 7 units each, until 4,096 are reached.
    assert_eq!(reached, 9);
    let stats = ringway.port_stats("g0")?;
    assert_eq!(stats.from_guest.dropped("storm"), 1, "{stats:?}");
    Ok(())
}

/// A receiver with 16 buffers gets a packet of 207 segments, in order and each once, unless the
/// machine keeps it from running for longer than a packet waits; then the rest is missing.
#[test]
fn a_packet_of_more_segments_than_the_receiver_has_buffers_waits_for_room() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let sender = attach(&ringway, "a", &GuestOptions::default());
    let without = (Features::OFFERED - Features::GUEST_CSUM).drop_unmet();
    let small = GuestOptions { queue_size: 16, ..accepting(without) };
    let [mut sender, mut receiver] = settle([sender, attach(&ringway, "b", &small)])?;
    let (from, to) = (sender.mac(), receiver.mac());
    let packet = addressed(&Unsegmented::new(60_000, 290), from, to);
    let expected = expected(&receiver, &packet);
    assert_eq!(expected.len(), 207);
    for _ in 0..ATTEMPTS {
        let last = send(&mut sender, &packet, to);
        let seen = receive_before(&mut receiver, from, last)?;
        assert!(expected.starts_with(&seen), "not the first {} segments", seen.len());
        if seen.len() == expected.len() {
            return Ok(());
        }
    }
    Err("never were all segments received".into())
}

/// A packet that is not what its header says cannot be cut: it is dropped and counted, and nothing
/// else suffers.
#[test]
fn a_packet_that_cannot_be_completed_is_counted() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let sender = attach(&ringway, "a", &GuestOptions::default());
    let receiver = attach(&ringway, "b", &accepting(Features::VERSION_1));
    let [mut sender, mut receiver] = settle([sender, receiver])?;
    let (from, to) = (sender.mac(), receiver.mac());
    let good = addressed(&Unsegmented::new(20_000, 1448), from, to);
    let lies = [
        NetHeader { csum_start: 14, ..good.0 },
        NetHeader { gso_size: 1, ..good.0 },
        NetHeader { gso_type: 4, ..good.0 },
    ];
    for header in lies {
        let last = send(&mut sender, &(header, good.1.clone()), to);
        assert_eq!(receive_before(&mut receiver, from, last)?, []);
    }
    let last = send(&mut sender, &good, to);
    assert!(receive_before(&mut receiver, from, last)? == expected(&receiver, &good));
    let stats = ringway.port_stats("b")?;
    assert_eq!(stats.to_guest.dropped("offload"), lies.len() as u64, "{stats:?}");
    Ok(())
}
