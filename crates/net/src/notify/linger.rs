//! How long a taker of long packets waits for more of them before it asks to be told of the next,
//! and how long a giver waits before it tells of them.
//!
//! Long packets are no pings and no requests, and mostly come in streams; each that is told of costs
//! a notification, and each that is answered alone another one. So whoever decides looks again after
//! the time that a few of them took when they were told of one by one. A sender that has only a few
//! under way waits for its answers then, and looks find fewer than that rate says: then it is told
//! one by one again. A stream is no clockwork, and looks find fewer by chance as well; the less is missing, the
//! more looks it takes to know which it is.
//!
//! Limits: the rate is measured while packets are told of, and kept for [`LOOKS_MAX`] looks: what
//! comes meanwhile only says whether the sender keeps up with it. ADR 18 has the measurements.

use super::Nanos;

/// At least, in nanoseconds, whatever the rate: a timer is no finer.
const WAIT_NS_MIN: u64 = 20_000;

/// Longest time in nanoseconds after which a taker of long packets looks again by itself: a ping that
/// comes meanwhile waits as well.
pub const TAKER_WAIT_NS_MAX: u64 = 600_000;

/// Longest time in nanoseconds for which a giver holds long packets back: whoever is told of less at a
/// time has begun to work sooner.
pub const GIVER_WAIT_NS_MAX: u64 = 300_000;

/// How long to wait for more, by the gap between two packets, which is measured while each packet is told of: that
/// makes it longer. Who has `n` packets under way, whose round takes `t` but for the wait, is not kept waiting by
/// `n` gaps less `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wait {
    /// In halves of a gap.
    half_gaps: u64,
    /// What is left of that for the rest of the round, in nanoseconds.
    round_ns: u64,
    /// At most, in nanoseconds.
    ns_max: u64,
}

/// Of a taker: with five gaps, a guest on a slow machine had half of what it may have under way waiting for the
/// look; with three, and nothing left, one on a fast machine that sends a packet every 20 µs a fifth (ADR 18).
pub(super) const TAKER_WAIT: Wait =
    Wait { half_gaps: 7, round_ns: 30_000, ns_max: TAKER_WAIT_NS_MAX };

/// Of a giver: what its sender may have under way is the peer's to say, and may be little. A guest with little
/// memory has a small receive buffer, and some senders go by the shortest round trip (ADR 18).
pub(super) const GIVER_WAIT: Wait = Wait { half_gaps: 5, round_ns: 0, ns_max: GIVER_WAIT_NS_MAX };

/// How long after a question the next one is expected, in nanoseconds: a tenth of a second. It would
/// stand behind what is held back.
pub(super) const ASKED_NS: u64 = 100_000_000;

/// How long behind the last long packet the next one of the same stream may come, in nanoseconds: a tenth of
/// a second, longer than most round trips.
pub(super) const STREAM_END_NS: u64 = 100_000_000;

/// How long an answer to what went to the peer is waited for, in nanoseconds: half of a millisecond.
/// Most guests have answered a ping by then, emulated ones too; longer would cost what lingering
/// is for.
pub(super) const ANSWER_NS: u64 = 500_000;

/// A longer gap in nanoseconds is a pause, and says nothing of the rate.
const GAP_NS_MAX: u64 = 1_000_000;

/// Packets told of one by one before their rate is known.
const TOLD_MIN: u32 = 32;

/// From so many on, earlier ones count half: what they tell is of another time.
const TOLD_MAX: u32 = 2 * TOLD_MIN;

/// Looks before the rate is measured anew: by then a thousand packets or two were not told of.
const LOOKS_MAX: u32 = 384;

/// What looks have to find, in packets: one and a quarter. Who sends the next packet only when this
/// one is answered is found with one each time.
const GATHERED_MIN: u64 = 5 * ONE / 4;

/// So many looks, on average, tell somebody who is kept waiting from chance when half is missing of what
/// the rate promises.
const LOOKS_FOR_HALF: u64 = 6;

/// The same when a quarter is missing.
const LOOKS_FOR_QUARTER: u64 = 48;

/// A packet, in the unit of averages: what their divisions cut off is small beside it.
const ONE: u64 = 1024;

/// What is to be done behind a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The same once more.
    Linger,
    /// Be told of some packets one by one, and begin anew.
    Measure,
    /// Somebody is kept waiting, or nobody is there.
    Stop,
}

/// Rate of long packets, and what waiting for them brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Linger {
    /// Long packets told of one by one, in what time, and when the last one came.
    told: u32,
    told_ns: u64,
    last: Nanos,
    /// Between two of them, when lingering began.
    gap_ns: u64,
    /// How long to wait from then on.
    wait: Wait,
    /// Times the timer has ended since then.
    looks: u32,
    /// Taken since the timer last ended.
    taken: u32,
    /// Of the last few looks, and of many.
    lately: Found,
    longer: Found,
}

/// What looks have found: moving averages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Found {
    /// In units of [`ONE`].
    packets: u64,
    /// In what time they could have come.
    waited_ns: u64,
}

impl Found {
    /// One more look, in an average of so many.
    fn add(&mut self, looks: u64, packets: u32, waited_ns: u64) {
        self.packets = ((looks - 1) * self.packets + ONE * u64::from(packets)) / looks;
        self.waited_ns = ((looks - 1) * self.waited_ns + waited_ns) / looks;
    }

    /// Whether that is so many quarters of what one packet per `gap_ns` makes.
    fn keeps(&self, quarters: u64, gap_ns: u64) -> bool {
        self.packets >= (ONE * self.waited_ns * quarters / (4 * gap_ns)).max(GATHERED_MIN)
    }
}

impl Linger {
    /// So many long packets came, and were told of.
    pub fn told(&mut self, now: Nanos, packets: u32) {
        let gap_ns = now.since(self.last);
        self.last = now;
        if gap_ns > GAP_NS_MAX {
            return;
        }
        if self.told >= TOLD_MAX {
            (self.told, self.told_ns) = (self.told / 2, self.told_ns / 2);
        }
        self.told = self.told.saturating_add(packets);
        self.told_ns = self.told_ns.saturating_add(gap_ns);
    }

    /// `true`: their rate is known, and lingering begins with the benefit of the doubt.
    pub fn begin(&mut self, wait: Wait) -> bool {
        if self.told < TOLD_MIN {
            return false;
        }
        self.gap_ns = (self.told_ns / u64::from(self.told)).max(1);
        self.wait = wait;
        (self.told, self.told_ns, self.looks, self.taken) = (0, 0, 0, 0);
        // Until some are told of again, there is a pause.
        self.last = Nanos(0);
        let waited_ns = self.wait_ns();
        // An eighth more than is promised.
        let packets = (ONE * waited_ns * 9 / (8 * self.gap_ns)).max(GATHERED_MIN * 3 / 2);
        self.lately = Found { packets, waited_ns };
        self.longer = self.lately;
        true
    }

    /// How long to wait for more.
    pub fn wait_ns(&self) -> u64 {
        let Wait { half_gaps, round_ns, ns_max } = self.wait;
        (half_gaps * self.gap_ns / 2).saturating_sub(round_ns).max(WAIT_NS_MIN).min(ns_max)
    }

    /// So many long packets were taken meanwhile.
    pub fn take(&mut self, packets: u32) {
        self.taken = self.taken.saturating_add(packets);
    }

    /// The wait was cut short: what it has brought says nothing.
    pub fn forget(&mut self) {
        self.taken = 0;
    }

    /// The timer has ended; packets could have come for so long. What is next.
    pub fn look(&mut self, waited_ns: u64) -> Next {
        let taken = core::mem::take(&mut self.taken);
        // Whatever is longer is a pause, and no lower rate.
        let waited_ns = waited_ns.min(GAP_NS_MAX);
        self.lately.add(LOOKS_FOR_HALF, taken, waited_ns);
        self.longer.add(LOOKS_FOR_QUARTER, taken, waited_ns);
        self.looks += 1;
        let is_kept = self.lately.keeps(2, self.gap_ns) && self.longer.keeps(3, self.gap_ns);
        match is_kept {
            false => Next::Stop,
            true if self.looks >= LOOKS_MAX => Next::Measure,
            true => Next::Linger,
        }
    }
}
