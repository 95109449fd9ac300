//! How long a thread sleeps in page faults.
//!
//! A page of a guest's memory may have to be read from a disk, or its front-end may be taking pages
//! out of the file at this moment (hole punching): the thread that touches it sleeps in a page
//! fault. The kernel counts faults and sleeps of each thread; here they are asked for before and
//! after a *step*, which touches the memory of one guest only.

use ringway_net::Nanos;
use ringway_virtq::SharedSlice;

use crate::os::clock::now;

/// Pages and pieces of a packet that are looked at, at most.
const LOOKED_AT_MAX: usize = 32;
const PAGE: usize = 4096;

/// A shorter sleep in a step is none that others notice, in nanoseconds.
const STALL_MIN_NS: u64 = 200_000;

/// The kernel's counts of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Page faults. Those of holes that are punched are not among the *major* ones.
    faults: i64,
    /// Those for which a page was read from a disk.
    major: i64,
    /// How often it has slept.
    sleeps: i64,
    /// How often another thread took its processor.
    preemptions: i64,
    /// Processor time, in nanoseconds.
    ran_ns: u64,
}

impl Counts {
    pub(crate) fn of_this_thread() -> Self {
        // SAFETY: all-zero bytes are a valid `rusage`, which the call fills in; it cannot fail with
        // these arguments.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let (faults, major) = (usage.ru_majflt + usage.ru_minflt, usage.ru_majflt);
        let ran_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
        Self { faults, major, sleeps: usage.ru_nvcsw, preemptions: usage.ru_nivcsw, ran_ns }
    }

    #[cfg(test)]
    pub(crate) fn with_fewer_faults(self, faults: i64) -> Self {
        Self { faults: self.faults - faults, ..self }
    }

    /// Page faults since `before`.
    pub(crate) fn faults_since(self, before: Self) -> i64 {
        self.faults - before.faults
    }

    /// Whether a visit since `before` took so long because the thread slept in a page fault; it has
    /// waited for work so often meanwhile.
    pub(crate) fn is_stall(self, before: Self, waits: i64, took_ns: u64) -> bool {
        let has_faults = self.faults > before.faults;
        // Not each wait is a sleep; but if the thread neither ran nor was preempted, it slept.
        let has_slept = self.sleeps - before.sleeps > waits;
        let is_preempted = self.preemptions > before.preemptions;
        let has_run = self.ran_ns.saturating_sub(before.ran_ns) > took_ns / 2;
        has_faults && (has_slept || !is_preempted && !has_run)
    }
}

fn nanoseconds(time: libc::timeval) -> u64 {
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_usec * 1000).unwrap_or(0)
}

/// A step in one guest's memory that has begun while the worker watches.
#[derive(Debug)]
pub(crate) struct Step {
    began: Nanos,
    before: Counts,
}

impl Step {
    pub(crate) fn begin() -> Self {
        Self { before: Counts::of_this_thread(), began: now() }
    }

    /// For how long the thread has slept in page faults, in nanoseconds.
    pub(crate) fn stalled_ns(&self) -> u64 {
        let after = Counts::of_this_thread();
        if after.faults == self.before.faults || after.sleeps == self.before.sleeps {
            return 0;
        }
        let took_ns = now().since(self.began);
        // A debugger stops the thread in each system call, and so in this one.
        let is_traced = Counts::of_this_thread().sleeps != after.sleeps;
        if is_traced || took_ns < STALL_MIN_NS { 0 } else { took_ns }
    }

    /// Whether pages were mapped or made, and none was read from a disk.
    pub(crate) fn has_touched(&self) -> bool {
        let after = Counts::of_this_thread();
        after.faults > self.before.faults && after.major == self.before.major
    }
}

/// Pages of these pieces that are not there, of the first [`LOOKED_AT_MAX`] of each: the file has
/// none, or they are on a disk. 0 where the kernel does not say (`mincore(2)`).
pub(crate) fn missing_pages(pieces: &[SharedSlice]) -> u32 {
    let of = |piece: &SharedSlice| {
        let start = piece.as_ptr().addr();
        let first = start - start % PAGE;
        let pages = (start + piece.len() - first).div_ceil(PAGE).min(LOOKED_AT_MAX);
        let mut there = [1_u8; LOOKED_AT_MAX];
        let first = piece.as_ptr().map_addr(|_| first).cast();
        // SAFETY: the call reads no memory of the range, which need not even be mapped, and writes
        // a byte for each of its pages, of which there are no more than `there` has.
        unsafe { libc::mincore(first, pages * PAGE, there.as_mut_ptr()) };
        there.iter().filter(|there| **there & 1 == 0).count()
    };
    let missing: usize = pieces.iter().take(LOOKED_AT_MAX).map(of).sum();
    u32::try_from(missing).unwrap_or(u32::MAX)
}

/// How long the thread has slept in the memory of one guest while it was timed.
#[derive(Debug, Default)]
pub(crate) struct FaultTime {
    /// Steps in the guest's memory are timed, for one of these two reasons.
    is_timed: bool,
    is_watched: bool,
    is_on_disk: bool,
    /// In nanoseconds.
    pub(crate) stalled_ns: u64,
    /// Pages that were not there when the guest sent packets in them, while it was timed.
    pub(crate) untouched: u32,
    /// Visits while it was timed.
    pub(crate) timed_visits: u32,
}

impl FaultTime {
    /// The worker watches, or does not; what was before it began is forgotten.
    pub(crate) fn watch(&mut self, is_watched: bool) {
        if std::mem::replace(&mut self.is_watched, is_watched) != is_watched {
            self.stalled_ns = 0;
        }
        self.is_timed = self.is_watched || self.is_on_disk;
    }

    /// The guest's memory is a file on a disk, or is not.
    pub(crate) fn use_memory(&mut self, is_on_disk: bool) {
        self.is_on_disk = is_on_disk;
        self.is_timed = self.is_watched || self.is_on_disk;
    }

    /// Whether the guest's packets go one by one, by way of a copy.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Adds the findings of a visit while the guest was timed.
    #[inline]
    pub(crate) fn note(&mut self, stalled_ns: u64, untouched: u32) {
        self.stalled_ns += stalled_ns;
        self.untouched = self.untouched.saturating_add(untouched);
        self.timed_visits = self.timed_visits.wrapping_add(u32::from(self.is_timed));
    }

    /// A step begins, which may have to be timed.
    #[inline]
    pub(crate) fn step(&self) -> Option<Step> {
        if self.is_timed { Some(Step::begin()) } else { None }
    }

    /// The step is over; `true`: the thread has slept in it.
    #[inline]
    pub(crate) fn step_over(&mut self, step: Option<Step>) -> bool {
        let Some(step) = step else { return false };
        let stalled_ns = step.stalled_ns();
        self.stalled_ns += stalled_ns;
        stalled_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_without_a_page_fault_is_none_of_the_guests() {
        let step = Step::begin();
        std::thread::sleep(std::time::Duration::from_millis(2));
        // This test's own code may have been touched for the first time.
        let is_quiet = Counts::of_this_thread().faults == step.before.faults;
        assert!(!is_quiet || step.stalled_ns() == 0);
    }

    #[test]
    fn a_slow_visit_is_a_stall_if_nothing_else_explains_it() {
        let counts = |faults, sleeps, preemptions, ran_ms: u64| Counts {
            faults,
            major: 0,
            sleeps,
            preemptions,
            ran_ns: ran_ms * 1_000_000,
        };
        let before = counts(10, 20, 30, 40);
        let table = [
            ("nothing", counts(10, 20, 30, 41), 0, false),
            ("a stop, or a preemption, without faults", counts(10, 21, 31, 41), 0, false),
            ("first touches, and a preemption", counts(99, 20, 31, 41), 0, false),
            ("the same after a sleep for work", counts(99, 21, 31, 41), 1, false),
            ("many first touches", counts(9999, 21, 30, 48), 1, false),
            ("a fault that slept", counts(11, 21, 30, 41), 0, true),
            ("a fault that slept, and a preemption", counts(11, 21, 31, 41), 0, true),
            ("a fault that slept after a wait that did not", counts(11, 21, 30, 41), 1, true),
        ];
        for (case, after, waits, expected) in table {
            assert_eq!(after.is_stall(before, waits, 10_000_000), expected, "{case}");
        }
    }
}
