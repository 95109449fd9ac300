//! The adaptive policy: one model for calls, kicks and used buffers.
//!
//! A notification wakes the peer, which takes [`WAKE_NS`]. It is held back only while another
//! packet is expected before the hold ends, and a hold lasts as long as what it delays can bear:
//!
//! | what is held | the hold ends after |
//! |---|---|
//! | short packets, by a producer | as many as come in one wake-up, or that time |
//! | short packets, by a consumer | two wake-ups: it spares a kick and its own wake-up |
//! | bulk | [`BULK_GAPS`] gaps between two packets, [`HOLD_WAKES_MAX`] wake-ups at most |
//! | used buffers | a pause of the sender, or twice that many wake-ups |
//!
//! *Bulk* are long packets and TCP acknowledgements, which no user waits for one by one. So is, to
//! a consumer, what comes while its owner gives the peer more packets than it takes: these are the
//! answers to a stream, and the owner looks at the queue with each packet that it gives.
//!
//! A hold must pay. One of short packets that ends by its timer has found three quarters of what
//! the gap promises. Under holds of bulk packets come as fast as without, less a quarter; else
//! their sender waits for the end of the hold. If a hold does not pay, the next packets are
//! notified one by one, which also shows how fast they come without holds.
//!
//! A request to the peer ends all holds of bulk: a consumer expects the answer, and the next
//! request would stand behind what a producer holds. A call about packets puts used buffers off,
//! because the guest is awake and finds them.
//!
//! Models: Linux `lib/dim`, NAPI's `napi_defer_hard_irqs`, delayed acknowledgements (RFC 9293
//! §3.8.6.3). ADR 18 has the measured effect of each constant.

use super::record::{Holds, Rate};
use super::{Cause, Held, OutsideEvent, Role, State, Visit, VisitPlan};
use crate::{Nanos, WAKE_NS};

/// Gaps between two bulk packets for which the next ones are held back. TCP small queues allows a
/// guest two packets that were not given back: three gaps hardly stop it, five did.
const BULK_GAPS: u64 = 3;

/// Longest hold of a producer, in wake-ups; a consumer's, which spares two, is twice as long.
const HOLD_WAKES_MAX: u64 = 10;

/// Most packets that are held back: what a worker moves in one visit.
const HELD_PACKETS_MAX: u32 = 64;

/// A longer gap is a pause, in wake-ups, and says nothing of the rate.
const PAUSE_WAKES: u64 = 3 * HOLD_WAKES_MAX;

/// Packets given the other way that make a stream: no exchange of requests moves as many at once.
const STREAM_PACKETS: u32 = 4;

/// A consumer is notified of each packet for so long after a request, in nanoseconds.
const ANSWER_NS: u64 = 500_000;

/// A producer holds nothing back for so long after a request, in nanoseconds: the next may come.
const NEXT_REQUEST_NS: u64 = 100_000_000;

/// The stream that the owner of a consumer gave the peer before the last visit, by its packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reverse {
    Nothing,
    Short,
    Long,
}

/// State of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Adaptive {
    role: Role,
    /// Most buffers that are held back.
    held_max: u32,
    /// How packets come while nothing is held, and while holds are tried.
    free: Rate,
    with_holds: Rate,
    last: Nanos,
    /// Of a producer: not notified yet. Of a consumer: found since its hold began.
    held: Held,
    /// When a consumer looks by itself.
    look_at: Option<Nanos>,
    is_bulk: bool,
    /// Given the other way since the last visit: packets, and long ones.
    given: [u32; 2],
    reverse: Reverse,
    /// When the peer was last called about another queue.
    called_at: Nanos,
    request_until: Nanos,
    holds: Holds,
    cause: Cause,
}

impl Adaptive {
    /// At most a quarter of a queue of `size` entries waits for a notification.
    pub fn new(role: Role, size: u16) -> Self {
        let quarter = (u32::from(size) / 4).max(1);
        let is_packets = role != Role::UsedBuffers;
        Self {
            role,
            held_max: if is_packets { quarter.min(HELD_PACKETS_MAX) } else { quarter },
            free: Rate::UNKNOWN,
            with_holds: Rate::UNKNOWN,
            last: Nanos(0),
            held: Held::default(),
            look_at: None,
            is_bulk: false,
            given: [0; 2],
            reverse: Reverse::Nothing,
            called_at: Nanos(0),
            request_until: Nanos(0),
            holds: Holds::NEW,
            cause: Cause::OneByOne,
        }
    }

    pub fn state(&self) -> State {
        let (window, hold_ns) = match (self.cause, self.role) {
            (Cause::OneByOne | Cause::Request, _) => (1, 0),
            (_, Role::UsedBuffers) => (self.held_max, self.longest_ns()),
            _ => (self.held_max, self.hold_ns()),
        };
        State { window, hold_ns, cause: self.cause }
    }

    pub fn after(&mut self, visit: Visit) -> VisitPlan {
        if visit.moved > 0 {
            self.measure(visit);
        }
        match self.role {
            Role::Producer => self.produced(visit),
            Role::UsedBuffers => self.gave_back(visit),
            Role::Consumer => self.consumed(visit),
        }
    }

    pub fn on(&mut self, now: Nanos, event: OutsideEvent) -> Option<Nanos> {
        match (event, self.role) {
            (OutsideEvent::Request, Role::Consumer) => {
                self.request_until = now.plus(ANSWER_NS);
                (self.look_at.is_some() && self.yields_to_requests()).then_some(now)
            }
            (OutsideEvent::Request, _) => {
                self.request_until = now.plus(NEXT_REQUEST_NS);
                None
            }
            (OutsideEvent::Called, Role::UsedBuffers) => {
                self.called_at = now;
                (self.held.packets > 0).then(|| self.given_back_at())
            }
            (OutsideEvent::Reverse { packets, long }, _) => {
                self.given = [self.given[0].saturating_add(packets), self.given[1].max(long)];
                None
            }
            (OutsideEvent::Polled, _) => {
                (self.look_at, self.held.packets, self.last) = (None, 0, now);
                None
            }
            (OutsideEvent::Called, _) => None,
        }
    }

    /// A sender that waits for the end of a hold shows in the rate while holds are tried.
    fn measure(&mut self, visit: Visit) {
        let ns = visit.now.since(self.last);
        self.last = visit.now;
        if ns > PAUSE_WAKES * WAKE_NS {
            self.holds.notified(visit.moved);
            return;
        }
        if !self.may_hold() {
            self.free.add(visit.moved, ns);
            self.with_holds = self.free;
            self.holds.notified(visit.moved);
            return;
        }
        self.with_holds.add(visit.moved, ns);
        if 4 * self.with_holds.gap_ns() < 3 * self.free.gap_ns() {
            self.free = self.with_holds;
        }
        if self.holds.tried(visit.moved) {
            self.free = Rate::UNKNOWN;
        }
    }

    fn longest_ns(&self) -> u64 {
        let wakes = if self.role == Role::Producer { 1 } else { 2 };
        wakes * HOLD_WAKES_MAX * WAKE_NS
    }

    /// How long a hold of packets lasts.
    fn hold_ns(&self) -> u64 {
        match self.reverse {
            Reverse::Nothing if self.is_bulk => {
                (BULK_GAPS * self.free.gap_ns()).clamp(WAKE_NS, self.longest_ns())
            }
            _ => self.longest_ns() / HOLD_WAKES_MAX,
        }
    }

    /// Packets that should come meanwhile.
    fn promised(&self) -> u64 {
        (self.hold_ns() / self.free.gap_ns()).max(1)
    }

    /// Whether at least one more packet is expected before a hold would end.
    fn may_hold(&self) -> bool {
        let is_expected =
            self.reverse != Reverse::Nothing || 2 * self.free.gap_ns() <= self.hold_ns();
        self.held_max > 1 && self.holds.may_try() && is_expected
    }

    fn is_requested(&self, now: Nanos) -> bool {
        now < self.request_until
    }

    /// Whether an answer may be among what a consumer holds: there is none beside a short stream.
    fn yields_to_requests(&self) -> bool {
        self.is_bulk && self.reverse != Reverse::Short
    }

    fn holding(&self) -> Cause {
        if self.is_bulk { Cause::Bulk } else { Cause::Batch }
    }

    /// A hold has ended by its timer.
    fn judge(&mut self, found: u32) {
        let has_paid = match self.reverse {
            Reverse::Nothing if self.is_bulk => {
                4 * self.with_holds.gap_ns() <= 5 * self.free.gap_ns()
            }
            Reverse::Nothing => 4 * u64::from(found) >= 3 * self.promised(),
            // The owner looks anyway: waiting costs nothing as long as something is found.
            Reverse::Short | Reverse::Long => found > 0,
        };
        if has_paid {
            self.holds.succeeded();
        } else {
            self.holds.failed();
            self.free = Rate::UNKNOWN;
        }
    }

    fn release(&mut self, cause: Cause) -> VisitPlan {
        self.cause = cause;
        self.held.release()
    }

    fn produced(&mut self, visit: Visit) -> VisitPlan {
        let was_held = self.held.packets > 0;
        self.held.add(visit.moved, visit.now);
        if self.held.packets == 0 {
            return VisitPlan::NOTHING;
        }
        if visit.moved > 0 {
            let is_bulk = visit.bulk >= visit.moved;
            // A short packet must not wait behind bulk.
            if was_held && self.is_bulk != is_bulk {
                return self.release(self.cause);
            }
            self.is_bulk = is_bulk;
        }
        if self.is_requested(visit.now) {
            return self.release(Cause::Request);
        }
        if visit.short || !self.may_hold() {
            return self.release(Cause::OneByOne);
        }
        self.cause = self.holding();
        let held = u64::from(self.held.packets);
        let enough = if self.is_bulk { u64::MAX } else { self.promised() };
        if held >= enough.min(self.held_max.into()) {
            self.holds.succeeded();
            return self.release(self.cause);
        }
        let wake_at = self.held.since.plus(self.hold_ns());
        if visit.now >= wake_at {
            self.judge(self.held.packets);
            return self.release(self.cause);
        }
        VisitPlan::hold(wake_at)
    }

    fn gave_back(&mut self, visit: Visit) -> VisitPlan {
        self.cause = Cause::Batch;
        self.held.add(visit.moved, visit.now);
        let wake_at = self.given_back_at();
        match self.held.packets {
            0 => VisitPlan::NOTHING,
            held if visit.short || held >= self.held_max || visit.now >= wake_at => {
                self.held.release()
            }
            _ => VisitPlan::hold(wake_at),
        }
    }

    /// A sender that pauses may wait for its buffers. A call about packets wakes it as well.
    fn given_back_at(&self) -> Nanos {
        let pause_ns = (2 * self.free.gap_ns()).clamp(2 * WAKE_NS, self.longest_ns());
        let longest = self.held.since.plus(self.longest_ns());
        self.last.max(self.called_at).plus(pause_ns).min(longest)
    }

    fn consumed(&mut self, visit: Visit) -> VisitPlan {
        let found = self.held.packets.saturating_add(visit.moved);
        let due = self.look_at.take();
        if visit.more {
            self.held.packets = found;
            return VisitPlan::COME_BACK;
        }
        self.held.packets = 0;
        self.classify(visit);
        let is_over = due.is_some_and(|at| visit.now >= at);
        if is_over {
            self.judge(found);
        }
        if self.yields_to_requests() && self.is_requested(visit.now) {
            self.cause = Cause::Request;
            return VisitPlan::NOTHING;
        }
        let is_held = due.is_some() && !is_over;
        if found == 0 && !is_held || !self.may_hold() {
            self.cause = Cause::OneByOne;
            return VisitPlan::NOTHING;
        }
        self.cause = self.holding();
        let look_at = match due.filter(|_| is_held) {
            Some(due) => {
                self.held.packets = found;
                due
            }
            None => visit.now.plus(self.hold_ns()),
        };
        self.look_at = Some(look_at);
        VisitPlan::look(look_at, self.held_max)
    }

    /// The kind of packets that a consumer has taken, by what its owner gave the peer meanwhile.
    fn classify(&mut self, visit: Visit) {
        let [packets, long] = core::mem::take(&mut self.given);
        if visit.moved == 0 {
            return;
        }
        self.reverse = match packets {
            _ if long > 0 => Reverse::Long,
            given if given >= STREAM_PACKETS && given > 2 * visit.moved => Reverse::Short,
            _ => Reverse::Nothing,
        };
        self.is_bulk = self.reverse != Reverse::Nothing || 2 * visit.bulk >= visit.moved;
    }
}
