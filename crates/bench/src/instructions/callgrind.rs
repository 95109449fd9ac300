//! Counting with valgrind's callgrind.

use std::process::Command;
use std::{env, fs};

use anyhow::{Context, ensure};
use ringway_testkit::BINARY_VARIABLE;

use crate::programs;

/// Under what the data plane of ringway runs.
const UNDER_VARIABLE: &str = "RINGWAY_DATA_PLANE_UNDER";

/// Instructions that callgrind counts in one function of this program, or of the daemon that it
/// starts; `None`: in all of it.
pub(super) fn callgrind(
    arguments: &[&str],
    function: Option<&str>,
    is_daemon: bool,
) -> anyhow::Result<u64> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let log = format!("--log-file={}/%p", directory.path().display());
    let toggle = function.map(|function| format!("--toggle-collect={function}"));
    let mut valgrind = vec!["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", &log];
    valgrind.extend(toggle.as_deref());
    let this = env::current_exe()?;
    // Of ringway its data plane alone: valgrind does not know all that a supervisor asks of Linux.
    let (program, before) = match is_daemon {
        true => (this.as_os_str(), &[][..]),
        false => (valgrind[0].as_ref(), &valgrind[1..]),
    };
    let mut command = Command::new(program);
    command.args(before);
    if is_daemon {
        command.env(UNDER_VARIABLE, valgrind.join(" ")).env(BINARY_VARIABLE, programs::ringway()?);
    } else {
        command.arg(this);
    }
    command.args(arguments);
    let output = command.output().context("valgrind (Debian: apt-get install valgrind)")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "valgrind: {}:\n{text}", output.status);
    // One log for each process; only in one of them was anything to count.
    let mut counted = 0;
    for log in fs::read_dir(directory.path())? {
        counted += collected(&fs::read_to_string(log?.path())?).unwrap_or(0);
    }
    ensure!(counted > 0, "valgrind: nothing was counted in {function:?}");
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
