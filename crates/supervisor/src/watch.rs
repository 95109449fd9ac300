//! When a data plane that does not answer, or whose worker stands still, is ended.
//!
//! The process that looks may have stood still itself, and the data plane with it: both were
//! stopped (Ctrl-Z, a frozen control group, a machine that was paused), or what was answered was
//! not read. It sees that by looking later than it was told to, and begins to count anew.

use std::time::{Duration, Instant};

/// The longest wait for an answer to a request or an order.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The longest time that a worker that is awake may go without a visit.
pub const HEARTBEAT_WITHIN: Duration = Duration::from_secs(2);

/// From SIGABRT, for the log, to SIGKILL.
pub const KILL_AFTER: Duration = Duration::from_millis(100);

/// A process that looks so much later than it was told to has stood still.
pub const LATE: Duration = Duration::from_millis(100);

/// So often at most is counted anew: a busy machine may always be late.
pub const ANEW_EVERY: Duration = Duration::from_secs(10);

/// One worker as the journal shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Visits so far.
    pub count: u64,
    /// It waits for work, for as long as there is none.
    pub is_asleep: bool,
}

/// What to do to a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// SIGABRT, so that it can say where it is.
    Abort,
    /// SIGKILL.
    Kill,
}

/// Notices that a data plane does not go on.
#[derive(Debug, Default)]
pub struct Watch {
    /// The last sign of life of each worker, and when it was new.
    beats: Vec<(Beat, Instant)>,
    /// What stood still before counts from then on.
    anew: Option<Instant>,
    aborted: Option<Instant>,
    is_killed: bool,
}

impl Watch {
    /// Looks once. `oldest`: since when the oldest answer is owed. What to do now, and when to look
    /// again; `None`: no worker is awake and no answer is owed, or all was done.
    pub fn look(
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
        limits.chain(oldest.map(|since| counted(since) + ANSWER_WITHIN)).min()
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
                if let (Some(act), _) = watch.look(now, oldest, &[worker]) {
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
        assert_eq!(watch.look(start, Some(start), &awake), (None, Some(again)));
        let back = start + Duration::from_secs(60);
        let again = back + HEARTBEAT_WITHIN;
        assert_eq!(watch.look(back, Some(start), &awake), (None, Some(again)), "a minute later");
        let asleep = [Beat { is_asleep: true, ..awake[0] }];
        let again = back + ANSWER_WITHIN;
        assert_eq!(watch.look(back, Some(start), &asleep), (None, Some(again)));
        let late = again + 2 * LATE;
        assert_eq!(watch.look(late, Some(start), &asleep).0, Some(Act::Abort), "not so soon again");
    }

    #[test]
    fn who_looks_when_told_to_acts_in_time() {
        let (start, mut watch) = (Instant::now(), Watch::default());
        let beats = [Beat { count: 1, is_asleep: true }];
        assert_eq!(watch.look(start, None, &[]), (None, None), "nothing to watch");
        let (act, again) = watch.look(start, Some(start), &beats);
        assert_eq!((act, again), (None, Some(start + ANSWER_WITHIN)));
        let abort_at = start + ANSWER_WITHIN;
        let kill_at = abort_at + KILL_AFTER;
        assert_eq!(watch.look(abort_at, Some(start), &beats), (Some(Act::Abort), Some(kill_at)));
        assert_eq!(watch.look(abort_at, None, &beats), (None, Some(kill_at)), "too late");
        assert_eq!(watch.look(kill_at, None, &beats), (Some(Act::Kill), None));
        assert_eq!(watch.look(kill_at, None, &beats), (None, None), "once");
    }
}
