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
use std::sync::{Mutex, OnceLock};

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode, squeue};

use crate::os::system_calls::count_system_call;

/// Packets at a time: the budget of a visit.
pub(crate) const BATCH_PACKETS: usize = 64;

const ENTRIES: u32 = 64;
const _: () = assert!(ENTRIES as usize == BATCH_PACKETS);

/// Rings that were made in advance, and are not in use.
static POOL: OnceLock<Mutex<Vec<IoUring>>> = OnceLock::new();

/// Makes rings in advance, for a process that gives up the system calls to make them. They can read
/// and write and do nothing else, and there will be no others; where the kernel has none for us,
/// there are none.
pub fn prepare_rings(count: usize) {
    let rings = (0..count).map_while(|_| restricted().ok()).collect();
    let _ = POOL.set(Mutex::new(rings));
}

fn restricted() -> io::Result<IoUring> {
    let ring = IoUring::builder().setup_r_disabled().build(ENTRIES)?;
    let mut restrictions = [opcode::Read::CODE, opcode::Write::CODE, opcode::Readv::CODE]
        .into_iter()
        .chain([opcode::Writev::CODE])
        .map(Restriction::sqe_op)
        .collect::<Vec<_>>();
    ring.submitter().register_restrictions(&mut restrictions)?;
    ring.submitter().register_enable_rings()?;
    Ok(ring)
}

/// A ring shared with the kernel, empty between calls.
pub(crate) struct TapRing {
    /// Taken out by `drop` only.
    ring: Option<IoUring>,
    /// The result of each request: bytes, or an error number below zero.
    results: [i32; BATCH_PACKETS],
    /// The kernel has taken everything so far.
    is_usable: bool,
}

impl TapRing {
    /// # Errors
    /// The kernel has no io_uring for us.
    pub(crate) fn new() -> io::Result<Self> {
        let ring = match POOL.get() {
            Some(pool) => pool.lock().ok().and_then(|mut pool| pool.pop()),
            None => Some(IoUring::new(ENTRIES)?),
        };
        let ring = Some(ring.ok_or(io::ErrorKind::Unsupported)?);
        Ok(Self { ring, results: [0; BATCH_PACKETS], is_usable: true })
    }

    /// Carries out `requests`, of which the first [`BATCH_PACKETS`] count, and gives what became of
    /// each: bytes, or an error number below zero; `ECANCELED` is what the kernel did not take.
    ///
    /// # Safety
    /// The memory that the requests point at is valid, and the memory that they write to is theirs
    /// alone, until this returns. No request waits.
    pub(crate) unsafe fn carry_out(
        &mut self,
        requests: impl Iterator<Item = squeue::Entry>,
    ) -> &[i32] {
        let mut count = 0;
        let Some(ring) = &mut self.ring else { return &[] };
        let mut submission = ring.submission();
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
        let Some(ring) = &mut self.ring else { return };
        while left > 0 {
            count_system_call();
            match ring.submit_and_wait(left) {
                Err(why) if why.kind() != io::ErrorKind::Interrupted => {
                    // A request that it has not taken lies in the ring, and its memory belongs to
                    // another request soon: the kernel must never come back to it.
                    self.is_usable = false;
                    return;
                }
                _ => {}
            }
            for completed in ring.completion() {
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
        self.ring.as_ref().map_or(-1, std::os::fd::AsRawFd::as_raw_fd)
    }
}

/// One that was made in advance can be used again.
impl Drop for TapRing {
    fn drop(&mut self) {
        let ring = self.ring.take().filter(|_| self.is_usable);
        if let Some((pool, ring)) = POOL.get().zip(ring)
            && let Ok(mut pool) = pool.lock()
        {
            pool.push(ring);
        }
    }
}

impl fmt::Debug for TapRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TapRing").field("is_usable", &self.is_usable).finish_non_exhaustive()
    }
}
