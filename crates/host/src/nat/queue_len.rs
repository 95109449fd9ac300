//! How much may wait in a socket for datagrams.

use std::os::fd::BorrowedFd;

use crate::nat::calls::{SocketOption, set_option};

/// Most bytes that may wait, of which the kernel makes twice as many for its own use: 450 datagrams
/// of 1,400 bytes, as many as behind a tap. With the usual 92 the guest gets so short bursts that
/// it is interrupted all the time, and its program hardly runs: it reads 0.7 of what it reads
/// behind a tap, and 0.9 with these.
const QUEUE_LEN: u32 = 512 << 10;

/// Limits the datagrams that wait in a socket to `len_max` bytes, and to [`QUEUE_LEN`]. The kernel
/// may grant less (`net.core.rmem_max`).
pub(crate) fn set_queue_len(fd: BorrowedFd<'_>, len_max: Option<u32>) {
    let len = len_max.unwrap_or(u32::MAX).min(QUEUE_LEN);
    let len = libc::c_int::try_from(len).unwrap_or(libc::c_int::MAX);
    let _ = set_option(fd, SocketOption(libc::SOL_SOCKET, libc::SO_RCVBUF), len);
}
