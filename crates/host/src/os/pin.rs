//! The processor that a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Keeps the calling thread on one processor.
///
/// # Errors
/// There is no such processor, or it is not among those this process may use.
pub fn pin_to(cpu: u16) -> io::Result<()> {
    let cpu = usize::from(cpu);
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}
