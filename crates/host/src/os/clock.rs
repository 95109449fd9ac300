//! What time it is, for everything that is counted in it.

use ringway_net::Nanos;

/// The monotonic clock: the same for all workers, which share what the switch knows.
pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Nanos(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}
