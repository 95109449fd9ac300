//! Whether to poll for work for a while before sleeping, and for how long: a pure value.
//!
//! A worker that has nothing to do either sleeps, and has to be woken, which costs the packet a
//! wake-up and the sender a notification; or it goes on looking, which costs processor time. How
//! long the next pause will be is not known, but recent pauses say something: looking pays if most
//! of them ended within about the time that a wake-up takes. So the owner says when it found
//! something ([`Polling::found`]) and asks when it has nothing ([`Polling::idle`]); pauses are
//! observed asleep as well as awake, so looking begins and ends by itself.
//!
//! Beside a stream of long packets looking saves little, because pacing waits for several of them
//! and then needs no notification. So there the worker yields the processor between looks
//! ([`Polling::should_yield`]); if another thread runs on it, looking ends for [`POLL_BACKOFF_NS`].
//!
//! Looks that find nothing are paid from a budget, a share of one processor, which is earned as
//! time passes. Limits: the budget does not bound looks that find something in time: these replace
//! a wake-up. ADR 20 gives the reason for each constant.

use core::fmt;
use core::str::FromStr;

use crate::Nanos;

/// How long a look lasts at most, in nanoseconds: two wake-ups, the peer's and one's own.
pub const LOOK_NS_MAX: u64 = 2 * WAKE_NS;

/// The time that waking a sleeping side takes, in nanoseconds, as measured on two virtual
/// processors. Under KVM it is 4 to 12 µs, under emulation 60: the simulation finds no other value
/// better (ADR 18).
pub const WAKE_NS: u64 = 30_000;

/// A shorter pause in nanoseconds is none: no worker would have got to sleep in it.
const PAUSE_NS_MIN: u64 = 3_000;

/// Longest time in nanoseconds between two looks of a worker that has the processor to itself.
/// After a longer one another thread ran on it.
pub const PREEMPTED_NS: u64 = 50_000;

/// How long behind long packets more of the same stream are expected, in nanoseconds: longer than
/// pacing waits for any.
const STREAM_NS: u64 = 1_000_000;

/// A yield that takes longer, in nanoseconds, let another thread run; without one it takes a tenth.
const YIELDED_NS: u64 = 5_000;

/// How long pauses do not count after such a yield, in nanoseconds: a tenth of a second.
pub const POLL_BACKOFF_NS: u64 = 100_000_000;

/// Most that can be saved of the budget, in nanoseconds.
const CREDIT_NS_MAX: u64 = 2_000_000;

/// The share that stands for all recent pauses.
const ALL: u32 = 256;

/// When to look for work instead of sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PollMode {
    /// As long as recent pauses say that it pays.
    #[default]
    Auto,
    /// Always: the processor is the worker's alone.
    Always,
    /// Never: sleep at once.
    Never,
}

/// The options that a user chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollOptions {
    /// When to look.
    pub mode: PollMode,
    /// Share of one processor that may be spent on looks that find nothing.
    pub budget_percent: u8,
}

impl Default for PollOptions {
    fn default() -> Self {
        Self { mode: PollMode::Auto, budget_percent: 10 }
    }
}

/// The text names no mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PollModeError;

impl FromStr for PollMode {
    type Err = PollModeError;

    fn from_str(text: &str) -> Result<Self, PollModeError> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(PollModeError),
        }
    }
}

impl fmt::Display for PollMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        })
    }
}

/// The next step when nothing is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Look again at once.
    Look,
    /// Ask to be notified, look once more, then sleep.
    Sleep,
}

/// The last thing that the owner was told, or did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Activity {
    Busy,
    /// Nothing since `since`; looked last at `last`, and looks until `until`.
    Looking {
        since: Nanos,
        last: Nanos,
        until: Nanos,
    },
    /// Nothing since `since`; with `is_counted` this pause is known to be a long one.
    Asleep {
        since: Nanos,
        is_counted: bool,
    },
}

/// The pauses of one worker, and when it may look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Polling {
    options: PollOptions,
    activity: Activity,
    /// How many of the recent pauses were short, of [`ALL`].
    short: u32,
    /// The rest of the budget, as of `credited`.
    credit_ns: u64,
    credited: Nanos,
    /// When long packets were last moved.
    stream_at: Option<Nanos>,
    /// Until when pauses do not count.
    backoff_until: Nanos,
    spent: PollCounters,
}

/// Costs and gains of looking, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PollCounters {
    /// Time spent looking, in nanoseconds.
    pub looked_ns: u64,
    /// Of that, paid from the budget.
    pub in_vain_ns: u64,
    /// Looks that found something.
    pub hits: u64,
    /// Looks that ended in sleep.
    pub misses: u64,
}

impl Polling {
    /// Nothing has happened yet; `now` is when the budget begins.
    pub fn new(options: PollOptions, now: Nanos) -> Self {
        Self {
            options,
            activity: Activity::Busy,
            short: 0,
            credit_ns: 0,
            credited: now,
            stream_at: None,
            backoff_until: Nanos(0),
            spent: PollCounters::default(),
        }
    }

    /// Whether a pause that began now would begin with looking, as far as the traffic says.
    pub fn is_wanted(&self) -> bool {
        match self.options.mode {
            PollMode::Always => true,
            PollMode::Never => false,
            PollMode::Auto => self.options.budget_percent > 0 && self.short >= ALL / 2,
        }
    }

    /// Whether it could be wanted at all: otherwise there is nothing to ask.
    pub fn may_look(&self) -> bool {
        self.options.mode != PollMode::Never
    }

    /// Other options from now on.
    pub fn set_options(&mut self, options: PollOptions) {
        self.options = options;
    }

    /// The options that hold now.
    pub fn options(&self) -> PollOptions {
        self.options
    }

    /// Costs and gains of looking.
    pub fn counters(&self) -> PollCounters {
        self.spent
    }

    /// Something was at hand.
    pub fn found(&mut self, now: Nanos) {
        match core::mem::replace(&mut self.activity, Activity::Busy) {
            Activity::Looking { since, last, .. } => {
                self.looked(last, now);
                let pause_ns = now.since(since);
                self.spent.hits += u64::from(pause_ns >= PAUSE_NS_MIN);
                self.pay(pause_ns.saturating_sub(WAKE_NS));
                self.observe(now, pause_ns, LOOK_NS_MAX);
            }
            // A worker that slept sees a pause a wake-up longer than it was.
            Activity::Asleep { since, is_counted: false } => {
                self.observe(now, now.since(since), LOOK_NS_MAX + WAKE_NS);
            }
            Activity::Asleep { .. } | Activity::Busy => {}
        }
    }

    /// Nothing is at hand.
    pub fn idle(&mut self, now: Nanos) -> Next {
        match (self.options.mode, self.activity) {
            (PollMode::Always, Activity::Looking { since, last, until }) => {
                self.looked(last, now);
                self.activity = Activity::Looking { since, last: now, until };
                Next::Look
            }
            (_, Activity::Looking { since, last, until }) => {
                self.looked(last, now);
                if now < until && now.since(last) < PREEMPTED_NS {
                    self.activity = Activity::Looking { since, last: now, until };
                    return Next::Look;
                }
                self.give_up(since, now, now.since(last) >= PREEMPTED_NS)
            }
            (_, Activity::Asleep { .. }) => Next::Sleep,
            (_, Activity::Busy) => self.begin(now),
        }
    }

    fn begin(&mut self, now: Nanos) -> Next {
        self.earn(now);
        let is_paid = self.options.mode == PollMode::Always || self.credit_ns >= LOOK_NS_MAX;
        if self.is_wanted() && is_paid {
            self.activity =
                Activity::Looking { since: now, last: now, until: now.plus(LOOK_NS_MAX) };
            return Next::Look;
        }
        self.activity = Activity::Asleep { since: now, is_counted: false };
        Next::Sleep
    }

    /// Long packets were moved: a stream, for about a millisecond (ADR 20).
    pub fn stream_passed(&mut self, now: Nanos) {
        self.stream_at = Some(now);
    }

    /// Whether to yield the processor before the next look: beside a stream, unless the processor
    /// is the worker's alone (ADR 20). Call [`yielded`](Self::yielded) afterwards.
    pub fn should_yield(&self, now: Nanos) -> bool {
        let is_stream = self.stream_at.is_some_and(|stream_at| now.since(stream_at) < STREAM_NS);
        is_stream && self.options.mode == PollMode::Auto
    }

    /// The worker yielded at `began` and runs again `now`: whether to look after all. The time
    /// between is no look and costs no budget.
    pub fn yielded(&mut self, began: Nanos, now: Nanos) -> Next {
        let Activity::Looking { since, last, until } = self.activity else { return Next::Look };
        self.looked(last, began);
        if now.since(began) < YIELDED_NS {
            self.activity = Activity::Looking { since, last: now, until };
            return Next::Look;
        }
        self.backoff_until = now.plus(POLL_BACKOFF_NS);
        self.give_up(since, began, true)
    }

    /// The look that began at `since` came to its end, or another thread took the processor.
    fn give_up(&mut self, since: Nanos, end: Nanos, was_preempted: bool) -> Next {
        self.spent.misses += 1;
        if was_preempted {
            // The other thread needs this processor more: see some short pauses first.
            self.short = 0;
        } else {
            self.short -= self.short / 8;
        }
        self.pay(end.since(since).min(LOOK_NS_MAX));
        self.activity = Activity::Asleep { since, is_counted: true };
        Next::Sleep
    }

    fn observe(&mut self, now: Nanos, pause_ns: u64, short_ns: u64) {
        match pause_ns {
            _ if now < self.backoff_until => {}
            0..PAUSE_NS_MIN => {}
            _ if pause_ns <= short_ns => self.short += (ALL - self.short).div_ceil(8),
            _ => self.short -= self.short / 8,
        }
    }

    fn looked(&mut self, last: Nanos, now: Nanos) {
        self.spent.looked_ns += now.since(last).min(PREEMPTED_NS);
    }

    fn earn(&mut self, now: Nanos) {
        // Nothing is earned beyond what can be saved, so a longer time counts no more.
        let passed_ns = now.since(self.credited).min(100 * CREDIT_NS_MAX);
        let earned_ns = passed_ns * u64::from(self.options.budget_percent) / 100;
        self.credit_ns = (self.credit_ns + earned_ns).min(CREDIT_NS_MAX);
        self.credited = now;
    }

    fn pay(&mut self, ns: u64) {
        self.credit_ns = self.credit_ns.saturating_sub(ns);
        self.spent.in_vain_ns += ns;
    }
}
