//! Running one scenario: in namespaces of its own, for a limited time, with its logs kept.
//!
//! How: this same program is started again in namespaces of its own ([`namespaces`]).
//!
//! Limits: where there are no namespaces, scenarios are skipped, with the reason.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Context;
use ringway_guests::namespaces::unshare;
use ringway_guests::process::tail;
use ringway_guests::{Stage, namespaces, net, parent, stage};

use super::plan::{self, Scenario};
use crate::paths::Paths;
use crate::tally::Tally;

/// Logs whose ends are shown where a scenario has failed, and how many lines of each.
const SHOWN: [&str; 3] = ["ringway.statistics", "scenario.log", "ringway.log"];
const TAIL_LINES: usize = 40;

/// The same once more at the end of a run: the reason is in the last line.
const SHOWN_AGAIN: [&str; 2] = ["ringway.log", "scenario.log"];
const TAIL_LINES_AGAIN: usize = 13;

/// Runs one scenario and says what became of it, in one piece: others may run beside it.
pub fn run(paths: &Paths, missing: Option<&str>, scenario: &Scenario) -> Tally {
    if let Some(reason) = missing {
        return Tally::skipped(&format!("guest::{}", scenario.name), reason);
    }
    let (name, started) = (format!("guest::{}", scenario.name), Instant::now());
    let result = run_in_namespaces(paths, scenario);
    let seconds = started.elapsed().as_secs_f64();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    let logs = logs_of(paths, &scenario.name);
    let (details, tally) = match &result {
        Ok(()) => {
            let log = fs::read_to_string(log_of(&logs)).unwrap_or_default();
            let shortened = log.lines().filter(|line| line.starts_with(ringway_extent::SHORT));
            let shortened = shortened.map(|_| name.clone()).collect();
            (notes(&log), Tally { shortened, ..Tally::passed() })
        }
        Err(error) => {
            let why = format!("{error:#}; all logs: {}\n", logs.display());
            let details = why.clone() + &ends(&logs, &SHOWN, TAIL_LINES);
            (details, Tally::failed(&name, &(why + &ends(&logs, &SHOWN_AGAIN, TAIL_LINES_AGAIN))))
        }
    };
    print!("test {name} ... {verdict} ({seconds:.1} s)\n{}", indented(&details));
    // A line that appears late is no reason to fail.
    let _ = std::io::stdout().flush();
    tally
}

/// Carries out one scenario in this process, which is alone in its namespaces.
pub fn run_here(paths: &Paths, name: &str, directory: &Path) -> ExitCode {
    let Some(scenario) = plan::scenarios().into_iter().find(|scenario| scenario.name == name)
    else {
        eprintln!("{name}: no such scenario");
        return ExitCode::FAILURE;
    };
    parent::end_with_parent(directory);
    let stage = Stage::new(scenario.needs.programs(paths), logs_of(paths, name), directory);
    match net::prepare().and_then(|()| (scenario.run)(&stage)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn logs_of(paths: &Paths, name: &str) -> PathBuf {
    paths.guest().join("logs").join(name)
}

fn run_in_namespaces(paths: &Paths, scenario: &Scenario) -> anyhow::Result<()> {
    let logs = logs_of(paths, &scenario.name);
    if logs.exists() {
        fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
    }
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    // Short, because a socket's path has at most 107 bytes.
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let log = fs::File::create(log_of(&logs))?;
    let mut command = unshare();
    command.arg(&paths.program);
    command.args(["guest-one", &scenario.name, "--directory"]).arg(directory.path());
    command.stdout(log.try_clone()?).stderr(log);
    let status = namespaces::run(&mut command, scenario.limit)?;
    anyhow::ensure!(status.success(), "{status}");
    Ok(())
}

fn log_of(logs: &Path) -> std::path::PathBuf {
    logs.join("scenario.log")
}

fn notes(log: &str) -> String {
    let notes = log.lines().filter_map(|line| line.strip_prefix(stage::NOTE));
    notes.map(|note| format!("{note}\n")).collect()
}

/// The last lines of logs.
fn ends(logs: &Path, names: &[&str], lines: usize) -> String {
    let mut shown = String::new();
    for name in names {
        let bytes = fs::read(logs.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        shown += &format!("the end of {name}:\n");
        shown.extend(tail(&text, lines).lines().map(|line| format!("| {line}\n")));
    }
    shown
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("    {line}\n")).collect()
}
