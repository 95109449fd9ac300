//! A guest whose virtual machine monitor is replaced in place: it moves between two ports of one
//! ringway, there and back, and keeps its MAC address. Its packets are numbered.
//!
//! How: the guest is memory with two split rings that are written by hand. The second front-end
//! connects while the first one serves it, and gets its memory when that one has stopped its rings.

mod common;

use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use common::{Ringway, wait_for};
use ringway_testkit::{Answer, AnyUserGuest, GuestOptions, QUEUE_SIZE, REGIONS, RawFrontEnd, pair};
use ringway_virtq::{Format, SharedSlice};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

const GET_FEATURES: u32 = 1;
const GET_VRING_BASE: u32 = 11;

/// There and back, so often.
const ROUNDS: usize = 5;
/// Packets of each direction between two moves: rings wrap.
const PACKETS: u64 = 20;

/// Where a ring is, and its parts (`RawFrontEnd::addresses`).
const RING_LEN: usize = 0x1000;
const USED: usize = 0x400;
const AVAILABLE: usize = 0x800;
const WRITE: u16 = 2;

const SIZE: u16 = 16;
const _: () = assert!(SIZE as u32 == QUEUE_SIZE);
const BUFFER_LEN: usize = 2048;
const HEADER_LEN: usize = 12;
const FRAME_LEN: usize = 64;
const NUMBER_AT: usize = 14;
/// `TEST`: for experiments on one network.
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

fn frame(to: [u8; 6], from: [u8; 6], number: u64) -> Vec<u8> {
    let mut frame = [&to[..], &from[..], &ETHER_TYPE, &number.to_le_bytes()].concat();
    frame.resize(FRAME_LEN, 0);
    frame
}

fn number(frame: &[u8]) -> u64 {
    let bytes = frame[NUMBER_AT..NUMBER_AT + 8].try_into().expect("eight bytes");
    u64::from_le_bytes(bytes)
}

/// The guest, and the front-end that serves it now.
struct Guest {
    front_end: RawFrontEnd,
    mac: [u8; 6],
    /// Buffers that it has seen used, of each ring.
    seen: [u16; 2],
    sent: u64,
}

impl Guest {
    fn ring(&self, index: usize) -> SharedSlice {
        self.front_end.memory.region(0).split_at(index * RING_LEN).1
    }

    /// A buffer in that slot of a ring, behind those of the ring before.
    fn offer(&self, index: usize, slot: u16, len: usize) {
        let ring = self.ring(index);
        let (at, slot_at) = (ring.load_u16(AVAILABLE + 2), usize::from(slot));
        let buffer = (usize::from(SIZE) * index + slot_at) * BUFFER_LEN;
        ring.store_u64(16 * slot_at, REGIONS[1].0 + buffer as u64);
        ring.store_u32(16 * slot_at + 8, u32::try_from(len).expect("small"));
        ring.store_u16(16 * slot_at + 12, if index == 0 { WRITE } else { 0 });
        ring.store_u16(AVAILABLE + 4 + 2 * usize::from(at % SIZE), slot);
        fence(Ordering::SeqCst);
        ring.store_u16(AVAILABLE + 2, at.wrapping_add(1));
        fence(Ordering::SeqCst);
        rustix::io::write(&self.front_end.kicks[index], &1u64.to_ne_bytes()).expect("an eventfd");
    }

    /// Buffers of a ring that were used, by their slots.
    fn used(&mut self, index: usize) -> Vec<u16> {
        let ring = self.ring(index);
        let now = ring.load_u16(USED + 2);
        fence(Ordering::SeqCst);
        let mut slots = Vec::new();
        while self.seen[index] != now {
            let at = USED + 4 + 8 * usize::from(self.seen[index] % SIZE);
            slots.push(u16::try_from(ring.load_u32(at)).expect("a slot"));
            self.seen[index] = self.seen[index].wrapping_add(1);
        }
        slots
    }

    /// The packets that have come, in their order; their buffers are posted again.
    fn receive(&mut self) -> Vec<Vec<u8>> {
        let slots = self.used(0);
        let memory = self.front_end.memory.region(1);
        let read = |slot: &u16| {
            let mut bytes = vec![0; HEADER_LEN + FRAME_LEN];
            memory.read(usize::from(*slot) * BUFFER_LEN, &mut bytes);
            bytes.split_off(HEADER_LEN)
        };
        let frames = slots.iter().map(read).collect();
        slots.into_iter().for_each(|slot| self.offer(0, slot, BUFFER_LEN));
        frames
    }

    /// Sends a packet, and waits until its buffer is used.
    fn send(&mut self, frame: &[u8]) {
        let slot = u16::try_from(self.sent % u64::from(SIZE)).expect("small");
        let buffer = (usize::from(SIZE) + usize::from(slot)) * BUFFER_LEN;
        self.front_end.memory.region(1).write(buffer, &[&[0; HEADER_LEN], frame].concat());
        self.offer(1, slot, HEADER_LEN + frame.len());
        self.sent += 1;
        wait_for("the transmitq", || (self.used(1) == [slot]).then_some(()));
    }

    /// The front-end stops, and the other one takes its place with the guest's memory.
    fn move_to(&mut self, mut next: RawFrontEnd) -> RawFrontEnd {
        for index in 0..2 {
            let base = self.front_end.request(GET_VRING_BASE, &pair(index, 0), &[]);
            assert!(matches!(base, Ok(Answer::Number(_))), "{base:?}");
        }
        std::mem::swap(&mut self.front_end.memory, &mut next.memory);
        next.bring_up(Format::Split).expect("a device");
        std::mem::replace(&mut self.front_end, next)
    }
}

/// All that each of both sends comes, once and in order.
fn exchange(guest: &mut Guest, peer: &mut AnyUserGuest, next: &mut u64) {
    let macs = [guest.mac, peer.mac()];
    for _ in 0..PACKETS {
        guest.send(&frame(macs[1], macs[0], *next));
        let (_, bytes) = wait_for("the peer", || peer.receive().expect("a device"));
        assert_eq!(number(&bytes), *next);
        let _ = peer.send(&frame(macs[0], macs[1], *next)).expect("a device");
        peer.flush();
        let came = wait_for("the guest", || Some(guest.receive()).filter(|came| !came.is_empty()));
        assert_eq!(came.iter().map(|it| number(it)).collect::<Vec<_>>(), [*next]);
        *next += 1;
    }
}

/// The MAC address that a port gives to its guest.
fn mac_of(ringway: &Ringway, port: &str) -> [u8; 6] {
    let stats: Value = serde_json::from_str(&ringway.told(&["stats", "--json"])).expect("JSON");
    let ports = stats["ports"].as_array().expect("ports");
    let port = ports.iter().find(|it| it["name"] == port).expect("that port");
    let text = port["mac"].as_str().expect("an address");
    let bytes = text.split(':').map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal"));
    bytes.collect::<Vec<_>>().try_into().expect("six bytes")
}

fn connect(directory: &Path, port: &str) -> RawFrontEnd {
    let mut front_end =
        RawFrontEnd::connect(&directory.join(format!("{port}.sock"))).expect("it listens");
    let answer = front_end.request(GET_FEATURES, &[], &[]);
    assert!(matches!(answer, Ok(Answer::Number(_))), "{answer:?}");
    front_end
}

#[test]
fn a_guest_moves_between_two_ports_of_one_ringway() {
    let directory = tempfile::tempdir().expect("a directory");
    let ports = ["old=vm:old.sock", "new=vm:new.sock", "peer=vm:peer.sock"];
    let ringway = Ringway::run(directory.path(), &ports.map(|port| ["--port", port]).concat());
    let mac = mac_of(&ringway, "old");
    let socket = directory.path().join("peer.sock");
    let mut peer = AnyUserGuest::attach(&socket, &GuestOptions::default()).expect("a guest");
    let mut front_end = connect(directory.path(), "old");
    front_end.bring_up(Format::Split).expect("a device");
    let mut guest = Guest { front_end, mac, seen: [0; 2], sent: 0 };
    (0..SIZE).for_each(|slot| guest.offer(0, slot, BUFFER_LEN));
    let mut next = 0;
    exchange(&mut guest, &mut peer, &mut next);
    for move_number in 0..2 * ROUNDS {
        let to = ["new", "old"][move_number % 2];
        // The second one is there, and has no rings yet.
        let second = connect(directory.path(), to);
        exchange(&mut guest, &mut peer, &mut next);
        if move_number % 3 == 2 {
            kill_process(ringway.data_plane(), Signal::KILL).expect("it runs");
            exchange(&mut guest, &mut peer, &mut next);
        }
        let first = guest.move_to(second);
        exchange(&mut guest, &mut peer, &mut next);
        if move_number % 3 == 1 {
            // While both are there, and after the first one has gone.
            ringway.told(&["upgrade"]);
            exchange(&mut guest, &mut peer, &mut next);
        }
        drop(first);
        exchange(&mut guest, &mut peer, &mut next);
        assert_eq!(ringway.state(to).as_deref(), Some("running"));
    }
}
