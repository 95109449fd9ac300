//! `./x test`: every test there is, and one last line with the numbers.
//!
//! How: cargo's tests, the models of the rings' memory ordering, the tidy rules, the count of
//! instructions per packet, and the scenarios with real guests: cheapest first. All run, also after
//! a failure.
//!
//! Limits: with `CI=true` in the environment a skipped test counts as failed.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::Context;
use ringway_guests::shell;

use crate::bench;
use crate::check::build_ringway;
use crate::counts::Counts;
use crate::downloads::Download;
use crate::guest;
use crate::paths::Paths;
use crate::results::Results;
use crate::setup::{self, For};
use crate::tidy;

const GUEST: &str = "guest::";

/// Tests that are ignored need it.
const STATIC: &str = "package/static/ringway";

const LOOM_TEST: &str = "crates/virtq/tests/loom.rs";

pub fn command(paths: &Paths, names: &[String]) -> anyhow::Result<()> {
    if let Err(error) = setup::prepare(paths, For::Test) {
        println!("{error:#}");
    }
    let mut counts = Counts::default();
    match build_ringway(paths) {
        Ok(()) => counts += run_all(paths, names),
        Err(error) => {
            println!("{error:#}");
            counts += Counts::one(false);
        }
    }
    if env::var_os("CI").is_some_and(|value| value == "true") {
        counts = counts.strict();
    }
    if counts == Counts::default() {
        println!("{}: no test has such a name: see ./x test --list", names.join(" "));
        counts += Counts::one(false);
    }
    println!("{counts}");
    // The numbers are the last line: nothing may be printed after them.
    std::process::exit(i32::from(counts.failed > 0));
}

pub fn list(paths: &Paths, names: &[String]) -> anyhow::Result<()> {
    let mut all: Vec<String> =
        guest::names().into_iter().map(|name| format!("{GUEST}{name}")).collect();
    all.extend(["tidy", bench::INSTRUCTIONS].map(str::to_string));
    if !only_guests(names) {
        let mut command = paths.cargo("test");
        command.args(["--workspace", "--", "--list"]).stderr(Stdio::null());
        let why = "the tests do not build: run cargo test --workspace --no-run";
        let text = shell::output(&mut command).context(why)?;
        let listed = text.lines().filter_map(|line| line.strip_suffix(": test"));
        all.extend(listed.map(str::to_string));
    }
    for name in all.iter().filter(|name| is_wanted(name, names)) {
        println!("{name}");
    }
    Ok(())
}

fn run_all(paths: &Paths, names: &[String]) -> Counts {
    let mut counts = Counts::default();
    if !only_guests(names) {
        counts += run_cargo(&mut workspace_tests(paths, names));
        if paths.root.join(LOOM_TEST).is_file() {
            counts += run_cargo(&mut loom_tests(paths, names));
        }
    }
    if is_wanted("tidy", names) {
        counts += Counts::told("tidy", &tidy::command(paths));
    }
    if is_wanted(bench::INSTRUCTIONS, names) {
        counts += bench::instructions(paths);
    }
    counts += guest::run(paths, |name| is_wanted(&format!("{GUEST}{name}"), names));
    counts
}

fn workspace_tests(paths: &Paths, names: &[String]) -> Command {
    let mut command = paths.cargo("test");
    command.args(["--workspace", "--no-fail-fast", "--", "--show-output"]).args(names);
    if paths.target.join(STATIC).is_file() {
        command.arg("--include-ignored");
    }
    command.env("RINGWAY_BIN", paths.ringway());
    Download::Prometheus.name_to(&mut command, paths);
    command
}

fn loom_tests(paths: &Paths, names: &[String]) -> Command {
    let mut command = paths.cargo("test");
    command.args(["-p", "ringway-virtq", "--test", "loom", "--release", "--"]).args(names);
    // In a directory of its own: the flags would make cargo build everything anew each time.
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", paths.target.join("loom"));
    command
}

fn run_cargo(command: &mut Command) -> Counts {
    let mut results = Results::default();
    let mut run = || -> anyhow::Result<bool> {
        let mut child = command.stdout(Stdio::piped()).spawn().context("cargo test")?;
        let stdout = child.stdout.take().context("cargo test: no output")?;
        for line in BufReader::new(stdout).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            results.read(&line).iter().for_each(|line| println!("{line}"));
        }
        Ok(child.wait()?.success())
    };
    let is_success = run().map_err(|error| println!("{error:#}")).unwrap_or(false);
    let mut counts = results.counts;
    if !is_success && counts.failed == 0 {
        // It did not build, or ended before it could say what failed.
        counts += Counts::one(false);
    }
    counts
}

/// Whether all names are those of scenarios, so that cargo's tests need not be built.
fn only_guests(names: &[String]) -> bool {
    !names.is_empty() && names.iter().all(|name| name.starts_with(GUEST))
}

fn is_wanted(test: &str, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| test.contains(name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_string()).collect()
    }

    #[test]
    fn names_choose_by_parts() {
        assert!(is_wanted("guest::uml_pair", &[]));
        assert!(is_wanted("guest::uml_pair", &strings(&["other", "uml"])));
        assert!(!is_wanted("guest::uml_pair", &strings(&["qemu"])));
    }

    #[test]
    fn names_of_scenarios_do_not_build_the_other_tests() {
        assert!(only_guests(&strings(&["guest::uml_pair"])));
        assert!(!only_guests(&strings(&["guest::uml_pair", "tidy"])));
        assert!(!only_guests(&[]));
    }

    #[test]
    fn results_are_added_up_and_a_silent_failure_counts() {
        let mut script = Command::new("sh");
        script.args(["-c", "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'"]);
        assert_eq!(run_cargo(&mut script), Counts { passed: 2, failed: 0, skipped: 1 });
        let mut script = Command::new("sh");
        script.args(["-c", "echo error: no; exit 101"]);
        assert_eq!(run_cargo(&mut script), Counts { passed: 0, failed: 1, skipped: 0 });
    }
}
