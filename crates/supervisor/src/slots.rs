//! The requests that a supervisor keeps of one front-end, by number, for the next data plane.
//!
//! It understands none of them. Replay is all of them in the order of their numbers, then the
//! request that is outstanding. Nothing is dropped here: to close an fd can take as long as its
//! sender likes, so what is not needed any more is handed back, for the thread that closes.

use std::collections::BTreeMap;

use thiserror::Error;

use crate::frame::{FDS_MAX, Frame, Framer};

/// Slots of one front-end; their numbers are smaller.
pub const SLOTS_MAX: u16 = 2048;

/// Most bytes in one slot.
pub const SLOT_LEN_MAX: usize = 4096;

/// Most bytes in all slots of one front-end.
pub const LINK_LEN_MAX: usize = 256 * 1024;

/// Most file descriptors in all slots of one front-end.
pub const LINK_FDS_MAX: usize = 1536;

/// Slots from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotRange {
    /// The first one.
    pub first: u16,
    /// The last one, not before the first.
    pub last: u16,
}

impl SlotRange {
    /// Takes what is in these slots out of a map by number.
    pub fn extract<T>(self, slots: &mut BTreeMap<u16, T>) -> impl Iterator<Item = T> {
        let range = self.first..=self.last.max(self.first);
        slots.extract_if(range, |_, _| true).map(|(_, content)| content)
    }

    fn contains(self, slot: u16) -> bool {
        (self.first..=self.last.max(self.first)).contains(&slot)
    }
}

/// Where a request goes, and with how many of its fds: the others were not needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// The slot. What was in it before goes.
    pub slot: u16,
    /// The first so many fds.
    pub fds: u8,
}

/// Why a request is not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum NotKept {
    /// Another request is outstanding, or none.
    #[error("not the request that is outstanding")]
    NotOutstanding,
    /// There is no such slot, or the request has not so many fds.
    #[error("no such slot, or fewer file descriptors than are to be kept")]
    NotThere,
    /// Longer than a slot.
    #[error("a request to be kept has more than {SLOT_LEN_MAX} bytes")]
    TooLong,
    /// All slots together would hold too much.
    #[error("what is to be kept is more than {LINK_LEN_MAX} bytes or {LINK_FDS_MAX} fds")]
    Full,
}

/// Whether so much may be kept, in the place of what is there, beside what is `held`: slot, bytes,
/// fds. Both sides ask this, and so agree.
///
/// # Errors
/// It may not.
pub fn check(
    held: impl Iterator<Item = (u16, usize, usize)>,
    keep: Keep,
    len: usize,
) -> Result<(), NotKept> {
    let fds = usize::from(keep.fds);
    if keep.slot >= SLOTS_MAX || fds > FDS_MAX {
        return Err(NotKept::NotThere);
    }
    if len > SLOT_LEN_MAX {
        return Err(NotKept::TooLong);
    }
    let others = held.filter(|(slot, ..)| *slot != keep.slot);
    let sum = others.fold((len, fds), |sum, (_, len, fds)| (sum.0 + len, sum.1 + fds));
    if sum.0 > LINK_LEN_MAX || sum.1 > LINK_FDS_MAX { Err(NotKept::Full) } else { Ok(()) }
}

/// One front-end as the supervisor has it: its stream, and what is kept of it.
#[derive(Debug)]
pub struct Link<F> {
    /// The stream, and what is outstanding.
    pub framer: Framer<F>,
    slots: BTreeMap<u16, Frame<F>>,
}

impl<F> Default for Link<F> {
    fn default() -> Self {
        Self { framer: Framer::default(), slots: BTreeMap::new() }
    }
}

impl<F> Link<F> {
    /// A front-end as another supervisor had it.
    ///
    /// # Errors
    /// It is more than is kept of any.
    pub fn resume(
        framer: Framer<F>,
        slots: impl IntoIterator<Item = (u16, Frame<F>)>,
    ) -> Result<Self, NotKept> {
        let mut link = Self { framer, slots: BTreeMap::new() };
        for (slot, frame) in slots {
            // More than a message has cannot be told in a byte.
            let fds = u8::try_from(frame.fds.len()).map_err(|_| NotKept::NotThere)?;
            check(link.held(), Keep { slot, fds }, frame.bytes.len())?;
            link.slots.insert(slot, frame);
        }
        Ok(link)
    }

    fn held(&self) -> impl Iterator<Item = (u16, usize, usize)> {
        self.slots.iter().map(|(&at, frame)| (at, frame.bytes.len(), frame.fds.len()))
    }

    /// The request of that number is done: drops, then keeps. All fds that are to be closed.
    ///
    /// # Errors
    /// The data plane says what cannot be: it is to be ended. The request is outstanding as before,
    /// and nothing was dropped or kept.
    pub fn done(
        &mut self,
        number: u32,
        drops: &[SlotRange],
        keep: Option<Keep>,
    ) -> Result<Vec<F>, NotKept> {
        let outstanding = self.framer.outstanding().filter(|(at, _)| *at == number);
        let (_, frame) = outstanding.ok_or(NotKept::NotOutstanding)?;
        if let Some(keep) = keep {
            if frame.fds.len() < usize::from(keep.fds) {
                return Err(NotKept::NotThere);
            }
            let left =
                self.held().filter(|(at, ..)| !drops.iter().any(|range| range.contains(*at)));
            check(left, keep, frame.bytes.len())?;
        }
        let mut frame = self.framer.finish(number).ok_or(NotKept::NotOutstanding)?;
        let mut gone = self.forget(drops);
        gone.extend(frame.fds.drain(keep.map_or(0, |keep| keep.fds.into())..));
        let before = keep.and_then(|keep| self.slots.insert(keep.slot, frame));
        gone.extend(before.into_iter().flat_map(|frame| frame.fds));
        Ok(gone)
    }

    /// Drops what is in these slots; its fds.
    pub fn forget(&mut self, drops: &[SlotRange]) -> Vec<F> {
        let gone =
            drops.iter().flat_map(|range| range.extract(&mut self.slots).collect::<Vec<_>>());
        gone.flat_map(|frame| frame.fds).collect()
    }

    /// Whether a request is kept there.
    pub fn holds(&self, slot: u16) -> bool {
        self.slots.contains_key(&slot)
    }

    /// All that is kept, in the order of replay.
    pub fn replay(&self) -> impl Iterator<Item = (u16, &Frame<F>)> {
        self.slots.iter().map(|(&slot, frame)| (slot, frame))
    }
}
