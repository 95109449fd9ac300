//! Memory behind the image: what the driver shares with the device, and a heap.
//!
//! How: the loader's memory map says how far the memory goes in which the image lies. The heap only
//! grows: what is allocated is there for as long as the machine runs, which is what this program
//! needs. Nothing is given back, so everything must be allocated at the start.
//!
//! Limits: at most the first 3 GiB; one processor.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use ringway_driver::Registers;
use ringway_virtq::SharedSlice;

/// Behind this are devices, not memory.
const MEMORY_END: usize = 0xc000_0000;
/// The end of all mapped memory.
const MAPPED_END: u64 = 1 << 32;

const PAGE_LEN: usize = 4096;

/// Where the free memory is.
#[derive(Debug)]
struct Heap {
    next: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static HEAP: Heap = Heap { next: AtomicUsize::new(0), end: AtomicUsize::new(0) };

impl Heap {
    fn take(&self, len: usize, align: usize) -> Option<usize> {
        let start = self.next.load(Ordering::Relaxed).checked_next_multiple_of(align)?;
        let end = start.checked_add(len)?;
        if end > self.end.load(Ordering::Relaxed) {
            return None;
        }
        // One processor and no interrupts: no other code ran between.
        self.next.store(end, Ordering::Relaxed);
        Some(start)
    }
}

// SAFETY: each range is given out once, inside memory that no other code uses, and aligned.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.take(layout.size(), layout.align())
            .map_or(ptr::null_mut(), ptr::with_exposed_provenance_mut)
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

/// Opens the heap: memory from the end of the image to `end`.
pub fn open(end: usize) {
    unsafe extern "C" {
        static image_end: u8;
    }
    HEAP.next.store((&raw const image_end).expose_provenance(), Ordering::Relaxed);
    HEAP.end.store(end.min(MEMORY_END), Ordering::Relaxed);
}

/// Bytes of the heap that are left.
pub fn left() -> usize {
    HEAP.end.load(Ordering::Relaxed) - HEAP.next.load(Ordering::Relaxed)
}

/// Takes pages to be shared with a device; the device sees them at the same address.
pub fn share(len: usize) -> Option<(SharedSlice, u64)> {
    let start = HEAP.take(len, PAGE_LEN)?;
    // SAFETY: the heap gives each byte out once, and the memory stays mapped for ever.
    let memory = unsafe { SharedSlice::new(ptr::with_exposed_provenance_mut(start), len) };
    Some((memory, start as u64))
}

/// Registers at a physical address; `None`: it is not mapped, or it is memory.
pub fn registers(address: u64, len: usize) -> Option<Registers> {
    let end = address.checked_add(len as u64)?;
    let start = usize::try_from(address).ok()?;
    if start < MEMORY_END || end > MAPPED_END {
        return None;
    }
    // SAFETY: mapped one to one and uncached, and no memory of ours.
    Some(unsafe { Registers::new(ptr::with_exposed_provenance_mut(start), len) })
}
