//! The `ringway` program: one command line, one module per command.
//!
//! `run` is the daemon ([`run`] and [`daemon`]); `stats` asks a running one over its control
//! socket; `demo` starts one together with two Linux guests. What was typed becomes a checked
//! configuration in [`port_spec`] before anything is opened.
//!
//! Limits: the exit status is 0 for success, 1 for a failure, 2 for a command line that is wrong,
//! 130 after Ctrl-C.
#![forbid(unsafe_code)]

mod args;
mod control;
mod daemon;
mod demo;
mod port_spec;
mod port_values;
mod run;
mod spec_error;
mod stats;
mod stats_view;
mod units;

use std::io::IsTerminal;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Arguments, Command};
use port_spec::RunConfig;

/// Names what to log, as in `RINGWAY_LOG=debug`.
const LOG_VARIABLE: &str = "RINGWAY_LOG";

/// The exit status for a command line that is wrong.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(args) => match RunConfig::parse(&args.ports, args.control_or_default()) {
            Ok(config) => {
                start_log();
                finish(run::run(config))
            }
            Err(errors) => {
                errors.iter().for_each(|error| eprintln!("{error}"));
                ExitCode::from(EXIT_USAGE)
            }
        },
        Command::Stats(args) => finish(stats::stats(&args)),
        Command::Demo(args) => demo::demo(&args),
        Command::Keep(args) => finish(demo::keep(&args)),
    }
}

/// One line for people, and the exit status.
fn finish(outcome: anyhow::Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error; without the variable, everything from `info` on.
fn start_log() {
    let filter = EnvFilter::try_from_env(LOG_VARIABLE).unwrap_or_else(|_| EnvFilter::new("info"));
    let is_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal)
        .with_target(false)
        .init();
}
