//! Whether a wait is worth its time, by how often it was of use lately.
//!
//! Where too few waits are of use, the next [`AT_ONCE_PACKETS`] are told of at once. Then one wait is tried again, and
//! one more in vain is enough.

/// The unit of shares: what divisions of averages cut off is small beside it.
pub(super) const ALL: u32 = 1 << 14;

/// So many are told of at once before a wait is tried again. More than 100: see `CAUTION_PACKETS`.
const AT_ONCE_PACKETS: u32 = 128;

/// Waits have to be of use `NEEDED` times of [`ALL`], on average of `WAITS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Worth<const NEEDED: u32, const WAITS: u32> {
    /// The share of the waits that were of use, lately, in units of [`ALL`].
    of_use: u32,
    /// Packets left to be told of at once.
    at_once: u32,
}

impl<const NEEDED: u32, const WAITS: u32> Worth<NEEDED, WAITS> {
    /// `of_use` is assumed before anything is known.
    pub const fn new(of_use: u32) -> Self {
        Self { of_use, at_once: 0 }
    }

    /// Whether the next packets may wait.
    pub const fn may_wait(self) -> bool {
        self.at_once == 0
    }

    /// A wait was of use, or it was not.
    pub fn waited(&mut self, is_of_use: bool) {
        let found = if is_of_use { ALL } else { 0 };
        self.of_use = ((WAITS - 1) * self.of_use + found) / WAITS;
        if self.of_use < NEEDED {
            *self = Self { of_use: NEEDED, at_once: AT_ONCE_PACKETS };
        }
    }

    /// So many packets were told of at once.
    pub fn told(&mut self, packets: u32) {
        self.at_once = self.at_once.saturating_sub(packets);
    }
}
