//! `ringway bench`: hands over to the program `ringway-bench`, which is built and installed apart.
//!
//! How: it is looked for beside this program, then in `PATH`; it takes this process over, with
//! all arguments and standard streams, so that its exit status is ours.

use std::convert::Infallible;
use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, bail};
use clap::Args;

/// The program that measures.
const PROGRAM: &str = "ringway-bench";

/// Tells it which `ringway` to measure.
const BINARY_VARIABLE: &str = "RINGWAY_BIN";

/// `ringway bench`
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub struct BenchArgs {
    /// Arguments of the measurement: see `ringway bench --help`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
    arguments: Vec<OsString>,
}

impl BenchArgs {
    /// Whether it was given `--json`.
    pub fn is_json(&self) -> bool {
        self.arguments.iter().any(|word| word == "--json")
    }
}

/// Becomes `ringway-bench`.
///
/// # Errors
/// It is not there, or cannot be started.
pub fn bench(args: &BenchArgs) -> anyhow::Result<Infallible> {
    let ringway = env::current_exe().ok();
    let mut places: Vec<PathBuf> = ringway.iter().filter_map(|ringway| beside(ringway)).collect();
    places.push(PROGRAM.into());
    for place in &places {
        let mut command = Command::new(place);
        command.args(&args.arguments);
        if let (None, Some(ringway)) = (env::var_os(BINARY_VARIABLE), &ringway) {
            command.env(BINARY_VARIABLE, ringway);
        }
        let error = command.exec();
        if error.kind() != io::ErrorKind::NotFound {
            return Err(anyhow!(error).context(place.display().to_string()));
        }
    }
    let beside = places[0].display();
    bail!(
        "{PROGRAM}: not found: neither {beside} nor in PATH; \
         build it with `cargo build --release -p {PROGRAM}`, or install its package"
    )
}

fn beside(program: &Path) -> Option<PathBuf> {
    Some(program.parent()?.join(PROGRAM))
}
