//! Counting with valgrind's callgrind.

use std::process::Command;
use std::{env, fs};

use anyhow::{Context, ensure};
use ringway_testkit::BINARY_VARIABLE;

use crate::programs;

/// What callgrind counts in one function of this program, or of the daemon that it starts.
pub(super) fn callgrind(arguments: &[&str], function: &str) -> anyhow::Result<u64> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.args(["--trace-children=yes", "--trace-children-skip-by-arg=stats"]);
    command.arg(format!("--toggle-collect={function}"));
    command.arg(format!("--log-file={}/%p", directory.path().display()));
    command.arg(env::current_exe()?).args(arguments);
    command.env(BINARY_VARIABLE, programs::ringway()?);
    let output = command.output().context("valgrind (Debian: apt-get install valgrind)")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "valgrind: {}:\n{text}", output.status);
    // One log for each process; only in one of them was anything to count.
    let mut counted = 0;
    for log in fs::read_dir(directory.path())? {
        counted += collected(&fs::read_to_string(log?.path())?).unwrap_or(0);
    }
    ensure!(counted > 0, "valgrind: nothing was counted in {function}");
    Ok(counted)
}

fn collected(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_from_valgrind_s_words() {
        let text = "==1== Events    : Ir\n==1== Collected : 158464\n==1== \n";
        assert_eq!(collected(text), Some(158_464));
        assert_eq!(collected("nothing"), None);
    }
}
