//! What ports do as their pace says: they publish, call, and ask to be kicked.

use ringway_device::Queue;
use ringway_net::notify::{Nanos, Policy};

use super::{Flush, Flushed};
use crate::clock::now_ns;
use crate::port::{End, GuestEnd, Port};

impl GuestEnd {
    /// Makes visible what was put in a queue or taken from it, and notifies if it is time to.
    #[inline]
    pub(crate) fn flush(&mut self, queue: Queue, flush: Flush) -> Flushed {
        let moved = self.queues.publish(queue);
        if queue == Queue::ToGuest && self.queues.has_no_question() {
            self.pace.nobody_asked();
        }
        let is_time = self.pace.gave(queue, moved, self.queues.long_packets(queue), flush);
        let calls = is_time && self.ask_ring(queue);
        let was_asked = queue == Queue::ToGuest && self.queues.take_question();
        if was_asked {
            self.pace.was_asked(flush.now);
        }
        let asked_while_sending = was_asked && self.pace.is_asked_while_sending(flush.now);
        self.owes_look |= queue == Queue::ToGuest && self.pace.expects_answers(moved);
        let mut call_again = calls && self.call(queue);
        if is_time && !calls {
            self.remind(queue, flush.now);
        }
        if queue == Queue::ToGuest && is_time && self.pace.told_of_packets(flush.now, calls) {
            call_again |= self.ask_ring(Queue::FromGuest) && self.call(Queue::FromGuest);
        }
        Flushed { call_again, asked_while_sending }
    }

    /// Nothing is left in the transmitq, and the worker looks there again without arming it.
    pub(crate) fn keep_looking(&mut self, now: Nanos) {
        self.pace.keep_looking(now, self.queues.long_packets(Queue::FromGuest));
        self.queues.watch_questions(self.pace.wants_questions());
    }

    /// Nothing is left in the transmitq: the guest kicks as is planned; `false`: something came
    /// meanwhile.
    pub(crate) fn arm_idle(&mut self) -> bool {
        let long = self.queues.long_packets(Queue::FromGuest);
        let arm = self.pace.idle(Nanos(now_ns()), long);
        self.queues.watch_questions(self.pace.wants_questions());
        !self.queues.arm_kicks(Queue::FromGuest, arm)
    }

    /// Follows what the guest has set for its queue pair number `pair`; `true`: see
    /// [`Flushed::call_again`].
    pub(crate) fn follow_coalescing(&mut self, pair: u16) -> bool {
        let held = self.pace.follow_coalescing(&self.queues.control_state().coalescing, pair);
        self.call_held(held)
    }

    /// Follows another policy; `true`: see [`Flushed::call_again`].
    pub(crate) fn follow_policy(&mut self, policy: Policy) -> bool {
        let held = self.pace.follow(policy, Nanos(now_ns()));
        self.call_held(held)
    }

    /// Whether the guest wants a call.
    fn ask_ring(&mut self, queue: Queue) -> bool {
        let is_wanted = self.queues.must_call(queue);
        if queue == Queue::FromGuest {
            self.pace.ring_said(is_wanted);
        }
        is_wanted
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
    /// See [`Flushed::call_again`].
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
            End::Guest(guest) => [guest.pace.wake_at(), guest.look_at].into_iter().flatten().min(),
            End::Tap(_) | End::Absent => None,
        }
    }

    /// Does what was put off until now or earlier.
    pub(crate) fn end_timers(&mut self, now: Nanos) -> Ended {
        let mut ended = Ended::default();
        let End::Guest(guest) = &mut self.end else { return ended };
        ended.look = guest.look_at.is_some_and(|look_at| look_at <= now);
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
