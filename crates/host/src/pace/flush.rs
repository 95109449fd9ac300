//! What a port does as its pace says: it publishes, calls, and asks to be kicked.

use ringway_device::Queue;
use ringway_net::Nanos;
use ringway_net::moderation::Policy;

use super::Flush;
use crate::os::clock::now;
use crate::port::{End, GuestEnd, Port};

/// What a flush leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlushOutcome {
    /// The guest may sleep through the call: look later whether it has heard it.
    pub(crate) call_again: bool,
    /// Its transmitq is to be visited: it need not kick about answers to what it got.
    pub(crate) visit: bool,
}

impl GuestEnd {
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
        let is_packets = queue == Queue::ToGuest;
        if is_packets && is_wanted {
            self.pace.called(flush.now);
        }
        let visit = is_packets && self.pace.relies_on_polling();
        FlushOutcome { call_again, visit }
    }

    /// Nothing is left in the transmitq, and the worker looks there again without arming it.
    pub(crate) fn keep_polling(&mut self, now: Nanos) {
        self.pace.polls(now);
        self.queues.watch_requests(self.pace.wants_requests());
    }

    /// Nothing is left in the transmitq: the guest kicks as is planned; `false`: something came
    /// meanwhile.
    pub(crate) fn arm_idle(&mut self) -> bool {
        let arm = self.pace.idle(now());
        self.queues.watch_requests(self.pace.wants_requests());
        !self.queues.arm_kicks(Queue::FromGuest, arm)
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
        for (queue, is_held) in held {
            let calls = is_held && self.queues.must_call(queue);
            call_again |= calls && self.call(queue);
        }
        call_again
    }

    /// Makes everything visible and notifies whatever the policy says: the queue stops.
    pub(crate) fn flush_last(&mut self, queue: Queue) {
        self.queues.publish(queue);
        self.pace.stop(queue);
        if self.queues.must_call(queue) {
            self.call(queue);
        }
    }
}

/// What the ends of timers leave to do at one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ended {
    /// See [`FlushOutcome::call_again`].
    pub(crate) call_again: bool,
    /// Its transmitq is to be visited.
    pub(crate) visit: bool,
    /// Its queues without a kick fd are to be looked at.
    pub(crate) look: bool,
}

impl Port {
    /// When the worker has to come back to it.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        match &self.end {
            End::Guest(guest) => [guest.pace.wake_at(), guest.poll_at].into_iter().flatten().min(),
            End::Tap(_) | End::Absent => None,
        }
    }

    /// Does what was put off until now or earlier.
    pub(crate) fn end_timers(&mut self, now: Nanos) -> Ended {
        let mut ended = Ended::default();
        let End::Guest(guest) = &mut self.end else { return ended };
        ended.look = guest.poll_at.is_some_and(|poll_at| poll_at <= now);
        if guest.pace.wake_at().is_none_or(|wake_at| wake_at > now) {
            return ended;
        }
        let flush = Flush { now, more: false, short: false };
        for queue in [Queue::ToGuest, Queue::FromGuest] {
            ended.call_again |= guest.flush(queue, flush).call_again;
        }
        ended.visit = guest.pace.end_kick_timer(now);
        ended
    }
}
