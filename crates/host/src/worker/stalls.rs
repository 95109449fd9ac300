//! Guests in whose memory page faults sleep, and how they are found.
//!
//! A page of a guest's memory may have to be read from a disk, or its front-end may be taking pages
//! out of the file at this moment (hole punching): the thread that touches it sleeps in a page
//! fault, which no signal ends, and with it all guests of the worker. So who makes that happen
//! again and again must be found, and let go of (ADR 29).
//!
//! Theory of operation: between two readings of the clock a worker does one visit at most. If one
//! takes [`SLOW_NS`], and the thread had page faults and slept meanwhile, other than where it waits
//! for work, the worker *watches* for a while: it forwards one packet at a time, by a copy of its
//! own, so that each step touches the memory of one guest only, and asks the kernel before and
//! after each step whether the thread had a page fault and slept. A guest in whose memory it slept
//! for [`STALLED_MAX_NS`] meanwhile is let go of. A stop of the process, or a processor that others
//! need, is no page fault; memory that is touched for the first time, as a guest does that boots,
//! is one in which the thread does not sleep.
//!
//! Limits: under valgrind nothing is looked into. The visit that makes a worker watch, and the
//! fault that is the last one, take as long as they take. While a worker watches, a packet costs
//! some microseconds more.

use ringway_net::Nanos;
use ringway_net::{NetHeader, PACKET_LEN_MAX, Packet, PacketSource};
use ringway_virtq::{Arm, DeviceQueue, SharedSlice};

use crate::forward::{Fabric, VisitEnd, forward};
use crate::memory::pieces::gather;
use crate::os::clock::now;
use crate::port::Port;
use crate::tap::ioctl::Scratch;
use crate::worker::Worker;
use crate::worker::command::WorkerEvent;

/// What takes longer is looked into, in nanoseconds.
const SLOW_NS: u64 = 5_000_000;

/// A shorter sleep in a step is none that others notice, in nanoseconds.
const STALL_MIN_NS: u64 = 200_000;

/// What the kernel has counted is asked for no more often, in nanoseconds.
const ASK_PAUSE_NS: u64 = 10_000_000;

/// So long may a worker sleep in the memory of one guest while it watches, in nanoseconds.
const STALLED_MAX_NS: u64 = 20_000_000;

/// For how long a worker watches, in nanoseconds: twice as long each time, if it is soon.
const WATCH_MIN_NS: u64 = 2_000_000_000;
const WATCH_MAX_NS: u64 = 64_000_000_000;
/// What was longer ago is forgotten.
const FORGOTTEN_NS: u64 = 600_000_000_000;

/// What the kernel counts of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counts {
    /// Page faults. Those of holes that are punched are not among the *major* ones.
    faults: i64,
    /// How often it has slept.
    sleeps: i64,
    /// How often another thread took its processor.
    preemptions: i64,
    /// Processor time, in nanoseconds.
    ran_ns: u64,
}

impl Counts {
    fn of_this_thread() -> Self {
        // SAFETY: all-zero bytes are a valid `rusage`, which the call fills in; it cannot fail with
        // these arguments.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage
        };
        let faults = usage.ru_majflt + usage.ru_minflt;
        let ran_ns = nanoseconds(usage.ru_utime) + nanoseconds(usage.ru_stime);
        Self { faults, sleeps: usage.ru_nvcsw, preemptions: usage.ru_nivcsw, ran_ns }
    }

    /// Whether a visit since `before` took so long because the thread slept in a page fault; it has
    /// waited for work so often meanwhile.
    fn is_stall(self, before: Self, waits: i64, took_ns: u64) -> bool {
        let has_faults = self.faults > before.faults;
        // Not each wait is a sleep; but if the thread neither ran nor was preempted, it slept.
        let has_slept = self.sleeps - before.sleeps > waits;
        let is_preempted = self.preemptions > before.preemptions;
        let has_run = self.ran_ns.saturating_sub(before.ran_ns) > took_ns / 2;
        has_faults && (has_slept || !is_preempted && !has_run)
    }
}

/// Whether this process runs under valgrind, where one thread runs at a time: each waits for the
/// others in every step.
fn is_simulated() -> bool {
    let preloaded = std::env::var("LD_PRELOAD").unwrap_or_default();
    preloaded.contains("vgpreload")
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
    fn begin() -> Self {
        Self { before: Counts::of_this_thread(), began: now() }
    }

    /// For how long the thread has slept in page faults, in nanoseconds.
    fn stalled_ns(&self) -> u64 {
        let after = Counts::of_this_thread();
        if after.faults == self.before.faults || after.sleeps == self.before.sleeps {
            return 0;
        }
        let took_ns = now().since(self.began);
        // A debugger stops the thread in each system call, and so in this one.
        let is_traced = Counts::of_this_thread().sleeps != after.sleeps;
        if is_traced || took_ns < STALL_MIN_NS { 0 } else { took_ns }
    }
}

/// When a worker watches. Only decides.
#[derive(Debug, Default)]
struct Watch {
    until: Option<Nanos>,
    /// When it began last, and for how long.
    last: Option<(Nanos, u64)>,
}

impl Watch {
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

    /// Whether it ends now.
    fn ends(&mut self, now: Nanos) -> bool {
        self.until.take_if(|until| *until <= now).is_some()
    }
}

/// What a worker keeps of it.
#[derive(Debug)]
pub(crate) struct StallGuard {
    /// What takes as long is looked into, in nanoseconds.
    slow_ns: u64,
    /// When the clock was read last before something that may take long.
    began: Nanos,
    /// What the kernel had counted, and when.
    counts: Counts,
    counted_at: Nanos,
    /// Waits for work since.
    waits: i64,
    watch: Watch,
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
            watch: Watch::default(),
            bounce: Scratch::new(PACKET_LEN_MAX as usize),
        }
    }

    /// The worker's thread begins: what was counted so far is another one's.
    pub(crate) fn start(&mut self) {
        let now = now();
        self.count_now(now);
        self.began = now;
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.watch.until.is_some()
    }

    /// Where a packet is copied to while the worker watches.
    pub(crate) fn bounce(&self) -> SharedSlice {
        self.bounce.bytes()
    }

    /// The thread waits for work, and may sleep.
    pub(crate) fn waits(&mut self) {
        self.waits += 1;
    }

    /// Asks the kernel now and then, so that what it says later is of a short time.
    #[inline]
    fn count(&mut self, now: Nanos) {
        if now.since(self.counted_at) >= ASK_PAUSE_NS {
            self.count_now(now);
        }
    }

    #[inline(never)]
    fn count_now(&mut self, now: Nanos) {
        (self.counts, self.counted_at, self.waits) = (Counts::of_this_thread(), now, 0);
    }

    /// What has begun when the clock was read last is over; how long it took, in nanoseconds.
    #[inline]
    fn took_ns(&mut self, now: Nanos) -> u64 {
        now.since(std::mem::replace(&mut self.began, now))
    }
}

impl Port {
    /// A step in its guest's memory begins.
    #[inline]
    pub(crate) fn step(&self) -> Option<Step> {
        if self.is_watched { Some(Step::begin()) } else { None }
    }

    /// The step is over.
    #[inline]
    pub(crate) fn step_over(&mut self, step: Option<Step>) {
        if let Some(step) = step {
            self.stalled_ns += step.stalled_ns();
        }
    }
}

impl Worker {
    /// The clock was read: the last visit is over, if there was one.
    #[inline]
    pub(crate) fn visit_over(&mut self, now: Nanos) {
        let took_ns = self.stalls.took_ns(now);
        if took_ns >= self.stalls.slow_ns {
            self.look_into_slow_visit(now, took_ns);
        }
    }

    /// What comes now is no sleep of ours any more.
    #[inline]
    pub(crate) fn turn_begins(&mut self) {
        self.stalls.began = self.turn_at;
        self.stalls.count(self.turn_at);
        if self.stalls.is_watching() {
            self.go_on_watching();
        }
    }

    #[cold]
    fn look_into_slow_visit(&mut self, now: Nanos, took_ns: u64) {
        let (before, waits) = (self.stalls.counts, self.stalls.waits);
        self.stalls.count_now(now);
        if self.stalls.counts.is_stall(before, waits, took_ns) {
            self.stalls.watch.begin(now);
            self.ports.iter_mut().for_each(|port| port.is_watched = true);
        }
    }

    #[cold]
    fn go_on_watching(&mut self) {
        for at in 0..self.ports.len() {
            if self.ports[at].stalled_ns >= STALLED_MAX_NS {
                let port = self.ports[at].of;
                self.detach(port);
                self.slots_of(port).into_iter().for_each(|slot| self.at(slot).stalled_ns = 0);
                self.tell(WorkerEvent::Stalled { port });
            }
        }
        let is_over = self.stalls.watch.ends(self.turn_at);
        for port in &mut self.ports {
            // Also those that have joined since.
            port.is_watched = !is_over;
            if is_over {
                port.stalled_ns = 0;
            }
        }
    }
}

/// One packet of a queue, by way of a copy; and for how long the thread slept in its guest's
/// memory.
pub(crate) fn visit_watched<Q: DeviceQueue>(
    from_guest: &mut ringway_device::FromGuest<Q>,
    fabric: &mut Fabric<'_>,
    bounce: SharedSlice,
) -> (VisitEnd, u64) {
    let step = Step::begin();
    from_guest.arm_kicks(Arm::Never);
    let mut source = Watched {
        source: from_guest,
        bounce,
        lent: None,
        payload: [bounce],
        is_popped: false,
        stalled_ns: step.stalled_ns(),
    };
    let visit = forward(&mut source, fabric);
    let stalled_ns = source.end();
    (visit, stalled_ns)
}

/// A source of one packet, which its receivers find in memory of our own.
struct Watched<'a, S> {
    source: &'a mut S,
    bounce: SharedSlice,
    lent: Option<(NetHeader, u32)>,
    payload: [SharedSlice; 1],
    /// Its source is told at the end.
    is_popped: bool,
    stalled_ns: u64,
}

impl<S: PacketSource> Watched<'_, S> {
    fn end(self) -> u64 {
        let step = Step::begin();
        if self.is_popped {
            self.source.pop();
        }
        self.stalled_ns + step.stalled_ns()
    }
}

impl<S: PacketSource> PacketSource for Watched<'_, S> {
    fn peek(&mut self) -> Option<Packet<'_>> {
        if self.is_popped {
            return None;
        }
        if self.lent.is_none() {
            let step = Step::begin();
            if let Some(packet) = self.source.peek() {
                gather(packet.payload, self.bounce);
                self.lent = Some((*packet.header, packet.len));
                self.payload = [self.bounce.split_at(packet.len as usize).0];
            }
            self.stalled_ns += step.stalled_ns();
        }
        let (header, len) = self.lent.as_ref()?;
        Some(Packet { header, payload: &self.payload, len: *len })
    }

    fn segments_done(&self) -> usize {
        self.source.segments_done()
    }

    fn set_segments_done(&mut self, count: usize) {
        self.source.set_segments_done(count);
    }

    fn pop(&mut self) {
        self.is_popped = true;
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
        let mut watch = Watch::default();
        let mut now = 1000;
        for len in [2, 4, 8, 16, 32, 64, 64] {
            watch.begin(at(now));
            assert!(!watch.ends(at(now + len - 1)) && watch.ends(at(now + len)), "{len}");
            assert!(!watch.ends(at(now + len)), "it has ended");
            now += len + 1;
        }
        watch.begin(at(now + FORGOTTEN_NS / SECOND));
        assert_eq!(watch.until, Some(at(now + FORGOTTEN_NS / SECOND + 2)));
    }

    #[test]
    fn what_is_slow_again_prolongs_it() {
        let mut watch = Watch::default();
        watch.begin(at(10));
        watch.begin(at(11));
        assert!(!watch.ends(at(12)) && watch.ends(at(13)));
    }

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
