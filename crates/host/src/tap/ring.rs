//! Several reads or writes of a tap carried out with one system call (io_uring).
//!
//! How: requests are handed to the kernel at once, which carries them out in order and before the
//! call returns, because each says that it must not wait (`RWF_NOWAIT`): that a tap's file is
//! non-blocking is not enough for io_uring.
//!
//! The tap is not registered with the ring: the kernel takes a ring apart some time after its
//! process has died, and would keep the tap busy until then.
//!
//! Limits: [`BATCH_PACKETS`] at a time. If the kernel does not take a batch, its requests are lost,
//! and the ring carries out none from then on.

use std::fmt;
use std::io;

use io_uring::{IoUring, squeue};

use crate::os::system_calls::count_system_call;

/// Packets at a time: the budget of a visit.
pub(crate) const BATCH_PACKETS: usize = 64;

/// A ring shared with the kernel, empty between calls.
pub(crate) struct TapRing {
    ring: IoUring,
    /// What became of each request: bytes, or an error number below zero.
    results: [i32; BATCH_PACKETS],
    /// The kernel has taken everything so far.
    is_usable: bool,
}

impl TapRing {
    /// # Errors
    /// The kernel has no io_uring for us.
    pub(crate) fn new() -> io::Result<Self> {
        let ring = IoUring::new(u32::try_from(BATCH_PACKETS).unwrap_or(1))?;
        Ok(Self { ring, results: [0; BATCH_PACKETS], is_usable: true })
    }

    /// Carries out `requests`, of which the first [`BATCH_PACKETS`] count, and gives what became of
    /// each: bytes, or an error number below zero; `ECANCELED` is what the kernel did not take.
    ///
    /// # Safety
    /// What the requests point at is valid, and what they write to is theirs alone, until this
    /// returns. None of them waits.
    pub(crate) unsafe fn carry_out(
        &mut self,
        requests: impl Iterator<Item = squeue::Entry>,
    ) -> &[i32] {
        let mut count = 0;
        let mut submission = self.ring.submission();
        for request in requests.take(BATCH_PACKETS) {
            self.results[count] = -libc::ECANCELED;
            count += 1;
            if self.is_usable {
                // SAFETY: the caller's promise; all requests are completed before this function
                // returns, or are never carried out.
                // The ring has as many places as a batch has packets, and is empty in between.
                let _ = unsafe { submission.push(&request.user_data(count as u64 - 1)) };
            }
        }
        drop(submission);
        if self.is_usable {
            self.wait_for(count);
        }
        &self.results[..count]
    }

    fn wait_for(&mut self, mut left: usize) {
        while left > 0 {
            count_system_call();
            match self.ring.submit_and_wait(left) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => {
                    // What it has not taken lies in the ring, and its memory belongs to another
                    // request soon: the kernel must never come back to it.
                    self.is_usable = false;
                    return;
                }
                _ => {}
            }
            for completed in self.ring.completion() {
                let at = usize::try_from(completed.user_data()).unwrap_or(BATCH_PACKETS);
                if let Some(result) = self.results.get_mut(at) {
                    *result = completed.result();
                }
                left = left.saturating_sub(1);
            }
        }
    }

    /// Its file descriptor, for tests that take it away.
    #[cfg(test)]
    pub(crate) fn fd(&self) -> std::os::fd::RawFd {
        std::os::fd::AsRawFd::as_raw_fd(&self.ring)
    }
}

impl fmt::Debug for TapRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapRing").field("is_usable", &self.is_usable).finish_non_exhaustive()
    }
}
