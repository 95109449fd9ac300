//! The program `ringway-bench`, which `ringway bench` becomes: ringway beside its peers, and beside
//! the limit of the machine.
//!
//! How: what was typed becomes options. Each kind of measurement ([`ring`], [`guest`], [`history`],
//! [`rxbuf`], [`scale`], [`switch`]) fills a [`report::Report`], a plain value, which is then shown
//! as a table, as Markdown, as JSON or as a page with plots. Everything compared is measured in the
//! same run, one after the other and again from the start, so that what changes on the machine
//! meanwhile changes all of it.
//!
//! Limits: Linux, x86-64; a peer that is not installed is left out, and the report says so.
#![forbid(unsafe_code)]

mod backend;
mod guest;
mod history;
mod instructions;
mod machine;
mod options;
mod programs;
mod progress;
mod report;
mod ring;
mod rxbuf;
mod scale;
mod spread;
mod switch;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, Args, Parser, Subcommand};
use ringway_virtq::Format;
use serde_json::json;

use guest::Pairing;
use instructions::command::InstructionsArgs;
use options::{Options, format};
use report::{Report, html, text};

/// Echo requests in a flood, and in one of `--quick`.
const PINGS: u32 = 10_000;
const QUICK_PINGS: u32 = 2000;

/// Rounds of the history with real guests, and with `--quick`.
const ROUNDS: usize = 10;
const QUICK_ROUNDS: usize = 3;

/// Says that the namespaces are there.
const HERE: &str = "--here";

/// Measure ringway beside its peers and beside the limit of this machine.
///
/// The environment variable RINGWAY_BIN names the program `ringway` to measure, if it is not the
/// one beside this program.
#[derive(Debug, Parser)]
#[command(name = "ringway-bench", bin_name = "ringway bench", version)]
#[command(arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Drivers and devices on one ring, ringway's and DPDK's, beside the limit of the machine
    #[command(mut_args(|arg| RING.defaults(arg)))]
    Ring(RingArgs),
    /// Linux guests on ringway, and on what they would use instead: taps, a bridge, DPDK
    #[command(mut_args(|arg| GUEST.defaults(arg)))]
    Guest(GuestArgs),
    /// What made virtio-net fast, from 2008 on: each technique switched on in turn
    #[command(mut_args(|arg| HISTORY.defaults(arg)))]
    History(HistoryArgs),
    /// Policies of notification (`notify=`) in turns: TCP, pings, and pings beside TCP
    // Policies are compared at a tap, and there is none between two guests.
    #[command(mut_args(|arg| PACING.defaults(arg)))]
    #[command(mut_arg("pairs", |arg| arg.default_value("uml,qemu")))]
    Pacing(GuestArgs),
    /// Routers for guests that need no root: ringway's, passt, QEMU's own, gvproxy; beside a tap
    #[command(mut_args(|arg| NAT.defaults(arg)))]
    #[command(mut_arg("pairs", |arg| arg.default_value("qemu,uml")))]
    Nat(GuestArgs),
    /// Ask through a router, in a guest (internal)
    #[command(hide = true)]
    NatClient(guest::ClientArgs),
    /// Kinds of traffic × schemes of receive buffers, into a receiver with a limit on memory
    #[command(mut_args(|arg| RXBUF.defaults(arg)))]
    Rxbuf(AmountArgs),
    /// 2 to 64 ports, 1 to 8 queue pairs: what a packet, a port and being idle cost
    #[command(mut_args(|arg| SCALE.defaults(arg)))]
    Scale(ScaleArgs),
    /// What a packet from guest to guest costs a worker, beside one copy of it
    #[command(mut_args(|arg| SWITCH.defaults(arg)))]
    Switch(AmountArgs),
    /// Instructions per packet, counted by valgrind: does not depend on what else the machine does
    Instructions(InstructionsArgs),
}

/// How much is measured, and how it is shown; the defaults are those of a [`Usual`].
#[derive(Debug, Clone, Args)]
struct AmountArgs {
    /// How long each number is measured
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// A first impression
    #[arg(long, conflicts_with_all = ["seconds", "repeats"])]
    quick: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Measure here and now, without namespaces around it (internal)
    #[arg(long, hide = true)]
    here: bool,
}

/// How much a command measures if nothing is said: seconds and rounds, as they would be typed; and
/// the seconds of `--quick`, which measures once.
struct Usual(&'static str, &'static str, f64);

const RING: Usual = Usual("1", "5", 0.2);
const GUEST: Usual = Usual("2", "5", 1.0);
const PACING: Usual = Usual("1", "5", 1.0);
const NAT: Usual = Usual("2", "5", 1.0);
const HISTORY: Usual = Usual("0.3", "5", 0.1);
const SCALE: Usual = Usual("1", "3", 0.2);
const SWITCH: Usual = Usual("0.4", "5", 0.1);
const RXBUF: Usual = Usual("0.5", "5", 0.05);

/// `ringway bench guest`, `ringway bench pacing` and `ringway bench nat`
#[derive(Debug, Args)]
struct GuestArgs {
    #[command(flatten)]
    amount: AmountArgs,
    /// Who talks with whom
    #[arg(long, value_delimiter = ',', value_name = "WHO", default_value = "qemu,uml,uml-pair")]
    pairs: Vec<Pairing>,
}

/// `ringway bench history`
#[derive(Debug, Args)]
struct HistoryArgs {
    #[command(flatten)]
    amount: AmountArgs,
    /// With real Linux guests on a tap, at least 1 s for each number: 10 rounds, 3 with --quick
    #[arg(long, value_name = "WHO")]
    guest: Option<Pairing>,
    /// Only rows whose names contain one of these words
    #[arg(long, value_delimiter = ',', value_name = "WORDS", requires = "guest")]
    rows: Vec<String>,
}

/// `ringway bench scale`
#[derive(Debug, Args)]
struct ScaleArgs {
    #[command(flatten)]
    amount: AmountArgs,
    /// So many workers instead: what one more brings, and a prediction for 16
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    workers: Vec<usize>,
}

/// `ringway bench ring`
#[derive(Debug, Args)]
struct RingArgs {
    #[command(flatten)]
    amount: AmountArgs,
    /// Packet lengths in bytes, 64 to 65536; with --quick 64 and 1518
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_values_t = ring::PACKET_LENS)]
    sizes: Vec<usize>,
    /// Ring formats
    #[arg(long, value_delimiter = ',', value_name = "FORMAT", default_value = "split,packed")]
    #[arg(value_parser = format)]
    formats: Vec<Format>,
    /// Entries of each queue; without, 1024 for long packets that fit the shared cache, else 256
    #[arg(long, value_name = "ENTRIES")]
    queue_size: Option<u16>,
}

fn main() -> ExitCode {
    let is_json = std::env::args_os().any(|word| word == "--json");
    match Arguments::try_parse() {
        Err(error) if is_json && error.use_stderr() => {
            let text = error.to_string();
            fail(true, text.lines().next().unwrap_or_default().trim_start_matches("error: "), 2)
        }
        Err(error) => error.exit(),
        Ok(arguments) => match measure(arguments.what) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(is_json, &format!("{error:#}"), 1),
        },
    }
}

/// Errors are text on standard error, or with `--json` one line of JSON, as `ringway` has them.
fn fail(is_json: bool, error: &str, status: u8) -> ExitCode {
    let json = || json!({ "version": 1, "ok": false, "error": error, "errors": [error] });
    eprintln!("{}", if is_json { json().to_string() } else { error.to_string() });
    ExitCode::from(status)
}

/// Measures and shows.
fn measure(what: What) -> anyhow::Result<()> {
    match what {
        What::Ring(args) => args.amount.show(&ring::measure(&args.options()?)?),
        What::Guest(args) | What::Pacing(args) | What::Nat(args) if !args.amount.here => {
            guest::in_namespaces(HERE)
        }
        What::Guest(args) => args.amount.show(&guest::measure(&args.options(&GUEST)?)?),
        What::Pacing(args) => args.amount.show(&guest::measure_pacing(&args.options(&PACING)?)?),
        What::Nat(args) => args.amount.show(&guest::measure_nat(&args.options(&NAT)?)?),
        What::NatClient(args) => args.run(),
        What::History(args) => args.measure(),
        What::Scale(ScaleArgs { amount, workers }) => {
            let options = amount.options(&SCALE)?;
            amount.show(&match workers[..] {
                [] => scale::measure(&options)?,
                _ => scale::workers::measure(&options, &workers)?,
            })
        }
        What::Switch(amount) => measure_switch(&amount),
        What::Rxbuf(amount) => amount.show(&rxbuf::measure(&amount.options(&RXBUF)?)?),
        What::Instructions(args) => args.count(),
    }
}

impl Usual {
    /// Gives its numbers to the arguments of a command.
    fn defaults(&self, arg: Arg) -> Arg {
        match arg.get_id().as_str() {
            "seconds" => arg.default_value(self.0),
            "repeats" => arg.default_value(self.1),
            "quick" => arg.help(format!("A first impression: {} s, once", self.2)),
            _ => arg,
        }
    }
}

impl AmountArgs {
    fn options(&self, usual: &Usual) -> anyhow::Result<Options> {
        let (seconds, repeats) =
            if self.quick { (usual.2, 1) } else { (self.seconds, self.repeats) };
        let duration = Duration::try_from_secs_f64(seconds).context("--seconds")?;
        Ok(Options { duration, repeats, command: typed() })
    }

    fn show(&self, report: &Report) -> anyhow::Result<()> {
        if let Some(file) = &self.html {
            let page = html::render(report);
            std::fs::write(file, page).with_context(|| file.display().to_string())?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(report)?);
        } else if self.markdown {
            print!("{}", text::markdown(report));
        } else {
            print!("{}", text::terminal(report));
        }
        Ok(())
    }
}

impl GuestArgs {
    fn options(&self, usual: &Usual) -> anyhow::Result<guest::Options> {
        let amount = self.amount.options(usual)?;
        let pings = if self.amount.quick { QUICK_PINGS } else { PINGS };
        Ok(guest::Options { amount, pings, pairings: self.pairs.clone() })
    }
}

/// In namespaces, for taps; where there are none, without what needs them.
fn measure_switch(amount: &AmountArgs) -> anyhow::Result<()> {
    if !amount.here && guest::why_no_namespaces().is_none() {
        return guest::in_namespaces(HERE);
    }
    let _directory = amount.here.then(guest::settle).transpose()?;
    amount.show(&switch::measure(&amount.options(&SWITCH)?, amount.here)?)
}

impl HistoryArgs {
    fn measure(&self) -> anyhow::Result<()> {
        let Some(pairing) = self.guest else {
            return self.amount.show(&history::measure(&self.amount.options(&HISTORY)?)?);
        };
        if !self.amount.here {
            return guest::in_namespaces(HERE);
        }
        let args = GuestArgs { amount: self.amount.clone(), pairs: vec![pairing] };
        let mut options = args.options(&HISTORY)?;
        options.amount.duration = options.amount.duration.max(Duration::from_secs(1));
        if self.amount.quick {
            options.amount.repeats = QUICK_ROUNDS;
        } else if !typed().contains("--repeats") {
            options.amount.repeats = ROUNDS;
        }
        self.amount.show(&guest::measure_history(&options, &self.rows)?)
    }
}

impl RingArgs {
    fn options(&self) -> anyhow::Result<ring::Options> {
        let is_quick = self.amount.quick;
        Ok(ring::Options {
            amount: self.amount.options(&RING)?,
            packet_lens: if is_quick { vec![64, 1518] } else { self.sizes.clone() },
            formats: self.formats.clone(),
            queue_size: self.queue_size,
        })
    }
}

/// The command line, as it would be typed to measure the same again.
fn typed() -> String {
    let words = std::env::args().skip(1);
    let shown = ["--json", "--markdown", HERE];
    let words = words.filter(|word| !shown.contains(&word.as_str()));
    std::iter::once("ringway bench".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
