//! Tests that run beside each other, and beside what has to be built for some of them.
//!
//! How: as most tests wait, the programs are built beside them, in two rows: in one those that
//! scenarios start, in the other one all else. A scenario waits for the first row. The program
//! without shared libraries is tested when it is built.

use std::process::Command;
use std::sync::OnceLock;
use std::thread;

use ringway_guests::shell;

use crate::cargo_tests::{self, Program};
use crate::check::{self, build_ringway};
use crate::downloads::Download;
use crate::guest::{Scenario, Scenarios};
use crate::lanes::{self, LANES};
use crate::paths::Paths;
use crate::tally::Tally;
use crate::unikernel;

/// The tests of the program without shared libraries.
const OF_STATIC: &str = "ringway::static_program";

enum Task<'a> {
    Test(Program),
    Scenario(&'a Scenario),
}

struct Run<'a> {
    paths: &'a Paths,
    names: &'a [String],
    scenarios: &'a Scenarios,
    /// Whether the programs that scenarios start are there.
    programs: OnceLock<bool>,
}

/// Scenarios alone.
pub fn scenarios(paths: &Paths, scenarios: &Scenarios) -> Tally {
    let run = Run { paths, names: &[], scenarios, programs: OnceLock::new() };
    let tasks: Vec<Task<'_>> = scenarios.shared.iter().map(Task::Scenario).collect();
    let mut tally = run.build_programs();
    tally += lanes::run(&tasks, LANES, |task| run.task(task));
    tally
}

/// All tests of cargo, and the scenarios; the programs are built if they are needed.
pub fn all(paths: &Paths, names: &[String], scenarios: &Scenarios, needs_programs: bool) -> Tally {
    let programs = match cargo_tests::build(paths, &["--workspace"]) {
        Ok(programs) => programs,
        Err(error) => return Tally::told("the tests are built", &Err(error)),
    };
    let run = Run { paths, names, scenarios, programs: OnceLock::new() };
    let (of_static, programs): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|program| program.name() == OF_STATIC);
    let tests = programs.into_iter().map(Task::Test);
    let tasks: Vec<Task<'_>> = tests.chain(scenarios.shared.iter().map(Task::Scenario)).collect();
    thread::scope(|scope| {
        let programs = needs_programs.then(|| scope.spawn(|| run.build_programs()));
        let others = scope.spawn(|| run.build_others(&of_static));
        let mut tally = lanes::run(&tasks, LANES, |task| run.task(task));
        for build in programs.into_iter().chain([others]) {
            tally += build.join().unwrap_or_else(|_| Tally::failed("the builds", "a panic"));
        }
        tally
    })
}

impl Run<'_> {
    fn task(&self, task: &Task<'_>) -> Tally {
        match task {
            Task::Test(program) => self.test(program),
            Task::Scenario(scenario) => {
                self.has_programs();
                self.scenarios.run(self.paths, scenario)
            }
        }
    }

    fn test(&self, program: &Program) -> Tally {
        let mut command = program.command(&arguments(self.names));
        if program.name() == OF_STATIC {
            command.env("RINGWAY_STATIC", check::static_directory(self.paths).join("ringway"));
        }
        Download::Prometheus.name_to(&mut command, self.paths);
        Download::Systemd.name_to(&mut command, self.paths);
        cargo_tests::run(program.name(), &mut command)
    }

    /// Waits until they are built.
    fn has_programs(&self) -> bool {
        *self.programs.get_or_init(|| {
            build_ringway(self.paths).map_err(|error| println!("{error:#}")).is_ok()
        })
    }

    fn build_programs(&self) -> Tally {
        if self.has_programs() {
            return Tally::default();
        }
        Tally::failed("the programs are built", "they do not build: see above")
    }

    /// Builds programs one by one that are built for themselves; and runs the tests that cargo runs
    /// itself.
    fn build_others(&self, of_static: &[Program]) -> Tally {
        let mut tally = Tally::default();
        // The tests that start these programs say so if they cannot be built.
        let say = |error| println!("{error:#}");
        if self.names.is_empty() {
            unikernel::build(self.paths).map_or_else(say, drop);
        }
        if of_static.iter().any(|program| program.has_any(&arguments(self.names))) {
            shell::run(&mut without_libraries(self.paths)).unwrap_or_else(say);
        }
        for program in of_static {
            tally += self.test(program);
        }
        tally += cargo_tests::run("loom", &mut loom_tests(self.paths, self.names));
        let mut documentation = self.paths.cargo("test");
        documentation.args(["--workspace", "--doc", "--no-fail-fast", "--"]);
        documentation.args(arguments(self.names));
        tally += cargo_tests::run("documentation", &mut documentation);
        tally
    }
}

/// How fast it is does not matter. CI packs the same program: see `.ci/run`.
fn without_libraries(paths: &Paths) -> Command {
    let mut build = check::static_build(paths);
    let quick = [("OPT_LEVEL", "0"), ("DEBUG", "0"), ("LTO", "off"), ("CODEGEN_UNITS", "16")];
    build.envs(quick.map(|(name, value)| (format!("CARGO_PROFILE_RELEASE_{name}"), value)));
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
