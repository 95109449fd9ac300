//! The program `ringway-bench`, which `ringway bench` becomes: ringway beside its peers, and beside
//! the limit of the machine.
//!
//! How: each kind of measurement fills a [`report::Report`], a plain value, which is then shown as
//! a table, as Markdown, as JSON or as a page with plots. Everything compared is measured in the
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

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Arg, Args, Parser, Subcommand};
use serde_json::json;

use guest::Pairing;
use instructions::command::InstructionsArgs;
use options::{HERE, Options, typed};
use report::{Report, html, text};

/// Rounds of the history with real guests, and with `--quick`.
const ROUNDS: usize = 10;
const QUICK_ROUNDS: usize = 3;

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
    Ring(ring::RingOptions),
    /// Linux guests on ringway, and on what they would use instead: taps, a bridge, DPDK
    #[command(mut_args(|arg| GUEST.defaults(arg)))]
    Guest(guest::GuestOptions),
    /// Techniques that made virtio-net fast, from 2008 on: each switched on in turn in real guests
    /// (--guest), or what no guest of today lets one switch
    #[command(mut_args(|arg| HISTORY.defaults(arg)))]
    History(HistoryArgs),
    /// Policies of notification (`notify=`) in turns: TCP, pings, and pings beside TCP
    // Policies are compared at a tap, and there is none between two guests.
    #[command(mut_args(|arg| PACING.defaults(arg)))]
    #[command(mut_arg("pairs", |arg| arg.default_value("uml,qemu")))]
    Pacing(guest::GuestOptions),
    /// Routers for guests that need no root: ringway's, passt, QEMU's own, gvproxy; beside a tap
    #[command(mut_args(|arg| NAT.defaults(arg)))]
    #[command(mut_arg("pairs", |arg| arg.default_value("qemu,uml")))]
    Nat(guest::GuestOptions),
    /// Ask through a router, in a guest (internal)
    #[command(hide = true)]
    NatClient(guest::ClientArgs),
    /// Kinds of traffic × schemes of receive buffers, into a receiver with a limit on memory
    #[command(mut_args(|arg| RXBUF.defaults(arg)))]
    Rxbuf(Options),
    /// 2 to 64 ports, 1 to 8 queue pairs: what a packet, a port and being idle cost
    #[command(mut_args(|arg| SCALE.defaults(arg)))]
    Scale(ScaleArgs),
    /// The cost of a packet from guest to guest to a worker, beside one copy of it
    #[command(mut_args(|arg| SWITCH.defaults(arg)))]
    Switch(Options),
    /// Instructions per packet, counted by valgrind: does not depend on what else the machine does
    Instructions(InstructionsArgs),
}

/// How much a command measures if nothing is said: seconds and rounds, as they would be typed; and
/// the seconds of `--quick`, which measures once.
struct Usual(&'static str, &'static str, &'static str);

const RING: Usual = Usual("1", "5", "0.2");
const GUEST: Usual = Usual("2", "5", "1");
const PACING: Usual = Usual("1", "5", "1");
const NAT: Usual = Usual("2", "5", "1");
const HISTORY: Usual = Usual("0.3", "5", "0.1");
const SCALE: Usual = Usual("1", "3", "0.2");
const SWITCH: Usual = Usual("0.4", "5", "0.1");
const RXBUF: Usual = Usual("0.5", "5", "0.05");

#[derive(Debug, Args)]
struct HistoryArgs {
    #[command(flatten)]
    amount: Options,
    /// Row by row with real Linux guests on a tap, at least 1 s for each number: 10 rounds, 3 with
    /// --quick; without, with ringway's own driver
    #[arg(long, value_name = "WHO")]
    guest: Option<Pairing>,
    /// Only rows whose names contain one of these words
    #[arg(long, value_delimiter = ',', value_name = "WORDS", requires = "guest")]
    rows: Vec<String>,
}

#[derive(Debug, Args)]
struct ScaleArgs {
    #[command(flatten)]
    amount: Options,
    /// Numbers of workers instead: what one more brings, and a prediction for 16
    #[arg(long, value_delimiter = ',', value_name = "COUNT")]
    workers: Vec<usize>,
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

fn measure(what: What) -> anyhow::Result<()> {
    match what {
        What::Ring(options) => show(&options.amount, &ring::measure(&options)?),
        What::Guest(options) | What::Pacing(options) | What::Nat(options)
            if !options.amount.here =>
        {
            guest::in_namespaces(HERE)
        }
        What::Guest(options) => show(&options.amount, &guest::measure(&options)?),
        What::Pacing(options) => show(&options.amount, &guest::measure_pacing(&options)?),
        What::Nat(options) => show(&options.amount, &guest::measure_nat(&options)?),
        What::NatClient(args) => args.run(),
        What::History(args) => args.measure(),
        What::Scale(ScaleArgs { amount, workers }) if workers.is_empty() => {
            show(&amount, &scale::measure(&amount)?)
        }
        What::Scale(ScaleArgs { amount, workers }) => {
            show(&amount, &scale::workers::measure(&amount, &workers)?)
        }
        What::Switch(options) => measure_switch(&options),
        What::Rxbuf(options) => show(&options, &rxbuf::measure(&options)?),
        What::Instructions(args) => args.count(),
    }
}

impl Usual {
    fn defaults(&self, arg: Arg) -> Arg {
        let Self(seconds, repeats, quick) = *self;
        match arg.get_id().as_str() {
            "duration" => arg.default_value(seconds).default_value_if("quick", "true", quick),
            "repeats" => arg.default_value(repeats).default_value_if("quick", "true", "1"),
            "quick" => arg.help(format!("A first impression: {quick} s, once")),
            _ => arg,
        }
    }
}

fn show(options: &Options, report: &Report) -> anyhow::Result<()> {
    if let Some(file) = &options.html {
        let page = html::render(report);
        std::fs::write(file, page).with_context(|| file.display().to_string())?;
    }
    if options.json {
        println!("{}", serde_json::to_string_pretty(report)?);
    } else if options.markdown {
        print!("{}", text::markdown(report));
    } else {
        print!("{}", text::terminal(report));
    }
    Ok(())
}

/// In namespaces, for taps; where there are none, without what needs them.
fn measure_switch(options: &Options) -> anyhow::Result<()> {
    if !options.here && guest::why_no_namespaces().is_none() {
        return guest::in_namespaces(HERE);
    }
    let _directory = options.here.then(guest::settle).transpose()?;
    show(options, &switch::measure(options, options.here)?)
}

impl HistoryArgs {
    fn measure(&self) -> anyhow::Result<()> {
        let mut amount = self.amount.clone();
        let Some(pairing) = self.guest else {
            return show(&amount, &history::measure(&amount)?);
        };
        if !amount.here {
            return guest::in_namespaces(HERE);
        }
        amount.duration = amount.duration.max(Duration::from_secs(1));
        if amount.quick {
            amount.repeats = QUICK_ROUNDS;
        } else if !typed().contains("--repeats") {
            amount.repeats = ROUNDS;
        }
        let options = guest::GuestOptions { amount, pairs: vec![pairing] };
        show(&options.amount, &guest::measure_history(&options, &self.rows)?)
    }
}
