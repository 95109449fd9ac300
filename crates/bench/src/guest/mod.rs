//! `ringway bench guest`: real Linux guests on ringway, and on what they would use instead.
//!
//! How: all that is compared is booted at once ([`rig`]) in namespaces that exist only for this,
//! and measured in turns ([`figures`]). What is not measured stands still.
//!
//! Limits: guests of one processor; needs namespaces and taps in them; what is missing is left out
//! and named.

mod figures;
mod history;
mod nat;
mod pacing;
mod pairing;
mod processor_time;
mod rig;
mod sides;
mod slices;
mod turns;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use ringway_guests::{namespaces, net, parent};
use tempfile::TempDir;

use crate::programs;
use crate::progress::Progress;
use crate::report::{Grid, Report};
use figures::{COSTS, RATES};
use rig::{Rig, RigPlan};
use turns::Turns;

pub use history::measure_history;
pub use nat::{ClientArgs, measure_nat};
pub use pacing::measure_pacing;
pub use pairing::{GuestOptions, Pairing};

/// As iperf3 takes its seconds.
const WHOLE: Duration = Duration::from_secs(1);

/// All of it ends within this, however long each number is measured.
const TOTAL_LIMIT: Duration = Duration::from_secs(2 * 3600);

/// Why there are no namespaces with taps here, if so.
pub fn why_no_namespaces() -> Option<String> {
    namespaces::missing().or_else(namespaces::missing_taps)
}

/// Starts this program again with the same arguments and `flag`, in namespaces of its own, and
/// waits for it.
pub fn in_namespaces(flag: &str) -> anyhow::Result<()> {
    if let Some(why) = why_no_namespaces() {
        bail!("{why}: run it as root, or let users create namespaces and open /dev/net/tun");
    }
    let mut command = namespaces::unshare();
    command.arg(std::env::current_exe()?).args(std::env::args_os().skip(1)).arg(flag);
    let status = namespaces::run(&mut command, TOTAL_LIMIT)?;
    if let Some(signal) = status.signal() {
        bail!("the measurement was ended by signal {signal}");
    }
    ensure!(status.success(), "the measurement failed: see above");
    Ok(())
}

/// Prepares the network of this process, the first of its namespaces; a directory that goes with
/// it.
pub fn settle() -> anyhow::Result<TempDir> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    parent::end_with_parent(directory.path());
    net::prepare()?;
    Ok(directory)
}

/// A report, and a directory. This process is the first of its namespaces.
fn begin(
    kind: &str,
    options: &GuestOptions,
    method: &[String],
) -> anyhow::Result<(Report, TempDir)> {
    options.check(if kind == pacing::KIND { slices::SLICE } else { WHOLE })?;
    let directory = settle()?;
    let mut report = Report::begin(kind, method)?;
    report.machine.versions.extend(programs::versions(&programs::OF_GUESTS));
    Ok((report, directory))
}

pub fn measure(options: &GuestOptions) -> anyhow::Result<Report> {
    let (mut report, directory) = begin("guest", options, &method(options))?;
    let plans = options.pairs.iter().map(|&pairing| RigPlan::all(pairing).len());
    let mut progress = Progress::start(plans.sum::<usize>() * options.amount.repeats);
    for &pairing in &options.pairs {
        match pairing.why_not() {
            Some(why) => report.leave_out(&format!("{}: {why}", pairing.name())),
            None => measure_one(pairing, options, directory.path(), &mut report, &mut progress),
        }
    }
    progress.end();
    Ok(report)
}

fn measure_one(
    pairing: Pairing,
    options: &GuestOptions,
    directory: &Path,
    report: &mut Report,
    progress: &mut Progress,
) {
    let name = pairing.name();
    let rates = Grid::new(name, &["through"], &RATES).plotted("Gb/s", &[0, 1, 2, 3]);
    let costs = Grid::new(format!("{name}: processor time"), &["through"], &COSTS);
    let mut turns = Turns { name, options, report, progress };
    let plans = RigPlan::all(pairing).into_iter().map(|plan| (plan.name(), plan));
    let rigs = turns.boot(plans, |plan| Rig::boot(plan, directory));
    turns.compare(rigs, [rates, costs], &[0, 1, 2, 3, 4, 6, 9]);
}

fn method(options: &GuestOptions) -> [String; 4] {
    [
        format!("{} A flood has {} pings.", options.amount.rounds(), options.pings()),
        sides::METHOD.into(),
        "Out is from the guest, in is to it. TCP and UDP: iperf3, with default settings; UDP is \
         sent as fast as the sender can, and counted where the guest's program gets it. Pings \
         after a silence find all asleep: they show what the first packet takes."
            .into(),
        "Processor time: of the guest (all processes of QEMU or User Mode Linux) and of what runs \
         beside it, per GiB of TCP payload, in seconds. What a tap costs the kernel counts where \
         the kernel counts it."
            .into(),
    ]
}
