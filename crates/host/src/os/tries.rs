//! Calls that a process in a sandbox must not make, and that no library makes for it: to be tried.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::mm::{MapFlags, ProtFlags};

use crate::os::empty_path::{EMPTY_PATH_AT, EMPTY_PATH_END};

/// Makes a child process, which ends at once.
///
/// # Errors
/// The operating system refuses.
pub fn try_fork() -> io::Result<()> {
    // SAFETY: the child does nothing but end.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        // SAFETY: it ends the child, and touches no memory.
        0 => unsafe { libc::_exit(0) },
        child if child > 0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Lets signals of that descriptor go to a process.
///
/// # Errors
/// The operating system refuses.
pub fn try_signals(fd: BorrowedFd<'_>, process: i32) -> io::Result<()> {
    // SAFETY: the command takes a number.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETOWN, process) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts memory that can be written to into the place of the empty path.
///
/// # Errors
/// The operating system refuses.
pub fn try_remap() -> io::Result<()> {
    let at = std::ptr::without_provenance_mut(EMPTY_PATH_AT);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED;
    let len = EMPTY_PATH_END - EMPTY_PATH_AT;
    // SAFETY: whatever is there stays a path that is empty, as new memory is zeros.
    unsafe { rustix::mm::mmap_anonymous(at, len, protection, flags)? };
    Ok(())
}
