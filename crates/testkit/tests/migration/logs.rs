//! Logs that cannot be used, that change, or that come and go.

use std::error::Error;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringway_extent::Extent;
use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, beside_good_guests};
use ringway_testkit::{Answer, RAW_FEATURES, RawFrontEnd, RingwayProcess, USER_OFFSET};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

use crate::front_end::{
    ADD_MEM_REG, GET_STATUS, LOG_ALL, LOG_LEN, PAGE, REM_MEM_REG, SET_FEATURES, SET_LOG_FD,
    log_file, marked, memory, post_again, queues, receiver, send, send_more, set_features, set_log,
    stop,
};

/// Files in which no page can be marked.
fn wrong_files() -> Result<Vec<(&'static str, OwnedFd)>, Box<dyn Error>> {
    let (pipe, _writer) = rustix::pipe::pipe()?;
    let (socket, _other) = UnixStream::pair()?;
    let sealed = memfd_create("log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&sealed, LOG_LEN)?;
    fcntl_add_seals(&sealed, SealFlags::WRITE)?;
    let readable = log_file(LOG_LEN)?;
    let place = format!("/proc/self/fd/{}", readable.as_raw_fd());
    Ok(vec![
        ("a device", File::open("/dev/zero")?.into()),
        ("a directory", File::open("/tmp")?.into()),
        ("a pipe", pipe),
        ("a socket", socket.into()),
        ("an event", eventfd(0, EventfdFlags::CLOEXEC)?),
        ("epoll", epoll::create(epoll::CreateFlags::CLOEXEC)?),
        ("sealed against writing", sealed),
        ("opened to be read", File::open(place)?.into()),
        ("empty", log_file(0)?),
        ("a byte too short", log_file(LOG_LEN - 1)?),
    ])
}

/// Sizes and offsets that are none of a file with [`LOG_LEN`] bytes.
const WRONG_AREAS: [[u64; 2]; 9] = [
    [0, 0],
    [LOG_LEN - 1, 0],
    [LOG_LEN + 1, 0],
    [LOG_LEN, 1],
    [LOG_LEN, LOG_LEN],
    [LOG_LEN, u64::MAX],
    [u64::MAX, 0],
    [u64::MAX, u64::MAX],
    [1 << 40, 0],
];

#[test]
fn rings_wait_where_a_log_is_no_area_of_its_file() -> Outcome {
    let log = log_file(LOG_LEN)?;
    rings_wait(WRONG_AREAS.map(|words| (format!("{words:x?}"), Some(&log), words)))
}

#[test]
fn rings_wait_where_a_log_is_a_file_of_the_wrong_kind() -> Outcome {
    let files = wrong_files()?;
    let files = files.iter().map(|(kind, fd)| (*kind, Some(fd)));
    rings_wait(files.chain([("none", None)]).map(|(kind, fd)| (kind.into(), fd, [LOG_LEN, 0])))
}

/// Rings wait while each of these is the log, and go on with a good one, or without.
fn rings_wait<'a>(
    cases: impl IntoIterator<Item = (String, Option<&'a OwnedFd>, [u64; 2])>,
) -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut front_end, sender) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    let log = log_file(LOG_LEN)?;
    let mut number = 0;
    for (kind, fd, words) in cases {
        set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
        set_features(&mut front_end, LOG_ALL)?;
        assert_eq!(queues(&ringway)?, 2);
        set_log(&mut front_end, fd, words)?;
        assert_eq!(queues(&ringway)?, 0, "{kind}");
        waits_unwritten(&ringway, [&front_end, &sender], &mut number)?;
        match number % 2 {
            0 => set_features(&mut front_end, 0)?,
            _ => set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?,
        }
        assert_eq!(queues(&ringway)?, 2, "{kind}");
        number += 1;
        send(&ringway, &sender, number, true)?;
        set_features(&mut front_end, 0)?;
        let running = ringway.port_stats("a")?;
        assert_eq!((running.state.as_str(), running.waits_for_log), ("running", false));
    }
    Ok(())
}

/// The port says that its rings wait; of a packet for it nothing is written.
fn waits_unwritten(
    ringway: &RingwayProcess,
    [front_end, sender]: [&RawFrontEnd; 2],
    number: &mut u8,
) -> Outcome {
    let waiting = ringway.port_stats("a")?;
    assert_eq!((waiting.state.as_str(), waiting.waits_for_log), ("migrating", true));
    let before = memory(front_end);
    *number += 1;
    send(ringway, sender, *number, false)?;
    assert!(memory(front_end) == before);
    Ok(())
}

/// A region that is plugged in while memory is copied.
const MORE_AT: u64 = 0x8000_0000;
const MORE_LEN: u64 = 0x10_0000;
const LONG_LOG_LEN: u64 = (MORE_AT + MORE_LEN) / (8 * PAGE as u64);

#[test]
fn rings_wait_while_a_region_is_there_that_the_log_does_not_reach() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut front_end, sender) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    let (log, long) = (log_file(LOG_LEN)?, log_file(LONG_LOG_LEN)?);
    let mut number = 0;
    for ends in ["it is removed", "there is a longer log", "memory is copied no more"] {
        set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
        set_features(&mut front_end, LOG_ALL)?;
        change_region(&mut front_end, ADD_MEM_REG)?;
        assert_eq!(queues(&ringway)?, 0, "{ends}");
        waits_unwritten(&ringway, [&front_end, &sender], &mut number)?;
        match ends {
            "it is removed" => change_region(&mut front_end, REM_MEM_REG)?,
            "there is a longer log" => set_log(&mut front_end, Some(&long), [LONG_LOG_LEN, 0])?,
            _ => set_features(&mut front_end, 0)?,
        }
        assert_eq!(queues(&ringway)?, 2, "{ends}");
        number += 1;
        send(&ringway, &sender, number, true)?;
        if ends != "it is removed" {
            change_region(&mut front_end, REM_MEM_REG)?;
        }
        set_features(&mut front_end, 0)?;
    }
    Ok(())
}

fn change_region(front_end: &mut RawFrontEnd, code: u32) -> Outcome {
    let words = [0, MORE_AT, MORE_LEN, MORE_AT + USER_OFFSET, front_end.memory.file_offset(1)];
    let payload = words.map(u64::to_le_bytes).concat();
    let file = front_end.memory.file().try_clone_to_owned()?;
    let fds = [file.as_fd()];
    let fds = if code == ADD_MEM_REG { &fds[..] } else { &[] };
    assert!(front_end.request(code, &payload, fds)?.is_done());
    Ok(())
}

/// The front-end may close its file, and may cut one off that it has replaced.
#[test]
fn a_log_that_is_closed_or_was_replaced_is_not_needed() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut front_end, sender) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    for number in [1, 3, 5] {
        let log = log_file(LOG_LEN)?;
        set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
        set_features(&mut front_end, LOG_ALL)?;
        drop(log);
        send(&ringway, &sender, number, true)?;
        let [replaced, next] = [log_file(LOG_LEN)?, log_file(LOG_LEN)?];
        set_log(&mut front_end, Some(&replaced), [LOG_LEN, 0])?;
        set_log(&mut front_end, Some(&next), [LOG_LEN, 0])?;
        ftruncate(&replaced, 0)?;
        send(&ringway, &sender, number + 1, true)?;
        assert!(!marked(&next)?.is_empty());
        set_features(&mut front_end, 0)?;
    }
    assert_eq!(queues(&ringway)?, 2);
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

/// How often bit 26 is set and taken back.
const LOGGED: Extent = Extent::new("RINGWAY_LOGGED", 10_000, 50_000);

#[test]
fn bit_26_comes_and_goes_under_traffic() -> Outcome {
    let rounds = LOGGED.announced();
    beside_good_guests(false, |ringway| {
        let (mut front_end, sender) = (receiver(ringway, "h")?, receiver(ringway, "p")?);
        let mac = ringway.port_stats("h")?.mac.ok_or("h has no address")?;
        let log = log_file(LOG_LEN)?;
        for round in 0..rounds {
            send_more(&sender, &mac)?;
            post_again(&front_end);
            set_log(&mut front_end, Some(&log), [LOG_LEN, 0])?;
            set_features(&mut front_end, LOG_ALL)?;
            if round % 10 == 0 {
                set_log(&mut front_end, None, [1, 0])?;
            }
            set_features(&mut front_end, 0)?;
        }
        let stats = ringway.port_stats("h")?;
        assert_eq!(stats.queues.len(), 2);
        let packets = stats.to_guest.packets;
        println!("{packets} packets in {rounds} rounds");
        assert!(packets > rounds / 10, "{packets} packets");
        Ok(())
    })
}

/// Requests of a front-end that are handled while another one waits for an answer: a few, however
/// many wait.
const BETWEEN_MAX: u64 = 8;

/// How often the other one asks.
const ASKED: u64 = 1000;

/// Bit 26 comes and goes at one port, as fast as its front-end can send. Time says little of a busy
/// machine, so the requests are counted that were taken from one between a request of another and
/// its answer. The median, as either test thread may stand still after an answer.
#[test]
fn others_are_answered_between_requests_of_a_front_end_that_logs() -> Outcome {
    let ringway = RingwayProcess::start(&[("a", ""), ("b", "")])?;
    let (mut logs, mut other) = (receiver(&ringway, "a")?, receiver(&ringway, "b")?);
    let log = log_file(LOG_LEN)?;
    set_log(&mut logs, Some(&log), [LOG_LEN, 0])?;
    let (sent, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let between = thread::scope(|scope| {
        scope.spawn(|| {
            let toggles = [LOG_ALL, 0].map(|more| unanswered(SET_FEATURES, RAW_FEATURES | more));
            while !over.load(Ordering::Relaxed) && logs.send(&toggles.concat(), &[]).is_ok() {
                sent.fetch_add(2, Ordering::Relaxed);
            }
        });
        let mut between = Vec::new();
        let mut ask = || {
            let before = sent.load(Ordering::Relaxed);
            assert_eq!(other.request(GET_STATUS, &[], &[])?, Answer::Number(0));
            between.push(sent.load(Ordering::Relaxed) - before);
            Ok(())
        };
        let asked: Outcome = (0..ASKED).try_for_each(|_| ask());
        over.store(true, Ordering::Relaxed);
        asked.map(|()| between)
    });
    let mut between = between?;
    between.sort_unstable();
    let (median, all) = (between[between.len() / 2], sent.load(Ordering::Relaxed));
    println!("{median} of {all} requests between two answers of another");
    assert!(all > ASKED / 4 && median <= BETWEEN_MAX, "{median} of {all}: {between:?}");
    Ok(())
}

/// A message for which no answer is wanted.
fn unanswered(code: u32, word: u64) -> Vec<u8> {
    [&[code, 1, 8].map(u32::to_le_bytes).concat()[..], &word.to_le_bytes()].concat()
}
