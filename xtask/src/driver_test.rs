//! The driver's test against a back-end of somebody else's: all schemes of receive buffers on both
//! ring formats, every byte verified.
//!
//! How: it is one of the tests of the test kit, which take their back-end from the environment; it
//! is started from here beside that back-end.
//!
//! Limits: the back-end forwards between `a.sock` and `b.sock` in one directory.

use std::env;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::paths::Paths;
use crate::test_program::TestProgram;

/// The sockets of the back-end.
pub const SOCKETS: [&str; 2] = ["a.sock", "b.sock"];

/// The test.
pub const PROGRAM: TestProgram = TestProgram { package: "ringway-testkit", name: "driver_daemon" };

/// Tells it where the back-end is, and how much to send.
const BACKEND_VARIABLE: &str = "RINGWAY_BACKEND_DIRECTORY";
const GIB_VARIABLE: &str = "RINGWAY_GIB";

/// It takes no longer, plus this for each GiB asked for.
const LIMIT: Duration = Duration::from_secs(30);
const LIMIT_PER_GIB: Duration = Duration::from_secs(30);

/// The test on a back-end whose sockets are in `directory`.
pub fn command(paths: &Paths, directory: &Path) -> Command {
    let mut command = PROGRAM.command(paths);
    command.arg("--nocapture").env(BACKEND_VARIABLE, directory);
    command
}

/// How long it takes at most.
pub fn limit() -> Duration {
    let gib = env::var(GIB_VARIABLE).ok().and_then(|gib| gib.parse().ok());
    LIMIT + LIMIT_PER_GIB * gib.unwrap_or(0)
}
