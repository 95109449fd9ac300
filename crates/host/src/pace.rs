//! When a guest is told, and when it shall tell: the policies of `ringway_net::notify` on the queues
//! of one port.
//!
//! Three directions are paced: calls on the receiveq, calls on the transmitq for buffers that go
//! back, and kicks of the transmitq. A plan that waits leaves a moment at which the worker comes
//! back; the worker sleeps until the first of them at most.
//!
//! A guest that has set coalescing is called as it said, whatever the port's policy is: they are
//! its interrupts. How it kicks is still the policy's business.
//!
//! While the worker lets a guest that sends or receives a stream wait, it wants to hear of questions to
//! the guest: the answer comes in the same pair's transmitq, and the next question behind the stream.
//!
//! Limits: the moment is kept to the worker's timer slack and to the length of a visit. An answer that
//! comes by another queue pair than the question waits like any packet.

mod direction;
mod ports;

use ringway_device::{Queue, QueueId};
use ringway_net::notify::{Cause, Nanos, Notifier, Policy, STREAM_PACKETS, Side, Turns, Visit};
use ringway_net::{Coalescing, Counters};
use ringway_virtq::Arm;

use crate::clock::now_ns;
use direction::Direction;

/// What a guest's directions are doing, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceSnapshot {
    /// Which queue.
    pub queue: QueueId,
    /// Which direction of it: `calls` for packets, `returns` for used transmit buffers, `kicks`.
    pub direction: &'static str,
    /// Packets so far that this is about.
    pub packets: u64,
    /// Notifications so far.
    pub notifications: u64,
    /// Packets that may pass before the other side is told.
    pub window: u32,
    /// How long at most anything waits for the window to fill, in nanoseconds.
    pub timer_ns: u64,
    /// Why the window was last changed.
    pub cause: Cause,
}

/// How one guest's queues are paced. It reads no clock and touches no ring, so that a simulation drives the
/// same one.
#[derive(Debug)]
pub struct Pace {
    policy: Policy,
    /// Of calls about packets.
    calls_policy: Policy,
    calls: Direction,
    returns: Direction,
    kicks: Direction,
    /// Packets taken from the guest since its queue was last idle.
    taken: u32,
    /// Long packets to the guest and from it at the last visit of each, if there was one.
    long_before: [Option<u64>; 2],
    /// Long packets from the guest when its queue was last armed; not known if it never was, or
    /// something was taken unarmed since.
    long_armed: Option<u64>,
    /// None of the packets to the guest that are handed in next is a question.
    has_no_question: bool,
    /// Who asks, the guest or somebody else.
    turns: Turns,
    /// Entries of the receiveq and of the transmitq.
    sizes: [u16; 2],
}

/// How a visit of a port went, for whoever is told about it.
#[derive(Debug, Clone, Copy)]
pub struct Flush {
    /// When the visit ended.
    pub now: Nanos,
    /// The source has more: the worker comes back at once.
    pub more: bool,
    /// The guest has no buffers left, and must hear of what it got to post new ones.
    pub short: bool,
}

impl Flush {
    /// A visit has ended here, and nothing more is at hand.
    pub(crate) fn at_end() -> Self {
        Self { now: Nanos(now_ns()), more: false, short: false }
    }

    /// The guest has no buffers left.
    pub(crate) fn short() -> Self {
        Self { short: true, ..Self::at_end() }
    }
}

/// What a flush leaves to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Flushed {
    /// The guest may sleep through the call: look later whether it has heard it.
    pub(crate) call_again: bool,
    /// The guest was asked something while it sends long packets: see `ready`.
    pub(crate) asked_while_sending: bool,
}

impl Pace {
    /// All three directions under the same policy.
    pub fn new(policy: Policy) -> Self {
        Self::with_calls(policy, policy)
    }

    /// Calls about packets under a policy of their own.
    pub fn with_calls(policy: Policy, calls_policy: Policy) -> Self {
        Self {
            policy,
            calls_policy,
            calls: Direction::new(Notifier::new(calls_policy, 1)),
            returns: Direction::new(Notifier::for_returns(policy, 1)),
            kicks: Direction::new(Notifier::new(policy, 1)),
            taken: 0,
            long_before: [None; 2],
            long_armed: None,
            has_no_question: false,
            turns: Turns::default(),
            sizes: [1; 2],
        }
    }

    /// A queue of `size` entries starts: nothing is known about its traffic.
    pub fn start(&mut self, queue: Queue, size: u16) {
        match queue {
            Queue::ToGuest => {
                self.calls = Direction::new(Notifier::new(self.calls_policy, size));
                self.sizes[0] = size;
            }
            Queue::FromGuest => {
                self.returns = Direction::new(Notifier::for_returns(self.policy, size));
                self.kicks = Direction::new(Notifier::new(self.policy, size));
                self.taken = 0;
                self.sizes[1] = size;
            }
            Queue::Control => {}
        }
    }

    /// A queue has stopped: its timers must not wake anybody.
    pub(crate) fn stop(&mut self, queue: Queue) {
        match queue {
            Queue::ToGuest => self.calls.wake_at = None,
            Queue::FromGuest => (self.returns.wake_at, self.kicks.wake_at) = (None, None),
            Queue::Control => {}
        }
    }

    /// What the guest has set for its queue pair number `pair`; which queues must be told now of
    /// what was held back.
    fn follow_coalescing(&mut self, coalescing: &Coalescing, pair: u16) -> [(Queue, bool); 2] {
        let [to, from] = [2 * pair, 2 * pair + 1].map(|queue| coalescing.of(queue));
        let ([to_size, from_size], policy, calls_policy) =
            (self.sizes, self.policy, self.calls_policy);
        let calls = || Notifier::new(calls_policy, to_size);
        let returns = || Notifier::for_returns(policy, from_size);
        [
            (Queue::ToGuest, self.calls.follow_limits(to, to_size, calls)),
            (Queue::FromGuest, self.returns.follow_limits(from, from_size, returns)),
        ]
    }

    /// Another policy from now on; which queues must be told now of what was held back.
    fn follow(&mut self, policy: Policy, now: Nanos) -> [(Queue, bool); 2] {
        let [to, from] = self.sizes;
        (self.policy, self.calls_policy) = (policy, policy);
        if self.kicks.follow(Notifier::new(policy, from)) {
            // The old policy's timer was all that it had instead of a kick.
            self.kicks.wake_at = Some(now);
        }
        [
            (Queue::ToGuest, self.calls.follow(Notifier::new(policy, to))),
            (Queue::FromGuest, self.returns.follow(Notifier::for_returns(policy, from))),
        ]
    }

    /// What is handed in next to the guest is no question.
    pub fn nobody_asked(&mut self) {
        self.has_no_question = true;
    }

    /// `moved` packets were published in a queue, which had `long` ones so far; `true`: ask whether
    /// the guest wants a call.
    pub fn gave(&mut self, queue: Queue, moved: u32, long: u64, flush: Flush) -> bool {
        let Flush { now, more, short } = flush;
        let visit = Visit { now, side: Side::Gives, moved, more, short };
        match queue {
            Queue::ToGuest => {
                if moved > 0 {
                    self.turns.to_peer(now, moved);
                }
                let before = self.long_before[0].replace(long);
                let long = before.map(|before| long.saturating_sub(before));
                self.kicks.notifier.looked(moved, long.unwrap_or(0));
                let has_no_question = std::mem::take(&mut self.has_no_question);
                if has_no_question
                    && moved > 0
                    && long == Some(0)
                    && let Some(taker_wait_ns) = self.kicks.notifier.gathers_ns(now)
                {
                    self.calls.notifier.only_acknowledges(taker_wait_ns);
                }
                if let Some(long) = long {
                    self.calls.notifier.carried(long);
                    if long > 0 {
                        self.returns.notifier.beside_stream(now);
                    }
                }
                let is_time = self.calls.give(visit);
                self.expect_acknowledgements(now);
                is_time
            }
            Queue::FromGuest => {
                self.taken = self.taken.saturating_add(moved);
                if moved > 0 && self.turns.from_peer(now, moved) {
                    self.returns.notifier.peer_has_answered();
                }
                if let Some(taker_wait_ns) = self.kicks.notifier.gathers_ns(now) {
                    self.returns.notifier.beside_taker(taker_wait_ns);
                }
                if let Some(before) = self.long_before[1].replace(long) {
                    self.returns.notifier.carried(long.saturating_sub(before));
                }
                self.returns.give(visit)
            }
            Queue::Control => true,
        }
    }

    /// The guest is called when acknowledgements have waited for each other, and finds buffers that have come
    /// back then: their lull begins with that.
    fn expect_acknowledgements(&mut self, now: Nanos) {
        let (Some(wake_at), Cause::Acknowledges) =
            (self.calls.wake_at, self.calls.notifier.cause())
        else {
            return;
        };
        let later = self.returns.notifier.beside_call(now, wake_at);
        if let (Some(returns_at), Some(later)) = (&mut self.returns.wake_at, later) {
            *returns_at = later.max(*returns_at);
        }
    }

    /// It was time to call the guest about packets, and it `is_called` unless it is awake; `true`: ask whether it
    /// wants a call about used buffers, too, which waited for that.
    pub fn told_of_packets(&mut self, now: Nanos, is_called: bool) -> bool {
        let is_told = self.returns.notifier.told_beside(now, is_called);
        if is_told {
            self.returns.wake_at = None;
        }
        is_told
    }

    /// The guest was given a question: what answers it shall not wait in its transmitq, nor the next
    /// question in its receiveq.
    pub fn was_asked(&mut self, now: Nanos) {
        self.calls.notifier.peer_was_asked(now);
        self.returns.notifier.peer_was_asked(now);
        self.kicks.notifier.peer_was_asked(now);
        // So far it kicks when the timer ends.
        if self.kicks.notifier.keeps_waiting()
            && let Some(wake_at) = &mut self.kicks.wake_at
        {
            *wake_at = now;
        }
    }

    /// The transmitq is idle, and had `long` long packets so far: when the guest shall kick.
    pub fn idle(&mut self, now: Nanos, long: u64) -> Arm {
        let visit = self.taken_until(now, long);
        let plan = self.kicks.notifier.after(visit);
        self.kicks.wake_at = plan.wake_at;
        plan.arm
    }

    /// The transmitq is idle as for [`idle`](Self::idle), and looked at again without being armed:
    /// what comes meanwhile says nothing about kicks.
    pub fn keep_looking(&mut self, now: Nanos, long: u64) {
        let visit = self.taken_until(now, long);
        self.kicks.notifier.keep_looking(visit);
        self.long_armed = None;
        self.kicks.wake_at = None;
    }

    /// What was taken since the transmitq was last idle.
    fn taken_until(&mut self, now: Nanos, long: u64) -> Visit {
        if let Some(before) = self.long_armed.replace(long) {
            self.kicks.notifier.carried(long.saturating_sub(before));
        }
        let moved = std::mem::take(&mut self.taken);
        Visit { now, side: Side::Takes, moved, more: false, short: false }
    }

    /// Whether answers of the guest wait for long packets or for a look, or questions to it wait.
    pub fn wants_questions(&self) -> bool {
        self.kicks.notifier.wants_questions() || self.calls.notifier.wants_questions()
    }

    /// Whether the guest sends long packets, and was asked something not long ago.
    fn is_asked_while_sending(&self, now: Nanos) -> bool {
        self.returns.notifier.is_asked_while_sending(now)
    }

    /// Whether `moved` packets to the guest bring answers of which it does not tell.
    fn expects_answers(&self, moved: u32) -> bool {
        let is_stream = moved >= STREAM_PACKETS || self.kicks.notifier.counts_on_looks();
        is_stream && moved > 0 && self.kicks.wake_at.is_some()
    }

    /// When the worker has to come back.
    pub fn wake_at(&self) -> Option<Nanos> {
        let all = [self.calls.wake_at, self.returns.wake_at, self.kicks.wake_at];
        all.into_iter().flatten().min()
    }

    /// Whether the transmitq is to be visited because a timer has ended, which it then has.
    pub fn end_kick_timer(&mut self, now: Nanos) -> bool {
        let is_due = self.kicks.is_due(now);
        if is_due {
            self.kicks.wake_at = None;
        }
        is_due
    }

    /// What the ring of used buffers said when it was asked last: whether the guest wants a call.
    pub fn ring_said(&mut self, is_wanted: bool) {
        self.returns.notifier.ring_said(is_wanted);
    }

    /// Whether something of the queue waits for a timer.
    pub(crate) fn waits(&self, queue: Queue) -> bool {
        match queue {
            Queue::ToGuest => self.calls.wake_at.is_some(),
            Queue::FromGuest => self.returns.wake_at.or(self.kicks.wake_at).is_some(),
            Queue::Control => false,
        }
    }

    /// What the queues of the pair number `pair` are doing, of which this was counted.
    pub(crate) fn snapshot(&self, pair: u16, to: &Counters, from: &Counters) -> [PaceSnapshot; 3] {
        let all = [
            (Queue::ToGuest, "calls", &self.calls, (to.packets, to.calls)),
            (Queue::FromGuest, "returns", &self.returns, (from.packets, from.calls)),
            (Queue::FromGuest, "kicks", &self.kicks, (from.packets, from.kicks)),
        ];
        all.map(|(queue, name, direction, (packets, notifications))| PaceSnapshot {
            queue: QueueId { pair, queue },
            direction: name,
            packets,
            notifications,
            window: direction.notifier.window(),
            timer_ns: direction.notifier.timer_ns(),
            cause: direction.cause(),
        })
    }
}

#[cfg(test)]
mod tests;
