//! Reading a tap packet by packet and several at once: the same packets in the same order, and none
//! is overlooked. Each test runs in a network namespace of its own.
#![allow(clippy::cast_possible_truncation)]

mod common;

use common::rig::{QUEUE_SIZE, Rig};
use common::wire::{QUIET, Wire, frame};
use common::{gathered, in_namespace, shared, wait_readable, wire};
use ringway_host::{Tap, TapOptions};
use ringway_net::{NetHeader, PacketSource, TapCalls};
use ringway_testkit::Rng;

/// Of a queue of the kernel's that no program reads, in packets, with room to spare.
const BURST_MAX: u64 = 200;

fn open(mtu: u16, reads: TapCalls) -> Option<Tap> {
    let options = TapOptions { name: "tap0".to_owned(), mtu: Some(mtu) };
    let mut tap = Tap::open(&options).expect("a tap");
    let is_as_asked = tap.set_reads(reads).is_some() == (reads == TapCalls::IoUring);
    if !is_as_asked {
        println!("skipped: no io_uring here");
    }
    is_as_asked.then_some(tap)
}

/// The next packet, straight into a receiver's buffers (0), or lent (1), or both (2).
fn next(tap: &mut Tap, way: u64) -> Option<Vec<u8>> {
    let room = [shared(&[0; 9100])];
    if way == 2 {
        tap.peek()?;
    }
    if way != 1 {
        let (header, len) = tap.read_into(&room).expect("readable")?;
        assert_eq!(header, NetHeader::default());
        return Some(gathered(&[room[0].split_at(len as usize).0]));
    }
    let packet = tap.peek()?;
    assert_eq!(*packet.header, NetHeader::default());
    let bytes = gathered(packet.payload);
    tap.pop();
    Some(bytes)
}

#[test]
fn the_same_packets_come_in_the_same_order() {
    for reads in [TapCalls::Plain, TapCalls::IoUring] {
        in_namespace(move || {
            let Some(mut tap) = open(9000, reads) else { return };
            let (wire, mut random) = (Wire::new("tap0", QUIET), Rng::new(1));
            let mut all = 0;
            for _ in 0..60 {
                let one_in = 1 + random.below(100);
                let len = |random: &mut Rng| match random.below(one_in) {
                    0 => 3000 + random.below(6000),
                    _ => 14 + random.below(1500),
                };
                let count = 1 + random.below(BURST_MAX);
                let frames: Vec<_> = (0..count)
                    .map(|_| frame(len(&mut random) as usize, random.below(256) as u8))
                    .collect();
                frames.iter().for_each(|frame| wire.send(frame));
                wait_readable(&tap);
                for expected in &frames {
                    let got = next(&mut tap, random.below(3)).expect("a packet");
                    assert!(got == *expected, "another packet");
                }
                assert!(next(&mut tap, random.below(3)).is_none());
                all += count;
            }
            assert_eq!(tap.from_tap.packets, all);
            assert_eq!(tap.from_tap.drops.iter().sum::<u64>(), 0);
        });
    }
}

#[test]
fn what_was_read_with_others_and_has_no_room_is_lent() {
    in_namespace(|| {
        let Some(mut tap) = open(1500, TapCalls::IoUring) else { return };
        let wire = Wire::new("tap0", QUIET);
        wire::set_mtu("tap0", 4000);
        let lens = [60, 60, 1000, 4014, 61, 60, 60];
        (0..).zip(lens).for_each(|(seed, len)| wire.send(&frame(len, seed)));
        wait_readable(&tap);
        let room = [shared(&[0; 1522])];
        for (seed, len) in (0..).zip(lens) {
            let read = tap.read_into(&room).expect("readable");
            if len > 1522 {
                assert_eq!((read, tap.is_lending()), (None, true));
                assert_eq!(tap.mtu(), Some(4000), "looked up anew");
                assert_eq!(tap.read_into(&room).expect("still too long"), None);
                assert_eq!(gathered(tap.peek().expect("the long one").payload), frame(len, seed));
                tap.pop();
                continue;
            }
            assert_eq!(read, Some((NetHeader::default(), len as u32)));
            assert_eq!(gathered(&[room[0].split_at(len).0]), frame(len, seed));
        }
        assert_eq!(tap.read_into(&room).expect("readable"), None);
        assert_eq!(tap.from_tap.packets, lens.len() as u64);
    });
}

/// A guest that has no room when packets come, which are read ahead or not by then.
#[test]
fn no_packet_is_overlooked_while_a_guest_has_no_room() {
    for reads in [TapCalls::Plain, TapCalls::IoUring] {
        in_namespace(move || {
            let Some(tap) = open(1500, reads) else { return };
            let wire = Wire::new("tap0", QUIET);
            let rig = Rig::start(1);
            rig.attach_tap(0, tap);
            let mut guest = rig.attach(1, 1);
            let size = u64::from(QUEUE_SIZE);
            let mut numbers = 0..;
            let mut seed = move || numbers.next().map_or(0, |number: u32| number as u8);
            let mut expected = 0..;
            let mut random = Rng::new(2);
            for _ in 0..20 {
                let early = size + 1 + random.below(60);
                guest.receiveq(0).post_all();
                guest.receiveq(0).kick();
                (0..early).for_each(|_| wire.send(&frame(60, seed())));
                let mut got = guest.receiveq(0).receive(QUEUE_SIZE);
                // One more says that there is something while the worker waits for room.
                (early..2 * size).for_each(|_| wire.send(&frame(60, seed())));
                guest.receiveq(0).post_all();
                guest.receiveq(0).kick();
                got.extend(guest.receiveq(0).receive(QUEUE_SIZE));
                for packet in got {
                    let number = expected.next().map_or(0, |number: u32| number as u8);
                    assert!(packet == frame(60, number), "another packet than {number}");
                }
            }
            let effort = rig.effort();
            assert_eq!(effort.packets, 20 * 2 * size);
            // A wake-up is two of them, and how many there are is up to the scheduler.
            let reads_made = effort.system_calls.saturating_sub(2 * effort.wakeups);
            let is_at_once = reads_made < effort.packets / 2;
            assert_eq!(is_at_once, reads == TapCalls::IoUring, "{effort:?}");
            rig.stop();
        });
    }
}
