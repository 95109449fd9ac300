//! Which of two waits lets a stream go faster, tried in turns.
//!
//! How long a giver of long packets had best wait for several of them depends on the peer, on the machine and
//! on how much the sender may have under way, and nothing that is seen of one stream told them apart: the gap
//! between two packets gives the longest one that is of use (see `linger.rs`). So a stream that goes on is told
//! of after another wait now and then, half or twice as long, in turns of A B B A, which whatever changes
//! steadily cannot mislead; and the wait that brings more packets per second stays.
//!
//! Packets of one stream come at rates that differ by some percent between two turns anyway, by chance. So what
//! one wait is ahead is added up until it is more than chance brings. A longer wait spares notifications: it is
//! taken if it costs nothing, a shorter one only if it brings something.
//!
//! Limits: where waiting is given up again and again, no other wait is found, and a ring so small that the
//! window fills before the wait is over says little. A stream is tried on for as long as it lasts, and
//! forgotten when the queue starts anew; of two waits that are as good, either may stay. ADR 28 has the
//! measurements.

/// How often the longest wait is halved before it is too short.
const HALVINGS_MAX: u8 = 3;

/// Shortest turn of one wait, in nanoseconds: dozens of notifications, and longer than a sender takes to notice.
const TURN_NS: u32 = 10_000_000;

/// By what a wait has to be ahead for good, in thousandths, added up over comparisons: four times what one of them
/// is off by chance.
const AHEAD: i32 = 160;

/// Most that one comparison counts, in thousandths: whatever is more has other reasons.
const COUNTS_MAX: i32 = 60;

/// What a longer wait is given in advance in each comparison, in thousandths: it spares that much work.
const SPARES: i32 = 4;

/// For how long nothing is tried once neither of the two neighbours was better, in nanoseconds: a second.
const REST_NS: u64 = 1_000_000_000;

/// How often that is doubled at most, when one attempt after the other has failed.
const DOUBLINGS_MAX: u8 = 4;

/// Which of the two waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Used,
    Tried,
}

/// What has come while one of the two was waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Came {
    packets: u32,
    in_ns: u32,
}

/// Two waits, and what is known of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Trials {
    /// How often the longest wait is halved.
    halvings: u8,
    /// One twice as long is tried, not one half as long.
    tries_longer: bool,
    /// Of the one that is used, and of the one that is tried.
    came: [Came; 2],
    /// What the one that is tried is ahead, in thousandths.
    ahead: i32,
    /// The other neighbour was not better, and nothing has changed since.
    is_other_in_vain: bool,
    /// How long nothing is tried, in nanoseconds, and how often that was doubled.
    rest_ns: u64,
    doublings: u8,
}

impl Default for Trials {
    fn default() -> Self {
        Self {
            halvings: 1,
            tries_longer: false,
            came: [Came::default(); 2],
            ahead: 0,
            is_other_in_vain: false,
            rest_ns: 0,
            doublings: 0,
        }
    }
}

impl Trials {
    /// What to wait now if `longest_ns` is the longest that is tried, in nanoseconds.
    pub fn wait_ns(&self, longest_ns: u64) -> u64 {
        let halvings = match self.whose() {
            Turn::Used => self.halvings,
            Turn::Tried => self.neighbour().unwrap_or(self.halvings),
        };
        longest_ns >> halvings
    }

    /// So many packets came in the time since a notification, after that wait.
    pub fn look(&mut self, packets: u32, waited_ns: u64) {
        if self.rest_ns > 0 {
            self.rest_ns = self.rest_ns.saturating_sub(waited_ns);
            return;
        }
        if self.neighbour().is_none() {
            return self.turn_to_other();
        }
        let came = &mut self.came[self.whose() as usize];
        let waited_ns = u32::try_from(waited_ns).unwrap_or(u32::MAX);
        came.packets = came.packets.saturating_add(packets);
        came.in_ns = came.in_ns.saturating_add(waited_ns);
        if self.came.iter().all(|came| came.in_ns >= 2 * TURN_NS) {
            self.compare();
        }
    }

    /// The same waits, and a comparison that begins.
    pub fn without_comparison(self) -> Self {
        Self { came: Default::default(), ..self }
    }

    /// Waiting was given up: with the wait that is tried, that is what it has brought.
    pub fn stop(&mut self) {
        let is_tried = self.whose() == Turn::Tried;
        self.came = Default::default();
        if is_tried {
            self.turn_to_other();
        }
    }

    /// Which of the two is waited now: A B B A, if A is in use.
    pub fn whose(&self) -> Turn {
        let [used, tried] = self.came.map(|came| came.in_ns);
        let is_tried = used >= TURN_NS && tried < 2 * TURN_NS;
        if is_tried { Turn::Tried } else { Turn::Used }
    }

    /// What is tried; `None`: there is nothing beyond.
    fn neighbour(&self) -> Option<u8> {
        match self.tries_longer {
            true => self.halvings.checked_sub(1),
            false => Some(self.halvings + 1).filter(|halvings| *halvings <= HALVINGS_MAX),
        }
    }

    fn compare(&mut self) {
        let [used, tried] = core::mem::take(&mut self.came);
        let products = [(used.packets, tried.in_ns), (tried.packets, used.in_ns)];
        let [used, tried] = products.map(|(packets, ns)| i128::from(packets) * i128::from(ns));
        let by = 2000 * (tried - used) / (tried + used).max(1);
        let by = i32::try_from(by).unwrap_or(0).clamp(-COUNTS_MAX, COUNTS_MAX);
        self.ahead += by + if self.tries_longer { SPARES } else { -SPARES };
        if self.ahead >= AHEAD {
            self.halvings = self.neighbour().unwrap_or(self.halvings);
            (self.ahead, self.is_other_in_vain, self.doublings) = (0, false, 0);
        } else if self.ahead <= -AHEAD {
            self.turn_to_other();
        }
    }

    /// The one that was tried is not better: now the other neighbour, or none for a while.
    fn turn_to_other(&mut self) {
        self.tries_longer = !self.tries_longer;
        self.ahead = 0;
        self.is_other_in_vain = !self.is_other_in_vain;
        if !self.is_other_in_vain {
            self.rest_ns = REST_NS << self.doublings;
            self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        }
    }
}
