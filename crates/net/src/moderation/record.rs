//! The history of the traffic: how packets come, and whether holds have paid.

/// Packets that are notified one by one after a failed hold, and up to eight times as many while
/// holds go on failing. More than 100: the 99th percentile shall not see failed holds.
const BACKOFF_PACKETS: u32 = 128;

/// Packets under holds of bulk before the rate without holds is measured anew.
const REMEASURE_PACKETS: u32 = 16 * BACKOFF_PACKETS;

/// How packets came lately: an average of [`Rate::PACKETS`] to twice as many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate {
    packets: u32,
    ns: u64,
}

impl Rate {
    const PACKETS: u32 = 32;
    pub const UNKNOWN: Self = Self { packets: 0, ns: 0 };
    const LONG_NS: u64 = 1_000_000_000;

    pub fn add(&mut self, packets: u32, ns: u64) {
        if self.packets >= 2 * Self::PACKETS {
            (self.packets, self.ns) = (self.packets / 2, self.ns / 2);
        }
        (self.packets, self.ns) = (self.packets.saturating_add(packets), self.ns + ns);
    }

    /// Between two packets, in nanoseconds; very long while only a few are known.
    pub fn gap_ns(self) -> u64 {
        match self.packets {
            0..8 => Self::LONG_NS,
            packets => (self.ns / u64::from(packets)).max(1),
        }
    }
}

/// Whether holds may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Holds {
    /// Packets left to be notified one by one, and how many after the next failure.
    backoff: u32,
    backoff_next: u32,
    /// Packets since holds are tried.
    tried: u32,
}

impl Holds {
    pub const NEW: Self = Self { backoff: Rate::PACKETS, backoff_next: BACKOFF_PACKETS, tried: 0 };

    pub fn may_try(self) -> bool {
        self.backoff == 0
    }

    pub fn notified(&mut self, packets: u32) {
        self.backoff = self.backoff.saturating_sub(packets);
    }

    /// Counts packets that passed under holds; `true`: their rate is to be measured anew.
    pub fn tried(&mut self, packets: u32) -> bool {
        self.tried = self.tried.saturating_add(packets);
        if self.tried < REMEASURE_PACKETS {
            return false;
        }
        (self.tried, self.backoff) = (0, Rate::PACKETS);
        true
    }

    pub fn succeeded(&mut self) {
        self.backoff_next = BACKOFF_PACKETS;
    }

    pub fn failed(&mut self) {
        let backoff_next = (2 * self.backoff_next).min(8 * BACKOFF_PACKETS);
        *self = Self { backoff: self.backoff_next, backoff_next, tried: 0 };
    }
}
