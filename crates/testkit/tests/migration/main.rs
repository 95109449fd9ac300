//! A front-end that migrates its guest, against the whole program: what is answered, which pages
//! are marked, and what rings do whose log cannot be used.
//!
//! How: one front-end of single messages ([`front_end`]) gets packets that another one sends.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the tests choose")]

mod front_end;
mod logs;
mod router;

use std::collections::BTreeSet;
use std::time::Duration;

use front_end::{
    LOG_ALL, LOG_LEN, SET_STATUS, log_file, marked, marked_from, memory, queues, receiver, send,
    set_features, set_log, stop,
};
use ringway_testkit::beside::Outcome;
use ringway_testkit::{Answer, RingwayProcess};
use rustix::io::write;

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
