//! Tells the program which commit it is built from, for `ringway --version`.
//!
//! Limits: outside a Git repository, or without git, there is none.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    if commit.is_some() {
        // HEAD changes with the branch, and its log with each commit.
        for file in [["rev-parse", "--git-path", "HEAD"], ["rev-parse", "--git-path", "logs/HEAD"]]
        {
            if let Some(path) = git(&file) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
    }
    let behind = commit.map_or(String::new(), |commit| format!(" ({commit})"));
    println!("cargo::rustc-env=RINGWAY_VERSION={}{behind}", env!("CARGO_PKG_VERSION"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}
