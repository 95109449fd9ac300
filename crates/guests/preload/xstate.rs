//! Put in front of User Mode Linux: sets the processor's extended state of a process whole.
//!
//! User Mode Linux up to 6.12 keeps at most 2,696 bytes of that state, and hands them to `ptrace`
//! when it goes on with a guest's process. A machine whose processor has more (AMX makes it 11,008)
//! refuses a part (`xstateregs_set` in Linux), so that the first process of the guest would end
//! with a segmentation fault. Here the rest follows, of which the part says itself that it is not
//! in use.
//!
//! Limits: x86-64; one thread at a time, as it is in User Mode Linux. A guest's process cannot use
//! AMX.

#![no_std]

use core::ffi::{c_int, c_long, c_uint, c_void};
use core::panic::PanicInfo;
use core::ptr::{addr_of_mut, copy_nonoverlapping};

/// From `sys/syscall.h` and `sys/ptrace.h`.
const SYS_PTRACE: c_long = 101;
const PEEKTEXT: c_uint = 1;
const PEEKUSER: c_uint = 3;
const GETREGSET: c_uint = 0x4204;
const SETREGSET: c_uint = 0x4205;
/// From `elf.h`: the state as XSAVE writes it.
const NT_X86_XSTATE: usize = 0x202;

/// Longest state in bytes: all of today's is 11,008.
const STATE_LEN_MAX: usize = 1 << 15;

/// One piece of memory, as system calls take it.
#[repr(C)]
struct Iovec {
    base: *mut c_void,
    len: usize,
}

/// A state of the machine's own length.
#[repr(C, align(64))]
struct ExtendedState {
    bytes: [u8; STATE_LEN_MAX],
    /// 0: not known yet.
    len: usize,
}

static mut STATE: ExtendedState = ExtendedState { bytes: [0; STATE_LEN_MAX], len: 0 };

unsafe extern "C" {
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
}

/// The C library's `ptrace`, which takes whatever four arguments as these.
///
/// # Safety
/// As for that one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(
    request: c_uint,
    process: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    let call = |request: c_uint, data: *mut c_void| {
        // SAFETY: the caller's arguments, or a piece of STATE, which is there for ever.
        unsafe { syscall(SYS_PTRACE, c_long::from(request), process, address, data) }
    };
    if (PEEKTEXT..=PEEKUSER).contains(&request) {
        let mut word: c_long = 0;
        let result = call(request, (&raw mut word).cast());
        if result < 0 {
            return result;
        }
        // SAFETY: this thread's own. Without an error it is 0, as any word is a result.
        unsafe { *__errno_location() = 0 };
        return word;
    }
    if request != SETREGSET || address.addr() != NT_X86_XSTATE {
        return call(request, data);
    }
    // SAFETY: the caller that sets registers hands in such a piece; no other code has STATE, as
    // there is one thread.
    let (part, state) = unsafe { (&*data.cast::<Iovec>(), &mut *addr_of_mut!(STATE)) };
    let base = state.bytes.as_mut_ptr();
    if state.len == 0 {
        let mut all = Iovec { base: base.cast(), len: STATE_LEN_MAX };
        let result = call(GETREGSET, (&raw mut all).cast());
        if result < 0 {
            return result;
        }
        state.len = all.len;
    }
    if part.len >= state.len {
        return call(request, data);
    }
    // SAFETY: the part is the caller's, is shorter than STATE, and lies elsewhere.
    unsafe { copy_nonoverlapping(part.base.cast::<u8>(), base, part.len) };
    let mut all = Iovec { base: base.cast(), len: state.len };
    call(request, (&raw mut all).cast())
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // Nothing here panics.
    loop {}
}
