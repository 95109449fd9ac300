//! `./x check`: what has to hold before every commit; and the builds that other commands need.

use std::path::PathBuf;
use std::process::Command;

use anyhow::ensure;
use ringway_guests::shell;

use crate::lanes::LANES;
use crate::paths::Paths;
use crate::{cargo_tests, lanes, tidy, unikernel};

/// The target of programs without shared libraries.
const TARGET: &str = "x86_64-unknown-linux-gnu";

pub fn command(paths: &Paths) -> anyhow::Result<()> {
    let lints = ["--workspace", "--all-targets", "--", "-D", "warnings"];
    step("format", || shell::run(paths.cargo("fmt").args(["--all", "--check"])))?;
    step("tidy", || tidy::command(paths))?;
    step("lints", || shell::run(paths.cargo("clippy").args(lints)))?;
    step("lints of the unikernel", || unikernel::lint(paths))?;
    step("unit tests", || unit_tests(paths))
}

fn unit_tests(paths: &Paths) -> anyhow::Result<()> {
    let programs = cargo_tests::build(paths, &["--workspace", "--lib", "--bins"])?;
    let tally = lanes::run(&programs, LANES, |program| {
        cargo_tests::run(program.name(), &mut program.command(&["--quiet".to_string()]))
    });
    ensure!(tally.counts.failed == 0, "{}", tally.end());
    Ok(())
}

pub fn format(paths: &Paths) -> anyhow::Result<()> {
    shell::run(paths.cargo("fmt").arg("--all"))
}

pub fn build_ringway(paths: &Paths) -> anyhow::Result<()> {
    shell::run(paths.cargo("build").args(["--release", "-p", "ringway", "-p", "ringway-bench"]))
}

/// Builds programs without shared libraries, into [`static_directory`].
pub fn static_build(paths: &Paths) -> Command {
    let mut build = paths.cargo("build");
    build.args(["--release", "-p", "ringway", "-p", "ringway-cni"]);
    // With a target, flags hold for what is built for it, and not for build scripts and macros.
    build.args(["--target", TARGET, "--target-dir"]).arg(paths.target.join("static"));
    build.env("RUSTFLAGS", "-C target-feature=+crt-static");
    build
}

pub fn static_directory(paths: &Paths) -> PathBuf {
    paths.target.join("static").join(TARGET).join("release")
}

fn step(name: &str, check: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    println!("check: {name}");
    check()
}
