//! When a dead data plane is started again, and what is blamed for its death.
//!
//! The first restart is at once, each further one waits longer ([`WAITS`]); a time without deaths
//! forgets them all. A process that was killed from outside is followed at once, or
//! [`KILLED_WAIT`] after the start of one that was killed within [`KILLED_IN_A_ROW`] of it; from
//! the 18th of those in a row on after 200, 400 ms … 5 s.
//!
//! A request that was in the data plane's hands in two faults in a row is refused, or its
//! connection is closed if it has a reply of its own. After a fault requests are handed over one by
//! one, so that only one is blamed. A port that was being served in three is quarantined: the next
//! start then need not wait. Only what a process has done itself is a fault: SEGV, ABRT (a panic of
//! any thread), BUS, ILL, SYS, or that it hung. Exits, other signals, and processes that were
//! killed for what they said blame nothing.
//!
//! A port is served when it is visited, and when packets of another one are delivered into it.
//! Where both are equally suspect the receiver is blamed; if faults go on, so is the visited one,
//! and the receiver is served again.
//!
//! From the fourth fault in a row on the ports of each are held back for a while, so that all
//! others have their network meanwhile; then they are served again, one after the other. A fault
//! that names no other ports waits as above.
//!
//! Limits: which port was being served is what the data plane says. A guest that has taken it over
//! can have another port blamed; so a port is blamed for a time only.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Waits before the first restart, the second, and so on; the last one stays.
pub const WAITS: [Duration; 5] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Between the starts of two processes of which the first was killed from outside.
pub const KILLED_WAIT: Duration = Duration::from_millis(100);
/// Of those that live for less than that so many in a row may be killed; from then on each next one
/// waits twice as long, up to the longest of [`WAITS`].
pub const KILLED_IN_A_ROW: Duration = Duration::from_millis(400);
/// See [`KILLED_IN_A_ROW`].
pub const KILLS_FREE: u32 = 16;

/// After this time without one, deaths are forgotten.
pub const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// The number of deaths within [`FAILING_WITHIN`] after which it is said that it fails. It is
/// started again nevertheless.
pub const FAILING_DEATHS: usize = 5;
/// See [`FAILING_DEATHS`].
pub const FAILING_WITHIN: Duration = Duration::from_secs(10);

/// A port that was being served in so many faults in a row is served no more. Not fewer: a worker
/// serves its ports in turn, so two faults of another cause meet the same of few ports easily.
pub const BLAMED_AFTER: u32 = 3;

/// How long a port is not served that is blamed for the first time; each further time it is twice
/// as long, up to so many times.
pub const QUARANTINED_FOR: Duration = Duration::from_secs(600);
/// See [`QUARANTINED_FOR`]: 21 hours at most.
pub const QUARANTINE_DOUBLED_MAX: u32 = 7;

/// From this fault in a row on, its ports are held back: without that the next start would wait
/// long.
pub const HELD_FROM: usize = 3;
/// Until the next start then.
pub const HELD_WAIT: Duration = Duration::from_millis(100);
/// How long a port is held back; of several, each for [`RELEASED_EVERY`] longer than the last one.
pub const HELD_FOR: Duration = Duration::from_secs(5);
/// See [`HELD_FOR`].
pub const RELEASED_EVERY: Duration = Duration::from_secs(1);

/// Signals by which a process ends for what it has done itself: ILL, ABRT, BUS, SEGV, SYS (Linux's
/// numbers on all machines that this builds for).
const FAULTS: [i32; 5] = [4, 6, 7, 11, 31];

/// How a data plane ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneExit {
    /// By itself, with that status.
    Exit(i32),
    /// By that signal, from wherever.
    Signal(i32),
    /// The [`Watch`](crate::watch::Watch) has ended it.
    Hung,
    /// The supervisor has killed it: it said what cannot be, or was not ready in time.
    Condemned,
}

impl PlaneExit {
    fn is_from_outside(self) -> bool {
        matches!(self, Self::Signal(_)) && !self.is_fault()
    }

    fn is_fault(self) -> bool {
        match self {
            Self::Exit(_) | Self::Condemned => false,
            Self::Signal(signal) => FAULTS.contains(&signal),
            Self::Hung => true,
        }
    }
}

/// A visit that a worker was in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy {
    /// The port that it visited.
    pub visited: u16,
    /// The port into which it delivered, if it did.
    pub into: Option<u16>,
}

impl Busy {
    fn ports(&self) -> impl Iterator<Item = u16> {
        [Some(self.visited), self.into].into_iter().flatten()
    }
}

/// A request: its front-end and its number.
pub type RequestId = (u32, u32);

/// The consequences of a death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// When to start the next one.
    pub start_at: Instant,
    /// The ports to be quarantined: link down, rings not started.
    pub quarantine: Vec<u16>,
    /// The ports that were quarantined for what another one has done.
    pub release: Vec<u16>,
    /// The requests to be refused, or whose connections are to be closed if they have replies of
    /// their own.
    pub refuse: Vec<RequestId>,
}

/// The deaths so far.
#[derive(Debug, Clone, Default)]
pub struct Restarts {
    /// Not forgotten: as many as count.
    deaths: VecDeque<Instant>,
    waits: usize,
    /// The suspects of the last fault: ports, each with the number of faults in a row, and
    /// requests.
    suspects: (BTreeMap<u16, u32>, Vec<RequestId>),
    quarantines: BTreeMap<u16, Quarantine>,
    /// Receivers that were blamed where the visited port was as suspect, each with that one.
    doubtful: Vec<(u16, u16)>,
    /// Ports that are held back, until when.
    held: BTreeMap<u16, Instant>,
    /// When one was started last because the one before was killed from outside.
    killed: Option<Instant>,
    /// How many in a row.
    kills: u32,
}

/// A port that was blamed.
#[derive(Debug, Clone, Copy)]
struct Quarantine {
    /// How often.
    times: u32,
    /// While it is not served.
    until: Option<Instant>,
}

impl Restarts {
    /// No deaths yet, and these ports are not served, as if they had been blamed now.
    pub fn with_quarantined(ports: impl IntoIterator<Item = u16>, now: Instant) -> Self {
        let mut restarts = Self::default();
        ports.into_iter().for_each(|port| _ = restarts.quarantine(port, now));
        restarts
    }

    /// A data plane has ended. `busy`: what its workers were doing, of the worker that failed alone
    /// where that is known. `in_hand`: the requests that it had got and not done.
    pub fn died(
        &mut self,
        now: Instant,
        end: PlaneExit,
        busy: &[Busy],
        in_hand: &[RequestId],
    ) -> Verdict {
        let mut verdict =
            Verdict { start_at: now, quarantine: vec![], release: vec![], refuse: vec![] };
        if end.is_from_outside() {
            verdict.start_at = self.after_kill(now);
            self.kills = if self.is_in_a_row(now) { self.kills.saturating_add(1) } else { 0 };
            self.killed = Some(verdict.start_at);
            return verdict;
        }
        self.forget(now);
        if self.deaths.len() == FAILING_DEATHS {
            self.deaths.pop_front();
        }
        self.deaths.push_back(now);
        if end.is_fault() {
            verdict.refuse = self.blame_requests(in_hand);
            verdict.quarantine = self.blame_ports(busy);
            verdict.release = self.clear(&verdict.quarantine);
        }
        // A port that is newly blamed is gone when the next one starts.
        let blamed = verdict.quarantine.iter();
        if blamed.filter(|port| self.quarantine(**port, now)).count() == 0 {
            let wait = WAITS[self.waits.min(WAITS.len() - 1)];
            let is_late = end.is_fault() && self.waits >= HELD_FROM;
            let is_held = is_late && self.hold(now, busy);
            verdict.start_at += if is_held { wait.min(HELD_WAIT) } else { wait };
            self.waits = self.waits.saturating_add(1);
        }
        verdict
    }

    /// Whether the one that ends now was started a moment ago, because another one was killed.
    fn is_in_a_row(&self, now: Instant) -> bool {
        self.killed.is_some_and(|last| now < last + KILLED_IN_A_ROW)
    }

    /// When the next one starts if this one was killed from outside.
    fn after_kill(&self, now: Instant) -> Instant {
        let Some(last) = self.killed.filter(|_| self.is_in_a_row(now)) else { return now };
        let wait =
            KILLED_WAIT.saturating_mul(2_u32.saturating_pow(self.kills.saturating_sub(KILLS_FREE)));
        now.max(last + wait.min(WAITS[WAITS.len() - 1]))
    }

    /// Holds these ports back; `false`: all of them were already, or there are none.
    fn hold(&mut self, now: Instant, busy: &[Busy]) -> bool {
        self.held.retain(|_, until| *until > now);
        let before = self.held.len();
        let first = now + HELD_FOR;
        for port in busy.iter().flat_map(Busy::ports) {
            if self.is_blamed(port) {
                continue;
            }
            let next =
                self.held.values().max().map_or(first, |last| first.max(*last + RELEASED_EVERY));
            self.held.entry(port).or_insert(next);
        }
        self.held.len() > before
    }

    /// Whether the port is held back now.
    pub fn is_held(&self, port: u16, now: Instant) -> bool {
        self.held.get(&port).is_some_and(|until| now < *until)
    }

    /// When the next port is to be served that is held back.
    pub fn next_unheld(&self, now: Instant) -> Option<Instant> {
        self.held.values().copied().filter(|until| *until > now).min()
    }

    fn blame_requests(&mut self, in_hand: &[RequestId]) -> Vec<RequestId> {
        let before = std::mem::replace(&mut self.suspects.1, in_hand.to_vec());
        in_hand.iter().copied().filter(|request| before.contains(request)).collect()
    }

    fn blame_ports(&mut self, busy: &[Busy]) -> Vec<u16> {
        let before = std::mem::take(&mut self.suspects.0);
        let faults = |port: u16| before.get(&port).map_or(1, |faults| faults.saturating_add(1));
        let named = busy.iter().flat_map(Busy::ports);
        self.suspects.0 = named.map(|port| (port, faults(port))).collect();
        let is_suspect = |port: &u16| {
            self.suspects.0.get(port).is_some_and(|faults| *faults >= BLAMED_AFTER)
                && !self.is_blamed(*port)
        };
        let into = busy.iter().filter(|busy| busy.into.as_ref().is_some_and(is_suspect));
        let into: Vec<Busy> = into.copied().collect();
        let mut blamed: Vec<u16> = match into.is_empty() {
            true => busy.iter().map(|busy| busy.visited).filter(is_suspect).collect(),
            false => into.iter().filter_map(|busy| busy.into).collect(),
        };
        let as_suspect = into.iter().filter(|busy| is_suspect(&busy.visited));
        let doubtful: Vec<_> =
            as_suspect.filter_map(|busy| Some((busy.into?, busy.visited))).collect();
        self.doubtful.extend(doubtful);
        blamed.sort_unstable();
        blamed.dedup();
        blamed
    }

    /// Whether the port was blamed, and is not served, or cannot be kept from being served.
    fn is_blamed(&self, port: u16) -> bool {
        self.quarantines.get(&port).is_some_and(|it| it.until.is_some())
    }

    /// Receivers that were blamed for what one of these has done.
    fn clear(&mut self, blamed: &[u16]) -> Vec<u16> {
        let cleared = self.doubtful.extract_if(.., |(_, visited)| blamed.contains(visited));
        cleared.map(|(receiver, _)| receiver).collect()
    }

    /// `true`: it was served until now.
    fn quarantine(&mut self, port: u16, now: Instant) -> bool {
        let none = Quarantine { times: 0, until: None };
        let quarantine = self.quarantines.entry(port).or_insert(none);
        if quarantine.until.is_some() {
            return false;
        }
        let doubled = quarantine.times.min(QUARANTINE_DOUBLED_MAX);
        quarantine.until = Some(now + QUARANTINED_FOR * (1 << doubled));
        quarantine.times += 1;
        true
    }

    /// Whether the next death is the first one that counts: the one after it starts at once,
    /// however it ended.
    pub fn is_first(&self, now: Instant) -> bool {
        let is_forgotten = self.deaths.back().is_none_or(|last| now >= *last + FORGOTTEN_AFTER);
        is_forgotten && self.after_kill(now) == now
    }

    /// Whether it fails again and again.
    pub fn is_failing(&self, now: Instant) -> bool {
        let is_forgotten = self.deaths.back().is_none_or(|last| now >= *last + FORGOTTEN_AFTER);
        let span = self.deaths.back().zip(self.deaths.front());
        let is_dense = span.is_some_and(|(last, first)| *last - *first <= FAILING_WITHIN);
        self.deaths.len() == FAILING_DEATHS && is_dense && !is_forgotten
    }

    /// Ports that are not served.
    pub fn quarantined(&self) -> impl Iterator<Item = u16> + '_ {
        self.quarantines.iter().filter(|(_, it)| it.until.is_some()).map(|(port, _)| *port)
    }

    /// Until when a port is not served.
    pub fn quarantined_until(&self, port: u16) -> Option<Instant> {
        self.quarantines.get(&port)?.until
    }

    /// When the next port is to be served again.
    pub fn next_release(&self) -> Option<Instant> {
        self.quarantines.values().filter_map(|it| it.until).min()
    }

    /// Those whose time is over, which are served again.
    pub fn take_released(&mut self, now: Instant) -> Vec<u16> {
        let due =
            self.quarantines.iter_mut().filter(|(_, it)| it.until.is_some_and(|at| at <= now));
        let released: Vec<u16> = due
            .map(|(port, quarantine)| {
                quarantine.until = None;
                *port
            })
            .collect();
        released.iter().for_each(|port| self.forget_blame(*port));
        released
    }

    /// The port is gone, or a user wants it to be tried: it was never blamed.
    pub fn release(&mut self, port: u16) {
        self.quarantines.remove(&port);
        self.held.remove(&port);
        self.forget_blame(port);
    }

    /// It is served again: what it was suspected of counts no more.
    fn forget_blame(&mut self, port: u16) {
        self.doubtful.retain(|(receiver, _)| *receiver != port);
        self.suspects.0.remove(&port);
    }

    /// A fault may be blamed on more than one request: hand them over one by one.
    pub fn is_suspicious(&self, now: Instant) -> bool {
        let is_forgotten = self.deaths.back().is_none_or(|last| now >= *last + FORGOTTEN_AFTER);
        !self.suspects.1.is_empty() && !is_forgotten
    }

    fn forget(&mut self, now: Instant) {
        if self.deaths.back().is_some_and(|last| now >= *last + FORGOTTEN_AFTER) {
            let quarantines = std::mem::take(&mut self.quarantines);
            *self = Self { quarantines, ..Self::default() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILL: PlaneExit = PlaneExit::Signal(9);
    const SEGV: PlaneExit = PlaneExit::Signal(11);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn visits<const N: usize>(ports: [u16; N]) -> [Busy; N] {
        ports.map(|visited| Busy { visited, into: None })
    }

    #[test]
    fn each_restart_waits_longer_until_deaths_are_forgotten() {
        // When it died, in ms; how long the next one waits; whether that is failing.
        let table = [
            (0, 0, false),
            (1, 10, false),
            (20, 100, false),
            (130, 1000, false),
            (1200, 5000, true),
            (6300, 5000, true),
            (20_000, 5000, false),
            (79_999, 5000, false),
            (139_999, 0, false),
            (140_000, 10, false),
        ];
        let (start, mut restarts) = (Instant::now(), Restarts::default());
        assert!(!restarts.is_failing(start));
        for (at, wait, is_failing) in table {
            let now = start + ms(at);
            let verdict = restarts.died(now, PlaneExit::Exit(1), &[], &[]);
            assert_eq!((verdict.start_at - now, at), (ms(wait), at));
            assert_eq!((restarts.is_failing(now), at), (is_failing, at));
        }
    }

    #[test]
    fn one_that_is_killed_from_outside_is_followed_at_once_but_not_all_the_time() {
        let (start, mut restarts) = (Instant::now(), Restarts::default());
        for (at, wait) in [(0, 0), (150, 0), (160, 90), (250, 100), (1000, 0), (60_000, 0)] {
            let now = start + ms(at);
            let verdict = restarts.died(now, KILL, &[], &[]);
            assert_eq!((verdict.start_at - now, at), (ms(wait), at));
            assert!(!restarts.is_failing(now));
        }
    }

    #[test]
    fn those_that_are_killed_one_after_the_other_wait_longer_in_the_end() {
        let (mut now, mut restarts) = (Instant::now(), Restarts::default());
        let mut die = |life_ms| {
            now += ms(life_ms);
            let start_at = restarts.died(now, KILL, &[], &[]).start_at;
            let wait = start_at - now;
            now = start_at;
            wait
        };
        assert_eq!(die(0), ms(0));
        assert!((0..=KILLS_FREE).all(|_| die(50) == ms(50)));
        let waits: Vec<Duration> = (0..8).map(|_| die(50)).collect();
        assert_eq!(waits, [150, 350, 750, 1550, 3150, 4950, 4950, 4950].map(ms));
        assert_eq!(die(400), ms(0), "that one has lived");
        assert_eq!(die(50), ms(50));
    }

    #[test]
    fn failing_ends_when_it_has_run_for_a_minute() {
        let (start, mut restarts) = (Instant::now(), Restarts::default());
        (0..5).for_each(|at| drop(restarts.died(start + ms(at), SEGV, &[], &[])));
        assert!(restarts.is_failing(start + ms(60_003)));
        assert!(!restarts.is_failing(start + ms(60_004)));
    }

    #[test]
    fn two_faults_in_a_row_blame_the_request_and_three_the_port_that_was_there_each_time() {
        let exit = PlaneExit::Exit(1);
        // Two ends, and whether the second one blames the request.
        let table = [
            (SEGV, SEGV, true),
            (PlaneExit::Signal(6), PlaneExit::Signal(7), true),
            (PlaneExit::Signal(4), PlaneExit::Signal(31), true),
            (PlaneExit::Hung, SEGV, true),
            (SEGV, KILL, false),
            (KILL, SEGV, false),
            (KILL, KILL, false),
            (exit, SEGV, false),
            (PlaneExit::Signal(15), PlaneExit::Signal(15), false),
        ];
        for (first, second, blames) in table {
            let (now, mut restarts) = (Instant::now(), Restarts::default());
            let verdict = restarts.died(now, first, &visits([3, 4]), &[(1, 7), (2, 9)]);
            assert_eq!((verdict.quarantine, verdict.refuse), (vec![], vec![]));
            let verdict = restarts.died(now, second, &visits([4, 5]), &[(2, 9), (1, 8)]);
            assert_eq!((verdict.quarantine, verdict.refuse.len()), (vec![], usize::from(blames)));
            let verdict = restarts.died(now, SEGV, &visits([4, 5, 3]), &[]);
            let expected = if blames { vec![4] } else { vec![] };
            assert_eq!(verdict.quarantine, expected, "{first:?} {second:?}");
        }
    }

    #[test]
    fn the_next_one_starts_at_once_when_a_port_is_blamed_for_the_first_time() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        let mut die = |port| restarts.died(now, SEGV, &visits([port]), &[]).start_at - now;
        let waits = [0, 10, 0, 100].map(ms);
        assert_eq!([1, 1, 1, 2].map(&mut die), waits);
        // A port that goes on to be served, such as a tap, is no reason again.
        assert_eq!([1, 1, 1].map(die), [1000, 5000, 5000].map(ms));
    }

    const fn delivers(visited: u16, into: u16) -> Busy {
        Busy { visited, into: Some(into) }
    }

    #[test]
    fn what_faults_have_in_common_is_blamed_the_receiver_before_who_sends_to_it() {
        let visit = visits([1])[0];
        // The visits of each fault; the ports that are blamed then, and those that are no more.
        type Row<'a> = (&'a [Busy], &'a [u16], &'a [u16]);
        let table: [&[Row<'_>]; 5] = [
            &[
                (&[delivers(1, 2)], &[], &[]),
                (&[delivers(3, 2)], &[], &[]),
                (&[delivers(1, 2)], &[2], &[]),
            ],
            // One sends, two receive.
            &[
                (&[delivers(1, 2)], &[], &[]),
                (&[delivers(1, 2)], &[], &[]),
                (&[delivers(1, 2)], &[2], &[]),
            ],
            &[(&[delivers(1, 2)], &[], &[]), (&[delivers(1, 3)], &[], &[]), (&[visit], &[1], &[])],
            // It goes on when the receiver is not served any more.
            &[
                (&[delivers(1, 2)], &[], &[]),
                (&[delivers(1, 2)], &[], &[]),
                (&[delivers(1, 2)], &[2], &[]),
                (&[delivers(1, 3)], &[1], &[2]),
            ],
            &[
                (&[delivers(1, 2), delivers(4, 5)], &[], &[]),
                (&[delivers(1, 2), visits([6])[0]], &[], &[]),
                (&[delivers(3, 2), delivers(4, 5)], &[2], &[]),
            ],
        ];
        for (at, rows) in table.into_iter().enumerate() {
            let (now, mut restarts) = (Instant::now(), Restarts::default());
            for (busy, blamed, cleared) in rows {
                let verdict = restarts.died(now, SEGV, busy, &[]);
                assert_eq!(
                    (at, &verdict.quarantine[..], &verdict.release[..]),
                    (at, *blamed, *cleared)
                );
            }
        }
    }

    /// Ports at random, so that none is named in three faults in a row.
    #[test]
    fn from_the_fourth_fault_in_a_row_on_its_ports_are_held_back_and_others_wait_no_longer() {
        let (start, mut restarts) = (Instant::now(), Restarts::default());
        let mut now = start;
        let pairs = [(1, 2), (3, 4), (1, 2), (1, 3), (2, 4), (5, 6)];
        let mut waits = vec![];
        for (visited, into) in pairs {
            let verdict = restarts.died(now, SEGV, &[delivers(visited, into)], &[]);
            assert_eq!(verdict.quarantine, []);
            waits.push(verdict.start_at - now);
            now = verdict.start_at;
        }
        assert_eq!(waits, [0, 10, 100, 100, 100, 100].map(ms));
        let held: Vec<u16> = (0..9).filter(|port| restarts.is_held(*port, now)).collect();
        assert_eq!(held, [1, 2, 3, 4, 5, 6]);
        let mut released = vec![];
        while let Some(at) = restarts.next_unheld(now) {
            now = at;
            let held = (0..9).filter(|port| restarts.is_held(*port, now)).count();
            released.push((now - start, held));
        }
        assert_eq!(released.iter().map(|(_, held)| *held).collect::<Vec<_>>(), [5, 4, 3, 2, 1, 0]);
        assert!(released.windows(2).all(|two| two[1].0 - two[0].0 >= RELEASED_EVERY));
        let last = released.last().unwrap().0;
        assert!(last < ms(11_000), "{last:?}");
        // A port that is held back already does not make the next start any faster.
        let verdict = restarts.died(now, SEGV, &visits([7]), &[]);
        assert_eq!(verdict.start_at - now, HELD_WAIT);
        let verdict = restarts.died(now, SEGV, &visits([7]), &[]);
        assert_eq!(verdict.start_at - now, WAITS[4]);
    }

    #[test]
    fn the_supervisor_is_not_outside() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        for wait in WAITS {
            let verdict = restarts.died(now, PlaneExit::Condemned, &visits([1]), &[(0, 1)]);
            assert_eq!((verdict.start_at - now, verdict.quarantine.len()), (wait, 0));
        }
    }

    #[test]
    fn a_kill_from_outside_between_faults_does_not_count_and_time_forgets_suspects() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        restarts.died(now, SEGV, &visits([1]), &[]);
        restarts.died(now, KILL, &visits([2]), &[]);
        restarts.died(now, SEGV, &visits([1]), &[]);
        assert_eq!(restarts.died(now, SEGV, &visits([1]), &[]).quarantine, [1]);
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        restarts.died(now, SEGV, &visits([1]), &[]);
        restarts.died(now, SEGV, &visits([1]), &[(0, 1)]);
        assert!(restarts.is_suspicious(now));
        let later = now + FORGOTTEN_AFTER;
        assert!(!restarts.is_suspicious(later));
        let verdict = restarts.died(later, SEGV, &visits([1]), &[(0, 1)]);
        assert_eq!((verdict.quarantine, verdict.refuse), (vec![], vec![]));
    }

    #[test]
    fn a_quarantined_port_is_tried_again_each_time_later() {
        let (mut now, mut restarts) = (Instant::now(), Restarts::default());
        for times in 0..10 {
            (0..BLAMED_AFTER).for_each(|_| drop(restarts.died(now, SEGV, &visits([1]), &[])));
            let pause = QUARANTINED_FOR * (1 << times.min(QUARANTINE_DOUBLED_MAX));
            assert_eq!(restarts.next_release(), Some(now + pause));
            assert_eq!(restarts.take_released(now + pause - ms(1)), []);
            now += pause;
            assert_eq!(restarts.take_released(now), [1]);
            assert_eq!((restarts.quarantined().count(), restarts.next_release()), (0, None));
        }
        restarts.release(1);
        (0..BLAMED_AFTER).for_each(|_| drop(restarts.died(now, SEGV, &visits([1]), &[])));
        assert_eq!(restarts.quarantined_until(1), Some(now + QUARANTINED_FOR));
        let restarts = Restarts::with_quarantined(restarts.quarantined(), now + ms(5));
        assert_eq!(restarts.next_release(), Some(now + ms(5) + QUARANTINED_FOR));
    }

    /// Blamed once more, for what it has done itself, it is not released with its old quarantine.
    #[test]
    fn a_doubt_ends_with_the_quarantine_that_it_is_about() {
        let (mut now, mut restarts) = (Instant::now(), Restarts::default());
        let into_two = [Busy { visited: 1, into: Some(2) }];
        let blamed =
            (0..BLAMED_AFTER).flat_map(|_| restarts.died(now, SEGV, &into_two, &[]).quarantine);
        assert_eq!(blamed.collect::<Vec<_>>(), [2]);
        // It ends all the time, so that nothing is forgotten.
        let end = now + QUARANTINED_FOR;
        while now < end {
            now += FORGOTTEN_AFTER / 2;
            restarts.died(now, PlaneExit::Exit(1), &[], &[]);
        }
        assert_eq!(restarts.take_released(now), [2]);
        let verdict = restarts.died(now, SEGV, &visits([1]), &[]);
        assert_eq!((verdict.quarantine, verdict.release), (vec![1], vec![]));
    }

    #[test]
    fn a_quarantined_port_stays_so_until_it_is_released() {
        let (now, mut restarts) = (Instant::now(), Restarts::default());
        (0..BLAMED_AFTER).for_each(|_| drop(restarts.died(now, SEGV, &visits([1]), &[])));
        restarts.died(now + FORGOTTEN_AFTER * 2, KILL, &[], &[]);
        assert_eq!(restarts.quarantined().collect::<Vec<_>>(), [1]);
        restarts.release(1);
        assert_eq!(restarts.quarantined().count(), 0);
        assert_eq!(restarts.died(now, SEGV, &visits([1]), &[]).quarantine, [], "tried anew");
    }
}
