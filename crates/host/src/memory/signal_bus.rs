//! Keeps the process alive when a front-end takes guest memory away.
//!
//! A front-end may truncate the file behind a region after we mapped it. Touching the lost pages
//! raises SIGBUS, which would end the daemon and with it the network of all other guests. The
//! handler here looks the address up in a fixed table of mappings, puts zeroed private memory in
//! the place of the whole mapping and marks it as torn; the interrupted access then simply runs
//! again. The whole mapping, because page by page a hostile front-end could make us use up the
//! kernel's limit on mappings, and because pages of a huge-page file cannot be replaced one by one.
//!
//! It also rings a bell, so that the control thread can find out at once which mapping it was.
//!
//! System calls that touch such memory raise no signal and do not mark it; most give `EFAULT`.
//!
//! Limits: [`REGIONS_MAX`] mappings at a time. A SIGBUS from anywhere else does what it does
//! without us: it ends the process.

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::memory::share::REGIONS_MAX;
use crate::os::eventfd::EventFd;

/// `end` of an entry that is free.
const FREE: usize = 0;
/// `end` of an entry that is being filled in.
const RESERVED: usize = 1;

struct GuardedEntry {
    start: AtomicUsize,
    end: AtomicUsize,
    torn: AtomicBool,
}

/// Rung after a mapping was torn; there once the handler is installed.
static BELL: OnceLock<EventFd> = OnceLock::new();

static ENTRIES: [GuardedEntry; REGIONS_MAX] = [const { GuardedEntry::new() }; REGIONS_MAX];

/// A mapping known to the handler, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Guarded {
    entry: usize,
}

impl Guarded {
    /// Registers the mapping from `start` to `end` (addresses, page aligned); `None`: table full.
    pub(crate) fn new(start: usize, end: usize) -> Option<Self> {
        let entry = ENTRIES.iter().position(|entry| entry.try_fill(start, end))?;
        Some(Self { entry })
    }

    /// Whether the file behind the mapping lost pages that were touched.
    pub(crate) fn torn(&self) -> bool {
        ENTRIES[self.entry].torn.load(Ordering::Relaxed)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        ENTRIES[self.entry].end.store(FREE, Ordering::Release);
    }
}

impl GuardedEntry {
    const fn new() -> Self {
        Self {
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(FREE),
            torn: AtomicBool::new(false),
        }
    }

    fn try_fill(&self, start: usize, end: usize) -> bool {
        if self.end.load(Ordering::Relaxed) != FREE {
            return false;
        }
        let reserved =
            self.end.compare_exchange(FREE, RESERVED, Ordering::Acquire, Ordering::Relaxed);
        if reserved.is_err() {
            return false;
        }
        self.torn.store(false, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
        self.end.store(end, Ordering::Release);
        true
    }

    /// The mapping, if `address` is in it. Called by the handler, so it may be interrupting us.
    fn mapping_of(&self, address: usize) -> Option<(usize, usize)> {
        let end = self.end.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        // Another thread may have reused the entry in between; its two words belong together only
        // if the end is still the same.
        let is_whole = end > RESERVED && end == self.end.load(Ordering::Acquire);
        (is_whole && start <= address && address < end).then_some((start, end))
    }
}

/// Installs the SIGBUS handler, and gives the bell that it rings after a guest's memory was taken
/// away: see [`GuestMemory::torn`](crate::GuestMemory::torn). Calling it again gives the same bell.
///
/// # Errors
/// The operating system refused the handler, or no eventfd is left.
pub fn install_bus_guard() -> io::Result<&'static EventFd> {
    static INSTALLED: OnceLock<i32> = OnceLock::new();
    if BELL.get().is_none() {
        // If two threads get here, one of the two bells is dropped unused.
        let _ = BELL.set(EventFd::new()?);
    }
    let Some(bell) = BELL.get() else { return Err(io::ErrorKind::NotFound.into()) };
    match *INSTALLED.get_or_init(install) {
        0 => Ok(bell),
        os_error => Err(io::Error::from_raw_os_error(os_error)),
    }
}

fn install() -> i32 {
    // SAFETY: all-zero bytes are a valid `sigaction`: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_bus_error;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO;
    // SAFETY: `action` is filled in, and the handler only calls what a signal handler may call.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL),
    }
}

extern "C" fn on_bus_error(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: errno is this thread's own; the interrupted code must find it unchanged.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    // SAFETY: SIGBUS fills the address in, unless a process sent it, which is checked below.
    let address = unsafe { (*info).si_addr() } as usize;
    // Sent by a process (kill), not by an access: there is no address, and it will not come again.
    let was_sent = code <= 0;
    if was_sent || !mend(address) {
        give_up(was_sent);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Puts zeroed memory in the place of the mapping that `address` is in, if it is one of ours.
fn mend(address: usize) -> bool {
    for entry in &ENTRIES {
        let Some((start, end)) = entry.mapping_of(address) else { continue };
        // SAFETY: the range is exactly one live mapping of ours; all its users expect its bytes to
        // change at any time. `mmap` is a bare system call here.
        let mapped = unsafe {
            libc::mmap(
                start as *mut libc::c_void,
                end - start,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        entry.torn.store(true, Ordering::Relaxed);
        // A bare system call, as is allowed here.
        if let Some(bell) = BELL.get() {
            bell.notify();
        }
        return mapped != libc::MAP_FAILED;
    }
    false
}

/// Restores the default action: the access that raised the signal runs again and ends the process.
fn give_up(was_sent: bool) {
    // SAFETY: `signal` and `raise` are async-signal-safe; SIG_DFL is a valid action.
    unsafe {
        libc::signal(libc::SIGBUS, libc::SIG_DFL);
        if was_sent {
            libc::raise(libc::SIGBUS);
        }
    }
}
