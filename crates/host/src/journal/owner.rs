//! The lock that a worker holds for its life, and that the kernel gives back when it dies.
//!
//! How: a *robust futex*. The thread tells the kernel a list of such words; when it ends, however
//! it ends, the kernel marks them and wakes who waits, long before the memory of a large guest is
//! unmapped. The list is in private memory: only the word is in the journal, so that nothing there
//! is a pointer. Limits: one lock for each thread, which must not use robust locks of the C library
//! any more; it is given back by the thread that took it; its list, of 32 bytes, is never freed.

use std::io;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use ringway_virtq::SharedSlice;
use rustix::thread::{Pid, futex, gettid};

use crate::journal::Unfit;

/// As the kernel knows it (`struct robust_list_head`), with a list of one.
#[repr(C)]
#[derive(Debug)]
struct RobustList {
    first: *const RobustEntry,
    /// From an entry to its word, in bytes.
    word_offset: libc::c_long,
    pending: *const RobustEntry,
    entry: RobustEntry,
}

/// `struct robust_list`: the last one leads back to the head.
#[repr(C)]
#[derive(Debug)]
struct RobustEntry {
    next: *const RobustList,
}

/// Bytes of the head that the kernel knows.
const HEAD_LEN: usize = 24;
const _: () = assert!(std::mem::offset_of!(RobustList, entry) == HEAD_LEN);

/// The word of a line, held by this thread.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    word: SharedSlice,
    list: *mut RobustList,
    thread: Pid,
}

/// A word in shared memory that is a futex.
pub(super) fn futex_at(memory: SharedSlice) -> &'static AtomicU32 {
    assert!(memory.len() == 4 && memory.is_aligned_to(4), "a futex");
    // SAFETY: four bytes, aligned, mapped for as long as the journal is, which its users keep; an
    // atomic tolerates other writers.
    unsafe { &*memory.as_ptr().cast() }
}

// SAFETY: what the two pointers lead to is only touched by the thread that took the lock, which
// `drop` checks.
unsafe impl Send for OwnerLock {}

impl OwnerLock {
    /// Takes the word in a line.
    pub(crate) fn take(line: SharedSlice, at: usize, worker: u16) -> Result<Self, Unfit> {
        let word = line.slice(at, 4).ok_or(Unfit::NoLine(worker))?;
        let (futex, thread) = (futex_at(word), gettid());
        let own = thread.as_raw_nonzero().get().cast_unsigned();
        let take = |word| (word == 0 || word & futex::OWNER_DIED != 0).then_some(own);
        let lock = Self::watched(word, thread)?;
        match futex.fetch_update(Ordering::AcqRel, Ordering::Acquire, take) {
            Ok(_) => Ok(lock),
            // Dropped, it would give back what is not its own: the kernel does not, and so must it.
            Err(_) => Err(Unfit::Held(worker)),
        }
    }

    /// From now on the kernel marks the word if this thread ends while its number is in it.
    fn watched(word: SharedSlice, thread: Pid) -> io::Result<Self> {
        let empty = RobustEntry { next: ptr::null() };
        let list =
            RobustList { first: ptr::null(), word_offset: 0, pending: ptr::null(), entry: empty };
        let list = Box::into_raw(Box::new(list));
        // SAFETY: just made, and nothing else refers to it.
        unsafe {
            let entry = &raw const (*list).entry;
            (*list).first = entry;
            (*list).entry.next = list;
            let offset = word.as_ptr().addr().wrapping_sub(entry.addr()).cast_signed();
            (*list).word_offset = offset as libc::c_long;
        }
        let lock = Self { word, list, thread };
        // SAFETY: the list is never freed, so it is there for as long as the thread is.
        match unsafe { libc::syscall(libc::SYS_set_robust_list, list, HEAD_LEN) } {
            0 => Ok(lock),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        if gettid() != self.thread {
            // The thread that holds it may end meanwhile, and give it back itself.
            return;
        }
        let own = self.thread.as_raw_nonzero().get().cast_unsigned();
        let futex = futex_at(self.word);
        let free = |word: u32| (word & !futex::WAITERS == own).then_some(0);
        if futex.fetch_update(Ordering::AcqRel, Ordering::Acquire, free).is_ok() {
            let _ = futex::wake(futex, futex::Flags::empty(), u32::MAX >> 1);
        }
        // SAFETY: the list is never freed, and only the kernel reads it, when this thread ends:
        // then nothing is in it. (A list leads back to its head, which begins like an entry.)
        unsafe { (*self.list).first = self.list.cast() };
    }
}
