//! A window that follows the traffic: the long timer's throughput for a stream, and no delay at
//! all for a ping.
//!
//! The window is how many buffers may pass before the other side is told. It is what fits into
//! [`PATIENCE_NS`] at the rate seen last, at most twice the one before. A timer ends just behind
//! the moment at which the window should be full. If it ends first, the traffic has changed: a
//! window that filled at least half is halved, anything less makes it one, and it stays one for
//! [`CAUTION_PACKETS`]. At one, every buffer is told at once and there is no timer.
//!
//! Who deals with long packets lingers (see [`Linger`]): a taker looks again after the time of a few
//! of them before it asks to be told of the next one, a giver tells of a few at once, as long as that
//! keeps nobody waiting. A short packet among those that are given is told of at once. Who hears that
//! the peer was asked something knows that somebody waits: a taker is then told of each packet for a
//! while, so that the answer does not wait, and a giver holds nothing back for longer, so that the next
//! question does not stand behind it.
//!
//! Packets to a peer that only acknowledge the stream that it sends wait for each other (see
//! [`Acknowledgements`]).
//!
//! A taker whose owner deals with a stream the other way need not be told: the owner looks whenever it
//! is awake, and once more after [`PATIENCE_NS`], beside long packets after [`LOOK_AGAIN_NS`]. If nothing is there
//! by then, it is told of the next buffer. Beside long packets, answers to questions are told of.
//!
//! ADR 18 gives the reason for each constant.

mod takes;

use super::acknowledgements::Acknowledgements;
use super::linger::{ASKED_NS, GIVER_WAIT, Linger, Next, STREAM_END_NS, Wait};
use super::{Cause, Held, Learned, NOTHING, Nanos, Plan, Side, Visit};

/// Longest time in nanoseconds by which a window delays a buffer: what it costs to wake a sleeping
/// peer. Waiting longer would cost the buffer more than the wake-up that is spared.
pub const PATIENCE_NS: u64 = 30_000;

/// How long a taker that is not told counts on looks beside long packets, in nanoseconds, before it looks once more
/// by itself: two and a half wake-ups. Acknowledgements come that late, and several at once (ADR 18).
pub const LOOK_AGAIN_NS: u64 = 5 * PATIENCE_NS / 2;

/// Largest window in buffers: what a worker moves in one visit.
pub const WINDOW_MAX_PACKETS: u32 = 64;

/// Packets moved at one waking that make a stream, whose answers are worth a look: no request and response
/// moves as many (ADR 18). Who gives them looks for answers exactly where the taker counts on it.
pub const STREAM_PACKETS: u32 = 4;

/// Buffers told one by one after the timer found next to nothing. More than 100, so that at most
/// one buffer in a hundred pays for trying: the 99th percentile never sees it.
const CAUTION_PACKETS: u32 = 128;

/// The same after one attempt after the other has failed: a thousand pings pay for one.
const CAUTION_PACKETS_MAX: u32 = 1024;

/// Shortest timer in nanoseconds: one that ends sooner costs more than telling the peer.
const TIMER_NS_MIN: u64 = 5_000;

/// Longest gap between two buffers that counts, in units of the patience: after a pause of any
/// length a few buffers suffice to see the new rate.
const GAP_NS_MAX: u64 = 4 * PATIENCE_NS;

/// How long what a look has found says something of those who give, in nanoseconds: longer than any wait.
const GATHERED_NS: u64 = 1_000_000;

/// What goes the other way, for which a taker's owner is awake and looks here, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Company {
    /// Nothing to count on.
    None,
    /// A stream of short packets.
    Stream,
    /// Long packets: the answers to them acknowledge.
    Long,
}

/// State of one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Adaptive {
    window: u32,
    window_max: u32,
    /// Moving average between two buffers.
    gap_ns: u64,
    last: Nanos,
    held: Held,
    /// When the peer was last told.
    told_at: Nanos,
    /// When the timer of a taker ends.
    wake_at: Option<Nanos>,
    /// Buffers left to be told one by one.
    caution: u32,
    /// What `caution` was last set to.
    cautious_for: u32,
    /// What the owner was awake for since the last visit.
    beside: Company,
    /// The same when that was last decided by.
    company: Company,
    /// Long packets moved since the last visit.
    long: u64,
    linger: Linger,
    acknowledgements: Acknowledgements,
    /// When the peer was last asked something.
    asked_at: Option<Nanos>,
    /// The last packets were told of at once, or asked for, because of that.
    is_held_off: bool,
    /// Of a giver that lingers: when long packets last passed; of a taker: when the owner last dealt with long
    /// ones the other way, if that is not longer ago than counts.
    long_at: Option<Nanos>,
    cause: Cause,
}

impl Adaptive {
    /// For a queue of `size` entries, at most a quarter of which may wait.
    pub fn new(size: u16) -> Self {
        Self {
            window: 1,
            window_max: (u32::from(size) / 4).clamp(1, WINDOW_MAX_PACKETS),
            gap_ns: GAP_NS_MAX,
            last: Nanos(0),
            held: Held { packets: 0, since: Nanos(0) },
            told_at: Nanos(0),
            wake_at: None,
            caution: 0,
            cautious_for: CAUTION_PACKETS,
            beside: Company::None,
            company: Company::None,
            long: 0,
            linger: Linger::default(),
            acknowledgements: Acknowledgements::default(),
            asked_at: None,
            is_held_off: false,
            long_at: None,
            cause: Cause::Started,
        }
    }

    /// What it has found out about the peer, which is true whatever the policy is meanwhile.
    pub(super) fn learned(&self) -> Learned {
        Learned(self.linger.trials())
    }

    /// Begins with what was found out before.
    pub(super) fn learn(&mut self, learned: Learned) {
        self.linger = Linger::with_trials(learned.0);
    }

    /// Buffers that may pass before the other side is told; 1 where questions kept the last ones from waiting.
    pub const fn window(&self) -> u32 {
        match self.cause() {
            Cause::Asked => 1,
            Cause::Acknowledges => self.window_max,
            _ => self.window,
        }
    }

    /// Why it is what it is, as of the last buffers.
    pub const fn cause(&self) -> Cause {
        match self.cause {
            _ if self.acknowledgements.may_wait() => Cause::Acknowledges,
            _ if self.is_held_off => Cause::Asked,
            cause => cause,
        }
    }

    /// How long the timer would run now, in nanoseconds; 0 at a window of one, as [`window`](Self::window) says.
    pub fn timer_ns(&self) -> u64 {
        match self.cause() {
            Cause::Asked => 0,
            Cause::Acknowledges => self.acknowledgements.wait_ns(),
            _ => self.patience_ns(),
        }
    }

    fn patience_ns(&self) -> u64 {
        match self.window {
            1 => 0,
            _ if self.counts_on_looks() => LOOK_AGAIN_NS,
            _ if self.cause == Cause::AwakeAnyway => PATIENCE_NS,
            _ if self.cause == Cause::Long => self.linger.wait_ns(),
            // The peer has to hear of the room and wake up, and then we do.
            _ if self.cause == Cause::Behind => 2 * PATIENCE_NS,
            // A quarter more than the window should take.
            window => {
                let expected = u64::from(window) * self.gap_ns;
                (expected + expected / 4).clamp(TIMER_NS_MIN, PATIENCE_NS + PATIENCE_NS / 4)
            }
        }
    }

    pub(super) fn after(&mut self, visit: Visit) -> Plan {
        self.observe(visit);
        match visit.side {
            Side::Gives => self.give(visit),
            Side::Takes => self.take(visit),
        }
    }

    /// The owner was awake for `moved` buffers elsewhere, `long` of them long packets, and looked here,
    /// too.
    pub(super) fn looked(&mut self, moved: u32, long: u64) {
        let beside = match moved {
            _ if long > 0 => Company::Long,
            moved if moved >= STREAM_PACKETS => Company::Stream,
            _ => Company::None,
        };
        self.beside = self.beside.max(beside);
    }

    /// Whether it wants to hear of questions: it keeps those waiting who ask, or would.
    pub(super) fn wants_questions(&self) -> bool {
        self.lingers() || self.long_at.is_some()
    }

    /// Whether it keeps those waiting who ask.
    pub(super) fn keeps_waiting(&self) -> bool {
        self.lingers() || self.counts_on_looks()
    }

    /// Whether nothing but the owner's looks, while long packets pass the other way, ends the wait soon.
    pub(super) fn counts_on_looks(&self) -> bool {
        self.cause == Cause::AwakeAnyway && self.company == Company::Long
    }

    fn lingers(&self) -> bool {
        self.cause == Cause::Long
    }

    /// How long a taker lingers, in nanoseconds, if it does and has not long ago found what the rate promises.
    pub(super) fn gathers_ns(&self, now: Nanos) -> Option<u64> {
        let has_gathered = self.lingers() && now.since(self.last) < GATHERED_NS;
        has_gathered.then(|| self.linger.wait_ns())
    }

    /// A question has gone to the peer.
    pub(super) fn peer_was_asked(&mut self, now: Nanos) {
        self.asked_at = Some(now);
    }

    /// Whether that was within so many nanoseconds.
    fn is_asked(&self, now: Nanos, within_ns: u64) -> bool {
        self.asked_at.is_some_and(|asked_at| now.since(asked_at) < within_ns)
    }

    /// The owner looks by itself for a while: no timer runs, and what it finds is not handed in.
    pub(super) fn keep_looking(&mut self, visit: Visit) {
        // A timer that has ended says what it always says, or it would be set anew for ever.
        if self.wake_at.is_some_and(|wake_at| visit.now >= wake_at) {
            self.after(visit);
        }
        (self.wake_at, self.long) = (None, 0);
    }

    /// Of what the next visit has moved, so many packets are long.
    pub(super) fn carried(&mut self, long: u64) {
        self.long = long;
    }

    /// What the next visit has moved only acknowledges. Among long packets it is told of as before.
    pub(super) fn only_acknowledges(&mut self, taker_wait_ns: u64) {
        if self.window_max > 1 && !self.lingers() {
            self.acknowledgements.come_next(taker_wait_ns);
        }
    }

    fn observe(&mut self, visit: Visit) {
        if visit.moved == 0 {
            return;
        }
        let gap_ns = visit.now.since(self.last).min(GAP_NS_MAX * u64::from(visit.moved));
        self.gap_ns = (3 * self.gap_ns + gap_ns / u64::from(visit.moved)) / 4;
        self.last = visit.now;
        self.caution = self.caution.saturating_sub(visit.moved);
    }

    fn give(&mut self, visit: Visit) -> Plan {
        // Somebody may wait for what comes behind acknowledgements.
        let ends_wait = self.acknowledgements.are_held(self.held);
        self.held.add(visit.moved, visit.now);
        let asked = self.is_asked(visit.now, ASKED_NS).then_some(self.told_at);
        let held = &mut self.held;
        if let Some(plan) = self.acknowledgements.after(visit, held, self.window_max, asked) {
            (self.told_at, self.long) = (if plan.notify { visit.now } else { self.told_at }, 0);
            return plan;
        }
        let long = core::mem::take(&mut self.long);
        if self.held.packets == 0 {
            return NOTHING;
        }
        let may_go_on = visit.moved == 0 || self.may_go_on(visit, long);
        let is_waited_for = ends_wait || !may_go_on;
        self.is_held_off = self.lingers() && self.is_asked(visit.now, ASKED_NS);
        let wake_at = self.held.since.plus(self.patience_ns());
        match self.held.packets {
            _ if is_waited_for => {}
            // What is told of one by one meanwhile says nothing about lingering.
            _ if self.is_held_off => self.linger.forget(),
            held if held >= self.window => self.filled(held),
            held if visit.now >= wake_at && self.cause == Cause::Long => {
                // Since when it could have come: who waits for answers sends none meanwhile.
                self.linger_on(held, Some(visit.now.since(self.told_at)));
            }
            held if visit.now >= wake_at => self.ran_out(held),
            _ if visit.short => {}
            _ => return Plan::hold(wake_at),
        }
        self.told_at = visit.now;
        self.held.release()
    }

    /// Lingers from now on if the rate of long packets is known; `false`: there is a short one while
    /// long ones are held back, and whoever waits for it shall not wait longer.
    fn may_go_on(&mut self, visit: Visit, long: u64) -> bool {
        let is_long = long == u64::from(visit.moved);
        let is_lingering = self.lingers();
        if is_long && !is_lingering && self.lingers_from_now(visit, GIVER_WAIT) {
            (self.window, self.cause) = (self.window_max, Cause::Long);
        }
        if is_lingering && long == 0 && !self.is_stream(visit.now) {
            self.change(1, Cause::Ended);
        }
        if long > 0 || !self.lingers() {
            self.long_at = self.lingers().then_some(visit.now);
        }
        is_long || !is_lingering
    }

    /// Whether the last long packet was not long ago.
    fn is_stream(&self, now: Nanos) -> bool {
        self.long_at.is_some_and(|long_at| now.since(long_at) < STREAM_END_NS)
    }

    /// The window was full in time: both sides keep up.
    fn filled(&mut self, moved: u32) {
        // Whoever finds so many was behind, and its own pace says nothing of the other side's. If
        // the guess is wrong, one buffer in as many as caution asks for pays.
        if moved >= CAUTION_PACKETS {
            (self.window, self.cause) = (self.window_max, Cause::Behind);
            return;
        }
        if self.caution > 0 || self.cause == Cause::Long {
            return;
        }
        let fits = u32::try_from(PATIENCE_NS / self.gap_ns.max(1)).unwrap_or(u32::MAX);
        let fits = fits.clamp(1, self.window_max);
        let window = fits.min(self.window * 2);
        if window > self.window {
            self.cautious_for = CAUTION_PACKETS;
        }
        self.change(window, if window >= self.window { Cause::Filled } else { Cause::Slower });
    }

    /// Long packets were told of one by one: whether enough is known of their rate to try.
    fn lingers_from_now(&mut self, visit: Visit, wait: Wait) -> bool {
        self.linger.told(visit.now, visit.moved);
        self.caution == 0 && self.window_max > 1 && self.linger.begin(wait)
    }

    /// So many long packets were found, at the end of a timer that began so long ago, or before it.
    fn linger_on(&mut self, moved: u32, waited_ns: Option<u64>) {
        self.linger.take(moved);
        let Some(waited_ns) = waited_ns else { return };
        match self.linger.look(waited_ns) {
            Next::Linger => {}
            Next::Trust => self.cautious_for = CAUTION_PACKETS,
            Next::Measure => {
                self.cautious_for = CAUTION_PACKETS;
                self.change(1, Cause::Ended);
            }
            Next::Stop => self.ran_out(0),
        }
    }

    /// The timer ended with `moved` buffers, less than the window.
    fn ran_out(&mut self, moved: u32) {
        if moved >= self.window.div_ceil(2) && moved > 1 {
            return self.change(self.window / 2, Cause::HalfFull);
        }
        self.caution = self.cautious_for;
        self.cautious_for = (2 * self.cautious_for).min(CAUTION_PACKETS_MAX);
        self.change(1, Cause::Ended);
    }

    fn change(&mut self, window: u32, cause: Cause) {
        // Who counted on looks waits for something else now, however long the window is.
        if window != self.window || self.cause == Cause::AwakeAnyway {
            self.window = window.max(1);
            self.cause = cause;
        }
    }
}
