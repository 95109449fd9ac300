//! One ring, from both sides.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use ringway_net::NetHeader;
use ringway_testkit::Rng;

use super::*;
use crate::journal::Journal;

fn byte_at(at: usize, number: u16) -> u8 {
    (at + usize::from(number)).to_le_bytes()[0]
}

fn put(producer: &mut Producer, number: u16, len: usize) -> bool {
    let mut bytes: Vec<u8> = (0..len).map(|at| byte_at(at, number)).collect();
    let (mid, header) = (len / 3, NetHeader { csum_start: number, ..NetHeader::default() });
    // SAFETY: the bytes live until the end of this function and are used through this only.
    let whole = unsafe { SharedSlice::new(bytes.as_mut_ptr(), len) };
    let payload = [whole.split_at(mid).0, whole.split_at(mid).1];
    let packet = Packet { header: &header, payload: &payload, len: u32::try_from(len).unwrap() };
    producer.put(number, number.to_le_bytes()[0], number ^ 1, &packet)
}

fn check(got: &HandedOver, number: u16, len: usize) {
    assert_eq!((got.entry.port, got.entry.pair, got.entry.len as usize), (number, number ^ 1, len));
    assert_eq!(
        (got.entry.header.csum_start, got.entry.generation),
        (number, number.to_le_bytes()[0])
    );
    let mut bytes = vec![0; len];
    got.payload[0].read(0, &mut bytes);
    let is_good = |(at, &byte): (usize, &u8)| byte == byte_at(at, number);
    assert!(bytes.iter().enumerate().all(is_good), "packet {number}");
}

#[test]
fn nothing_is_seen_before_it_is_published() {
    let (mut producer, mut consumer) = ring();
    assert!(put(&mut producer, 1, 60));
    assert!(consumer.peek().is_none());
    assert!(producer.publish());
    assert!(!producer.publish());
    check(&consumer.peek().unwrap(), 1, 60);
    consumer.done();
    assert!(consumer.peek().is_none());
}

#[test]
fn is_bounded_in_packets_and_in_bytes() {
    for (len, at_most) in [(60, PACKETS_MAX), (PACKET_LEN_MAX as usize, 15)] {
        let (mut producer, mut consumer) = ring();
        for round in 0..5 {
            let mut count = 0;
            while put(&mut producer, count, len) {
                count += 1;
            }
            assert!(usize::from(count) <= at_most && usize::from(count) + 1 >= at_most);
            assert!(!producer.has_room());
            producer.publish();
            for number in 0..count {
                check(&consumer.peek().unwrap(), number, len);
                consumer.done();
            }
            producer.ask_for_room();
            assert!(consumer.release(), "round {round}");
            assert!(!consumer.release());
            assert!(producer.has_room());
        }
    }
}

#[test]
fn what_is_left_comes_again_and_in_order() {
    let (mut producer, mut consumer) = ring();
    for number in 0..10 {
        assert!(put(&mut producer, number, 100));
    }
    producer.publish();
    for number in 0..10 {
        check(&consumer.peek().unwrap(), number, 100);
        if number % 3 == 0 { consumer.leave() } else { consumer.done() }
    }
    consumer.release();
    assert!(consumer.peek().is_none());
    consumer.offer_again();
    for number in [0, 3, 6, 9] {
        check(&consumer.peek().unwrap(), number, 100);
        consumer.done();
    }
    assert!(consumer.peek().is_none());
    producer.ask_for_room();
    assert!(consumer.release());
}

#[test]
fn one_that_is_left_crowds_the_ring_by_packets_or_bytes() {
    for (len, at_most) in [(60, PACKETS_MAX / 2), (60_000, 10)] {
        let (mut producer, mut consumer) = ring();
        let mut count = 0;
        while put(&mut producer, count, len) {
            count += 1;
        }
        producer.publish();
        consumer.peek();
        consumer.leave();
        let mut looked_at = 1;
        while !consumer.is_crowded() {
            assert!(consumer.peek().is_some());
            consumer.done();
            looked_at += 1;
        }
        assert!(looked_at <= at_most + 1, "{looked_at}");
        consumer.offer_again();
        consumer.peek();
        consumer.done();
        while consumer.peek().is_some() {
            consumer.done();
        }
        consumer.release();
        assert!(!consumer.is_crowded());
    }
}

#[test]
fn two_threads_lose_nothing() {
    const COUNT: u16 = 20_000;
    let (mut producer, mut consumer) = ring();
    let len = |number: u16| 14 + usize::from(number) * 7 % 9000;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for number in 0..COUNT {
                while !put(&mut producer, number, len(number)) {
                    producer.publish();
                    std::thread::yield_now();
                }
                if number % 5 == 0 {
                    producer.publish();
                }
            }
            producer.publish();
        });
        for number in 0..COUNT {
            let got = loop {
                match consumer.peek() {
                    Some(got) => break got,
                    None => std::thread::yield_now(),
                }
            };
            check(&got, number, len(number));
            consumer.done();
            consumer.release();
        }
    });
    assert!(consumer.peek().is_none());
}

/// Both sides of the ring that is left in a journal.
fn left(journal: &OwnedFd) -> (Producer, Consumer) {
    let journal = Arc::new(Journal::open(journal).unwrap());
    let memory = || Some(RingMemory::in_journal(&journal, 0, 1).unwrap());
    let (mut producer, mut consumer) = ring();
    producer.move_to(memory());
    consumer.move_to(memory());
    (producer, consumer)
}

/// A packet that was staged is there, published or not, and one that was delivered is not, whatever
/// was left in front of it.
#[test]
fn the_next_data_plane_finds_what_was_staged_and_not_delivered() {
    let mut rng = Rng::from_environment("handed_over", 0x3a11);
    for _ in 0..20 {
        let journal = Journal::create(2, 1).unwrap();
        let len = |number: u16| 14 + usize::from(number) * 7 % 9000;
        let (mut missing, mut next) = (BTreeSet::new(), 0);
        for _ in 0..60 {
            let (mut producer, mut consumer) = left(&journal);
            for _ in 0..rng.below(40) {
                if put(&mut producer, next, len(next)) {
                    missing.insert(next);
                    next += 1;
                }
                if rng.one_in(4) {
                    producer.publish();
                }
            }
            for _ in 0..rng.below(40) {
                let Some(got) = consumer.peek() else { break };
                check(&got, got.entry.port, len(got.entry.port));
                if rng.one_in(5) {
                    consumer.leave();
                } else {
                    assert!(missing.remove(&got.entry.port), "{} twice", got.entry.port);
                    consumer.done();
                }
                if rng.one_in(8) {
                    consumer.release();
                    consumer.offer_again();
                }
            }
        }
        let (_, mut consumer) = left(&journal);
        let mut found = BTreeSet::new();
        while let Some(got) = consumer.peek() {
            check(&got, got.entry.port, len(got.entry.port));
            found.insert(got.entry.port);
            consumer.done();
        }
        assert_eq!(found, missing);
    }
}

#[test]
fn a_ring_that_cannot_be_is_empty() {
    let mut rng = Rng::from_environment("no_ring", 0x3a12);
    for _ in 0..500 {
        let journal = Journal::create(2, 1).unwrap();
        let (mut producer, _) = left(&journal);
        for number in 0..30 {
            put(&mut producer, number, 100);
        }
        let opened = Arc::new(Journal::open(&journal).unwrap());
        let memory = opened.hand_over_ring(0, 1).unwrap();
        let places = [PUBLISHED_AT, STAGED_AT, RELEASED_AT];
        let at = match rng.below(3) {
            0 => places[usize::try_from(rng.below(3)).unwrap()],
            // An entry.
            _ => 4096 + 8 * usize::try_from(rng.below(90)).unwrap(),
        };
        memory.store_u64(at, if rng.one_in(2) { rng.bits() } else { rng.below(1 << 24) });
        let (mut producer, mut consumer) = left(&journal);
        let mut count = 0;
        while let Some(got) = consumer.peek() {
            assert!(
                got.payload[0].len() == got.entry.len as usize && got.entry.len <= PACKET_LEN_MAX
            );
            consumer.done();
            count += 1;
        }
        assert!(count <= 30);
        consumer.release();
        assert!(put(&mut producer, 7, 100));
        producer.publish();
        check(&consumer.peek().unwrap(), 7, 100);
    }
}
