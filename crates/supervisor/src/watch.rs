//! When a data plane that does not answer, or whose worker stands still, is ended.
//!
//! The process that looks may have stood still itself, and the data plane with it: both were
//! stopped (Ctrl-Z, a frozen control group, a machine that was paused), or what was answered was
//! not read. It sees that by looking later than it was told to, and begins to count anew.
//!
//! A worker that sleeps shows nothing, also when its guests have kicked it. So while workers have
//! done something, the data plane is asked now and then whether all of them go on; and at once when
//! the kernel says that it was stopped, which costs one that does nothing no wake-up.

use std::time::{Duration, Instant};

/// The longest wait for an answer to a request or an order.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The longest time that a worker that is awake may go without a visit.
pub const HEARTBEAT_WITHIN: Duration = Duration::from_secs(2);

/// One that works is asked so often whether it goes on.
pub const ASK_EVERY: Duration = Duration::from_secs(2);

/// The longest wait for the answer to that.
pub const GOES_ON_WITHIN: Duration = Duration::from_millis(2500);

/// By so much the count of a worker goes up that is woken for a question.
const ASKED_COUNT: u64 = 4;

/// From SIGABRT, for the log, to SIGKILL.
pub const KILL_AFTER: Duration = Duration::from_millis(100);

/// A process that looks so much later than it was told to has stood still.
pub const LATE: Duration = Duration::from_millis(100);

/// The least time between two new counts: a busy machine may always be late.
pub const ANEW_EVERY: Duration = Duration::from_secs(10);

/// One worker as the journal shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Visits so far.
    pub count: u64,
    /// It waits for work, for as long as there is none.
    pub is_asleep: bool,
}

/// The signal to send to a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGABRT, so that it can say where it is.
    Abort,
    /// SIGKILL.
    Kill,
}

/// The outcome of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// A signal to send to it now.
    pub act: Option<Act>,
    /// It is to be asked whether it goes on; then it owes an answer.
    pub asks: bool,
    /// When to look again. `None`: no worker has done anything, and no answer is owed, or all was
    /// done.
    pub again: Option<Instant>,
}

/// The check whether it goes on.
#[derive(Debug, Default)]
struct LivenessCheck {
    /// When it was asked last.
    asked: Option<Instant>,
    is_owed: bool,
    /// Counts of its workers then.
    counts: Vec<u64>,
    /// It may have been stopped.
    is_urgent: bool,
}

impl LivenessCheck {
    fn has_moved(&self, beats: &[Beat]) -> bool {
        let before = self.counts.iter().copied().chain(std::iter::repeat(0));
        beats.iter().zip(before).any(|(beat, count)| beat.count.wrapping_sub(count) > ASKED_COUNT)
    }

    /// When it is to be asked next, as far as that is known.
    fn next(&self, now: Instant, beats: &[Beat]) -> Option<Instant> {
        let at = self.asked.map_or(now, |at| at + ASK_EVERY);
        match (self.is_owed || beats.is_empty(), self.is_urgent) {
            (true, _) => None,
            (false, true) => Some(now),
            (false, false) => self.has_moved(beats).then_some(at),
        }
    }
}

/// Notices that a data plane does not go on.
#[derive(Debug, Default)]
pub struct Watch {
    check: LivenessCheck,
    /// The last sign of life of each worker, and when it was new.
    beats: Vec<(Beat, Instant)>,
    /// A worker that stood still before counts from then on.
    anew: Option<Instant>,
    aborted: Option<Instant>,
    is_killed: bool,
}

impl Watch {
    /// The kernel says that the process may have been stopped.
    pub fn doubts(&mut self) {
        self.check.is_urgent = true;
    }

    /// It says that it goes on.
    pub fn goes_on(&mut self) {
        self.check.is_owed = false;
    }

    /// Looks once. `oldest`: since when the oldest answer is owed; `beats`: of its workers while it
    /// serves.
    pub fn look(&mut self, now: Instant, oldest: Option<Instant>, beats: &[Beat]) -> Look {
        let (act, due) = self.look_at_answers(now, oldest, beats);
        if self.aborted.is_some() {
            return Look { act, asks: false, again: due };
        }
        let asks = self.check.next(now, beats).is_some_and(|at| at <= now);
        if asks {
            let counts = beats.iter().map(|beat| beat.count).collect();
            self.check =
                LivenessCheck { asked: Some(now), is_owed: true, counts, is_urgent: false };
        }
        let next = self.check.next(now, beats);
        let owed = self.question_due();
        Look { act, asks, again: due.into_iter().chain(next).chain(owed).min() }
    }

    fn look_at_answers(
        &mut self,
        now: Instant,
        oldest: Option<Instant>,
        beats: &[Beat],
    ) -> (Option<Act>, Option<Instant>) {
        if let Some(aborted) = self.aborted {
            let is_due = now >= aborted + KILL_AFTER;
            let act = (is_due && !self.is_killed).then_some(Act::Kill);
            self.is_killed |= is_due;
            return (act, (!is_due).then_some(aborted + KILL_AFTER));
        }
        self.beats.resize(beats.len(), (Beat { count: 0, is_asleep: true }, now));
        for ((known, since), beat) in self.beats.iter_mut().zip(beats) {
            if *known != *beat {
                (*known, *since) = (*beat, now);
            }
        }
        let mut due = self.due(oldest);
        let may_begin_anew = self.anew.is_none_or(|at| now >= at + ANEW_EVERY);
        if may_begin_anew && due.is_some_and(|due| now > due + LATE) {
            self.anew = Some(now);
            due = self.due(oldest);
        }
        if due.is_some_and(|due| now >= due) {
            self.aborted = Some(now);
            return (Some(Act::Abort), Some(now + KILL_AFTER));
        }
        (None, due)
    }

    /// When it has stood still for too long, if nothing happens until then.
    fn due(&self, oldest: Option<Instant>) -> Option<Instant> {
        let counted = |since: Instant| self.anew.map_or(since, |anew| since.max(anew));
        let awake = self.beats.iter().filter(|(beat, _)| !beat.is_asleep);
        let limits = awake.map(|(_, since)| counted(*since) + HEARTBEAT_WITHIN);
        let answers = oldest.map(|since| counted(since) + ANSWER_WITHIN);
        limits.chain(answers).chain(self.question_due()).min()
    }

    /// Until when it must have said that it goes on.
    fn question_due(&self) -> Option<Instant> {
        let asked = self.check.asked.filter(|_| self.check.is_owed)?;
        Some(self.anew.map_or(asked, |anew| asked.max(anew)) + GOES_ON_WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn an_answer_owed_or_a_worker_that_stands_still_ends_it() {
        let beat = |count, is_asleep| Beat { count, is_asleep };
        // Since when an answer is owed; the worker at each second; when it is aborted, in ms.
        let awake = |count| beat(count, false);
        let table: [(Option<u64>, [Beat; 4], Option<u64>); 6] = [
            (None, [awake(1); 4], Some(2000)),
            (None, [awake(1), awake(2), awake(3), awake(4)], None),
            (None, [beat(1, true); 4], None),
            (None, [beat(1, true), awake(1), awake(1), awake(1)], Some(3000)),
            (Some(500), [beat(1, true); 4], Some(5500)),
            (Some(0), [beat(1, true); 4], Some(5000)),
        ];
        for (at, (owed, beats, aborted)) in table.into_iter().enumerate() {
            let (start, mut watch) = (Instant::now(), Watch::default());
            let mut act_at = None;
            for at_ms in 0..if owed.is_some() { 6000u64 } else { 3500 } {
                let now = start + ms(at_ms);
                let oldest = owed.filter(|since| *since <= at_ms).map(|since| start + ms(since));
                let worker = beats[usize::try_from(at_ms / 1000).unwrap().min(3)];
                watch.goes_on();
                if let Some(act) = watch.look(now, oldest, &[worker]).act {
                    act_at.get_or_insert((act, at_ms));
                }
            }
            assert_eq!(act_at, aborted.map(|at_ms| (Act::Abort, at_ms)), "row {at}");
        }
    }

    #[test]
    fn a_stop_of_both_is_no_standing_still() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let awake = [Beat { count: 1, is_asleep: false }];
        let again = start + HEARTBEAT_WITHIN;
        let quiet = |again| Look { act: None, asks: false, again: Some(again) };
        assert_eq!(watch.look(start, Some(start), &awake), quiet(again));
        let back = start + Duration::from_secs(60);
        let again = back + HEARTBEAT_WITHIN;
        assert_eq!(watch.look(back, Some(start), &awake), quiet(again), "a minute later");
        let asleep = [Beat { is_asleep: true, ..awake[0] }];
        let again = back + ANSWER_WITHIN;
        assert_eq!(watch.look(back, Some(start), &asleep), quiet(again));
        let late = again + 2 * LATE;
        let act = watch.look(late, Some(start), &asleep).act;
        assert_eq!(act, Some(Act::Abort), "not so soon again");
    }

    #[test]
    fn who_looks_when_told_to_acts_in_time() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let beats = [Beat { count: 1, is_asleep: true }];
        let mut look = |now, oldest, beats: &[Beat]| {
            let Look { act, asks, again } = watch.look(now, oldest, beats);
            assert!(!asks);
            (act, again)
        };
        assert_eq!(look(start, None, &[]), (None, None), "nothing to watch");
        assert_eq!(look(start, Some(start), &beats), (None, Some(start + ANSWER_WITHIN)));
        let abort_at = start + ANSWER_WITHIN;
        let kill_at = abort_at + KILL_AFTER;
        assert_eq!(look(abort_at, Some(start), &beats), (Some(Act::Abort), Some(kill_at)));
        assert_eq!(look(abort_at, None, &beats), (None, Some(kill_at)), "too late");
        assert_eq!(look(kill_at, None, &beats), (Some(Act::Kill), None));
        assert_eq!(look(kill_at, None, &beats), (None, None), "once");
    }

    /// Stops at 3.1 s, between two looks, while its worker sleeps.
    #[test]
    fn one_that_works_and_stops_while_its_worker_sleeps_is_noticed_within_five_seconds() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let stopped = start + ms(3100);
        let (mut now, mut asked) = (start, 0);
        for _ in 0..100 {
            let count = u64::try_from((now.min(stopped) - start).as_millis()).unwrap() * 4;
            let look = watch.look(now, None, &[Beat { count, is_asleep: true }]);
            asked += u32::from(look.asks);
            if look.asks && now < stopped {
                watch.goes_on();
            }
            if look.act.is_some() {
                assert!(now <= stopped + Duration::from_secs(5), "{:?}", now - stopped);
                assert_eq!((look.act, asked), (Some(Act::Abort), 3));
                return;
            }
            let again = look.again.filter(|at| *at > now).unwrap_or(now + ms(500));
            now = again.min(now + ms(500));
        }
        panic!("it was not noticed");
    }

    #[test]
    fn one_that_does_nothing_is_asked_only_when_it_may_have_been_stopped() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let asleep = [Beat { count: 4, is_asleep: true }];
        for seconds in 0..60 {
            let look = watch.look(start + ms(1000 * seconds), None, &asleep);
            assert_eq!(look, Look { act: None, asks: false, again: None });
        }
        let now = start + ms(60_000);
        watch.doubts();
        let look = Look { act: None, asks: true, again: Some(now + GOES_ON_WITHIN) };
        assert_eq!(watch.look(now, None, &asleep), look);
        assert!(!watch.look(now, None, &asleep).asks, "once");
        let late = now + GOES_ON_WITHIN;
        assert_eq!(watch.look(late, None, &asleep).act, Some(Act::Abort));
    }
}
