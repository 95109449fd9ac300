//! A front-end of single messages that copies its guest's memory.
//!
//! How: its guest has posted all of its buffers and stores nothing more, so that each page that
//! changes is the device's doing.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringway_testkit::beside::{Outcome, SHOWN_LIMIT};
use ringway_testkit::{
    Answer, QUEUE_SIZE, RAW_FEATURES, REGIONS, RawFrontEnd, RingwayProcess, pair,
};
use ringway_virtq::Format;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, write};

pub const SET_FEATURES: u32 = 2;
pub const SET_LOG_BASE: u32 = 6;
pub const SET_LOG_FD: u32 = 7;
const SET_VRING_ADDR: u32 = 9;
pub const GET_VRING_BASE: u32 = 11;
pub const ADD_MEM_REG: u32 = 37;
pub const REM_MEM_REG: u32 = 38;
pub const SET_STATUS: u32 = 39;
pub const GET_STATUS: u32 = 40;

pub const LOG_ALL: u64 = 1 << 26;
pub const PAGE: usize = 4096;
/// Bytes of a log that ends with the last page of the memory.
pub const LOG_LEN: u64 = (REGIONS[1].0 + REGIONS[1].1 - 1) / (8 * PAGE as u64) + 1;

/// Bytes between two rings, and where the available ring of one is (`RawFrontEnd::addresses`).
const RING_LEN: usize = 0x1000;
const AVAILABLE_AT: usize = 0x800;
const USED_AT: usize = 0x400;
/// Where a packet to be sent is, and its bytes with the header.
const PACKET_AT: usize = 0x4_0000;
const PACKET_LEN: usize = HEADER_LEN + 1000;
const HEADER_LEN: usize = 12;
/// Bytes of a receive buffer, which begins so far in front of a page.
const BUFFER_LEN: u32 = 1500;
const IN_FRONT: usize = 500;

pub fn log_file(len: u64) -> Result<OwnedFd, std::io::Error> {
    let file = memfd_create("log", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len)?;
    Ok(file)
}

/// A front-end whose guest has posted all buffers of its receiveq.
pub fn receiver(ringway: &RingwayProcess, port: &str) -> Result<RawFrontEnd, std::io::Error> {
    let mut front_end = RawFrontEnd::connect(&ringway.socket(port))?;
    let (rings, data) = (front_end.memory.region(0), REGIONS[1].0);
    let mut available = vec![0, 0, QUEUE_SIZE as u8, 0];
    for id in 0..QUEUE_SIZE as usize {
        let address = data + (PAGE * (2 * id + 1) - IN_FRONT) as u64;
        let descriptor = [&address.to_le_bytes()[..], &BUFFER_LEN.to_le_bytes(), &[2, 0, 0, 0]];
        rings.write(16 * id, &descriptor.concat());
        available.extend([id as u8, 0]);
    }
    rings.write(AVAILABLE_AT, &available);
    front_end.bring_up(Format::Split)?;
    Ok(front_end)
}

/// Sends packet number `number` on the transmitq of another front-end, and waits until the first
/// one has so many.
pub fn send(
    ringway: &RingwayProcess,
    front_end: &RawFrontEnd,
    number: u8,
    arrives: bool,
) -> Outcome {
    let before = ringway.port_stats("a")?.to_guest;
    let memory = front_end.memory.region(0);
    let bytes: Vec<u8> = (0..PACKET_LEN).map(|at| (at as u8) | 1).collect();
    memory.write(PACKET_AT + 12, &bytes[12..]);
    let address = REGIONS[0].0 + PACKET_AT as u64;
    let descriptor = [&address.to_le_bytes()[..], &(PACKET_LEN as u32).to_le_bytes(), &[0; 4]];
    memory.write(RING_LEN, &descriptor.concat());
    memory.write(RING_LEN + AVAILABLE_AT, &[0, 0, number, 0]);
    write(&front_end.kicks[1], &1_u64.to_ne_bytes())?;
    let deadline = Instant::now() + SHOWN_LIMIT;
    loop {
        let now = ringway.port_stats("a")?.to_guest;
        if now.packets > before.packets {
            return if arrives { Ok(()) } else { Err("a ring that waits was written".into()) };
        }
        if !arrives && ringway.port_stats("b")?.from_guest.packets >= u64::from(number) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("nothing came: {}", ringway.log()).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends one more packet to that address, once the one before has been taken.
pub fn send_more(front_end: &RawFrontEnd, mac: &str) -> Outcome {
    let mut frame = [1; PACKET_LEN - HEADER_LEN];
    for (byte, text) in frame.iter_mut().zip(mac.split(':')) {
        *byte = u8::from_str_radix(text, 16)?;
    }
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
    send_frame(front_end, &frame)
}

/// Sends that frame, once the one before has been taken.
pub fn send_frame(front_end: &RawFrontEnd, frame: &[u8]) -> Outcome {
    let memory = front_end.memory.region(0);
    memory.write(PACKET_AT, &[0; HEADER_LEN]);
    memory.write(PACKET_AT + HEADER_LEN, frame);
    let (address, len) = (REGIONS[0].0 + PACKET_AT as u64, (HEADER_LEN + frame.len()) as u32);
    let descriptor = [&address.to_le_bytes()[..], &len.to_le_bytes(), &[0; 4]];
    memory.write(RING_LEN, &descriptor.concat());
    let next = memory.load_u16(RING_LEN + USED_AT + 2).wrapping_add(1);
    memory.store_u16(RING_LEN + AVAILABLE_AT + 2, next);
    write(&front_end.kicks[1], &1_u64.to_ne_bytes())?;
    Ok(())
}

/// The guest posts again all buffers that it has got back.
pub fn post_again(front_end: &RawFrontEnd) {
    let memory = front_end.memory.region(0);
    let next = memory.load_u16(USED_AT + 2).wrapping_add(QUEUE_SIZE as u16);
    memory.store_u16(AVAILABLE_AT + 2, next);
}

/// Pages of the guest, as they are.
pub fn memory(front_end: &RawFrontEnd) -> Vec<(u64, Vec<u8>)> {
    let mut pages = Vec::new();
    for (at, (address, len)) in REGIONS.into_iter().enumerate() {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        front_end.memory.region(at).read(0, &mut bytes);
        let first = address / PAGE as u64;
        pages.extend((first..).zip(bytes.chunks(PAGE).map(<[u8]>::to_vec)));
    }
    pages
}

pub fn marked(log: &OwnedFd) -> Result<BTreeSet<u64>, std::io::Error> {
    let mut bits = vec![0; usize::try_from(LOG_LEN).unwrap_or(0)];
    pread(log, &mut bits, 0)?;
    let is_set = |page: &u64| {
        let byte = usize::try_from(page / 8).ok().and_then(|at| bits.get(at));
        byte.is_some_and(|byte| byte >> (page % 8) & 1 != 0)
    };
    Ok((0..8 * LOG_LEN).filter(is_set).collect())
}

/// `SET_LOG_BASE`, which is always answered by its own payload.
pub fn set_log(front_end: &mut RawFrontEnd, log: Option<&OwnedFd>, words: [u64; 2]) -> Outcome {
    let payload = words.map(u64::to_le_bytes).concat();
    let fds: Vec<_> = log.iter().map(|log| log.as_fd()).collect();
    let answer = front_end.request(SET_LOG_BASE, &payload, &fds)?;
    assert_eq!(answer, Answer::Bytes(payload));
    Ok(())
}

pub fn set_features(front_end: &mut RawFrontEnd, more: u64) -> Outcome {
    let features = (RAW_FEATURES | more).to_le_bytes();
    assert!(front_end.request(SET_FEATURES, &features, &[])?.is_done());
    assert_eq!(front_end.request(GET_STATUS, &[], &[])?, Answer::Number(0));
    for index in 0..2 {
        let mut addresses = front_end.addresses(index);
        addresses[4] = u8::from(more != 0);
        let used = REGIONS[0].0 + u64::from(index) * 0x1000 + 0x400;
        addresses[32..40].copy_from_slice(&used.to_le_bytes());
        assert!(front_end.request(SET_VRING_ADDR, &addresses, &[])?.is_done());
    }
    Ok(())
}

/// The positions of both rings, as they are told: 0 to `queues`.
pub fn stop(front_end: &mut RawFrontEnd) -> Result<Vec<Answer>, std::io::Error> {
    (0..2).map(|index| front_end.request(GET_VRING_BASE, &pair(index, 0), &[])).collect()
}

pub fn queues(ringway: &RingwayProcess) -> Result<usize, std::io::Error> {
    Ok(ringway.port_stats("a")?.queues.len())
}

pub fn marked_from(log: &OwnedFd, offset: u64) -> Result<BTreeSet<u64>, std::io::Error> {
    let mut bits = vec![0; usize::try_from(LOG_LEN).unwrap_or(0)];
    pread(log, &mut bits, offset)?;
    let copy = log_file(LOG_LEN)?;
    rustix::io::pwrite(&copy, &bits, 0)?;
    marked(&copy)
}
