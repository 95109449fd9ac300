//! The functions that compilers assume to exist: `memcpy` and its family.
//!
//! How: the string instructions, eight bytes at a time and then the rest. A loop in Rust would be
//! compiled into a call of the very function it is in.
//!
//! Limits: speed for long blocks was looked at under emulation only.

use core::arch::asm;

/// Copies `len` bytes; the two must not overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    // SAFETY: the caller promises both ranges; registers and direction flag are as declared.
    unsafe {
        asm!(
            "rep movsq",
            "mov ecx, {rest:e}",
            "rep movsb",
            rest = in(reg) len & 7,
            inout("rcx") len >> 3 => _,
            inout("rdi") to => _,
            inout("rsi") from => _,
            options(nostack, preserves_flags)
        );
    }
    to
}

/// Copies `len` bytes; the two may overlap.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
    if to.addr().wrapping_sub(from.addr()) >= len {
        // SAFETY: the start of `to` is not inside `from`, and copying upwards is fine then.
        return unsafe { memcpy(to, from, len) };
    }
    // SAFETY: the caller promises both ranges; the last bytes are copied first, and the direction
    // flag is cleared again.
    unsafe {
        asm!(
            "std",
            "rep movsb",
            "cld",
            inout("rcx") len => _,
            inout("rdi") to.wrapping_add(len).wrapping_sub(1) => _,
            inout("rsi") from.wrapping_add(len).wrapping_sub(1) => _,
            options(nostack)
        );
    }
    to
}

/// Sets `len` bytes to the lowest byte of `value`.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
    let [byte, ..] = value.to_le_bytes();
    // SAFETY: the caller promises the range.
    unsafe {
        asm!(
            "rep stosq",
            "mov ecx, {rest:e}",
            "rep stosb",
            rest = in(reg) len & 7,
            inout("rcx") len >> 3 => _,
            inout("rdi") to => _,
            in("rax") u64::from_le_bytes([byte; 8]),
            options(nostack, preserves_flags)
        );
    }
    to
}

/// Compares `len` bytes: negative, 0 or positive.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    for at in 0..len {
        // SAFETY: the caller promises both ranges. Volatile, so that this is no call of itself.
        let (left, right) =
            unsafe { (left.add(at).read_volatile(), right.add(at).read_volatile()) };
        if left != right {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// Compares `len` bytes: 0 if they are equal.
///
/// # Safety
/// As in C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, len: usize) -> i32 {
    // SAFETY: the same contract.
    unsafe { memcmp(left, right, len) }
}
