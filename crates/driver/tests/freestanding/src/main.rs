//! The driver in a program that has nothing below it: no standard library, no C library, no
//! start-up code. It starts both ring formats with all receive schemes over static memory, sends,
//! and ends with exit code 42.
//!
//! Limits: x86-64 Linux, only so that it can be run; the driver itself makes no system call.
#![no_std]
#![no_main]

use core::alloc::{GlobalAlloc, Layout};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicUsize, Ordering};

use ringway_driver::{Arena, DriverOptions, NetDriver, RxOptions, RxScheme, Sent, TxOptions};
use ringway_net::NetHeader;
use ringway_virtq::{DriverQueue, Layout as RingLayout, PackedDriver, QueueOptions, SharedSlice};
use ringway_virtq::SplitDriver;

/// Exit code when everything worked, and when something panicked.
const WORKED: usize = 42;
const PANICKED: usize = 1;
/// Entries of each queue.
const SIZE: u16 = 16;
const ARENA_LEN: usize = 8 << 20;
const HEAP_LEN: usize = 1 << 20;

#[repr(C, align(4096))]
struct Memory<const LEN: usize>(UnsafeCell<[u8; LEN]>);

// SAFETY: the program has one thread.
unsafe impl<const LEN: usize> Sync for Memory<LEN> {}

static ARENA: Memory<ARENA_LEN> = Memory(UnsafeCell::new([0; ARENA_LEN]));
static HEAP: Memory<HEAP_LEN> = Memory(UnsafeCell::new([0; HEAP_LEN]));

/// Gives out memory and never takes any back: what a driver needs is taken at its start.
struct Once(AtomicUsize);

// SAFETY: each piece is given out once, inside the heap and aligned as asked.
unsafe impl GlobalAlloc for Once {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let at = self.0.load(Ordering::Relaxed).next_multiple_of(layout.align());
        let end = at + layout.size();
        if end > HEAP_LEN {
            return core::ptr::null_mut();
        }
        self.0.store(end, Ordering::Relaxed);
        HEAP.0.get().cast::<u8>().wrapping_add(at)
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: Once = Once(AtomicUsize::new(0));

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(PANICKED)
}

/// Named by code that was compiled for unwinding; nothing here unwinds.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// As above.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    exit(PANICKED)
}

/// Where the program starts: the kernel leaves the stack aligned, but pushes no return address.
#[unsafe(no_mangle)]
#[unsafe(naked)]
extern "C" fn _start() -> ! {
    core::arch::naked_asm!("call {run}", run = sym run)
}

extern "C" fn run() -> ! {
    for scheme in RxScheme::ALL {
        send_one::<SplitDriver>(scheme);
        send_one::<PackedDriver>(scheme);
    }
    exit(WORKED)
}

fn send_one<Q: DriverQueue>(scheme: RxScheme) {
    // SAFETY: static memory, and no other code uses it: one thread, one driver at a time.
    let shared = unsafe { SharedSlice::new(ARENA.0.get().cast(), ARENA_LEN) };
    ALLOCATOR.0.store(0, Ordering::Relaxed);
    let mut arena = Arena::new(shared, 0x10_0000);
    let options = QueueOptions::default();
    let mut queue = || {
        let len = RingLayout::of(Q::FORMAT, SIZE, options).len as usize;
        let part = arena.carve(len, 64).unwrap_or_else(|_| exit(PANICKED));
        Q::new(part.memory, part.device_address, SIZE, options)
    };
    let (receiveq, transmitq) = (queue(), queue());
    let options = DriverOptions { rx: RxOptions::of(scheme), tx: TxOptions::default() };
    let driver = NetDriver::new(receiveq, transmitq, &mut arena, &options);
    let mut driver = driver.unwrap_or_else(|_| exit(PANICKED));
    assert!(driver.rx.flush());
    assert!(matches!(driver.tx.send(&NetHeader::default(), &[0; 60]), Ok(Sent::Done)));
    assert!(driver.tx.flush());
    assert!(matches!(driver.rx.receive(), Ok(None)));
}

fn exit(code: usize) -> ! {
    // SAFETY: the system call `exit_group` takes one number and does not return.
    unsafe { asm!("syscall", in("rax") 231, in("rdi") code, options(noreturn)) }
}

/// Functions that the compiler calls for copying, setting and comparing memory when there is no C
/// library.
mod memory_functions {
    /// Copies forwards.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        // SAFETY: the caller promises both ranges; the direction flag is clear (x86-64 ABI).
        unsafe {
            core::arch::asm!("rep movsb", inout("rcx") len => _, inout("rdi") to => _,
                inout("rsi") from => _);
        }
        to
    }

    /// Copies, from the end when the start would be overwritten.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, len: usize) -> *mut u8 {
        if (to as usize).wrapping_sub(from as usize) >= len {
            // SAFETY: forwards overwrites nothing that is still to be read.
            return unsafe { memcpy(to, from, len) };
        }
        for at in (0..len).rev() {
            // SAFETY: the caller promises both ranges.
            unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
        }
        to
    }

    /// Sets.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut u8, value: i32, len: usize) -> *mut u8 {
        // SAFETY: the caller promises the range; the direction flag is clear (x86-64 ABI).
        unsafe {
            core::arch::asm!("rep stosb", inout("rcx") len => _, inout("rdi") to => _,
                in("al") value as u8);
        }
        to
    }

    /// Compares.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(one: *const u8, other: *const u8, len: usize) -> i32 {
        for at in 0..len {
            // SAFETY: the caller promises both ranges.
            let (a, b) = unsafe { (one.add(at).read_volatile(), other.add(at).read_volatile()) };
            if a != b {
                return i32::from(a) - i32::from(b);
            }
        }
        0
    }
}
