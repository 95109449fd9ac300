//! The descriptor of a socket for datagrams, and how it is set: flows from one port of a guest have
//! one in common.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Only the worker that has the router uses it: nothing is ordered by the fields.
#[derive(Debug)]
pub(crate) struct SharedFd {
    fd: OwnedFd,
    /// 0: as the kernel likes.
    hops: AtomicU8,
    /// Whether datagrams may be cut; [`NOT_SAID`] at first.
    whole_only: AtomicU8,
    comes_alone: AtomicBool,
}

const NOT_SAID: u8 = 2;

impl From<OwnedFd> for SharedFd {
    fn from(fd: OwnedFd) -> Self {
        let (hops, whole_only) = (AtomicU8::new(0), AtomicU8::new(NOT_SAID));
        Self { fd, hops, whole_only, comes_alone: AtomicBool::new(false) }
    }
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl SharedFd {
    /// Whether the next datagram goes through another number of routers than the last one.
    pub(crate) fn changes_hops(&self, hops: u8) -> bool {
        changes(&self.hops, hops)
    }

    /// Whether it may be cut, and the last one could not, or the other way round.
    pub(crate) fn changes_whole_only(&self, is_whole_only: bool) -> bool {
        changes(&self.whole_only, u8::from(is_whole_only))
    }

    /// Datagrams are not put together from now on.
    pub(crate) fn come_alone(&self) {
        self.comes_alone.store(true, Ordering::Relaxed);
    }

    pub(crate) fn comes_alone(&self) -> bool {
        self.comes_alone.load(Ordering::Relaxed)
    }
}

/// Notes it. An exchange would hold up the processor for each datagram, and no other thread writes.
fn changes(field: &AtomicU8, now: u8) -> bool {
    let changes = field.load(Ordering::Relaxed) != now;
    if changes {
        field.store(now, Ordering::Relaxed);
    }
    changes
}
