//! The checklist of what front-ends have done to back-ends, one test per class: each named after
//! what happens, with the advisory it is known by.
//!
//! Every test runs against a real ringway while two guests exchange verified traffic at other
//! ports; no fd or mapping is left, and the port serves a good guest afterwards
//! (`beside_good_guests` sees to that).

use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use ringway_testkit::beside::{Outcome, beside_good_guests, broken_queues};
use ringway_testkit::{
    Answer, FDS_MAX, Footprint, QUEUE_SIZE, RAW_FEATURES, REGIONS, RawFrontEnd, RingwayProcess,
    Rng, USER_OFFSET, pair, vring_addresses,
};
use ringway_virtq::Format;
use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::pipe;

/// Requests that carry a queue's index in their first 32 bits, with the rest of their payload.
const INDEXED: [(u32, usize); 5] = [(8, 4), (9, 36), (10, 4), (11, 4), (18, 4)];
/// Requests that carry it in the low bits of a number, and an fd.
const INDEXED_FD: [u32; 3] = [12, 13, 14];
/// Highest request number of the protocol, and some.
const CODE_MAX: u32 = 48;
const FORMATS: [Format; 2] = [Format::Split, Format::Packed];

const SET_MEM_TABLE: u32 = 5;
const SET_VRING_NUM: u32 = 8;
const SET_VRING_ADDR: u32 = 9;
const SET_VRING_BASE: u32 = 10;
const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_ENABLE: u32 = 18;
const SET_BACKEND_REQ_FD: u32 = 21;
const ADD_MEM_REG: u32 = 37;

/// Lets a front-end with two running queues do something, once per ring format.
fn row(attack: impl Fn(&mut RawFrontEnd, &RingwayProcess) -> Outcome) -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in FORMATS {
            let mut front_end = running(ringway, format)?;
            attack(&mut front_end, ringway)?;
            assert!(front_end.memory.guards_intact(), "{format:?}: written outside memory");
        }
        Ok(())
    })
}

fn running(ringway: &RingwayProcess, format: Format) -> io::Result<RawFrontEnd> {
    let mut front_end = RawFrontEnd::connect(&ringway.socket("h"))?;
    front_end.bring_up(format)?;
    Ok(front_end)
}

/// The back-end must say no, and must not hang up.
fn refused(front_end: &mut RawFrontEnd, code: u32, payload: &[u8]) -> Outcome {
    refused_with(front_end, code, payload, &[])
}

fn refused_with(
    front_end: &mut RawFrontEnd,
    code: u32,
    payload: &[u8],
    fds: &[BorrowedFd<'_>],
) -> Outcome {
    match front_end.request(code, payload, fds)? {
        Answer::Number(number) if number != 0 => Ok(()),
        answer => Err(format!("request {code} with {payload:?} was answered {answer:?}").into()),
    }
}

fn event() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

// 2a: messages, fds and mappings

#[test]
fn cve_2020_10724_payloads_of_every_length_for_every_message() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = running(ringway, Format::Split)?;
        let mut closed = 0;
        for code in 0..CODE_MAX {
            for len in (0..80).chain([255, 256, 4096]) {
                let fill = u8::try_from((code + len) % 256)?;
                let payload = vec![fill; usize::try_from(len)?];
                if front_end.request(code, &payload, &[])? == Answer::Closed {
                    closed += 1;
                    front_end = RawFrontEnd::connect(&ringway.socket("h"))?;
                }
            }
        }
        assert!(closed < 200, "{closed} requests ended the connection instead of being refused");
        Ok(())
    })
}

#[test]
fn headers_that_lie_about_their_length() -> Outcome {
    row(|front_end, _| {
        for len in [u32::MAX, 0x8000_0000, 1 << 20] {
            let header = [SET_MEM_TABLE, 9, len].map(u32::to_le_bytes).concat();
            if front_end.send(&header, &[]).is_err() {
                break;
            }
        }
        Ok(())
    })
}

#[test]
fn cve_2020_10722_regions_whose_end_overflows() -> Outcome {
    row(|front_end, _| {
        let file = front_end.memory.file().try_clone_to_owned()?;
        let page = 0x1000;
        let lies: [[u64; 4]; 7] = [
            [u64::MAX - page + 1, 2 * page, 0, 0],
            [0, u64::MAX, 0, 0],
            [0, page, u64::MAX - page + 1, u64::MAX - page + 1],
            [0, page, u64::MAX, 0],
            [0, 0, 0, 0],
            [0, u64::MAX - page + 1, 0, 2 * page],
            [0, page, 0, 1 << 40],
        ];
        for words in lies {
            let region: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let fds = [file.as_fd()];
            let table = [&pair(1, 0)[..], &region].concat();
            refused_with(front_end, SET_MEM_TABLE, &table, &fds)?;
            refused_with(front_end, ADD_MEM_REG, &[&[0; 8][..], &region].concat(), &fds)?;
        }
        Ok(())
    })
}

#[test]
fn cve_2020_10723_queue_indexes_whose_low_bits_look_right() -> Outcome {
    row(|front_end, ringway| {
        for index in [0x1_0000, 0x1_0001, 0x8000_0000] {
            indexes_are_refused(front_end, index)?;
        }
        assert_eq!(broken_queues(ringway, "h")?, [""; 0]);
        Ok(())
    })
}

#[test]
fn cve_2011_2512_queue_indexes_that_do_not_exist() -> Outcome {
    row(|front_end, _| {
        for index in [3, 255, 0xffff, u32::MAX] {
            indexes_are_refused(front_end, index)?;
        }
        Ok(())
    })
}

fn indexes_are_refused(front_end: &mut RawFrontEnd, index: u32) -> Outcome {
    for (code, rest) in INDEXED {
        let payload = [&index.to_le_bytes()[..], &vec![0; rest]].concat();
        // A base is asked for by its index alone; an empty answer is a refusal.
        match front_end.request(code, &payload, &[])? {
            Answer::Number(number) if number != 0 => {}
            Answer::Bytes(bytes) if code == GET_VRING_BASE && bytes.is_empty() => {}
            answer => return Err(format!("request {code}, index {index}: {answer:?}").into()),
        }
    }
    let event = event()?;
    for code in INDEXED_FD {
        // Eight bits are the index; a ninth says that there is no fd.
        let number = u64::from(index);
        if number & 0xff < 3 && number < 0x100 {
            continue;
        }
        refused_with(front_end, code, &number.to_le_bytes(), &[event.as_fd()])?;
    }
    Ok(())
}

#[test]
fn cve_2021_3839_in_flight_buffers_are_not_offered_and_refused() -> Outcome {
    row(|front_end, _| {
        for code in [31, 32] {
            for lie in [0, u64::MAX, 1 << 32] {
                let payload = [lie.to_le_bytes(), lie.to_le_bytes(), [0xff; 8]].concat();
                refused(front_end, code, &payload)?;
            }
        }
        Ok(())
    })
}

#[test]
fn cve_2022_0669_fds_that_nobody_asked_for_ten_thousand_times() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = running(ringway, Format::Split)?;
        let events: Vec<OwnedFd> = (0..FDS_MAX).map(|_| event()).collect::<Result<_, _>>()?;
        let fds: Vec<BorrowedFd<'_>> = events.iter().map(AsFd::as_fd).collect();
        let before = Footprint::of(ringway.pid())?;
        for repetition in 0..10_000_u32 {
            // Every request, most of them nonsense, each with a different number of fds.
            let code = repetition % CODE_MAX;
            let count = usize::try_from(repetition)? % FDS_MAX + 1;
            let payload = vec![0xff; usize::try_from(repetition % 48)?];
            if front_end.request(code, &payload, &fds[..count])? == Answer::Closed {
                front_end = running(ringway, Format::Split)?;
            }
        }
        drop(front_end);
        let front_end = running(ringway, Format::Split)?;
        before.wait_until_again(ringway.pid())?;
        drop(front_end);
        Ok(())
    })
}

#[test]
fn cve_2020_10726_the_same_setting_ten_thousand_times() -> Outcome {
    beside_good_guests(false, |ringway| {
        let mut front_end = running(ringway, Format::Packed)?;
        let mut before = Footprint::of(ringway.pid())?;
        let event = event()?;
        for repetition in 0..2_500 {
            if repetition == 1 {
                // Now every setting has been made once.
                before = Footprint::of(ringway.pid())?;
            }
            front_end.request(SET_VRING_NUM, &pair(0, QUEUE_SIZE), &[])?;
            for code in INDEXED_FD {
                let answer = front_end.request(code, &1_u64.to_le_bytes(), &[event.as_fd()])?;
                assert!(answer.is_done(), "{answer:?}");
            }
        }
        Ok(before.wait_until_again(ringway.pid())?)
    })
}

#[test]
fn cve_2023_1838_fds_of_the_wrong_kind() -> Outcome {
    row(|front_end, _| {
        let (read, write) = pipe()?;
        let directory = File::open("/")?;
        let event = event()?;
        let wrong = [read.as_fd(), write.as_fd(), directory.as_fd(), event.as_fd()];
        let region = [&pair(1, 0)[..], &front_end.memory_table()[8..40]].concat();
        for fd in wrong {
            refused_with(front_end, SET_MEM_TABLE, &region, &[fd])?;
        }
        // To send through such a socket can mean to wait for the process that has locked it.
        let tcp = TcpListener::bind("127.0.0.1:0")?;
        let datagram = UnixDatagram::unbound()?;
        for fd in wrong[..3].iter().chain(&[tcp.as_fd(), datagram.as_fd()]) {
            // To what is not an eventfd or a Unix stream socket, nothing must ever be written.
            refused_with(front_end, SET_BACKEND_REQ_FD, &[], &[*fd])?;
            refused_with(front_end, 12, &1_u64.to_le_bytes(), &[*fd])?;
            refused_with(front_end, 13, &1_u64.to_le_bytes(), &[*fd])?;
            refused_with(front_end, 14, &1_u64.to_le_bytes(), &[*fd])?;
        }
        Ok(())
    })
}

// 2b: state and order

#[test]
fn cve_2021_20203_queue_sizes_that_no_ring_can_have() -> Outcome {
    row(|front_end, _| {
        for size in [0, 32_769, 0x1_0000, 0x1_0008, u32::MAX] {
            refused(front_end, SET_VRING_NUM, &pair(1, size))?;
        }
        Ok(())
    })?;
    beside_good_guests(false, |ringway| {
        let mut front_end = running(ringway, Format::Split)?;
        assert!(matches!(
            front_end.request(GET_VRING_BASE, &pair(1, 0), &[])?,
            Answer::Bytes(_) | Answer::Number(_)
        ));
        refused(&mut front_end, SET_VRING_NUM, &pair(1, 3))
    })
}

#[test]
fn cve_2026_5747_settings_that_change_while_the_ring_runs() -> Outcome {
    row(|front_end, ringway| {
        refused(front_end, SET_VRING_NUM, &pair(1, 2 * QUEUE_SIZE))?;
        refused(front_end, SET_VRING_BASE, &pair(1, 5))?;
        let elsewhere = REGIONS[1].0 + USER_OFFSET;
        let areas = [elsewhere, elsewhere + 0x400, elsewhere + 0x800];
        // Moving is allowed, if it is into memory.
        let moved = front_end.request(SET_VRING_ADDR, &vring_addresses(1, areas), &[])?;
        assert!(moved.is_done(), "{moved:?}");
        assert_eq!(broken_queues(ringway, "h")?, [""; 0]);
        Ok(())
    })
}

#[test]
fn cve_2023_3301_a_front_end_that_vanishes_at_any_point() -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in FORMATS {
            for _ in 0..100 {
                drop(running(ringway, format)?);
                let mut half = RawFrontEnd::connect(&ringway.socket("h"))?;
                half.send(&[SET_MEM_TABLE.to_le_bytes(), [9, 0, 0, 0]].concat(), &[])?;
            }
        }
        Ok(())
    })
}

#[test]
fn cve_2018_1059_rings_that_leave_their_region() -> Outcome {
    row(|front_end, _| {
        let answer = front_end.request(GET_VRING_BASE, &pair(1, 0), &[])?;
        assert_ne!(answer, Answer::Closed);
        let (start, len) = REGIONS[0];
        let (start, end) = (start + USER_OFFSET, start + len + USER_OFFSET);
        let inside = [start, start + 0x400, start + 0x800];
        for place in 0..3 {
            for bad in [end - 2, end, start.wrapping_sub(16), 0, u64::MAX - 15, u64::MAX] {
                let mut areas = inside;
                areas[place] = bad;
                let set = front_end.request(SET_VRING_ADDR, &vring_addresses(1, areas), &[])?;
                let kick = event()?;
                let one = 1_u64.to_le_bytes();
                let kicked = front_end.request(SET_VRING_KICK, &one, &[kick.as_fd()])?;
                let enabled = front_end.request(SET_VRING_ENABLE, &pair(1, 1), &[])?;
                let all = [set, kicked, enabled];
                assert!(!all.iter().all(Answer::is_done), "area {place} at {bad:#x}: {all:?}");
            }
        }
        Ok(())
    })
}

#[test]
fn cve_2019_14835_logs_that_are_no_area_or_too_short() -> Outcome {
    row(|front_end, ringway| {
        let event = event()?;
        let file = front_end.memory.file().try_clone_to_owned()?;
        let logs = RAW_FEATURES | 1 << 26;
        assert!(front_end.request(2, &logs.to_le_bytes(), &[])?.is_done());
        for fd in [event.as_fd(), file.as_fd()] {
            for (size, offset) in [(0, 0), (u64::MAX, 0), (4096, u64::MAX), (1, 0), (4096, 4095)] {
                let payload = [size.to_le_bytes(), offset.to_le_bytes()].concat();
                // QEMU 7.2 goes on without a log if it is told no, and ends if it is told nothing.
                let answer = front_end.request(6, &payload, &[fd])?;
                assert_eq!(answer, Answer::Bytes(payload));
                assert_eq!(ringway.port_stats("h")?.queues.len(), 0, "{size} at {offset}");
            }
        }
        assert!(front_end.request(7, &[], &[event.as_fd()])?.is_done());
        Ok(())
    })
}

// 2c: without an advisory

#[test]
fn memory_tables_that_change_while_rings_run() -> Outcome {
    row(|front_end, _| {
        let file = front_end.memory.file().try_clone_to_owned()?;
        let table = front_end.memory_table();
        for _ in 0..200 {
            let fds = [file.as_fd(), file.as_fd()];
            assert!(front_end.request(SET_MEM_TABLE, &table, &fds)?.is_done());
            // The region with the rings goes, and comes back.
            let other = [&pair(1, 0)[..], &table[40..72]].concat();
            front_end.request(SET_MEM_TABLE, &other, &[file.as_fd()])?;
        }
        Ok(())
    })
}

/// Its rings stay at their user addresses, so they move in guest-physical ones.
#[test]
fn memory_that_moves_under_running_rings() -> Outcome {
    row(|front_end, ringway| {
        let file = front_end.memory.file().try_clone_to_owned()?;
        for by in [0x100_0000, 0x200_0000, 0_u64] {
            let mut table = front_end.memory_table();
            for (region, (address, _)) in REGIONS.into_iter().enumerate() {
                let at = 8 + region * 32;
                table[at..at + 8].copy_from_slice(&(address + by).to_le_bytes());
            }
            let fds = [file.as_fd(), file.as_fd()];
            let answer = front_end.request(SET_MEM_TABLE, &table, &fds)?;
            assert!(answer.is_done(), "{answer:?}");
        }
        assert_eq!(broken_queues(ringway, "h")?, [""; 0]);
        Ok(())
    })
}

#[test]
fn regions_in_any_order_and_padded_tables() -> Outcome {
    row(|front_end, _| {
        let file = front_end.memory.file().try_clone_to_owned()?;
        let table = front_end.memory_table();
        let swapped = [&table[..8], &table[40..72], &table[8..40]].concat();
        let padded = [&table[..], &[0xee; 6 * 32]].concat();
        for table in [&swapped, &padded, &table] {
            let fds = [file.as_fd(), file.as_fd()];
            let answer = front_end.request(SET_MEM_TABLE, table, &fds)?;
            assert!(answer.is_done(), "{answer:?}");
        }
        Ok(())
    })
}

#[test]
fn unknown_messages_are_refused_one_by_one() -> Outcome {
    row(|front_end, _| {
        for code in [0, 41, 42, 46, 1000, u32::MAX] {
            refused(front_end, code, &[0; 8])?;
        }
        Ok(())
    })
}

/// Nor does who connects again for each of them.
#[test]
fn mistakes_on_purpose_do_not_fill_the_log() -> Outcome {
    let ringway = RingwayProcess::start(&[("h", ""), ("other", "")])?;
    for _ in 0..100 {
        let mut front_end = RawFrontEnd::connect(&ringway.socket("h"))?;
        for _ in 0..10 {
            refused(&mut front_end, 1000, &[])?;
        }
    }
    let log = ringway.log();
    let lines = |port: &str| log.lines().filter(|line| line.contains(port)).count();
    assert!((64..150).contains(&lines("port=\"h\"")), "{log}");
    assert!(log.contains("too many lines: "), "{log}");
    refused(&mut RawFrontEnd::connect(&ringway.socket("other"))?, 1000, &[])?;
    assert!(ringway.log().contains("port=\"other\""), "the others are heard");
    Ok(())
}

#[test]
fn messages_in_any_order_beside_running_rings() -> Outcome {
    let mut seeds = Rng::from_environment("any order", 0x0f0f);
    beside_good_guests(false, |ringway| {
        for _ in 0..200 {
            let mut rng = Rng::new(seeds.bits());
            let format = FORMATS[usize::from(rng.word() % 2)];
            let mut front_end = running(ringway, format)?;
            let file = front_end.memory.file().try_clone_to_owned()?;
            let event = event()?;
            for _ in 0..30 {
                let index = u32::from(rng.word() % 4);
                let small = u32::from(rng.word() % 34);
                let (code, payload, fds): (u32, Vec<u8>, Vec<BorrowedFd<'_>>) =
                    match rng.word() % 10 {
                        0 => (5, front_end.memory_table(), vec![file.as_fd(), file.as_fd()]),
                        1 => (8, pair(index, small), vec![]),
                        2 => (9, front_end.addresses(index), vec![]),
                        3 => (10, pair(index, small), vec![]),
                        4 => (11, pair(index, 0), vec![]),
                        5 => (12, u64::from(index).to_le_bytes().to_vec(), vec![event.as_fd()]),
                        6 => (13, u64::from(index).to_le_bytes().to_vec(), vec![event.as_fd()]),
                        7 => (18, pair(index, small % 2), vec![]),
                        8 => (34, vec![], vec![]),
                        _ => (2, (rng.bits() | 1 << 32).to_le_bytes().to_vec(), vec![]),
                    };
                if front_end.request(code, &payload, &fds)? == Answer::Closed {
                    break;
                }
            }
            assert!(front_end.memory.guards_intact(), "written outside memory");
        }
        Ok(())
    })
}

/// To begin anew is more work for a worker than for the thread that reads the request, and no
/// thread waits for an answer.
#[test]
fn resets_that_come_faster_than_workers_carry_them_out() -> Outcome {
    const RESET_DEVICE: u32 = 34;
    let ringway = RingwayProcess::start(&[("a", ""), ("h", "queues=64")])?;
    let mut front_end = RawFrontEnd::connect(&ringway.socket("h"))?;
    let requests = [RESET_DEVICE, 1, 0].map(u32::to_le_bytes).concat().repeat(1000);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        front_end.send(&requests, &[])?;
    }
    // Answered when the worker has done what came before.
    let start = Instant::now();
    ringway.port_stats("a")?;
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_second_owner_on_a_new_connection() -> Outcome {
    beside_good_guests(false, |ringway| {
        for format in FORMATS {
            for _ in 0..3 {
                let mut front_end = running(ringway, format)?;
                assert!(front_end.request(3, &[], &[])?.is_done(), "SET_OWNER again");
            }
        }
        Ok(())
    })
}
