//! The driver's test against a back-end of somebody else's: all schemes of receive buffers on both
//! ring formats, every byte verified.
//!
//! How: it is one of the tests of the test kit, which take their back-end from the environment; it
//! is built by cargo like all others, and started from here beside that back-end.
//!
//! Limits: the back-end forwards between `a.sock` and `b.sock` in one directory.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::check::cargo;
use crate::paths::Paths;
use crate::shell;

/// The sockets of the back-end.
pub const SOCKETS: [&str; 2] = ["a.sock", "b.sock"];

/// The test.
const NAME: &str = "driver_daemon";

/// Tells it where the back-end is, and how much to send.
const BACKEND_VARIABLE: &str = "RINGWAY_BACKEND_DIRECTORY";
const GIB_VARIABLE: &str = "RINGWAY_GIB";

/// It takes no longer, plus this for each GiB asked for.
const LIMIT: Duration = Duration::from_secs(30);
const LIMIT_PER_GIB: Duration = Duration::from_secs(30);

/// Builds it.
///
/// # Errors
/// It does not build.
pub fn build(paths: &Paths) -> anyhow::Result<()> {
    let mut command = cargo(paths, "test");
    command.args(["-p", "ringway-testkit", "--test", NAME, "--no-run"]);
    command.args(["--message-format=json-render-diagnostics"]).stderr(Stdio::inherit());
    let messages = shell::output(&mut command)?;
    let built = messages.lines().find_map(executable).context("cargo built no test")?;
    let kept = program(paths);
    fs::copy(&built, &kept).with_context(|| kept.display().to_string())?;
    Ok(())
}

/// The test on a back-end whose sockets are in `directory`.
pub fn command(paths: &Paths, directory: &Path) -> Command {
    let mut command = Command::new(program(paths));
    command.arg("--nocapture").env(BACKEND_VARIABLE, directory);
    command
}

/// How long it takes at most.
pub fn limit() -> Duration {
    let gib = env::var(GIB_VARIABLE).ok().and_then(|gib| gib.parse().ok());
    LIMIT + LIMIT_PER_GIB * gib.unwrap_or(0)
}

/// Where the built test is kept: cargo's name for it changes.
fn program(paths: &Paths) -> PathBuf {
    paths.guest().join(NAME)
}

/// The program that a message of cargo's is about.
fn executable(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_it = message["target"]["name"] == NAME;
    message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_read_from_cargos_messages() {
        let of = |name, executable| {
            executable_of(&serde_json::json!({
                "reason": "compiler-artifact", "target": { "name": name }, "executable": executable
            }))
        };
        assert_eq!(of(NAME, Some("/t/driver_daemon-1")), Some("/t/driver_daemon-1".into()));
        assert_eq!(of("other", Some("/t/other")), None);
        assert_eq!(of(NAME, None), None);
        assert_eq!(executable("no message"), None);
    }

    fn executable_of(message: &Value) -> Option<PathBuf> {
        executable(&message.to_string())
    }
}
