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
//! Limits: the rate is measured while packets are told of, and kept for [`LOOKS_FOR_RATE`] to [`LOOKS_MAX`]
//! looks: what comes meanwhile only says whether the sender keeps up with it. One that has become faster may
//! be kept waiting for so long: 1.8 s where it is waited for longest. ADR 18 has the measurements.

use super::Nanos;
use super::trials::Trials;

/// At least, in nanoseconds, whatever the rate: a timer is no finer.
const WAIT_NS_MIN: u64 = 20_000;

/// Longest time in nanoseconds after which a taker of long packets looks again by itself: a ping that
/// comes meanwhile waits as well.
pub const TAKER_WAIT_NS_MAX: u64 = 600_000;

/// Longest time in nanoseconds for which a giver holds long packets back: whoever is told of less at a
/// time has begun to work sooner.
pub const GIVER_WAIT_NS_MAX: u64 = 300_000;

/// How long to wait for more, or how long at most where shorter waits are tried, by the gap between two packets,
/// which is measured while each packet is told of: that makes it longer. Who has `n` packets under way, whose round
/// takes `t` but for the wait, is not kept waiting by `n` gaps less `t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wait {
    /// In halves of a gap.
    half_gaps: u64,
    /// What is left of that for the rest of the round, in nanoseconds.
    round_ns: u64,
    /// At most, in nanoseconds.
    ns_max: u64,
    /// Whether shorter and longer ones are tried beside it.
    is_tried: bool,
}

/// Of a taker: with five gaps, a guest on a slow machine had half of what it may have under way waiting for the
/// look; with three, and nothing left, one on a fast machine that sends a packet every 20 µs a fifth (ADR 18).
pub(super) const TAKER_WAIT: Wait =
    Wait { half_gaps: 7, round_ns: 30_000, ns_max: TAKER_WAIT_NS_MAX, is_tried: false };

/// Of a giver: what its sender may have under way is the peer's to say, and may be little. A guest with little
/// memory has a small receive buffer, and some senders go by the shortest round trip (ADR 18).
pub(super) const GIVER_WAIT: Wait =
    Wait { half_gaps: 8, round_ns: 0, ns_max: GIVER_WAIT_NS_MAX, is_tried: true };

/// How long after a question the next one is expected, in nanoseconds: a tenth of a second. It would
/// stand behind what is held back, and behind the visits of other ports (ADR 18, section 4).
pub const ASKED_NS: u64 = 100_000_000;

/// How long behind the last long packet the next one of the same stream may come, in nanoseconds: a tenth of
/// a second, longer than most round trips.
pub(super) const STREAM_END_NS: u64 = 100_000_000;

/// How long an answer to what went to the peer is waited for, in nanoseconds: half of a millisecond.
/// Most guests have answered a ping by then, emulated ones too; longer would cost what lingering
/// is for.
pub(super) const ANSWER_NS: u64 = 500_000;

/// A longer gap in nanoseconds is a pause, and says nothing of the rate.
const GAP_NS_MAX: u64 = 1_000_000;

/// From this gap on, in nanoseconds, a stream is slow: 2 Gb/s in packets of 64 KiB. Waiting spares every second
/// notification at most, and an emulated guest that sends 1.5 Gb/s, as it is told to, sleeps in between and answers
/// pings later (ADR 18).
const SLOW_GAP_NS: u64 = 250_000;

/// Packets told of one by one before their rate is known.
const TOLD_MIN: u32 = 32;

/// From so many on, earlier ones count half: what they tell is of another time.
const TOLD_MAX: u32 = 2 * TOLD_MIN;

/// Looks before the rate is measured anew, unless the average of the last ones is all that it promises: then it has
/// not fallen, and what is told of one by one costs a stream to an emulated guest a hundredth (ADR 28).
const LOOKS_FOR_RATE: u32 = 384;

/// Looks before it is measured anew in any case: it may have risen.
const LOOKS_MAX: u32 = 8 * LOOKS_FOR_RATE;

/// What looks have to find on average of many, in packets: one and a quarter. Who sends the next packet only when this
/// one is answered is found with one each time.
const GATHERED_MIN: u64 = 5 * ONE / 4;

/// So many looks, on average, tell somebody who is kept waiting from chance when half is missing of what
/// the rate promises.
const LOOKS_FOR_HALF: u64 = 6;

/// The same when a quarter is missing, or an eighth.
const LOOKS_FOR_QUARTER: u64 = 48;

/// A packet, in the unit of averages: what their divisions cut off is small beside it.
const ONE: u64 = 1024;

/// What is to be done behind a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The same once more.
    Linger,
    /// The same, and the sender is not kept waiting: so many looks say so.
    Trust,
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
    /// Of what was waited, and something else.
    trials: Trials,
    /// Times the timer has ended since then.
    looks: u32,
    /// Taken since the timer last ended.
    taken: u32,
    /// Of the last few looks; of many, with the wait in use and with one that is tried.
    lately: Found,
    longer: [Found; 2],
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

    /// Whether that is so many eighths of what one packet per `gap_ns` makes.
    fn keeps(&self, eighths: u64, gap_ns: u64) -> bool {
        self.packets >= ONE * self.waited_ns * eighths / (8 * gap_ns)
    }
}

impl Linger {
    /// What is known of waits that were tried.
    pub fn trials(&self) -> Trials {
        self.trials
    }

    /// Nothing of the stream is known, but that is; a comparison that was not over begins anew.
    pub fn with_trials(trials: Trials) -> Self {
        Self { trials: trials.without_comparison(), ..Self::default() }
    }

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

    /// `true`: enough of them were told of, and the gap between them is known from now on.
    pub fn measure(&mut self) -> bool {
        if self.told < TOLD_MIN {
            return false;
        }
        self.gap_ns = (self.told_ns / u64::from(self.told)).max(1);
        (self.told, self.told_ns) = (0, 0);
        true
    }

    /// `true`: their rate is known, and lingering begins with the benefit of the doubt.
    pub fn begin(&mut self, wait: Wait) -> bool {
        if !self.measure() {
            return false;
        }
        self.wait = wait;
        (self.looks, self.taken) = (0, 0);
        // Until some are told of again, there is a pause.
        self.last = Nanos(0);
        let waited_ns = self.wait_ns();
        // An eighth more than is promised.
        let packets = (ONE * waited_ns * 9 / (8 * self.gap_ns)).max(GATHERED_MIN * 3 / 2);
        self.lately = Found { packets, waited_ns };
        self.longer = [self.lately; 2];
        true
    }

    /// How long to wait for more.
    pub fn wait_ns(&self) -> u64 {
        let Wait { half_gaps, round_ns, ns_max, is_tried } = self.wait;
        let wait_ns = (half_gaps * self.gap_ns / 2).saturating_sub(round_ns).min(ns_max);
        let wait_ns = if is_tried { self.trials.wait_ns(wait_ns) } else { wait_ns };
        wait_ns.max(WAIT_NS_MIN).min(ns_max)
    }

    /// Whether the longest wait of a taker finds two packets or little more.
    pub fn is_slow(&self) -> bool {
        self.gap_ns > SLOW_GAP_NS
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
        // Neither wait is to blame for what the other one has found.
        let longer = &mut self.longer[self.trials.whose() as usize];
        longer.add(LOOKS_FOR_QUARTER, taken, waited_ns);
        let longer = *longer;
        self.looks += 1;
        // Who has three under way and is kept waiting for the time of one is found with three quarters.
        let eighths = if self.wait_ns() < 2 * self.gap_ns { 7 } else { 6 };
        let is_kept = self.lately.keeps(4, self.gap_ns)
            && longer.keeps(eighths, self.gap_ns)
            && longer.packets >= GATHERED_MIN;
        match is_kept {
            _ if !self.wait.is_tried => {}
            false => self.trials.stop(),
            true => self.trials.look(taken, waited_ns),
        }
        match is_kept {
            false => Next::Stop,
            true if !self.looks.is_multiple_of(LOOKS_FOR_RATE) => Next::Linger,
            true if self.looks < LOOKS_MAX && longer.keeps(8, self.gap_ns) => Next::Trust,
            true => Next::Measure,
        }
    }
}
