//! `ringway demo`: two Linux guests on a switch of their own, measured, and everything removed.
//!
//! How: this program starts itself as the switch (`ringway run`), boots two User Mode Linux guests
//! whose root file system is this machine's, read-only, and reads from their consoles what `ping`
//! and `iperf3` found out. Where User Mode Linux is missing, two embedded guests take their place.
//!
//! Limits: everything together ends within [`TOTAL_LIMIT`], and nothing outlives it: see
//! [`keeper`] for the processes and [`directory`] for the files.

mod console;
mod directory;
mod embedded;
mod embedded_guest;
mod keeper;
mod measured;
mod patience;
mod progress;
mod report;
mod switch;
mod uml;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::args::DemoArgs;
use crate::outcome::{self, Errors};
use directory::DemoDirectory;
use measured::Measured;
use patience::{Interrupted, Patience};
use progress::Progress;
use report::Report;
use switch::Switch;

pub use keeper::keep;

/// The whole demonstration, from the first process to the table.
const TOTAL_LIMIT: Duration = Duration::from_secs(55);

/// The exit status after Ctrl-C, as shells have it.
const EXIT_INTERRUPTED: u8 = 130;

/// What the two kinds of guests need.
struct Stage<'a> {
    directory: &'a DemoDirectory,
    patience: &'a Patience,
    progress: &'a Progress,
}

/// Who takes part.
enum Guests {
    Uml(uml::Tools),
    /// With the reason why they are not Linux.
    Embedded(String),
}

/// Runs the demonstration and prints its result.
pub fn demo(args: &DemoArgs) -> ExitCode {
    let errors = Errors::of(args.json);
    match try_demo(args) {
        Err(error) if error.is::<Interrupted>() => {
            errors.write(&[error.to_string()]);
            ExitCode::from(EXIT_INTERRUPTED)
        }
        outcome => errors.finish(outcome),
    }
}

fn try_demo(args: &DemoArgs) -> anyhow::Result<()> {
    let started = Instant::now();
    let patience = Patience::new(TOTAL_LIMIT)?;
    directory::sweep();
    let guests = choose(args.embedded);
    let directory = DemoDirectory::create().context("a temporary directory")?;
    let progress = Progress::start();
    let outcome =
        perform(&Stage { directory: &directory, patience: &patience, progress: &progress }, guests);
    progress.end();
    if args.keep_logs {
        let kept = directory.keep_logs().context("keeping the logs")?;
        outcome::say(&format!("logs: {}", kept.display()));
    }
    let report = Report { elapsed_ms: elapsed_ms(started), ..outcome? };
    outcome::print(&if args.json { report.json()? } else { report.text() })
}

fn choose(embedded: bool) -> Guests {
    if embedded {
        return Guests::Embedded("asked for with --embedded".to_string());
    }
    match uml::Tools::find() {
        Ok(tools) => Guests::Uml(tools),
        Err(missing) => Guests::Embedded(missing.to_string()),
    }
}

/// The switch, the guests, and the statistics while both are still connected.
fn perform(stage: &Stage<'_>, guests: Guests) -> anyhow::Result<Report> {
    if let Guests::Embedded(why) = &guests {
        stage.progress.note(&format!("with two embedded guests instead of Linux: {why}"));
    }
    stage.progress.step("starting ringway");
    let switch = Switch::start(stage)?;
    let mut ports = None;
    let mut ask = || -> anyhow::Result<()> {
        stage.progress.step("asking ringway what it did");
        ports = Some(switch.stats()?.ports);
        Ok(())
    };
    let (note, measured): (Option<String>, Measured) = match guests {
        Guests::Uml(tools) => (None, uml::measure(stage, &tools, &mut ask)?),
        Guests::Embedded(why) => (Some(why), embedded::measure(stage, &mut ask)?),
    };
    let ports = ports.context("the statistics were not asked for")?;
    Ok(Report { note, measured, ports, elapsed_ms: 0, attach: report::attach() })
}

fn elapsed_ms(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}
