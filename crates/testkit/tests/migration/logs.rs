//! Logs that cannot be used, that change, or that come and go.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringway_testkit::beside::{Outcome, SHOWN_LIMIT, beside_good_guests};
use ringway_testkit::{Answer, RingwayProcess};
use rustix::fs::ftruncate;

use crate::front_end::{
    GET_STATUS, LOG_ALL, LOG_LEN, SET_LOG_FD, log_file, memory, queues, receiver, send,
    set_features, set_log, stop,
};

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
