//! The state that a session remembers, for the code that keeps the requests that a successor needs,
//! and for tests.

use super::Session;
use crate::message::{MemoryRange, VringAddress};
use crate::ring_state::{Kick, base_from_position};

/// The state that a session remembers of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingView {
    /// Entries, once they are told.
    pub size: Option<u16>,
    /// In the front-end's address space, once they are told.
    pub addresses: Option<VringAddress>,
    /// The front-end's wish, if it has told one.
    pub enabled: Option<bool>,
    /// A kick was set, an fd or explicitly none, since the ring was last stopped for good.
    pub has_kick: bool,
    /// There is an fd for calls.
    pub has_call: bool,
    /// There is an fd for errors.
    pub has_error: bool,
    /// Stopped by `GET_VRING_BASE` until the guest kicks.
    pub is_suspended: bool,
    /// It runs, as far as the session knows.
    pub is_running: bool,
}

impl Session {
    /// How many rings the device has.
    pub fn ring_count(&self) -> u16 {
        u16::try_from(self.rings.len()).unwrap_or(u16::MAX)
    }

    /// One ring; `None`: the device does not have it.
    pub fn ring_view(&self, index: u16) -> Option<RingView> {
        let ring = self.rings.get(usize::from(index))?;
        Some(RingView {
            size: ring.size,
            addresses: ring.addresses,
            enabled: ring.enabled,
            has_kick: !matches!(ring.kick, Kick::Missing),
            has_call: ring.call.is_some(),
            has_error: ring.error.is_some(),
            is_suspended: ring.is_suspended,
            is_running: ring.running.is_some(),
        })
    }

    /// Where a ring that does not run stood when it was stopped, in a base's form, and whether it
    /// goes on there.
    pub fn stood(&self, index: u16) -> Option<(u32, bool)> {
        let ring = self.rings.get(usize::from(index))?;
        let (position, format) = ring.stood.filter(|_| ring.running.is_none())?;
        Some((base_from_position(position, format), ring.goes_on_there()))
    }

    /// The accepted features as they were sent, with bit 30.
    pub fn accepted(&self) -> Option<u64> {
        self.accepted
    }

    /// Regions of memory by guest-physical address, and how often each was added.
    pub fn memory(&self) -> impl Iterator<Item = (MemoryRange, u32)> + '_ {
        self.memory.ranges()
    }
}
