//! Who notifies whom, and when: one decision after each visit to a queue, as a pure value.
//!
//! How: a queue has two directions, and each has one [`Notifier`] at the side that decides. The
//! side that *gives* buffers (packets to a receiveq, used buffers of a transmitq, or a driver's own
//! packets) may hold a notification back. The side that *takes* them says after how many it wants
//! to hear, and may look by itself when a timer ends. Both hand in what the visit moved and get a
//! [`Plan`]. Time is an argument and the next wake-up a result; nothing here reads a clock or
//! touches a ring, so the same code runs in the worker, in a driver and in a simulator.
//!
//! What is held back is *asking the ring*: a giver that was told not to notify does not ask the ring
//! whether the peer wants to hear. The ring answers for everything published since it was last
//! asked, and by then the peer may have taken it all without being told.
//!
//! Limits: a plan with a `wake_at` needs a timer. An owner that has none calls
//! [`Notifier::without_timer`], which turns every plan into one that is safe without.

mod acknowledgements;
mod adaptive;
mod cause;
mod coalesce;
mod linger;
mod parse;
mod returns;
mod timer;
mod trials;
mod turns;
mod worth;

use ringway_virtq::Arm;

pub use acknowledgements::{ACKNOWLEDGEMENT_WAIT_NS, ASKED_ACKNOWLEDGEMENT_WAIT_NS_MAX};
pub use adaptive::{Adaptive, LOOK_AGAIN_NS, PATIENCE_NS, STREAM_PACKETS, WINDOW_MAX_PACKETS};
pub use cause::Cause;
pub use coalesce::{Coalesce, CoalesceLimits};
pub use linger::{ASKED_NS, GIVER_WAIT_NS_MAX, TAKER_WAIT_NS_MAX};
pub use parse::PolicyError;
pub use returns::{LULL_NS, RETURN_WAIT_NS, Returns, SENT_STREAM_NS, STREAM_WAIT_NS};
pub use timer::Timer;
pub use turns::{PAUSE_NS, SILENCE_NS, Turns};

/// A moment in nanoseconds since some fixed one; which, is the owner's choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// This moment and `ns` nanoseconds more.
    #[must_use]
    pub const fn plus(self, ns: u64) -> Self {
        Self(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to here; 0 if it is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// On which side of the direction the owner stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Publishes buffers and notifies.
    Gives,
    /// Takes buffers and is notified.
    Takes,
}

/// What one visit to a queue did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Visit {
    /// When it ended.
    pub now: Nanos,
    /// On which side the owner stands; the same at every visit.
    pub side: Side,
    /// Buffers published, or taken.
    pub moved: u32,
    /// The owner comes back soon by itself: there may be more to do, it only ran out of budget. It hands in that
    /// visit, too, whether or not it moves anything: a plan that waits for it may have no moment of its own.
    pub more: bool,
    /// The peer may be waiting for this notification to go on at all: the ring is full or empty.
    pub short: bool,
}

/// What to do until the next visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Ask the ring now, and notify if the peer wants it (a giver).
    pub notify: bool,
    /// When the peer shall notify us (a taker).
    pub arm: Arm,
    /// Visit again at this moment, even if nothing was heard.
    pub wake_at: Option<Nanos>,
}

impl Plan {
    const NOTIFY: Self = Self { notify: true, arm: Arm::Next, wake_at: None };
    const COME_BACK: Self = Self { notify: false, arm: Arm::Never, wake_at: None };

    const fn hold(wake_at: Nanos) -> Self {
        Self { notify: false, arm: Arm::Next, wake_at: Some(wake_at) }
    }
}

/// A policy by name, with its parameters: what a user chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Notify at every visit, and ask to be notified of every buffer.
    Every,
    /// Notify when nothing more is at hand, and ask when everything was taken.
    OnEmpty,
    /// The 2008 scheme: notifications are suppressed while a timer runs.
    Timer {
        /// How long it runs, in microseconds.
        usecs: u32,
    },
    /// `VIRTIO_NET_F_NOTF_COAL`: after so many packets or so much time.
    Coalesce(CoalesceLimits),
    /// A window that follows the traffic.
    #[default]
    Adaptive,
}

/// What decides about one direction of one queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notifier {
    /// See [`Policy::Every`].
    Every,
    /// See [`Policy::OnEmpty`].
    OnEmpty,
    /// See [`Policy::Timer`].
    Timer(Timer),
    /// See [`Policy::Coalesce`].
    Coalesce(Coalesce),
    /// See [`Policy::Adaptive`].
    Adaptive(Adaptive),
    /// What [`Policy::Adaptive`] does for used buffers that nobody waits for.
    Returns(Returns),
}

impl Notifier {
    /// For packets, in a queue of `size` entries.
    pub fn new(policy: Policy, size: u16) -> Self {
        match policy {
            Policy::Every => Self::Every,
            Policy::OnEmpty => Self::OnEmpty,
            Policy::Timer { usecs } => Self::Timer(Timer::new(usecs, size)),
            Policy::Coalesce(limits) => Self::Coalesce(Coalesce::new(limits, size)),
            Policy::Adaptive => Self::Adaptive(Adaptive::new(size)),
        }
    }

    /// For buffers that only go back to their owner: used buffers of a transmitq.
    pub fn for_returns(policy: Policy, size: u16) -> Self {
        match policy {
            Policy::Adaptive => Self::Returns(Returns::new(size)),
            fixed => Self::new(fixed, size),
        }
    }

    /// What it has found out about the peer, if it does such things.
    pub fn learned(&self) -> Option<Learned> {
        match self {
            Self::Adaptive(adaptive) => Some(adaptive.learned()),
            _ => None,
        }
    }

    /// Before it decides anything: what was found out about the same peer before.
    pub fn learn(&mut self, learned: Learned) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.learn(learned);
        }
    }

    /// Decides after a visit.
    pub fn after(&mut self, visit: Visit) -> Plan {
        match self {
            Self::Every => Plan::NOTIFY,
            Self::OnEmpty if visit.more && !visit.short => Plan::COME_BACK,
            Self::OnEmpty => Plan::NOTIFY,
            Self::Timer(timer) => timer.after(visit),
            Self::Coalesce(coalesce) => coalesce.after(visit),
            Self::Adaptive(adaptive) => adaptive.after(visit),
            Self::Returns(returns) => returns.after(visit),
        }
    }

    /// A taker was awake for `moved` buffers elsewhere, `long` of them long packets, and looks here
    /// whenever it is.
    pub fn looked(&mut self, moved: u32, long: u64) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.looked(moved, long);
        }
    }

    /// Whether a taker counts on such looks: one that waits for its timer instead keeps the peer waiting.
    pub fn counts_on_looks(&self) -> bool {
        matches!(self, Self::Adaptive(adaptive) if adaptive.counts_on_looks())
    }

    /// After this visit a taker looks by itself until it says otherwise, and does not hand in what it
    /// finds then.
    pub fn keep_looking(&mut self, visit: Visit) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.keep_looking(visit);
        }
    }

    /// Before [`after`](Self::after), the owner says how many of the packets that the visit has moved
    /// are long (see [`LONG_LEN`](crate::LONG_LEN)).
    pub fn carried(&mut self, long: u64) {
        match self {
            Self::Adaptive(adaptive) => adaptive.carried(long),
            Self::Returns(returns) => returns.carried(long),
            _ => {}
        }
    }

    /// Before [`after`](Self::after): what the next visit of a giver has moved does nothing but acknowledge
    /// what the peer sends, and the peer can go on sending. Who takes that waits for several packets of it, for
    /// `taker_wait_ns` nanoseconds.
    pub fn only_acknowledges(&mut self, taker_wait_ns: u64) {
        if let Self::Adaptive(adaptive) = self {
            adaptive.only_acknowledges(taker_wait_ns);
        }
    }

    /// Long packets have just been given to the same peer in another queue: it is called about them,
    /// and finds what is held here.
    pub fn beside_stream(&mut self, now: Nanos) {
        if let Self::Returns(returns) = self {
            returns.beside_stream(now);
        }
    }

    /// Who takes the stream that the peer sends waits for several packets of it, for `taker_wait_ns` nanoseconds, until
    /// something else is said here: buffers that wait for calls go by that.
    pub fn beside_taker(&mut self, taker_wait_ns: u64) {
        if let Self::Returns(returns) = self {
            returns.beside_taker(taker_wait_ns);
        }
    }

    /// The same peer is called at `at` about another queue, and finds what is held here; until when that
    /// waits now. `None`: it is as it was.
    pub fn beside_call(&mut self, now: Nanos, at: Nanos) -> Option<Nanos> {
        match self {
            Self::Returns(returns) => Some(returns.beside_call(now, at)),
            _ => None,
        }
    }

    /// It was time to call the same peer about packets in another queue, and it `is_called` unless it is awake;
    /// `true`: it is told of what is held here as well.
    pub fn told_beside(&mut self, now: Nanos, is_called: bool) -> bool {
        match self {
            Self::Returns(returns) => returns.told_beside(now, is_called),
            _ => false,
        }
    }

    /// Whether it wants to hear of questions to the peer: it keeps those waiting who ask, or would.
    pub fn wants_questions(&self) -> bool {
        matches!(self, Self::Adaptive(adaptive) if adaptive.wants_questions())
    }

    /// How long a taker waits for several long packets, in nanoseconds, if it has found them not long ago: who
    /// gives them goes on without hearing of each.
    pub fn gathers_ns(&self, now: Nanos) -> Option<u64> {
        match self {
            Self::Adaptive(adaptive) => adaptive.gathers_ns(now),
            _ => None,
        }
    }

    /// Whether it keeps those waiting who ask the peer something.
    pub fn keeps_waiting(&self) -> bool {
        matches!(self, Self::Adaptive(adaptive) if adaptive.keeps_waiting())
    }

    /// Whether it gives buffers back to a peer that sends long packets ([`SENT_STREAM_NS`]) and was asked something
    /// within [`ASKED_NS`] (ADR 18, section 4).
    pub fn is_asked_while_sending(&self, now: Nanos) -> bool {
        matches!(self, Self::Returns(returns) if returns.is_asked_while_sending(now))
    }

    /// What the next visit of a giver has moved is one answer of the peer (see [`Turns`]).
    pub fn peer_has_answered(&mut self) {
        if let Self::Returns(returns) = self {
            returns.peer_has_answered();
        }
    }

    /// A question has gone to the peer: a taker that keeps it waiting is told of each packet for a while, from its
    /// next visit on; a giver that lingers holds nothing back while there are questions.
    pub fn peer_was_asked(&mut self, now: Nanos) {
        match self {
            Self::Adaptive(adaptive) => adaptive.peer_was_asked(now),
            Self::Returns(returns) => returns.peer_was_asked(now),
            _ => {}
        }
    }

    /// A giver has asked the ring: whether the peer wants to hear.
    pub fn ring_said(&mut self, is_wanted: bool) {
        if let Self::Returns(returns) = self {
            returns.ring_said(is_wanted);
        }
    }

    /// As [`after`](Self::after), for an owner without a timer: whatever would have waited for
    /// one is notified, or asked for, at once.
    pub fn without_timer(&mut self, visit: Visit) -> Plan {
        let plan = self.after(visit);
        match (plan.wake_at, visit.side) {
            (None, _) => plan,
            (Some(_), Side::Gives) => Plan::NOTIFY,
            (Some(_), Side::Takes) => Plan { arm: Arm::Next, wake_at: None, ..plan },
        }
    }

    /// Buffers that may pass before the peer is told; 1 for a policy without a window.
    pub fn window(&self) -> u32 {
        match self {
            Self::Every | Self::OnEmpty => 1,
            Self::Timer(timer) => timer.window(),
            Self::Coalesce(coalesce) => coalesce.limits().max_packets.max(1),
            Self::Adaptive(adaptive) => adaptive.window(),
            Self::Returns(returns) => returns.window(),
        }
    }

    /// Longest time in nanoseconds for which anything is held back, as of now.
    pub fn timer_ns(&self) -> u64 {
        match self {
            Self::Every | Self::OnEmpty => 0,
            Self::Timer(timer) => timer.timer_ns(),
            Self::Coalesce(coalesce) => coalesce.limits().timer_ns(),
            Self::Adaptive(adaptive) => adaptive.timer_ns(),
            Self::Returns(returns) => returns.wait_ns(),
        }
    }

    /// Why the window was last changed.
    pub fn cause(&self) -> Cause {
        match self {
            Self::Adaptive(adaptive) => adaptive.cause(),
            Self::Returns(returns) => returns.cause(),
            _ => Cause::Fixed,
        }
    }
}

/// What an adaptive policy has found out about a peer: for how long it had best wait for several long packets, as a
/// share of what their gap says. It outlives another policy; ADR 28 says how it is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Learned(trials::Trials);

/// What a giver has published and not notified of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Held {
    packets: u32,
    since: Nanos,
}

impl Held {
    /// Counting starts with the first packet after a notification.
    fn add(&mut self, moved: u32, now: Nanos) {
        if self.packets == 0 {
            self.since = now;
        }
        self.packets = self.packets.saturating_add(moved);
    }

    /// Notifies, and starts anew.
    fn release(&mut self) -> Plan {
        self.packets = 0;
        Plan::NOTIFY
    }
}

/// Nothing is held and nothing was moved: nobody need be told.
const NOTHING: Plan = Plan { notify: false, arm: Arm::Next, wake_at: None };

/// After so many, as a ring can be asked for.
fn arm_after(packets: u32) -> Arm {
    match u16::try_from(packets).unwrap_or(u16::MAX) {
        0 | 1 => Arm::Next,
        packets => Arm::After(packets),
    }
}
