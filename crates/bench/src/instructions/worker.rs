//! A worker's part in a packet from guest to guest by a switch: a daemon of its own under valgrind,
//! and guests in user space.
//!
//! Limits: its loop and the copy ([`FUNCTION`]) alone are counted, not what it does once for each
//! visit of some packets: clocks, publishing, sleeping. So the number hardly depends on when the
//! worker runs.

use ringway_virtq::Format;

use super::callgrind::{callgrind, per_packet};
use crate::switch;

pub(super) const NAME: &str = "worker";

/// What is counted, as callgrind wants it.
const FUNCTION: &str = "*Run*forward_run*";

const BURSTS: usize = 16;

/// Moves the packets; the daemon that it starts is counted under valgrind.
pub fn run(format: Format) -> anyhow::Result<()> {
    switch::carry(format, BURSTS)
}

pub(super) fn count(arguments: &[&str]) -> anyhow::Result<f64> {
    let options = ["--trace-children=yes", "--trace-children-skip-by-arg=stats"];
    let instructions = callgrind(arguments, FUNCTION, &options)?;
    Ok(per_packet(instructions, BURSTS * switch::BURST))
}
