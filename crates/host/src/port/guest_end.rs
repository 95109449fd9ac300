//! A guest's queue pair: its rings, its memory, how it is notified, and how that is moderated.

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::moderation::Policy;
use ringway_net::{Counters, Nanos};
use ringway_virtq::Arm;

use crate::journal::counts::Counts;
use crate::memory::GuestMemory;
use crate::os::clock::now;
use crate::pace::{Flush, Pace};
use crate::port::notify_fds::NotifyFds;
use crate::port::waits::Waits;

/// Between two polls of a queue whose guest cannot kick, in nanoseconds.
const POLL_PAUSE_NS: u64 = 1_000_000;

/// A transmitq that was left armed is looked at once more after so long, in nanoseconds.
///
/// A guest under software emulation may lose a kick: QEMU 7.2 leaves barriers out where it emulates
/// one processor (`tcg_gen_mb`), so the guest can read what the device asked before its packet is
/// visible, and neither side sees the other's store. Its packets would lie there for ever. One
/// wake-up for each pause of the guest costs nothing that is felt.
const LATE_LOOK_NS: u64 = 2_000_000;

/// A guest's queues with everything that must live as long as they do.
#[derive(Debug)]
pub(crate) struct GuestEnd {
    /// Dropped before the memory that its rings point into.
    pub(crate) queues: AnyGuestPort,
    pub(crate) memory: GuestMemory,
    pub(crate) fds: [NotifyFds; Queue::ALL.len()],
    /// The kicks and calls of the controlq that a data plane before has counted.
    control_before: [u64; 2],
    pub(crate) pace: Pace,
    /// A queue runs without a kick fd: when it is polled next.
    pub(crate) poll_at: Option<Nanos>,
    /// Its transmitq has been left armed after packets: when it is looked at once more.
    pub(crate) late_look_at: Option<Nanos>,
    /// Its transmitq was left so that the guest kicks, or a timer ends; `false`: it is polled.
    pub(crate) is_armed: bool,
    /// Commands wait on its controlq that no kick will announce.
    pub(crate) has_commands: bool,
    /// How long packets wait, if that is counted.
    pub(crate) waits: Option<Box<Waits>>,
}

/// The work that a flush leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlushOutcome {
    /// The guest may sleep through the call: see [`uml`](crate::uml).
    pub(crate) call_again: bool,
    /// Its transmitq is to be visited: it need not kick about answers to what it got.
    pub(crate) visit: bool,
}

/// The work that the ends of timers leave to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TimersEnded {
    /// See [`FlushOutcome::call_again`].
    pub(crate) call_again: bool,
    /// Its transmitq is to be visited.
    pub(crate) visit: bool,
    /// Its queues without a kick fd are to be polled.
    pub(crate) poll: bool,
}

impl GuestEnd {
    pub(crate) fn new(queues: AnyGuestPort, memory: GuestMemory, policy: Policy) -> Self {
        Self {
            queues,
            memory,
            fds: std::array::from_fn(|_| NotifyFds::default()),
            control_before: [0; 2],
            pace: Pace::new(policy),
            poll_at: None,
            late_look_at: None,
            is_armed: false,
            has_commands: false,
            waits: None,
        }
    }

    /// The counters to the guest and from it, with notifications.
    pub(crate) fn counters(&self) -> [Counters; 2] {
        let mut counters = self.queues.counters();
        for (counters, queue) in counters.iter_mut().zip([Queue::ToGuest, Queue::FromGuest]) {
            counters.kicks += self.fds[queue as usize].kicks.total();
            counters.calls += self.fds[queue as usize].calls;
        }
        counters
    }

    /// All that was counted; addresses elsewhere.
    pub(crate) fn counts(&self) -> Counts {
        let refused_commands = self.queues.refused_commands();
        let (ways, control) = (self.counters(), self.control_counts());
        Counts { ways, control, refused_commands, ..Counts::default() }
    }

    /// Goes on from what a data plane before has counted.
    pub(crate) fn add_counts(&mut self, past: &Counts) {
        self.queues.add_counters(&past.ways, past.refused_commands);
        self.control_before = past.control;
    }

    /// Kicks and calls of the controlq.
    pub(crate) fn control_counts(&self) -> [u64; 2] {
        let (fds, [kicks, calls]) = (&self.fds[Queue::Control as usize], self.control_before);
        [kicks + fds.kicks.total(), calls + fds.calls]
    }

    /// Calls the guest about a queue; `true`: see [`call_again`](Self::call_again), later.
    pub(crate) fn call(&mut self, queue: Queue) -> bool {
        let event = self.queues.driver_event(queue);
        self.fds[queue as usize].call(event)
    }

    /// Calls the guest again about each queue whose last call it may have slept through; `true`:
    /// another round is needed.
    pub(crate) fn call_again(&mut self, now: Nanos) -> bool {
        let mut is_needed = false;
        for (queue, fds) in Queue::ALL.into_iter().zip(&mut self.fds) {
            is_needed |= fds.call_again(self.queues.driver_event(queue), now);
        }
        is_needed
    }

    /// Something was published in a queue of which the guest does not want to be told: perhaps
    /// because it slept through all calls (see [`uml`](crate::uml)).
    #[inline]
    fn remind(&mut self, queue: Queue, now: Nanos) {
        let fds = &mut self.fds[queue as usize];
        if fds.is_given_up() {
            fds.repeat(self.queues.driver_event(queue), now);
        }
    }

    /// Whether a queue runs whose guest cannot kick it.
    pub(crate) fn is_polled(&self, queue: Queue) -> bool {
        let fds = &self.fds[queue as usize];
        fds.areas.is_some() && fds.kick.is_none()
    }

    /// Queues or their kick fds are others now, or have just been polled.
    pub(crate) fn plan_poll(&mut self) {
        let is_any = Queue::ALL.into_iter().any(|queue| self.is_polled(queue));
        self.poll_at = is_any.then(|| now().plus(POLL_PAUSE_NS));
    }

    /// Publishes what was put in a queue or taken from it, and calls if it is time to.
    #[inline]
    pub(crate) fn flush(&mut self, queue: Queue, flush: Flush) -> FlushOutcome {
        let moved = self.queues.publish(queue);
        let is_time = match queue {
            Queue::ToGuest => self.pace.gave(moved, self.queues.take_request(), flush),
            Queue::FromGuest => self.pace.took(moved, flush),
            Queue::Control => true,
        };
        let is_wanted = is_time && self.queues.must_call(queue);
        let call_again = is_wanted && self.call(queue);
        if is_time && !is_wanted {
            self.remind(queue, flush.now);
        }
        if let Some(waits) = &mut self.waits {
            waits.flushed(queue, moved.packets, (is_time, is_wanted), flush);
        }
        let is_packets = queue == Queue::ToGuest;
        if is_packets && is_wanted {
            self.pace.called(flush.now);
        }
        let visit = is_packets && self.pace.relies_on_polling();
        FlushOutcome { call_again, visit }
    }

    /// Nothing is left in the transmitq, and the worker polls it without arming it.
    pub(crate) fn keep_polling(&mut self, now: Nanos) {
        self.pace.polls(now);
        self.queues.watch_requests(self.pace.wants_requests());
    }

    /// Nothing is left in the transmitq: the guest kicks as is planned; `false`: something came
    /// meanwhile.
    pub(crate) fn arm_idle(&mut self) -> bool {
        let now = now();
        let has_taken = self.pace.has_taken();
        let arm = self.pace.idle(now);
        if has_taken {
            // A guest that need not kick yet is looked at when its timer ends.
            self.late_look_at = (arm == Arm::Next).then(|| now.plus(LATE_LOOK_NS));
        }
        self.queues.watch_requests(self.pace.wants_requests());
        self.is_armed = !self.queues.arm_kicks(Queue::FromGuest, arm);
        self.is_armed
    }

    /// Follows what the guest has set for its queue pair number `pair`; `true`: see
    /// [`FlushOutcome::call_again`].
    pub(crate) fn follow_coalescing(&mut self, pair: u16) -> bool {
        let held = self.pace.follow_coalescing(&self.queues.control_state().coalescing, pair);
        self.call_held(held)
    }

    /// Follows another policy; `true`: see [`FlushOutcome::call_again`].
    pub(crate) fn follow_policy(&mut self, policy: Policy) -> bool {
        let held = self.pace.follow(policy, now());
        self.call_held(held)
    }

    fn call_held(&mut self, held: [(Queue, bool); 2]) -> bool {
        let mut call_again = false;
        self.waits.iter_mut().for_each(|waits| waits.forget());
        for (queue, is_held) in held {
            let calls = is_held && self.queues.must_call(queue);
            call_again |= calls && self.call(queue);
        }
        call_again
    }

    /// Makes everything visible and notifies without asking the policy: the queue stops.
    pub(crate) fn flush_last(&mut self, queue: Queue) {
        self.queues.publish(queue);
        self.pace.stop(queue);
        self.waits.iter_mut().for_each(|waits| waits.forget());
        if self.queues.must_call(queue) {
            self.call(queue);
        }
    }

    /// When the worker has to come back to it.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        [self.pace.wake_at(), self.poll_at, self.late_look_at].into_iter().flatten().min()
    }

    /// Does what was put off until now or earlier.
    pub(crate) fn end_timers(&mut self, now: Nanos) -> TimersEnded {
        let poll = self.poll_at.is_some_and(|poll_at| poll_at <= now);
        let visit = self.late_look_at.take_if(|look_at| *look_at <= now).is_some();
        let mut ended = TimersEnded { poll, visit, ..TimersEnded::default() };
        if self.pace.wake_at().is_none_or(|wake_at| wake_at > now) {
            return ended;
        }
        let flush = Flush { now, more: false, short: false };
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            ended.call_again |= self.flush(queue, flush).call_again;
        }
        ended.visit |= self.pace.end_kick_timer(now);
        ended
    }
}
