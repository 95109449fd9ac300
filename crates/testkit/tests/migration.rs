//! A front-end that migrates its guest, against the whole program: what is answered, which pages
//! are marked, and what rings do whose log cannot be used.
//!
//! How: one front-end of single messages has buffers posted and stores nothing more, so that each
//! page that changes is the device's doing; another one sends packets.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, beside_good_guests};
use ringway_testkit::{
    Answer, QUEUE_SIZE, RAW_FEATURES, REGIONS, RawFrontEnd, RingwayProcess, pair,
};
use ringway_virtq::Format;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, write};

const SET_FEATURES: u32 = 2;
const SET_LOG_BASE: u32 = 6;
const SET_LOG_FD: u32 = 7;
const SET_VRING_ADDR: u32 = 9;
const GET_VRING_BASE: u32 = 11;
const SET_STATUS: u32 = 39;
const GET_STATUS: u32 = 40;

const LOG_ALL: u64 = 1 << 26;
const PAGE: usize = 4096;
/// Bytes of a log that ends with the last page of the memory.
const LOG_LEN: u64 = (REGIONS[1].0 + REGIONS[1].1 - 1) / (8 * PAGE as u64) + 1;

/// Bytes between two rings, and where the available ring of one is (`RawFrontEnd::addresses`).
const RING_LEN: usize = 0x1000;
const AVAILABLE_AT: usize = 0x800;
/// Where a packet to be sent is, and its bytes with the header.
const PACKET_AT: usize = 0x4_0000;
const PACKET_LEN: usize = 12 + 1000;
/// Bytes of a receive buffer, which begins so far in front of a page.
const BUFFER_LEN: u32 = 1500;
const IN_FRONT: usize = 500;

fn log_file(len: u64) -> Result<OwnedFd, std::io::Error> {
    let file = memfd_create("log", MemfdFlags::CLOEXEC)?;
    ftruncate(&file, len)?;
    Ok(file)
}

/// A front-end whose guest has posted all buffers of its receiveq.
fn receiver(ringway: &RingwayProcess, port: &str) -> Result<RawFrontEnd, std::io::Error> {
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
fn send(ringway: &RingwayProcess, front_end: &RawFrontEnd, number: u8, arrives: bool) -> Outcome {
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

/// Pages of the guest, as they are.
fn memory(front_end: &RawFrontEnd) -> Vec<(u64, Vec<u8>)> {
    let mut pages = Vec::new();
    for (at, (address, len)) in REGIONS.into_iter().enumerate() {
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        front_end.memory.region(at).read(0, &mut bytes);
        let first = address / PAGE as u64;
        pages.extend((first..).zip(bytes.chunks(PAGE).map(<[u8]>::to_vec)));
    }
    pages
}

fn marked(log: &OwnedFd) -> Result<BTreeSet<u64>, std::io::Error> {
    let mut bits = vec![0; usize::try_from(LOG_LEN).unwrap_or(0)];
    pread(log, &mut bits, 0)?;
    let is_set = |page: &u64| {
        let byte = usize::try_from(page / 8).ok().and_then(|at| bits.get(at));
        byte.is_some_and(|byte| byte >> (page % 8) & 1 != 0)
    };
    Ok((0..8 * LOG_LEN).filter(is_set).collect())
}

/// `SET_LOG_BASE`, which is always answered by its own payload.
fn set_log(front_end: &mut RawFrontEnd, log: Option<&OwnedFd>, words: [u64; 2]) -> Outcome {
    let payload = words.map(u64::to_le_bytes).concat();
    let fds: Vec<_> = log.iter().map(|log| log.as_fd()).collect();
    let answer = front_end.request(SET_LOG_BASE, &payload, &fds)?;
    assert_eq!(answer, Answer::Bytes(payload));
    Ok(())
}

fn set_features(front_end: &mut RawFrontEnd, more: u64) -> Outcome {
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
fn stop(front_end: &mut RawFrontEnd) -> Result<Vec<Answer>, std::io::Error> {
    (0..2).map(|index| front_end.request(GET_VRING_BASE, &pair(index, 0), &[])).collect()
}

fn queues(ringway: &RingwayProcess) -> Result<usize, std::io::Error> {
    Ok(ringway.port_stats("a")?.queues.len())
}

#[test]
fn what_is_written_while_a_guest_is_migrated_is_marked() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut front_end, sender) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    send(&ringway, &sender, 1, true)?;
    let first = log_file(LOG_LEN)?;
    set_log(&mut front_end, Some(&first), [LOG_LEN, 0])?;
    set_features(&mut front_end, LOG_ALL)?;
    let mut number = 1;
    // Each round has another log, as of Cloud Hypervisor; the last one is that of the stop.
    let mut log = first;
    for round in 0..4 {
        let before = memory(&front_end);
        for _ in 0..3 {
            number += 1;
            send(&ringway, &sender, number, true)?;
        }
        let next = log_file(LOG_LEN + 33)?;
        if round < 3 {
            set_log(&mut front_end, Some(&next), [LOG_LEN, 33])?;
        } else {
            let bases = stop(&mut front_end)?;
            assert_eq!(bases[0], Answer::Number(u64::from(number) << 32), "{bases:?}");
        }
        let after = memory(&front_end);
        let pairs = before.iter().zip(&after).filter(|(before, after)| before != after);
        let changed: BTreeSet<u64> = pairs.map(|((page, _), _)| *page).collect();
        // The logs behind the first one begin where no page does.
        let all = if round == 0 { marked(&log)? } else { marked_from(&log, 33)? };
        let missing: Vec<_> = changed.difference(&all).collect();
        assert!(changed.len() >= 6 && missing.is_empty(), "{missing:x?} of {changed:x?}");
        assert!(all.difference(&changed).count() <= 16, "{all:x?}");
        log = next;
    }
    assert_eq!(queues(&ringway)?, 0);
    // It does not go on by itself.
    let before = memory(&front_end);
    std::thread::sleep(Duration::from_millis(300));
    write(&front_end.kicks[0], &1_u64.to_ne_bytes())?;
    std::thread::sleep(Duration::from_millis(300));
    assert!(queues(&ringway)? == 0 && memory(&front_end) == before);
    assert!(front_end.request(SET_STATUS, &0_u64.to_le_bytes(), &[])?.is_done());
    Ok(())
}

fn marked_from(log: &OwnedFd, offset: u64) -> Result<BTreeSet<u64>, std::io::Error> {
    let mut bits = vec![0; usize::try_from(LOG_LEN).unwrap_or(0)];
    pread(log, &mut bits, offset)?;
    let copy = log_file(LOG_LEN)?;
    rustix::io::pwrite(&copy, &bits, 0)?;
    marked(&copy)
}

#[test]
fn rings_wait_for_a_log_and_go_on() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut front_end, sender) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    let log = log_file(LOG_LEN)?;
    let device = std::fs::File::open("/dev/zero")?.into();
    let short = log_file(LOG_LEN - 1)?;
    let bad: [(Option<&OwnedFd>, [u64; 2]); 7] = [
        (None, [LOG_LEN, 0]),
        (Some(&log), [0, 0]),
        (Some(&log), [LOG_LEN - 1, 0]),
        (Some(&log), [LOG_LEN, 1]),
        (Some(&log), [LOG_LEN, u64::MAX]),
        (Some(&short), [LOG_LEN, 0]),
        (Some(&device), [LOG_LEN, 0]),
    ];
    let mut number = 0;
    for (fd, words) in bad {
        set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
        set_features(&mut front_end, LOG_ALL)?;
        assert_eq!(queues(&ringway)?, 2);
        set_log(&mut front_end, fd, words)?;
        assert_eq!(queues(&ringway)?, 0, "{words:x?}");
        let waiting = ringway.port_stats("a")?;
        assert_eq!((waiting.state.as_str(), waiting.waits_for_log), ("migrating", true));
        let before = memory(&front_end);
        number += 1;
        send(&ringway, &sender, number, false)?;
        assert!(memory(&front_end) == before, "{words:x?}");
        match number % 2 {
            0 => set_features(&mut front_end, 0)?,
            _ => set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?,
        }
        assert_eq!(queues(&ringway)?, 2, "{words:x?}");
        number += 1;
        send(&ringway, &sender, number, true)?;
        set_features(&mut front_end, 0)?;
        let running = ringway.port_stats("a")?;
        assert_eq!((running.state.as_str(), running.waits_for_log), ("running", false));
    }
    Ok(())
}

#[test]
fn a_log_that_is_taken_away_ends_only_its_own_front_end() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = receiver(ringway, "h")?;
        let log = log_file(LOG_LEN)?;
        set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
        assert!(front_end.request(SET_LOG_FD, &[], &[log.as_fd()])?.is_done());
        set_features(&mut front_end, LOG_ALL)?;
        ftruncate(&log, 0)?;
        // Rings that start mark themselves.
        let _ = stop(&mut front_end)?;
        let mut is_closed = false;
        for index in 0..2 {
            is_closed |= front_end.start_queue(index).is_err();
        }
        let deadline = Instant::now() + SHOWN_LIMIT;
        while !is_closed && Instant::now() < deadline {
            is_closed = front_end.request(GET_STATUS, &[], &[])? == Answer::Closed;
        }
        assert!(is_closed, "{}", ringway.log());
        // Its port rests for three seconds.
        std::thread::sleep(Duration::from_secs(4));
        Ok(())
    })
}

#[test]
fn bit_26_comes_and_goes_under_traffic() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = receiver(ringway, "h")?;
        let log = log_file(LOG_LEN)?;
        for round in 0..500 {
            set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
            set_features(&mut front_end, LOG_ALL)?;
            if round % 10 == 0 {
                set_log(&mut front_end, None, [1, 0])?;
            }
            set_features(&mut front_end, 0)?;
        }
        assert_eq!(ringway.port_stats("h")?.queues.len(), 2);
        Ok(())
    })
}
