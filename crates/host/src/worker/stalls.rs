//! Guests in whose memory page faults sleep, or make pages, and how they are found.
//!
//! A page of a guest's memory may have to be read from a disk, or its front-end may be taking pages
//! out of the file at this moment (hole punching): the thread that touches it sleeps in a page
//! fault, which no signal ends, and with it all guests of the worker. So a guest that makes that
//! happen again and again must be found, and the worker must stop using its memory (ADR 29).
//!
//! Theory of operation: between two readings of the clock a worker does one visit at most. If one
//! takes [`SLOW_NS`], and the thread had page faults and slept meanwhile, other than where it waits
//! for work, the worker *watches* for a while: it forwards one packet at a time, by a copy of its
//! own, so that each step touches the memory of one guest only, and asks the kernel before and
//! after each step whether the thread had a page fault and slept. The worker stops using the memory
//! of a guest in which it slept for [`STALLED_MAX_NS`] meanwhile. A stop of the process, or a
//! processor that others need, is no page fault. In a page fault of memory that is touched for the
//! first time, as by a guest that boots, the thread does not sleep.
//!
//! To read a packet in memory that was never touched makes pages in the guest's file, which the
//! kernel counts against the limit of ringway's group, for all guests. So after [`FIRST_TOUCHES`]
//! page faults a worker watches for [`GLANCE_NS`] and [`GLANCE_VISITS`], and asks of each packet
//! whether its pages are there, for as long as some are not: the worker stops using the memory of a
//! guest of which [`UNTOUCHED_MAX`] were not. Buffers for packets to the guest may be untouched.
//!
//! Limits: under valgrind slow visits are ignored. The visit that makes a worker watch, and the
//! fault that is the last one, take as long as they take. While a worker watches, a packet costs
//! some microseconds more.

use ringway_net::{Nanos, PACKET_LEN_MAX};
use ringway_switch::PortId;
use ringway_virtq::SharedSlice;

use crate::memory::scratch::Scratch;
use crate::os::clock::now;
use crate::os::page_faults::Counts;
use crate::port::queue_pair::QueuePair;
use crate::port::table::PortTable;

/// A visit that takes longer is slow, in nanoseconds.
const SLOW_NS: u64 = 5_000_000;

/// The kernel's counts are asked for no more often, in nanoseconds.
const ASK_PAUSE_NS: u64 = 2_000_000;

/// The longest time that a worker may sleep in the memory of one guest while it watches, in
/// nanoseconds.
const STALLED_MAX_NS: u64 = 20_000_000;

/// No thread falls asleep and is woken in less, in nanoseconds.
const SLEEP_MIN_NS: u64 = 2_000;

/// For how long a worker watches, in nanoseconds: twice as long each time, if it is soon. A
/// front-end that fills 1 GiB and punches it out again needs 1 to 4 seconds.
const WATCH_MIN_NS: u64 = 8_000_000_000;
const WATCH_MAX_NS: u64 = 64_000_000_000;
/// Page faults of a worker that make it look at what guests send, and for how long: in nanoseconds,
/// and in visits, because on a loaded machine guests may stand still for longer than that. Not
/// sooner again than after a pause.
const FIRST_TOUCHES: i64 = 1000;
const GLANCE_NS: u64 = 20_000_000;
const GLANCE_VISITS: u32 = 64;
const GLANCE_PAUSE_NS: u64 = 100_000_000;
/// Pages of one guest that were not there when it sent them. A guest that sends what it has written
/// has none; a generator of packets may have some in each of its buffers.
const UNTOUCHED_MAX: u32 = 4096;
/// A watch that began longer ago is forgotten, in nanoseconds.
const FORGOTTEN_NS: u64 = 600_000_000_000;

/// Whether this process runs under valgrind, where one thread runs at a time: each waits for the
/// others in every step.
fn is_simulated() -> bool {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    preloaded.contains("vgpreload")
}

/// When a worker watches. Only decides.
#[derive(Debug, Default)]
struct WatchPeriod {
    until: Option<Nanos>,
    /// When it began last, and for how long.
    last: Option<(Nanos, u64)>,
}

impl WatchPeriod {
    /// A visit was slow because of a page fault.
    fn begin(&mut self, now: Nanos) {
        if self.until.is_none() {
            let is_soon = |(at, _): &(Nanos, u64)| now.since(*at) < FORGOTTEN_NS;
            let len = self.last.filter(is_soon).map_or(WATCH_MIN_NS, |(_, len)| len * 2);
            self.last = Some((now, len.min(WATCH_MAX_NS)));
        }
        let len = self.last.map_or(WATCH_MIN_NS, |(_, len)| len);
        self.until = Some(now.plus(len));
    }

    /// Page faults have made the worker look.
    fn glance(&mut self, now: Nanos) {
        self.until = self.until.max(Some(now.plus(GLANCE_NS)));
    }

    /// Whether it ends now.
    fn ends(&mut self, now: Nanos) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}

/// The state of a worker's search for such guests.
#[derive(Debug)]
pub(crate) struct StallGuard {
    /// A visit that takes as long is slow, in nanoseconds.
    slow_ns: u64,
    /// When the clock was read last before something that may take long.
    began: Nanos,
    /// The kernel's counts, and when it was asked for them.
    counts: Counts,
    counted_at: Nanos,
    /// Waits for work since.
    waits: i64,
    watch: WatchPeriod,
    /// The kernel's counts when the worker last looked at what guests send, and when that was.
    glanced: Counts,
    glanced_at: Option<Nanos>,
    /// Visits that the glance still has to see, and those that were seen before.
    visits_left: u32,
    timed_visits: u32,
    /// Pages that were not there when guests sent them, of all guests.
    untouched: u32,
    bounce: Scratch,
}

impl StallGuard {
    pub(crate) fn new() -> Self {
        Self {
            slow_ns: if is_simulated() { u64::MAX } else { SLOW_NS },
            began: now(),
            counts: Counts::of_this_thread(),
            counted_at: Nanos(0),
            waits: 0,
            watch: WatchPeriod::default(),
            glanced: Counts::of_this_thread(),
            glanced_at: None,
            visits_left: 0,
            timed_visits: 0,
            untouched: 0,
            bounce: Scratch::new(PACKET_LEN_MAX as usize),
        }
    }

    /// The worker's thread begins: what was counted so far is another one's.
    pub(crate) fn start(&mut self) {
        let now = now();
        self.count_now(now);
        (self.began, self.glanced) = (now, self.counts);
    }

    /// No visit counts as slow: on a loaded machine every test would watch now and then.
    #[cfg(test)]
    pub(crate) fn ignore_slow_visits(&mut self) {
        self.slow_ns = u64::MAX;
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.watch.until.is_some()
    }

    /// Where a packet is copied to while the worker watches.
    pub(crate) fn bounce(&self) -> SharedSlice {
        self.bounce.bytes()
    }

    /// The thread has waited for work for so long. One that finds some at once has not slept: it
    /// would hide a sleep in a page fault.
    pub(crate) fn waited(&mut self, waited_ns: u64) {
        self.waits += i64::from(waited_ns >= SLEEP_MIN_NS);
    }

    /// Asks the kernel now and then, so that what it says later is of a short time.
    #[inline]
    fn count(&mut self, now: Nanos) {
        if now.since(self.counted_at) >= ASK_PAUSE_NS {
            self.count_now(now);
            self.glance(now);
        }
    }

    /// Looks at what guests send, if there were page faults enough to ask whose they are.
    fn glance(&mut self, now: Nanos) {
        let is_soon = self.glanced_at.is_some_and(|at| now.since(at) < GLANCE_PAUSE_NS);
        if self.counts.faults_since(self.glanced) < FIRST_TOUCHES || is_soon {
            return;
        }
        (self.glanced, self.glanced_at) = (self.counts, Some(now));
        if self.slow_ns < u64::MAX {
            self.visits_left = GLANCE_VISITS;
            self.watch.glance(now);
        }
    }

    #[inline(never)]
    fn count_now(&mut self, now: Nanos) {
        (self.counts, self.counted_at, self.waits) = (Counts::of_this_thread(), now, 0);
    }

    /// The clock was read: the last visit is over, if there was one.
    #[inline]
    pub(crate) fn visit_over(&mut self, now: Nanos, ports: &mut PortTable) {
        let took_ns = now.since(std::mem::replace(&mut self.began, now));
        if took_ns >= self.slow_ns {
            self.look_into_slow_visit(now, took_ns, ports);
        }
    }

    /// A turn begins now: what comes from here on is no sleep of the worker's own.
    #[inline]
    pub(crate) fn turn_begins(&mut self, now: Nanos) {
        self.began = now;
        self.count(now);
    }

    #[cold]
    fn look_into_slow_visit(&mut self, now: Nanos, took_ns: u64, ports: &mut PortTable) {
        let (before, waits) = (self.counts, self.waits);
        self.count_now(now);
        if self.counts.is_stall(before, waits, took_ns) {
            self.watch.begin(now);
            ports.slots.iter_mut().for_each(|pair| pair.faults.watch(true));
        }
    }

    /// A port in whose guest's memory the worker has slept for too long; told once.
    #[cold]
    pub(crate) fn take_stalled(&self, ports: &mut PortTable) -> Option<PortId> {
        let is_stalled = |pair: &QueuePair| {
            pair.faults.stalled_ns >= STALLED_MAX_NS || pair.faults.untouched >= UNTOUCHED_MAX
        };
        let port = ports.slots.iter().find(|pair| is_stalled(pair))?.port;
        for slot in ports.slots_of(port) {
            let faults = &mut ports.at(slot).faults;
            (faults.stalled_ns, faults.untouched) = (0, 0);
        }
        Some(port)
    }

    /// The worker watches on, or its time is over.
    #[cold]
    pub(crate) fn watch_on(&mut self, now: Nanos, ports: &mut PortTable) {
        let faults = || ports.slots.iter().map(|pair| &pair.faults);
        let visits = faults().fold(0, |sum: u32, it| sum.wrapping_add(it.timed_visits));
        let visits_before = std::mem::replace(&mut self.timed_visits, visits);
        // Fewer where a port has gone: then it looks for no longer.
        self.visits_left = self.visits_left.saturating_sub(visits.wrapping_sub(visits_before));
        let untouched = faults().fold(0, |sum: u32, it| sum.saturating_add(it.untouched));
        let untouched_before = std::mem::replace(&mut self.untouched, untouched);
        if untouched > untouched_before || self.visits_left > 0 {
            self.watch.glance(now);
        }
        let is_over = self.watch.ends(now);
        for pair in &mut ports.slots {
            // Also those that have joined since.
            pair.faults.watch(!is_over);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * SECOND)
    }

    #[test]
    fn a_worker_watches_longer_each_time_until_it_is_forgotten() {
        let mut watch = WatchPeriod::default();
        let mut now = 1000;
        for len in [8, 16, 32, 64, 64] {
            watch.begin(at(now));
            assert!(!watch.ends(at(now + len - 1)) && watch.ends(at(now + len)), "{len}");
            assert!(!watch.ends(at(now + len)), "it has ended");
            now += len + 1;
        }
        watch.begin(at(now + FORGOTTEN_NS / SECOND));
        assert_eq!(watch.until, Some(at(now + FORGOTTEN_NS / SECOND + 8)));
    }

    #[test]
    fn only_waits_in_which_the_thread_slept_count() {
        let mut guard = StallGuard::new();
        for waited_ns in [0, 300, SLEEP_MIN_NS - 1, SLEEP_MIN_NS, 1_000_000] {
            guard.waited(waited_ns);
        }
        assert_eq!(guard.waits, 2);
    }

    #[test]
    fn page_faults_make_a_worker_look_now_and_then() {
        let mut guard = StallGuard::new();
        let mut looks = |faults, now| {
            guard.glanced = guard.counts.with_fewer_faults(faults);
            guard.glance(now);
            guard.watch.ends(now.plus(GLANCE_NS))
        };
        assert!(!looks(FIRST_TOUCHES - 1, at(5)) && looks(FIRST_TOUCHES, at(5)));
        let soon = Nanos(at(5).0 + GLANCE_PAUSE_NS - 1);
        assert!(!looks(FIRST_TOUCHES, soon));
        assert!(looks(FIRST_TOUCHES, at(5).plus(GLANCE_PAUSE_NS)));
    }

    #[test]
    fn a_glance_is_short_and_changes_nothing_of_a_longer_watch() {
        let mut watch = WatchPeriod::default();
        watch.glance(at(1));
        let end = at(1).plus(GLANCE_NS);
        assert!(!watch.ends(Nanos(end.0 - 1)) && watch.ends(end));
        watch.begin(at(10));
        watch.glance(at(11));
        assert!(!watch.ends(at(17)) && watch.ends(at(18)));
        watch.begin(at(20));
        assert!(!watch.ends(at(35)) && watch.ends(at(36)), "a glance was none of the watches");
    }

    #[test]
    fn what_is_slow_again_prolongs_it() {
        let mut watch = WatchPeriod::default();
        watch.begin(at(10));
        watch.begin(at(11));
        assert!(!watch.ends(at(18)) && watch.ends(at(19)));
    }
}
