//! File descriptors that a process was started with, by their numbers.

use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};

/// The first number that is not of standard input, output or error.
const FIRST: RawFd = 3;
const LOOKED_AT_MAX: RawFd = 4096;

/// Takes a file descriptor that this process was started with. It belongs to the caller from now on
/// and is closed with the next program that is started.
///
/// `None`: there is none of that number, or it was taken before, or this process has opened it.
pub fn take_inherited_fd(number: RawFd) -> Option<OwnedFd> {
    if number < FIRST {
        return None;
    }
    // SAFETY: not -1, and borrowed for this function only; a number that is not open gives EBADF.
    let inherited = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(inherited).ok()?;
    if flags.contains(FdFlags::CLOEXEC) {
        return None;
    }
    fcntl_setfd(inherited, flags | FdFlags::CLOEXEC).ok()?;
    // SAFETY: it is open. Whatever this program opens is closed when another one is started; this
    // one was not, so it was there from the start, and has no owner. The flag is set now, so that
    // it is not given away once more.
    Some(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes what this process was started with and has not taken, but for these numbers: nothing that
/// is started gets any of them. To be called when all else that is wanted is taken.
///
/// Limits: without /proc, numbers up to [`LOOKED_AT_MAX`] are looked at.
pub fn close_inherited_fds(but: &[RawFd]) {
    let listed = std::fs::read_dir("/proc/self/fd").map(|open| {
        let names = open.flatten().filter_map(|it| it.file_name().to_str()?.parse().ok());
        names.collect::<Vec<RawFd>>()
    });
    let numbers = listed.unwrap_or_else(|_| (FIRST..LOOKED_AT_MAX).collect());
    for inherited in numbers.into_iter().filter_map(take_inherited_fd) {
        if but.contains(&inherited.as_raw_fd()) {
            // It stays open, without an owner, until this process ends.
            let _ = inherited.into_raw_fd();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_what_is_not_closed_with_the_program_is_taken_and_once() {
        let ours = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        assert!(take_inherited_fd(ours.as_raw_fd()).is_none());
        let inherited = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let number = inherited.into_raw_fd();
        let taken = take_inherited_fd(number).expect("it was inherited");
        assert!(fcntl_getfd(taken.as_fd()).unwrap().contains(FdFlags::CLOEXEC));
        assert!(take_inherited_fd(number).is_none(), "once");
        for number in [-1, 0, 2, 1_000_000] {
            assert!(take_inherited_fd(number).is_none(), "{number}");
        }
    }
}
