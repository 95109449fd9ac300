//! How many of this process's addresses guests' memory takes.
//!
//! A file may claim to be longer than any memory there is, and mapping it takes none: but it takes
//! addresses, of which a process has 2^47 bytes (x86-64). Without a bound one front-end could take
//! them all, and the next allocation of this process would end it.
//!
//! Limits: [`MAPPED_LEN_MAX`] for all guests together, old tables and new.

use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes that are mapped at a time: half of all addresses.
const MAPPED_LEN_MAX: u64 = 1 << 46;

/// Bytes that are mapped now.
static MAPPED_LEN: AtomicU64 = AtomicU64::new(0);

/// So many bytes of addresses, given back on drop.
#[derive(Debug)]
pub(crate) struct AddressShare(u64);

impl AddressShare {
    /// `None`: there are not so many left for guests.
    pub(crate) fn take(len: u64) -> Option<Self> {
        let sum = |taken: u64| taken.checked_add(len).filter(|&sum| sum <= MAPPED_LEN_MAX);
        MAPPED_LEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, sum).ok().map(|_| Self(len))
    }
}

impl Drop for AddressShare {
    fn drop(&mut self) {
        MAPPED_LEN.fetch_sub(self.0, Ordering::Relaxed);
    }
}
