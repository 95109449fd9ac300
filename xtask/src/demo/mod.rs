//! `./x demo`: two Linux guests on a switch of their own, measured, and everything removed.
//!
//! How: this program starts itself once more, and that one starts ringway and boots two guests of
//! User Mode Linux, whose root file system is this machine's, read-only. Its standard input is a
//! pipe of the first one. When that is gone, for whatever reason, the second one ends what it has
//! started, and removes its directory.
//!
//! Limits: needs no root and no KVM; all of it ends within [`LIMIT`].

mod report;

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use ringway_guests::parent::end_with_parent;
use ringway_guests::process::LOOK_EVERY;
use ringway_guests::{Console, Ringway, Side, Stage, shell, traffic, uml};

use crate::paths::Paths;
use crate::{check, guest, setup};
use report::{DemoFigures, DemoReport, RoundTrip};

/// Longest time from the first process to the table.
const LIMIT: Duration = Duration::from_secs(55);

/// The guests, and their addresses.
const GUESTS: [(&str, &str); 2] = [("a", "10.0.0.1"), ("b", "10.0.0.2")];

/// Echo requests measured.
const ROUND_TRIPS: u32 = 200;

/// Length of each measurement of throughput.
const SECONDS: u32 = 4;

#[derive(Debug, Args)]
pub struct DemoOptions {
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Install nothing and build nothing (internal)
    #[arg(long, hide = true)]
    built: bool,
}

/// The second program: what it does, and where it keeps its sockets and scripts.
#[derive(Debug, Args)]
pub struct Performance {
    #[arg(long)]
    json: bool,
    #[arg(long)]
    directory: PathBuf,
}

/// Sets up, builds, and lets the second program perform.
///
/// # Errors
/// It fails, which it has said, or takes too long.
pub fn command(paths: &Paths, options: &DemoOptions) -> anyhow::Result<()> {
    if !options.built {
        // Where there is no apt, everything may be there all the same.
        if let Err(error) = setup::prepare(paths, setup::For::Demo) {
            println!("{error:#}");
        }
        if let Some(missing) = uml::missing(&guest::programs(paths).uml) {
            bail!("{missing}, which the guests need");
        }
        check::build_ringway(paths)?;
    }
    let directory = tempfile::Builder::new().prefix("rw-demo-").tempdir()?;
    let mut command = shell::command(&[&paths.program]);
    command.arg("demo-performance").arg("--directory").arg(directory.path());
    command.args(options.json.then_some("--json"));
    // Ctrl-C is for this program alone: the other one cleans up.
    let mut performance = command.process_group(0).stdin(Stdio::piped()).spawn()?;
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = performance.try_wait()? {
            ensure!(status.success(), "the demonstration has failed");
            return Ok(());
        }
        if Instant::now() > deadline {
            drop(performance.stdin.take());
            performance.wait()?;
            bail!("the demonstration was ended: it took longer than {LIMIT:?}");
        }
        thread::sleep(LOOK_EVERY);
    }
}

/// The second program.
pub fn perform(paths: &Paths, performance: &Performance) -> ExitCode {
    end_with_parent(&performance.directory);
    match try_perform(paths, &performance.directory) {
        Ok(report) => {
            print!("{}", if performance.json { report.json() } else { report.text() });
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:#}\nall logs: {}", logs(paths).display());
            ExitCode::FAILURE
        }
    }
}

fn try_perform(paths: &Paths, directory: &Path) -> anyhow::Result<DemoReport> {
    let started = Instant::now();
    let stage = stage(paths, directory)?;
    let step = |text: &str| eprintln!("[{:4.1} s] {text}", started.elapsed().as_secs_f64());
    step("starting ringway");
    let ports = GUESTS.map(|(name, _)| format!("{name}=vm:{}", stage.socket(name).display()));
    let ringway = Ringway::start(&stage, &ports)?;
    let figures = measure(&stage, &ringway, step)?;
    ringway.finish()?;
    Ok(DemoReport { elapsed: started.elapsed(), program: paths.ringway(), figures })
}

/// Boots both guests and lets them measure.
fn measure(stage: &Stage, ringway: &Ringway, step: impl Fn(&str)) -> anyhow::Result<DemoFigures> {
    step("booting two Linux guests");
    let [mut a, mut b] = boot(stage)?;
    let version = uml::must(&mut a, "uname -r")?;
    uml::must(&mut a, "iperf3 --server --daemon")?;
    let [(_, to_a), _] = GUESTS;
    let mut b = Side::Guest(&mut b);
    step("measuring the round trip between them");
    let round_trip = round_trip(&mut b, to_a)?;
    step("measuring throughput from b to a");
    let b_to_a = traffic::tcp(&mut b, to_a, SECONDS, "")?.bits_per_second;
    step("measuring throughput from a to b");
    let a_to_b = traffic::tcp(&mut b, to_a, SECONDS, "-R")?.bits_per_second;
    step("asking ringway what it did");
    Ok(DemoFigures {
        guests: format!("Linux {} (User Mode Linux)", version.trim()),
        bits_per_second: [a_to_b, b_to_a],
        round_trip,
        ports: ringway.stats()?.ports,
    })
}

fn stage(paths: &Paths, directory: &Path) -> anyhow::Result<Stage> {
    let logs = logs(paths);
    if logs.exists() {
        fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
    }
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    Ok(Stage::new(guest::programs(paths), logs, directory))
}

fn logs(paths: &Paths) -> PathBuf {
    paths.guest().join("logs/demo")
}

fn boot(stage: &Stage) -> anyhow::Result<[Console; 2]> {
    let start = |(name, _)| uml::start(stage, name, &stage.socket(name));
    let [a, b] = GUESTS.map(start);
    let mut guests = [a?, b?];
    for (guest, (_, address)) in guests.iter_mut().zip(GUESTS) {
        uml::wait_booted(guest, address)?;
    }
    Ok(guests)
}

fn round_trip(side: &mut Side<'_>, address: &str) -> anyhow::Result<RoundTrip> {
    // The addresses are resolved first.
    side.must(&format!("ping -q -c 1 -W 10 {address}"))?;
    let text = side.must(&format!("ping -q -c {ROUND_TRIPS} -i 0.005 {address}"))?;
    RoundTrip::from_ping(&text).with_context(|| format!("ping: {text}"))
}
