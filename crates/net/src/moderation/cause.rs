//! Why a moderator holds notifications back or does not, for statistics.

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
