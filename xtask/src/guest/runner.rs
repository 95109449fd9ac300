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
use ringway_guests::{Stage, namespaces, net, stage};

use super::plan::{self, Scenario};
use crate::counts::Counts;
use crate::paths::Paths;

const TAIL_LINES: usize = 40;

/// Runs one scenario and says what became of it, in one piece: others may run beside it.
pub fn run(paths: &Paths, missing: Option<&str>, scenario: &Scenario) -> Counts {
    if let Some(reason) = missing {
        return Counts::skipped(&format!("guest::{}", scenario.name), reason);
    }
    let started = Instant::now();
    let result = run_in_namespaces(paths, scenario);
    let seconds = started.elapsed().as_secs_f64();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    let logs = logs_of(paths, &scenario.name);
    let details = match &result {
        Ok(()) => notes(&logs),
        Err(error) => failure(&logs, error),
    };
    print!("test guest::{} ... {verdict} ({seconds:.1} s)\n{details}", scenario.name);
    // A line that appears late is no reason to fail.
    let _ = std::io::stdout().flush();
    Counts::one(result.is_ok())
}

/// Carries out one scenario in this process, which is alone in its namespaces.
pub fn run_here(paths: &Paths, name: &str, directory: &Path) -> ExitCode {
    let Some(scenario) = plan::scenarios().into_iter().find(|scenario| scenario.name == name)
    else {
        eprintln!("{name}: no such scenario");
        return ExitCode::FAILURE;
    };
    stage::end_with_parent(directory);
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

fn notes(logs: &Path) -> String {
    let text = fs::read_to_string(log_of(logs)).unwrap_or_default();
    let notes = text.lines().filter_map(|line| line.strip_prefix(stage::NOTE));
    notes.map(|note| format!("    {note}\n")).collect()
}

fn failure(logs: &Path, error: &anyhow::Error) -> String {
    let mut shown = format!("    {error:#}; all logs: {}\n", logs.display());
    for name in ["ringway.statistics", "scenario.log", "ringway.log"] {
        let bytes = fs::read(logs.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        shown += &format!("    the end of {name}:\n");
        shown.extend(tail(&text, TAIL_LINES).lines().map(|line| format!("    | {line}\n")));
    }
    shown
}
