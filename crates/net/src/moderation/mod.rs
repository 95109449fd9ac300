//! When one side of a queue notifies the other: interrupt moderation as a pure value.
//!
//! The producer of a queue's buffers decides when to notify; the consumer decides after how many
//! buffers it wants a notification, and may look by itself before. A [`Moderator`] decides for one
//! of them: its owner hands in what each visit moved and gets a [`VisitPlan`]. Time is an argument
//! and the next wake-up a result, so the worker, a driver and a simulation run the same code.
//!
//! A producer asks late whether the peer wants a notification (event suppression). Then the ring
//! answers for everything published since, and the peer may have taken it all.
//!
//! Limits: a plan with a `wake_at` needs a timer. An owner without one notifies, or asks for a
//! notification, at once.

mod adaptive;
mod fixed;
mod record;

use ringway_virtq::Arm;

use crate::Nanos;
pub use crate::coalescing::CoalesceLimits;
pub use crate::policy::{Policy, PolicyError};
use adaptive::Adaptive;
use fixed::Fixed;

/// The side whose decisions a moderator makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Publishes packets and notifies.
    Producer,
    /// Publishes used transmit buffers and notifies; their owner seldom waits for them.
    UsedBuffers,
    /// Takes packets and is notified.
    Consumer,
}

/// The result of one visit to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// When it ended.
    pub now: Nanos,
    /// Buffers published, or taken.
    pub moved: u32,
    /// How many of them are bulk: packets of [`LONG_LEN`](crate::LONG_LEN) bytes or more, and TCP
    /// segments that only acknowledge. No user waits for a single one of these.
    pub bulk: u32,
    /// Only the owner's budget ended this visit: it comes back at once, and hands in that visit.
    pub more: bool,
    /// The peer cannot go on without this notification: the ring is full, or empty.
    pub short: bool,
}

/// The plan until the next visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VisitPlan {
    /// A producer: ask the ring now, and notify if the peer wants it.
    pub notify: bool,
    /// A consumer: when the peer shall notify us.
    pub arm: Arm,
    /// Visit again at this moment, even without a notification.
    pub wake_at: Option<Nanos>,
}

impl VisitPlan {
    const NOTIFY: Self = Self { notify: true, arm: Arm::Next, wake_at: None };
    const NOTHING: Self = Self { notify: false, arm: Arm::Next, wake_at: None };
    const COME_BACK: Self = Self { notify: false, arm: Arm::Never, wake_at: None };

    const fn hold(wake_at: Nanos) -> Self {
        Self { notify: false, arm: Arm::Next, wake_at: Some(wake_at) }
    }

    /// A consumer looks at `wake_at`, and is notified earlier after so many packets.
    fn look(wake_at: Nanos, packets: u32) -> Self {
        let packets = u16::try_from(packets).unwrap_or(u16::MAX);
        let arm = if packets > 1 { Arm::After(packets) } else { Arm::Next };
        Self { arm, ..Self::hold(wake_at) }
    }
}

/// An event outside the moderator's own queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutsideEvent {
    /// A request went to the peer: its answer, and the next request, must not wait.
    Request,
    /// The peer was called about another queue. Awake, it finds used buffers by itself.
    Called,
    /// The owner gave the peer packets the other way, and looks at this queue as well.
    Reverse {
        /// All of them.
        packets: u32,
        /// The long ones.
        long: u32,
    },
    /// The owner polls the queue from now on until its next visit.
    Polled,
}

/// The window and hold of a moderator, for statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Buffers that may pass before the other side is notified.
    pub window: u32,
    /// How long at most anything waits, in nanoseconds.
    pub hold_ns: u64,
    /// Why.
    pub cause: Cause,
}

/// Why a moderator does what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// The policy is a fixed one.
    Fixed,
    /// Packets come one at a time, or holds did not pay lately.
    #[default]
    OneByOne,
    /// Many short packets, or used buffers, come shortly behind each other.
    Batch,
    /// Bulk passes: long packets, or acknowledgements of them.
    Bulk,
    /// A request went to the peer a short time ago, beside bulk.
    Request,
}

impl Cause {
    /// A few words for statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::OneByOne => "one by one",
            Self::Batch => "batches",
            Self::Bulk => "bulk",
            Self::Request => "request beside bulk",
        }
    }
}

/// The policy for one direction of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moderator(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Fixed(Fixed),
    Adaptive(Adaptive),
}

impl Moderator {
    /// For a queue of `size` entries.
    pub fn new(policy: Policy, role: Role, size: u16) -> Self {
        Self(match policy {
            Policy::Adaptive => Kind::Adaptive(Adaptive::new(role, size)),
            fixed => Kind::Fixed(Fixed::new(fixed, role, size)),
        })
    }

    /// Decides after a visit.
    pub fn after(&mut self, visit: Visit) -> VisitPlan {
        match &mut self.0 {
            Kind::Fixed(fixed) => fixed.after(visit),
            Kind::Adaptive(adaptive) => adaptive.after(visit),
        }
    }

    /// Takes note of an event; when the queue is to be visited next, if that has changed.
    pub fn on(&mut self, now: Nanos, event: OutsideEvent) -> Option<Nanos> {
        match &mut self.0 {
            Kind::Fixed(_) => None,
            Kind::Adaptive(adaptive) => adaptive.on(now, event),
        }
    }

    /// Its window and hold now.
    pub fn state(&self) -> State {
        match &self.0 {
            Kind::Fixed(fixed) => fixed.state(),
            Kind::Adaptive(adaptive) => adaptive.state(),
        }
    }
}

/// Packets that a producer has published and not notified, counted from the first packet on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    packets: u32,
    since: Nanos,
}

impl Held {
    fn add(&mut self, moved: u32, now: Nanos) {
        if self.packets == 0 {
            self.since = now;
        }
        self.packets = self.packets.saturating_add(moved);
    }

    fn release(&mut self) -> VisitPlan {
        self.packets = 0;
        VisitPlan::NOTIFY
    }
}
