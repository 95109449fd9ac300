//! The `ringway` program: one command line, one module per command.
//!
//! `run` is the daemon ([`run`] and [`daemon`]); `stats` asks a running one over its control
//! socket; `demo` starts one together with two Linux guests. What was typed becomes a checked
//! configuration in [`config`] before anything is opened.
//!
//! Limits: the exit status is 0 for success, 1 for a failure, 2 for a command line that is wrong,
//! 130 after Ctrl-C.
#![forbid(unsafe_code)]

mod args;
mod attach;
mod bench;
mod check_config;
mod config;
mod control;
mod daemon;
mod demo;
mod log_filter;
mod port_command;
mod run;
mod stats;
mod stats_view;
mod units;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Arguments, Command};
use config::SpecError;

/// The exit status for a command line that is wrong.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(args) => match args.config() {
            Ok(config) => match log_filter::from_environment() {
                Ok(filter) => {
                    start_log(filter);
                    finish(run::run(config, args.over()))
                }
                Err(error) => reject(&[error]),
            },
            Err(errors) => reject(&errors),
        },
        Command::CheckConfig(args) => match check_config::check_config(&args) {
            Ok(outcome) => finish(outcome),
            Err(errors) => reject(&errors),
        },
        Command::Stats(args) => finish(stats::stats(&args)),
        Command::Port(command) => match port_command::port(&command) {
            Ok(outcome) => finish(outcome),
            Err(errors) => reject(&errors),
        },
        Command::Attach(args) => finish(attach::attach(&args)),
        Command::Demo(args) => demo::demo(&args),
        Command::Bench(args) => finish(bench::bench(args)),
        Command::Keep(args) => finish(demo::keep(&args)),
    }
}

/// One line for each mistake.
fn reject(errors: &[SpecError]) -> ExitCode {
    errors.iter().for_each(|error| eprintln!("{error}"));
    ExitCode::from(EXIT_USAGE)
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

/// Logs go to standard error.
fn start_log(filter: EnvFilter) {
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(log_filter::is_coloured())
        .with_target(false)
        .init();
}
