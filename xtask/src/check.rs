//! `./x check`: what has to hold before every commit; and the builds that other commands need.

use ringway_guests::shell;

use crate::paths::Paths;
use crate::{tidy, unikernel};

pub fn command(paths: &Paths) -> anyhow::Result<()> {
    let lints = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    step("format", || shell::run(paths.cargo("fmt").args(["--all", "--check"])))?;
    step("tidy", || tidy::command(paths))?;
    step("lints", || shell::run(paths.cargo("clippy").args(lints)))?;
    step("lints of the unikernel", || unikernel::lint(paths))?;
    step("unit tests", || shell::run(paths.cargo("test").args(["--workspace", "--lib", "--bins"])))
}

pub fn format(paths: &Paths) -> anyhow::Result<()> {
    shell::run(paths.cargo("fmt").arg("--all"))
}

pub fn build_ringway(paths: &Paths) -> anyhow::Result<()> {
    shell::run(paths.cargo("build").args(["--release", "-p", "ringway", "-p", "ringway-bench"]))
}

fn step(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("check: {name}");
    check()
}
