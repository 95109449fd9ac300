//! `cargo` for this tree.

use std::process::Command;

use crate::paths::Paths;

/// The `cargo` that runs us, or the one in the path.
pub fn cargo(paths: &Paths, command: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg(command).current_dir(&paths.root);
    cargo
}
