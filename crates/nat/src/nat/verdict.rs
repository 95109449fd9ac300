//! The work that is left with a guest's packet.

use crate::refusal::Refusal;

/// Longest frame that the router answers itself, or that carries a part of a datagram, in bytes.
pub const WHOLE_LEN_MAX: usize = 9216;

/// The work that is left with a packet, besides the actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing more.
    Done,
    /// All of it has to be looked at: to be given again with all of its bytes, which are
    /// [`WHOLE_LEN_MAX`] at most.
    Whole,
    /// It was the last part of a datagram, or another packet takes its place.
    /// [`Nat::take_assembled`](super::Nat::take_assembled) has that, which is to be given to
    /// [`Nat::from_guest`](super::Nat::from_guest) next.
    Assembled,
    /// Dropped; the guest may have been told.
    Refused(Refusal),
}
