//! `./x test`: every test there is; behind `the end:` those that failed, and one last line with the
//! numbers.
//!
//! How: cargo's tests come first, and as most of them wait, there is built beside them what all
//! else starts: the programs and the bare-metal example; and the models of the rings' memory
//! ordering are tried. Then come the tidy rules, the count of instructions per packet, and the
//! scenarios with real guests. All run, also after a failure.
//!
//! Limits: with `CI=true` in the environment a skipped test counts as failed.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::Context;
use ringway_guests::shell;

use crate::bench;
use crate::cargo_tests::{self, Program};
use crate::check::{self, build_ringway};
use crate::downloads::Download;
use crate::guest;
use crate::lanes::{self, LANES};
use crate::paths::Paths;
use crate::setup::{self, For};
use crate::tally::Tally;
use crate::tidy;
use crate::unikernel;

const GUEST: &str = "guest::";

/// The tests of the program without shared libraries, which is built beside the others.
const OF_STATIC: &str = "ringway::static_program";

pub fn command(paths: &Paths, names: &[String]) -> anyhow::Result<()> {
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
    let mut tally = Tally::default();
    if only_guests(names) {
        tally += programs(paths);
    } else {
        tally += run_cargo(paths, names);
    }
    if is_wanted("tidy", names) {
        tally += Tally::told("tidy", &tidy::command(paths));
    }
    if is_wanted(bench::INSTRUCTIONS, names) {
        tally += bench::instructions(paths);
    }
    tally += guest::run(paths, |name| is_wanted(&format!("{GUEST}{name}"), names));
    tally
}

/// Tests that run beside others.
enum Task {
    /// Builds what is built for itself, one after the other, and tests what cargo runs itself.
    Builds {
        /// Also the program without shared libraries, which takes minutes.
        needs_static: bool,
    },
    Test(Program),
}

/// All tests of cargo, beside what has to be built.
fn run_cargo(paths: &Paths, names: &[String]) -> Tally {
    let programs = match cargo_tests::build(paths, &["--workspace"]) {
        Ok(programs) => programs,
        Err(error) => return Tally::told("the tests are built", &Err(error)),
    };
    let (last, programs): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.name() == OF_STATIC);
    let needs_static = last.iter().any(|program| program.has_any(&arguments(names)));
    let mut tasks = vec![Task::Builds { needs_static }];
    tasks.extend(programs.into_iter().map(Task::Test));
    let mut tally = lanes::run(&tasks, LANES, |task| task.run(paths, names));
    for program in last {
        tally += Task::Test(program).run(paths, names);
    }
    tally
}

impl Task {
    fn run(&self, paths: &Paths, names: &[String]) -> Tally {
        let program = match self {
            Self::Builds { needs_static } => return run_builds(paths, names, *needs_static),
            Self::Test(program) => program,
        };
        let mut command = program.command(&arguments(names));
        let built = static_directory(paths).join(check::TARGET).join("debug/ringway");
        if program.name() == OF_STATIC {
            command.env("RINGWAY_STATIC", built);
        }
        Download::Prometheus.name_to(&mut command, paths);
        Download::Systemd.name_to(&mut command, paths);
        cargo_tests::run(program.name(), &mut command)
    }
}

fn run_builds(paths: &Paths, names: &[String], needs_static: bool) -> Tally {
    let mut tally = programs(paths);
    // The tests that start these programs say so if they cannot be built.
    let say = |error| println!("{error:#}");
    if needs_static {
        shell::run(&mut without_libraries(paths)).unwrap_or_else(say);
    }
    if names.is_empty() {
        unikernel::build(paths).map_or_else(say, drop);
    }
    tally += cargo_tests::run("loom", &mut loom_tests(paths, names));
    let mut documentation = paths.cargo("test");
    documentation.args(["--workspace", "--doc", "--no-fail-fast", "--"]).args(arguments(names));
    tally += cargo_tests::run("documentation", &mut documentation);
    tally
}

/// Builds what scenarios start.
fn programs(paths: &Paths) -> Tally {
    match build_ringway(paths) {
        Ok(()) => Tally::default(),
        Err(error) => Tally::told("the programs are built", &Err(error)),
    }
}

fn static_directory(paths: &Paths) -> PathBuf {
    paths.target.join("static")
}

/// How fast it is does not matter.
fn without_libraries(paths: &Paths) -> Command {
    let mut build = check::static_build(paths, &static_directory(paths));
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0").env("CARGO_PROFILE_DEV_DEBUG", "0");
    build
}

/// For libtest.
fn arguments(names: &[String]) -> Vec<String> {
    [&["--show-output".to_string()], names].concat()
}

fn loom_tests(paths: &Paths, names: &[String]) -> Command {
    let mut command = paths.cargo("test");
    command.args(["-p", "ringway-virtq", "--test", "loom", "--release", "--"]);
    command.arg("--show-output").args(names);
    // In a directory of its own: the flags would make cargo build everything anew each time.
    command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", paths.target.join("loom"));
    command
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
