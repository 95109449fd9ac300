//! Says which system call a filter has refused, before the process ends by it.
//!
//! How: the filter answers with SIGSYS (`SECCOMP_RET_TRAP`, seccomp(2)). The handler sends one
//! message, which was made before, with the number of the call in its last four bytes, and raises
//! the signal again. The kernel has restored its default action by then (`SA_RESETHAND`), which
//! ends the process.
//!
//! Limits: a thread that has blocked the signal is ended by the kernel without a message. That no
//! other handler takes the place of this one is up to the filter.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

/// `si_code` of a signal that is a filter's (asm-generic/siginfo.h).
const SYS_SECCOMP: i32 = 1;

/// Bytes of the message: which one it is, and the number of the call, little-endian.
const MESSAGE_LEN: usize = 5;
const CALL_AT: usize = 1;

/// Where the message goes, and its first byte.
static TOLD: OnceLock<(OwnedFd, u8)> = OnceLock::new();

/// The beginning of what the kernel says about this signal (`siginfo_t`).
#[repr(C)]
struct ForbiddenCall {
    signal: i32,
    error: i32,
    code: i32,
    address: *const libc::c_void,
    call: i32,
}

const _: () = assert!(size_of::<ForbiddenCall>() <= size_of::<libc::siginfo_t>());

/// From now on, when a filter refuses a call with `SECCOMP_RET_TRAP`, a message is sent on that
/// socket: this first byte, and the number of the call in four bytes. Called again, it keeps the
/// first socket.
///
/// # Errors
/// The operating system refuses.
pub fn tell_forbidden_calls(socket: BorrowedFd<'_>, first: u8) -> io::Result<()> {
    let _ = TOLD.set((socket.try_clone_to_owned()?, first));
    // SAFETY: all-zero bytes are a valid `sigaction`: no flags, an empty mask, the default action.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        on_forbidden_call;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESETHAND;
    // SAFETY: `action` is filled in, and the handler only calls what a signal handler may call.
    match unsafe { libc::sigaction(libc::SIGSYS, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

extern "C" fn on_forbidden_call(
    _signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo, which is longer than this.
    let ForbiddenCall { code, call, .. } = unsafe { info.cast::<ForbiddenCall>().read() };
    if let Some((socket, first)) = TOLD.get().filter(|_| code == SYS_SECCOMP) {
        let mut message = [*first; MESSAGE_LEN];
        message[CALL_AT..].copy_from_slice(&call.to_le_bytes());
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: a bare system call with memory that is there. That it fails changes nothing: the
        // process ends.
        unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), MESSAGE_LEN, flags) };
    }
    // SAFETY: async-signal-safe. The signal is blocked until this handler returns.
    unsafe { libc::raise(libc::SIGSYS) };
}
