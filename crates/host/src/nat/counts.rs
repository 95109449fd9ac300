//! The kernel's counts of a connection, read in one moment.

use std::os::fd::BorrowedFd;

use ringway_nat::SocketCounts;
use rustix::io::ioctl_fionread;

use crate::nat::calls::{connection_info, queued};
use crate::os::system_calls::count_system_call;

/// Readings until two in a row agree: packets of the other end come in between.
const READINGS_MAX: usize = 64;

/// The counts of a connected socket. `None`: the kernel does not say, or they do not stand still.
pub fn connection_counts(fd: BorrowedFd<'_>) -> Option<SocketCounts> {
    let mut before = connection_info(fd)?.counts();
    for _ in 0..READINGS_MAX {
        count_system_call();
        let unread = u32::try_from(ioctl_fionread(fd).ok()?).ok()?;
        let unacknowledged = queued(fd);
        let now = connection_info(fd)?.counts();
        if now == before {
            return Some(SocketCounts { unacknowledged, unread, ..now });
        }
        before = now;
    }
    None
}
