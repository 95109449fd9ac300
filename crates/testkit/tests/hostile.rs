//! A hostile guest beside good ones: whatever it writes into its rings, ringway goes on, the
//! others lose nothing, and statistics show what was stopped and why.
//!
//! Each test starts its own `ringway run`; see `RingwayProcess` for where the binary comes from.

use std::thread;
use std::time::{Duration, Instant};

use ringway_net::{Features, HEADER_LEN, NetHeader};
use ringway_testkit::beside::{
    Outcome, QUEUE_NAMES, SHOWN_LIMIT, accepting, beside_good_guests, broken_queues,
    wait_for_broken,
};
use ringway_testkit::hostile::{RawDescriptor, WRITE};
use ringway_testkit::{HostileGuest, RingwayProcess, Rng, Scramble};

/// The descriptors of each way to break a ring; each must stop that queue, and only that.
fn offences(guest: &HostileGuest) -> Vec<(&'static str, usize, Vec<RawDescriptor>)> {
    let inside = guest.scratch().device_address;
    let readable = RawDescriptor { address: inside, len: 100, id: 0, flags: 0 };
    let writable = RawDescriptor { flags: WRITE, ..readable };
    let (start, len) = guest.memory().ranges()[0];
    vec![
        ("outside memory", 1, vec![RawDescriptor { address: 0xdead_0000_0000, ..readable }]),
        ("over the end", 1, vec![RawDescriptor { address: start + len - 50, ..readable }]),
        ("overflow", 1, vec![RawDescriptor { address: u64::MAX - 50, ..readable }]),
        ("length zero", 1, vec![RawDescriptor { len: 0, ..readable }]),
        ("readable after writable", 2, vec![writable, readable]),
        ("no room for the header", 1, vec![RawDescriptor { len: 11, ..readable }]),
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

/// Packets that make no sense in a ring that does: dropped and counted, and the queue goes on.
#[test]
fn malformed_packets_are_counted_and_break_nothing() -> Outcome {
    let header_len = u32::try_from(HEADER_LEN).unwrap_or(0);
    let good = NetHeader::default();
    let cases = [
        ("only a header", good, header_len),
        ("shorter than an Ethernet header", good, header_len + 13),
        ("unknown segmentation", NetHeader { gso_type: 99, gso_size: 100, ..good }, 1000),
        ("segments of nothing", NetHeader { gso_type: 1, flags: 1, ..good }, 1000),
        ("checksum outside", NetHeader { flags: 1, csum_start: 2000, ..good }, 1000),
        ("checksum over the end", NetHeader { flags: 1, csum_start: 987, ..good }, 1000),
    ];
    beside_good_guests(false, |ringway| {
        for format in [Features::empty(), Features::RING_PACKED] {
            let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
            for (name, header, len) in cases {
                let before = malformed(ringway, "h")?;
                let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
                guest.scratch().memory.write(0, &header.encode());
                let address = guest.scratch().device_address;
                guest.offer(1, &[RawDescriptor { address, len, id: 0, flags: 0 }]);
                let deadline = Instant::now() + SHOWN_LIMIT;
                while malformed(ringway, "h")? == before {
                    assert!(Instant::now() < deadline, "{name}: not counted");
                    thread::sleep(Duration::from_millis(10));
                }
                assert_eq!(malformed(ringway, "h")?, before + 1, "{name}");
                assert_eq!(broken_queues(ringway, "h")?, [""; 0], "{name}");
            }
        }
        Ok(())
    })
}

fn malformed(ringway: &RingwayProcess, port: &str) -> Result<u64, std::io::Error> {
    ringway.port_stats(port).map(|stats| stats.from_guest.dropped("malformed"))
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

/// Memory that vanishes under a running ring: touching it would raise SIGBUS.
#[test]
fn memory_that_is_taken_away_harms_only_its_guest() -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in [Features::empty(), Features::RING_PACKED] {
            let accept = Features::OFFERED.difference(Features::RING_PACKED) | format;
            let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
            guest.memory().truncate()?;
            // Once is enough: ringway looks into the ring that is gone, and disconnects the guest
            // although it never hears of it again.
            guest.queue(1).kick();
            let deadline = Instant::now() + SHOWN_LIMIT;
            while ringway.port_stats("h")?.connected {
                assert!(Instant::now() < deadline, "ringway does not notice");
                thread::sleep(Duration::from_millis(1));
            }
        }
        let line = "the front-end took away memory that it had shared";
        assert_eq!(ringway.log().matches(line).count(), 2, "{}", ringway.log());
        Ok(())
    })
}

/// An fd that was made blocking after it had been sent, and is full: a plain write to it would wait
/// for ever, and with it all guests of that worker.
#[test]
fn a_front_end_that_blocks_calls_is_disconnected_and_has_to_wait() -> Outcome {
    let line = "blocked a notification fd and filled it";
    beside_good_guests(false, |ringway| {
        let accept = Features::OFFERED.difference(Features::RING_PACKED | Features::EVENT_IDX);
        let mut since = Instant::now();
        // The second one goes by itself before it can be let go of.
        for (round, stays) in [(1, true), (2, false)] {
            // It can connect at once; this is how long it waits for the first answer.
            let guest = HostileGuest::attach(&ringway.socket("h"), &accepting(accept))?;
            let waited = since.elapsed();
            assert!(round == 1 || waited > Duration::from_secs(2), "only {waited:?}");
            let address = guest.scratch().device_address;
            guest.queue(1).block_calls()?;
            guest.offer(1, &[RawDescriptor { address, len: 100, id: 0, flags: 0 }]);
            let deadline = Instant::now() + SHOWN_LIMIT;
            // The packet is used, and the guest is called about it.
            while guest.queue(1).device_word() == 0 {
                assert!(Instant::now() < deadline, "round {round}: not used");
            }
            since = Instant::now();
            let guest = Some(guest).filter(|_| stays);
            while ringway.log().matches(line).count() < round {
                assert!(Instant::now() < deadline, "round {round}: ringway does not notice");
                thread::sleep(Duration::from_millis(1));
            }
            println!("waited {waited:?}, let go of in {:?}", since.elapsed());
            let error = ringway.port_stats("h")?.error.unwrap_or_default();
            assert!(error.contains(line), "{error}");
            drop(guest);
        }
        assert_eq!(ringway.log().matches(line).count(), 2, "{}", ringway.log());
        Ok(())
    })
}
