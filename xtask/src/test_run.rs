//! `./x test`: every test there is; behind `the end:` those that failed, and one last line with the
//! numbers.
//!
//! How: cargo's tests and the scenarios that may share the processors come first
//! ([`side_by_side`]), then the tidy rules, the count of instructions per packet, and the scenarios
//! that run alone. All run, also after a failure.
//!
//! Limits: with `CI=true` in the environment a skipped test counts as failed.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{env, io};

use anyhow::Context;
use ringway_guests::shell;

use crate::bench;
use crate::guest::{self, Scenarios};
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::side_by_side;
use crate::tally::Tally;
use crate::tidy;

const GUEST: &str = "guest::";

/// Of each property that tests do not bound themselves: 256 if nothing is said.
const CASES: &str = "PROPTEST_CASES";
const LONG_CASES: &str = "10000";

pub fn command(paths: &Paths, names: &[String], is_long: bool) -> anyhow::Result<()> {
    if is_long && !ringway_extent::is_long() {
        return Err(again_as_long(paths).into());
    }
    if let Err(error) = setup::prepare(paths, For::Test) {
        println!("{error:#}");
    }
    let mut tally = run_all(paths, names);
    if env::var_os("CI").is_some_and(|value| value == "true") {
        tally = tally.strict();
    }
    if tally == Tally::default() {
        tally += Tally::failed(&names.join(" "), "no test has such a name: see ./x test --list");
    }
    println!("the end:\n{}", tally.end());
    // The numbers are the last line: nothing may be printed after them.
    std::process::exit(i32::from(tally.counts.failed > 0));
}

/// This program once more in the place of this one, in whose environment all it starts finds how
/// much to do.
fn again_as_long(paths: &Paths) -> io::Error {
    let mut command = Command::new(&paths.program);
    command.args(env::args_os().skip(1)).env(ringway_extent::LONG, "1");
    if env::var_os(CASES).is_none() {
        command.env(CASES, LONG_CASES);
    }
    command.exec()
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

fn run_all(paths: &Paths, names: &[String]) -> Tally {
    let scenarios = Scenarios::choose(
        |name| is_wanted(&format!("{GUEST}{name}"), names),
        |name| names.iter().any(|it| it.strip_prefix(GUEST) == Some(name)),
    );
    let is_counted = is_wanted(bench::INSTRUCTIONS, names);
    let mut tally = if only_guests(names) {
        side_by_side::scenarios(paths, &scenarios)
    } else {
        let needs_programs = is_counted || !scenarios.is_empty();
        side_by_side::all(paths, names, &scenarios, needs_programs)
    };
    if is_wanted("tidy", names) {
        tally += Tally::told("tidy", &tidy::command(paths));
    }
    if is_counted {
        tally += bench::instructions(paths);
    }
    tally += scenarios.run_alone(paths);
    tally
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
}
