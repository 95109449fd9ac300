//! The empty path, at a place that is known and that nothing can write to: with it statx(2) asks
//! of a file descriptor and not of a path. A filter of system calls sees where a path is, and not
//! what is there: so it can allow this one alone.
//!
//! How: one page of zeros, read-only, at the lowest address that may be had. Every mapping that is
//! changed lies above, which the filter demands of the calls that could put another page there.

use std::ffi::CStr;
use std::io;
use std::sync::OnceLock;

use rustix::mm::{MapFlags, ProtFlags};

/// Where it is: the lowest address that a process may use where no other one is set
/// (`vm.mmap_min_addr`).
pub const EMPTY_PATH_AT: usize = 0x10000;

/// The end of the mapping: the calls that a process makes afterwards must leave the addresses below
/// this one as they are.
pub const EMPTY_PATH_END: usize = EMPTY_PATH_AT + PAGE;

/// Bytes: the largest page of the machines that this builds for.
const PAGE: usize = 0x10000;

static PLACE: OnceLock<&'static CStr> = OnceLock::new();

/// Puts it there. Before that, statx is called with an empty path from anywhere.
///
/// # Errors
/// The operating system refuses that address.
pub fn place_empty_path() -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
    let at = std::ptr::without_provenance_mut(EMPTY_PATH_AT);
    // SAFETY: a new mapping that takes the place of no other.
    let page = unsafe { rustix::mm::mmap_anonymous(at, PAGE, ProtFlags::READ, flags)? };
    if page != at {
        // A kernel that does not know the flag (before 4.17) takes the address for a wish.
        return Err(io::ErrorKind::AddrInUse.into());
    }
    // SAFETY: zeros, which are never written to nor unmapped.
    let _ = PLACE.set(unsafe { CStr::from_ptr(page.cast()) });
    Ok(())
}

pub(crate) fn empty_path() -> &'static CStr {
    PLACE.get().copied().unwrap_or(c"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_placed_once_and_is_empty() {
        place_empty_path().expect("the address is free");
        assert!(empty_path().is_empty());
        assert_eq!(empty_path().as_ptr().addr(), EMPTY_PATH_AT);
        assert!(place_empty_path().is_err(), "nothing is replaced");
    }
}
