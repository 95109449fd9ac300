//! The `ringway` program: one command line, one module per command.
//!
//! `run` is the daemon ([`run`] and [`daemon`]); `stats` asks a running one over its control
//! socket; `demo` starts one together with two Linux guests. What was typed becomes a checked
//! configuration in [`config`] before anything is opened.
//!
//! Limits: how a command ends, and with which exit status, is in [`outcome`].
#![forbid(unsafe_code)]

mod args;
mod attach;
mod bench;
mod check_config;
mod config;
mod control;
mod daemon;
mod demo;
mod identity;
mod layout;
mod log_filter;
mod outcome;
mod places;
mod port_command;
mod qemu_version;
mod run;
mod stats;
mod stats_view;
mod units;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use args::{Arguments, Command};
use outcome::Errors;

fn main() -> ExitCode {
    let command = match Arguments::try_parse() {
        Ok(arguments) => arguments.command,
        Err(error) => return outcome::unparsed(&error),
    };
    let errors = Errors::of(command.is_json());
    let checked = match command {
        Command::Run(args) => args.config().and_then(|config| {
            start_log(log_filter::from_environment().map_err(|error| vec![error])?);
            Ok(run::run(config, args.over()))
        }),
        Command::CheckConfig(args) => check_config::check_config(&args),
        Command::Stats(args) => Ok(stats::stats(&args)),
        Command::Port(command) => port_command::port(&command),
        Command::Attach(args) => Ok(attach::attach(&args)),
        Command::Demo(args) => return demo::demo(&args),
        Command::Bench(args) => Ok(bench::bench(args)),
        Command::Keep(args) => Ok(demo::keep(&args)),
    };
    match checked {
        Ok(outcome) => errors.finish(outcome),
        Err(wrong) => errors.reject(&wrong),
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
