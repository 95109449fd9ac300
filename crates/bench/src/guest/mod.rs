//! `ringway bench guest`: real Linux guests on ringway, and on what they would use instead.
//!
//! How: all that is compared is booted at once ([`rig`]) in namespaces that exist only for this, and
//! measured in turns ([`figures`]): each once, then each again. What is not measured stands still.
//! Every number is a median; ratios are taken between neighbours in time. A guest has a processor
//! of its own, what runs beside it has another ([`sides`]).
//!
//! Limits: guests of one processor; needs namespaces and taps in them; what is missing is left out
//! and named.

mod figures;
mod pacing;
mod processor_time;
mod requests;
mod results;
mod rig;
mod sides;

use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_guests::{namespaces, net, qemu, stage, uml};

use crate::machine::{Machine, date};
use crate::programs;
use crate::progress::Progress;
use crate::report::Report;
use results::Results;
use rig::{Plan, Rig};

pub use pacing::measure_pacing;
pub use requests::per_second;

/// All of it ends within this, however long each number is measured.
const TOTAL_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Longest time for one number.
const SECONDS_MAX: u32 = 20;

/// Who talks with whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Linux under QEMU, and this machine.
    QemuHost,
    /// User Mode Linux, and this machine.
    UmlHost,
    /// Two User Mode Linux guests.
    UmlPair,
}

/// All of them, in the order in which they are measured.
pub const PAIRINGS: [Pairing; 3] = [Pairing::QemuHost, Pairing::UmlHost, Pairing::UmlPair];

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long each number is measured.
    pub seconds: u32,
    /// How often everything is measured.
    pub repeats: usize,
    /// Echo requests of one flood.
    pub pings: u32,
    /// Who talks with whom.
    pub pairings: Vec<Pairing>,
    /// The command line, for the report.
    pub command: String,
}

impl Pairing {
    fn name(self) -> &'static str {
        match self {
            Self::QemuHost => "Linux under QEMU ↔ this machine",
            Self::UmlHost => "User Mode Linux ↔ this machine",
            Self::UmlPair => "User Mode Linux ↔ User Mode Linux",
        }
    }

    fn why_not(self) -> Option<String> {
        match self {
            Self::QemuHost => qemu::missing(&programs::qemu(), &programs::kernel()),
            Self::UmlHost | Self::UmlPair => uml::missing(&programs::uml()),
        }
    }
}

/// Starts this program again with the same arguments and `flag`, in namespaces of its own, and
/// waits for it.
///
/// # Errors
/// There are no namespaces or no taps in them, or it takes too long.
pub fn in_namespaces(flag: &str) -> anyhow::Result<()> {
    let missing = namespaces::missing().or_else(namespaces::missing_taps);
    if let Some(why) = missing {
        bail!("{why}: run it as root, or let users create namespaces and open /dev/net/tun");
    }
    let mut command = namespaces::unshare();
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg(flag);
    let mut child = command.stdin(Stdio::piped()).spawn().context("unshare")?;
    match namespaces::wait(&mut child, TOTAL_LIMIT)? {
        Some(status) => ensure!(status.success(), "{}", ended(status)),
        None => bail!("killed: it took longer than {TOTAL_LIMIT:?}"),
    }
    Ok(())
}

fn ended(status: ExitStatus) -> String {
    match status.signal() {
        Some(signal) => format!("the measurement was ended by signal {signal}"),
        None => "the measurement failed: see above".to_string(),
    }
}

/// Measures. This process is the first of its namespaces.
///
/// # Errors
/// The options make no sense, or these are not namespaces of our own.
pub fn measure(options: &Options) -> anyhow::Result<Report> {
    check(options)?;
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    stage::end_with_parent(directory.path());
    net::prepare()?;
    let mut results = Results::new(machine_with_guests(), date()?);
    let mut plans = Vec::new();
    for &pairing in &options.pairings {
        match pairing.why_not() {
            Some(why) => results.leave_out(&format!("{}: {why}", pairing.name())),
            None => plans.extend(Plan::all(pairing)),
        }
    }
    let mut progress = Progress::start(plans.len() * options.repeats);
    for &pairing in &options.pairings {
        let plans: Vec<Plan> =
            plans.iter().copied().filter(|plan| plan.pairing == pairing).collect();
        let mut rigs = boot(&plans, directory.path(), &progress, &mut results);
        for repeat in 0..options.repeats {
            // Nobody is always the first.
            for at in 0..rigs.len() {
                let turn = (at + repeat) % rigs.len();
                let rig = &mut rigs[turn];
                progress.step(&format!("{}, {}", pairing.name(), rig.plan.name()));
                let found = figures::take(rig, options);
                let failures = found.failures.iter();
                failures.for_each(|why| progress.note(&format!("{}: {why}", rig.plan.name())));
                results.add(rig.plan, repeat, found);
            }
        }
    }
    progress.end();
    Ok(results.report(options))
}

/// This machine, with the versions of what makes guests.
fn machine_with_guests() -> Machine {
    let mut machine = Machine::look();
    machine.versions.extend(programs::versions(&["qemu-system-x86_64", "linux.uml", "iperf3"]));
    machine
}

/// Boots what can be booted.
fn boot(
    plans: &[Plan],
    directory: &std::path::Path,
    progress: &Progress,
    results: &mut Results,
) -> Vec<Rig> {
    let mut rigs = Vec::new();
    for &plan in plans {
        progress.note(&format!("booting: {}, {}", plan.pairing.name(), plan.name()));
        match Rig::boot(plan, directory) {
            Ok(rig) => {
                results.add_commands(rig.commands());
                rigs.push(rig);
            }
            Err(why) => {
                let why = format!("{}, {}: {why:#}", plan.pairing.name(), plan.name());
                progress.note(&why);
                results.leave_out(&why);
            }
        }
    }
    rigs
}

fn check(options: &Options) -> anyhow::Result<()> {
    ensure!(
        (1..=SECONDS_MAX).contains(&options.seconds),
        "{} s: 1 to {SECONDS_MAX} for each number",
        options.seconds
    );
    ensure!(options.repeats > 0 && !options.pairings.is_empty(), "nothing to measure");
    Ok(())
}
