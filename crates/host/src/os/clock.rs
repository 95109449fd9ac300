//! The clocks that are read: monotonic time, and the processor time of a thread.

use ringway_net::Nanos;
use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock: the same for all workers, which share what the switch knows.
pub fn now() -> Nanos {
    read(ClockId::Monotonic)
}

/// Processor time that this thread has used.
pub(crate) fn thread_time() -> Nanos {
    read(ClockId::ThreadCPUTime)
}

#[inline]
fn read(clock: ClockId) -> Nanos {
    let now = clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Nanos(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}
