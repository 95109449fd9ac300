//! Used buffers of a transmitq: their owner wants them back, but seldom waits for them.
//!
//! A guest that sends can go on until its ring is short, so a call for each used buffer wakes it
//! for nothing. What may wait for one is a sender with a limit on bytes in flight (TCP small
//! queues, a socket's send buffer): it stops sending. So the call comes when the guest has sent
//! nothing for a while, when a good part of the ring has come back, or when the oldest buffer has
//! waited long enough for one flow to stand still behind the others.
//!
//! A lull is worth its time if the guest meanwhile finds the buffer by itself, as one does that is
//! called about an answer. A slow one, under emulation, has often not begun to run by then, and is called
//! twice. So the answers are counted: where too many of the lulls have a call behind them that the guest
//! wanted all the same ([`Lulls`]), it gets its calls at once, as long as its buffers come one by one.
//!
//! Who answers a question has, as a rule, nothing more to say until the next one comes. Its buffer is told
//! of at once, while it is still awake: behind a lull the call would come into the next question.
//!
//! A guest that is asked something beside a stream of long packets that it sends has a lull behind each of
//! them if it is slow, and each call keeps its one processor from what it does for the next answer. Meanwhile
//! it is told of its buffers, those of the answers too, when it is called about packets, and by a call of
//! their own only if it is not time for that for twice as long as whoever takes the stream waits for several
//! packets of it ([`STREAM_WAIT_NS`] where that is not known), or the guest is awake each time for longer
//! ([`SENT_STREAM_NS`]).
//!
//! A guest that receives a stream is called about that all the time and looks here each time, so that
//! buffers of short packets, its acknowledgements, need no calls of their own ([`STREAM_WAIT_NS`]).

use super::linger::ASKED_NS;
use super::worth::{ALL, Worth};
use super::{Cause, Held, NOTHING, Nanos, Plan, Side, Visit};

/// Longest lull in nanoseconds before the call. TCP small queues lets at least two packets of
/// 64 KiB go unreturned: two per 50 µs are 20 Gb/s, so a single flow that waits loses nothing
/// that it could have had.
pub const LULL_NS: u64 = 50_000;

/// Longest wait in nanoseconds of a buffer while others keep coming. A quarter of the
/// millisecond of data that TCP small queues allows a fast flow.
pub const RETURN_WAIT_NS: u64 = 250_000;

/// Longest wait in nanoseconds of buffers of short packets, while long packets go to the guest; and
/// longest time between two of those. A stream calls several times within that, and whoever does
/// not look here then has its buffers after that time. The same for all buffers of a guest that is asked
/// something beside its own stream, at most.
pub const STREAM_WAIT_NS: u64 = 1_000_000;

/// Longest time in nanoseconds between two long packets of a stream that a guest sends, and longest wait of its
/// buffers while it is asked something.
pub const SENT_STREAM_NS: u64 = 3_000_000;

/// More buffers than that are not those of a stream's acknowledgements, of which 3 to 15 come within
/// [`STREAM_WAIT_NS`]: their sender may wait for them, as one may that sends long packets.
const ACKNOWLEDGEMENTS_MAX: u32 = 16;

/// In eleven of sixteen lulls the guest has to find the buffer by itself, on average of 64. With nine of ten a flood of
/// pings gains a sixth by lulls, with six of ten it loses a fifteenth (ADR 18).
type Lulls = Worth<{ 11 * ALL / 16 }, 64>;

/// State of the way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Returns {
    held: Held,
    last: Nanos,
    /// When the guest is called about something else, or was.
    called_at: Nanos,
    window: u32,
    /// Whether lulls of one buffer are worth their time: the guest wants no call at the end of enough of them.
    lulls: Lulls,
    /// The last call was asked for at the end of a lull of one buffer.
    is_single: bool,
    /// When the last long packets went to the guest.
    stream: Nanos,
    /// Others went to it shortly before those.
    is_streaming: bool,
    /// One of what is held was a long packet.
    has_long: bool,
    /// One of what the next visit has moved is.
    is_long_next: bool,
    /// When long packets of the guest's last came back.
    sent: Option<Nanos>,
    /// Others had shortly before those.
    is_sending: bool,
    /// When the guest was last asked something.
    asked_at: Option<Nanos>,
    /// What the next visit has moved is one answer.
    is_answer: bool,
    /// What was last held waits for calls about packets.
    waits_for_calls: bool,
    /// How long it does, in nanoseconds: as was last said, so that it outlives the taker's lingering.
    calls_wait_ns: u64,
}

impl Returns {
    /// In a queue of `size` entries.
    pub fn new(size: u16) -> Self {
        // A quarter: the guest is never stopped by buffers that only wait to be called for, and
        // has three quarters left to go on sending until it reacts.
        let window = (u32::from(size) / 4).max(1);
        Self {
            held: Held::default(),
            last: Nanos(0),
            called_at: Nanos(0),
            window,
            lulls: Lulls::new(ALL),
            is_single: false,
            stream: Nanos(0),
            is_streaming: false,
            has_long: false,
            is_long_next: false,
            sent: None,
            is_sending: false,
            asked_at: None,
            is_answer: false,
            waits_for_calls: false,
            calls_wait_ns: STREAM_WAIT_NS,
        }
    }

    pub(super) const fn window(&self) -> u32 {
        self.window
    }

    /// Longest wait of what is held. That a stream has ended is known with the next long packets.
    pub(super) const fn wait_ns(&self) -> u64 {
        match self.waits_for_calls {
            true => self.calls_wait_ns,
            false if self.is_streaming => STREAM_WAIT_NS,
            false => RETURN_WAIT_NS,
        }
    }

    pub(super) const fn cause(&self) -> Cause {
        match self.lulls.may_wait() {
            _ if self.waits_for_calls => Cause::Asked,
            true => Cause::Fixed,
            false => Cause::InVain,
        }
    }

    pub(super) fn after(&mut self, visit: Visit) -> Plan {
        debug_assert_eq!(visit.side, Side::Gives);
        self.held.add(visit.moved, visit.now);
        self.note_long(visit.now);
        if self.held.packets == 0 {
            return NOTHING;
        }
        self.waits_for_calls = self.is_asked_while_sending(visit.now);
        if visit.moved > 0 && self.is_told_at_once(visit.now) {
            return self.release();
        }
        let is_alone = self.held.packets == 1;
        let wake_at = self.wait_until(visit.now);
        if visit.short || self.held.packets >= self.window || visit.now >= wake_at {
            let is_over = visit.moved == 0 && visit.now >= wake_at;
            let has_lulls = !self.is_served(visit.now) && !self.waits_for_calls;
            self.is_single = is_alone && is_over && has_lulls;
            return self.release();
        }
        Plan::hold(wake_at)
    }

    /// Whether what has just come back is told of without a lull.
    fn is_told_at_once(&mut self, now: Nanos) -> bool {
        let is_behind_lull = now.since(core::mem::replace(&mut self.last, now)) >= LULL_NS;
        let is_answer = core::mem::take(&mut self.is_answer);
        if self.held.packets > 1 || self.waits_for_calls {
            return false;
        }
        if is_answer && !self.has_long && !self.is_served(now) {
            return true;
        }
        let is_in_vain = is_behind_lull && !self.lulls.may_wait();
        self.lulls.told(u32::from(is_in_vain));
        is_in_vain
    }

    /// Takes down whether one of what was just moved is long.
    fn note_long(&mut self, now: Nanos) {
        if !core::mem::take(&mut self.is_long_next) {
            return;
        }
        self.has_long = true;
        self.is_sending = self.has_sent(now);
        self.sent = Some(now);
    }

    /// Whether the guest sends a stream of long packets, and is asked something.
    pub(super) fn is_asked_while_sending(&self, now: Nanos) -> bool {
        let is_asked = self.asked_at.is_some_and(|asked_at| now.since(asked_at) < ASKED_NS);
        is_asked && self.is_sending && self.has_sent(now)
    }

    /// Whether the last long packets are not long ago.
    fn has_sent(&self, now: Nanos) -> bool {
        self.sent.is_some_and(|sent| now.since(sent) < SENT_STREAM_NS)
    }

    fn release(&mut self) -> Plan {
        self.has_long = false;
        self.held.release()
    }

    /// Whether the guest finds by itself what is held, because it is called about a stream, and does
    /// not wait for it meanwhile.
    fn is_served(&self, now: Nanos) -> bool {
        let is_streaming = self.is_streaming && now.since(self.stream) < STREAM_WAIT_NS;
        is_streaming && !self.has_long && self.held.packets <= ACKNOWLEDGEMENTS_MAX
    }

    /// Who takes the guest's stream waits that long for several packets of it.
    pub(super) fn beside_taker(&mut self, taker_wait_ns: u64) {
        self.calls_wait_ns = taker_wait_ns.saturating_mul(2).min(STREAM_WAIT_NS);
    }

    /// A question has gone to the guest.
    pub(super) fn peer_was_asked(&mut self, now: Nanos) {
        self.asked_at = Some(now);
    }

    /// What the next visit has moved is one answer of the guest.
    pub(super) fn peer_has_answered(&mut self) {
        self.is_answer = true;
    }

    /// Long packets have gone to the guest.
    pub(super) fn beside_stream(&mut self, now: Nanos) {
        self.is_streaming = now.since(self.stream) < STREAM_WAIT_NS;
        self.stream = now;
    }

    /// The guest is called at that time, and finds what is held by itself.
    pub(super) fn beside_call(&mut self, now: Nanos, at: Nanos) -> Nanos {
        self.called_at = at;
        self.wait_until(now)
    }

    /// It was time to call the guest about packets, and it `is_called` unless it is awake and looks by itself;
    /// `true`: it is told of what is held as well.
    pub(super) fn told_beside(&mut self, now: Nanos, is_called: bool) -> bool {
        if !self.is_asked_while_sending(now) {
            return false;
        }
        self.called_at = now;
        let is_told = is_called && self.held.packets > 0;
        if is_told {
            self.release();
        }
        is_told
    }

    /// Until when what is held waits, as of now.
    fn wait_until(&self, now: Nanos) -> Nanos {
        let longest = self.held.since.plus(RETURN_WAIT_NS);
        match self.is_served(now) {
            true => self.held.since.plus(STREAM_WAIT_NS),
            false if self.is_asked_while_sending(now) => {
                let latest = self.held.since.plus(SENT_STREAM_NS);
                self.held.since.max(self.called_at).plus(self.calls_wait_ns).min(latest)
            }
            false => self.last.max(self.called_at).plus(LULL_NS).min(longest),
        }
    }

    /// Of what the next visit has moved, so many packets are long.
    pub(super) fn carried(&mut self, long: u64) {
        self.is_long_next = long > 0;
    }

    /// What the ring said when it was asked last: whether the guest wants a call.
    pub(super) fn ring_said(&mut self, is_wanted: bool) {
        if core::mem::take(&mut self.is_single) {
            self.lulls.waited(!is_wanted);
        }
    }
}
