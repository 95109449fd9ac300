//! A worker's part in a packet from guest to guest by a switch: a daemon of its own under valgrind,
//! and guests in user space.
//!
//! Limits: its loop and the copy ([`FUNCTION`]) alone are counted, not what it does once for each
//! visit of some packets: clocks, publishing, sleeping. So the number hardly depends on when the worker runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use ringway_testkit::BINARY_VARIABLE;
use ringway_virtq::Format;

use super::{collected, per_packet};
use crate::{programs, switch};

/// The part's name in tables.
pub(super) const NAME: &str = "worker";

/// What is counted, as callgrind wants it.
const FUNCTION: &str = "*Run*forward_run*";

/// Bursts of packets that are counted.
const BURSTS: usize = 16;

/// Moves the packets; the daemon that it starts is counted under valgrind.
///
/// # Errors
/// The daemon does not come up, or packets do not arrive.
pub fn run(format: Format) -> anyhow::Result<()> {
    switch::carry(format, BURSTS)
}

/// Instructions per packet.
pub(super) fn count(program: &Path, arguments: &[&str], format: &str) -> anyhow::Result<f64> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let log = format!("--log-file={}/%p", directory.path().display());
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--trace-children=yes"]);
    command.args(["--trace-children-skip-by-arg=stats", &log]);
    command.arg(format!("--toggle-collect={FUNCTION}"));
    command.arg(program).args(arguments).args([format, "--worker"]);
    command.env(BINARY_VARIABLE, programs::ringway()?);
    let output = command.output().context("valgrind (Debian: apt-get install valgrind)")?;
    if !output.status.success() {
        bail!("valgrind: {}:\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    // One log for each process; only in the daemon's was anything to count.
    let mut instructions = 0;
    for log in fs::read_dir(directory.path())? {
        instructions += collected(&fs::read_to_string(log?.path())?).unwrap_or(0);
    }
    if instructions == 0 {
        bail!("valgrind: nothing was counted in {FUNCTION}");
    }
    Ok(per_packet(instructions, BURSTS * switch::BURST))
}
