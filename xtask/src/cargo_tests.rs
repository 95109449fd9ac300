//! Cargo's tests: all are built at once, and their programs run side by side.
//!
//! How: cargo names the programs that it has built. Each is started as cargo would, in the
//! directory of its package, and what it prints is shown in one piece when it has ended: see
//! [`Results`].
//!
//! Limits: cargo runs the tests of the documentation itself.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_guests::{namespaces, shell};
use serde_json::Value;

use crate::paths::Paths;
use crate::results::Results;
use crate::tally::Tally;

/// Programs that take longest, and begin first: `PACKAGE::NAME`.
const LONG: [&str; 8] = [
    "ringway::handoff",
    "ringway::package",
    "ringway-host::ringway_host",
    "ringway-testkit::checklist_guest",
    "ringway-testkit::pacing",
    "xtask::demo",
    "ringway::documents",
    "ringway-testkit::pacing_interleavings",
];

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    /// Behind how many others it begins.
    rank: usize,
    /// `PACKAGE::NAME`
    name: String,
    path: PathBuf,
    /// Where its package is.
    directory: PathBuf,
}

/// Builds the tests with these arguments of `cargo test`; their programs, longest first.
pub fn build(paths: &Paths, arguments: &[&str]) -> anyhow::Result<Vec<Program>> {
    let mut command = paths.cargo("test");
    command.args(arguments).args(["--no-run", "--message-format=json-render-diagnostics"]);
    let messages = shell::output_beside(&mut command)?;
    let mut programs: Vec<Program> = messages.lines().filter_map(Program::read).collect();
    ensure!(!programs.is_empty(), "cargo built no test");
    programs.sort();
    Ok(programs)
}

impl Program {
    /// The test program that a message of cargo's is about, if it is one.
    fn read(message: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(message).ok()?;
        let path = PathBuf::from(message["executable"].as_str()?);
        let is_test = message["profile"]["test"] == true;
        let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
        let (place, id) = message["package_id"].as_str()?.rsplit_once('#')?;
        // Without a name it is called as its directory is.
        let package = id.split_once('@').map(|(name, _)| name).or(place.rsplit('/').next())?;
        let name = format!("{package}::{}", message["target"]["name"].as_str()?);
        let rank = LONG.iter().position(|long| *long == name).unwrap_or(LONG.len());
        is_test.then_some(Self { rank, name, path, directory })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The command, with arguments of libtest.
    pub fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(arguments).current_dir(&self.directory);
        command.env("CARGO_MANIFEST_DIR", &self.directory);
        command
    }

    /// Whether it has a test that these arguments of libtest choose.
    pub fn has_any(&self, arguments: &[String]) -> bool {
        let mut command = self.command(arguments);
        let listed = shell::output_beside(command.arg("--list")).unwrap_or_default();
        listed.lines().any(|line| line.ends_with(": test"))
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Longest time of one program: all of them together take less; and in the long tier.
const LIMIT: Duration = Duration::from_secs(15 * 60);
const LONG_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// Runs tests, and shows what they print when they have ended, or have taken too long.
pub fn run(name: &str, command: &mut Command) -> Tally {
    println!("{name} begins");
    let limit = if ringway_extent::is_long() { LONG_LIMIT } else { LIMIT };
    let started = Instant::now();
    let mut results = Results::default();
    let mut shown = String::new();
    let mut run = || -> anyhow::Result<(bool, String)> {
        // Files: what a test leaves behind may have its output open.
        let (mut output, mut errors) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors.try_clone()?);
        let mut child = command.spawn().with_context(|| name.to_string())?;
        let status = namespaces::wait(&mut child, limit)?;
        for line in text(&mut output)?.lines() {
            shown.extend(results.read(line).map(|line| line + "\n"));
        }
        let ended = status.map_or_else(|| format!("killed after {limit:?}"), |it| it.to_string());
        let is_success = status.is_some_and(|status| status.success());
        let why = format!("{}{name}: {ended}\n", text(&mut errors)?);
        Ok((is_success, if is_success { String::new() } else { why }))
    };
    let (is_success, why) = run().unwrap_or_else(|error| (false, format!("{error:#}\n")));
    println!("{name} ({:.1} s)\n{shown}{why}", started.elapsed().as_secs_f64());
    let mut tally = results.tally.of_program(name);
    if tally.counts.failed == 0 && (!is_success || results.programs == 0) {
        // It did not build, or ended before it could say what failed, or that nothing did.
        tally += Tally::failed(name, &(shown + &why));
    }
    tally
}

fn text(file: &mut File) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(package: &str, is_test: bool, executable: Option<&str>) -> String {
        let message = serde_json::json!({
            "reason": "compiler-artifact", "package_id": package,
            "manifest_path": "/tree/crates/host/Cargo.toml", "target": { "name": "leaks" },
            "profile": { "test": is_test }, "executable": executable
        });
        message.to_string()
    }

    #[test]
    fn programs_are_read_from_cargos_messages() {
        let ids = ["path+file:///tree/host#ringway-host@0.1.0", "file:///tree/ringway-host#0.1.0"];
        for id in ids {
            let program = Program::read(&message(id, true, Some("/t/leaks-1"))).expect("a test");
            assert_eq!(program.name, "ringway-host::leaks");
            assert_eq!(program.path, Path::new("/t/leaks-1"));
            assert_eq!(program.directory, Path::new("/tree/crates/host"));
            assert_eq!(Program::read(&message(id, false, Some("/t/leaks-1"))), None);
            assert_eq!(Program::read(&message(id, true, None)), None);
        }
        assert_eq!(Program::read("no message"), None);
    }

    #[test]
    fn a_program_says_whether_it_has_a_test() {
        let path = std::env::current_exe().expect("this program");
        let name = String::new();
        let program = Program { rank: 0, name, path, directory: PathBuf::from(".") };
        let has_any = |name: &str| program.has_any(&["--show-output".to_owned(), name.to_owned()]);
        assert!(has_any("program_says_whether") && !has_any("a_test_that_is_none"));
    }

    #[test]
    fn results_are_added_up_and_a_silent_failure_counts() {
        let sh = |script: &str| run("sh", &mut shell::command(&["sh", "-c", script]));
        let told = sh("echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'");
        assert_eq!(told.end(), "2 passed, 0 failed, 1 skipped");
        let silent = sh("echo error: no; exit 101");
        let expected = "FAILED: sh\n    error: no\n    sh: exit status: 101\n";
        assert_eq!(silent.end(), expected.to_owned() + "0 passed, 1 failed, 0 skipped");
        assert_eq!(sh("exit 0").counts.failed, 1, "it said nothing");
        assert_eq!(run("none", &mut Command::new("/no/such/program")).counts.failed, 1);
    }
}
