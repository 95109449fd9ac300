//! Packets to a peer that do nothing but acknowledge what it sends: one notification for several.
//!
//! A peer that sends a stream need not hear of each acknowledgement at once, as long as what it has
//! under way lasts; each that it is told of interrupts its sending. That it lasts, the owner knows if
//! it lingers behind the peer's long packets and finds enough of them: who waits for answers sends
//! none meanwhile (see `linger.rs`). Where holding back gathers next to nothing, because they come
//! together anyway or seldom, they are told of at once.
//!
//! While the peer is asked something, questions take them along. Between two of those they wait half as long as
//! whoever takes the stream waits for several packets of it, counted from when the peer was last told of anything.
//! So a slow guest is interrupted seldom, and a fast one hardly waits.
//! An interrupt is work that stands before the next answer, and so is what many acknowledgements let go at once.

use super::linger::TAKER_WAIT_NS_MAX;
use super::worth::{ALL, Worth};
use super::{Held, Nanos, Plan, Visit};

/// How long acknowledgements are held back, in nanoseconds. A stream at speed has much more under way
/// than it sends in that time.
pub const ACKNOWLEDGEMENT_WAIT_NS: u64 = 100_000;

/// The same while the peer is asked something, at most, from when it was last told of anything on: half of what a
/// taker waits at most (ADR 18). A slow guest is interrupted more often by shorter waits, longer ones bring pings
/// nothing more.
pub const ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX: u64 = TAKER_WAIT_NS_MAX / 2;

/// An eighth of the waits has to gather some, on average of 16. An interrupt that is spared now and then is worth more
/// than the waits, which a stream does not notice.
type Gathering = Worth<{ ALL / 8 }, 16>;

/// So many do before anything is known.
const GATHERING_FIRST: u32 = ALL / 4;

/// Whether acknowledgements are held back, and nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Acknowledgements {
    /// What the next visit has moved only acknowledges.
    are_next: bool,
    /// What was moved last did, and waited for nothing else.
    are_last: bool,
    /// Visits that have moved what is held.
    visits: u32,
    /// Whether waits gather enough.
    gathering: Gathering,
    /// As of the last visit the peer is asked something.
    is_asked: bool,
    /// How long they wait then, in nanoseconds.
    asked_wait_ns: u64,
}

impl Default for Acknowledgements {
    fn default() -> Self {
        Self {
            are_next: false,
            are_last: false,
            visits: 0,
            gathering: Gathering::new(GATHERING_FIRST),
            is_asked: false,
            asked_wait_ns: ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX,
        }
    }
}

impl Acknowledgements {
    /// What the next visit has moved only acknowledges a stream, whose taker waits that long for several packets.
    pub fn come_next(&mut self, taker_wait_ns: u64) {
        self.are_next = true;
        self.asked_wait_ns = (taker_wait_ns / 2).min(ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX);
    }

    /// Whether what was moved last only acknowledges, and may wait.
    pub const fn may_wait(self) -> bool {
        self.are_last && (self.gathering.may_wait() || self.is_asked)
    }

    /// How long they wait at most, in nanoseconds.
    pub const fn wait_ns(self) -> u64 {
        if self.is_asked { self.asked_wait_ns } else { ACKNOWLEDGEMENT_WAIT_NS }
    }

    /// Whether nothing else is held.
    pub const fn are_held(self, held: Held) -> bool {
        self.are_last && held.packets > 0
    }

    /// What to do about what is held, to which the visit's packets were added, at most `most`; `None`:
    /// it is not for this to say. `asked`: the peer is asked something, and was last told of anything then.
    pub fn after(
        &mut self,
        visit: Visit,
        held: &mut Held,
        most: u32,
        asked: Option<Nanos>,
    ) -> Option<Plan> {
        let are_next = core::mem::take(&mut self.are_next);
        if visit.moved > 0 {
            let is_any_held = held.packets > visit.moved;
            self.are_last = are_next && (self.are_last || !is_any_held);
            self.visits += 1;
        }
        if !self.are_held(*held) {
            self.visits = 0;
            return None;
        }
        self.is_asked = asked.is_some();
        let wake_at = asked.unwrap_or(held.since).plus(self.wait_ns());
        let is_over = visit.now >= wake_at;
        if self.may_wait() && !is_over && !visit.short && held.packets < most {
            return Some(Plan::hold(wake_at));
        }
        self.count(held.packets, is_over);
        Some(held.release())
    }

    /// So many are told of, at the end of their time or before it.
    fn count(&mut self, packets: u32, is_over: bool) {
        let visits = core::mem::take(&mut self.visits);
        // Questions come between.
        if self.is_asked {
            return;
        }
        if !self.gathering.may_wait() {
            self.gathering.told(packets);
        } else if is_over {
            // What was told of before its time says nothing of how they come.
            self.gathering.waited(visits > 1);
        }
    }
}
