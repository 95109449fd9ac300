//! The `ringway` program: one command line, one module per command.
//!
//! `run` is the [`supervisor`], which starts the [`data_plane`]; `stats` asks a running one over
//! its control socket. What was typed becomes a checked configuration in [`config`] before anything
//! is opened.
//!
//! Limits: how a command ends, and with which exit status, is in [`outcome`].
#![forbid(unsafe_code)]

mod args;
mod attach;
mod attach_host;
mod back_end;
mod bench;
mod bridge_fdb;
mod bridge_rights;
mod capture;
mod change_command;
mod channel;
mod chatter;
mod check_config;
mod closing;
mod data_plane;
mod doctor;
mod fdb;
mod flows;
mod forward_command;
mod front_end;
mod generated;
mod guests_needs;
mod host_routes;
mod identity;
mod layout;
mod log;
mod log_filter;
mod log_format;
mod metrics;
mod outcome;
mod place_users;
mod port_command;
mod process_names;
mod qemu_version;
mod resolvers;
mod router_view;
mod run_help;
mod sandbox;
mod sflow;
mod signals;
mod socket_reach;
mod spec_text;
mod stats;
mod stats_view;
mod supervisor;
mod top;
mod trace;
mod upgrade;
mod wake_token;
mod why;

use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;

use ringway_control::{config, places, protocol as control, units};

use args::{Arguments, Command, DataPlaneArgs};
use config::{LowOption, PortKind, RunConfig};
use log::{Log, Logging};
use outcome::Errors;
use sandbox::Sandbox;

/// How long the end of the daemon waits for lines that nothing reads.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The text of `ringway demo`.
const DEMO: &str = "\
The demonstration is in ringway's source tree: two Linux guests talk through it, without root and
without KVM, in under a minute. Run there:

  ./x demo
";

fn main() -> ExitCode {
    let words = spelled_out(back_end::words());
    if back_end::is_asked(&words) {
        return Errors::Text.finish(outcome::print(&format!("{}\n", back_end::CAPABILITIES)));
    }
    let command = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments.command,
        Err(error) => return outcome::unparsed(&error),
    };
    let errors = Errors::of(command.is_json());
    let checked = match command {
        Command::Run(args) => {
            let how = &args.foreground;
            let config = args.config().map(|config| how.with_need(config));
            return match config.and_then(|config| Ok((config, how.logging()?))) {
                Ok(((config, all), what)) => run_daemon(config, all, args.over(), what, None),
                Err(wrong) => errors.reject(&wrong),
            };
        }
        Command::VhostUserNet(args) => {
            let logging = Logging::from_environment;
            return match back_end::back_end(&args).and_then(|it| Ok((it, logging()?))) {
                Ok((it, what)) => run_daemon(it.config, false, it.over, what, it.socket),
                Err(wrong) => errors.reject(&wrong),
            };
        }
        Command::CheckConfig(args) => check_config::check_config(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Stats(args) => Ok(stats::stats(&args)),
        Command::Forward(command) => forward_command::forward(&command),
        Command::Top(args) => Ok(top::top(&args)),
        Command::Metrics(args) => Ok(metrics::metrics(&args)),
        Command::Sflow(args) => Ok(sflow::sflow(&args)),
        Command::Port(command) => port_command::port(&command),
        Command::Attach(args) => Ok(attach::attach(&args)),
        Command::AttachHost(command) => Ok(attach_host::attach_host(&command)),
        Command::Capture(args) => capture::capture(&args),
        Command::Why(args) => why::why(&args),
        Command::Trace(args) => trace::trace(&args),
        Command::Reload(args) => Ok(change_command::reload(&args)),
        Command::Stop(args) => Ok(change_command::stop(&args)),
        Command::Log(args) => Ok(change_command::log(&args)),
        Command::Fdb(args) => Ok(fdb::fdb(&args)),
        Command::Flows(args) => Ok(flows::flows(&args)),
        Command::Upgrade(args) => Ok(upgrade::upgrade(&args)),
        Command::TakeOver { record: None } => Ok(check_record()),
        Command::TakeOver { record: Some(record) } => {
            return match Logging::from_environment() {
                Ok(logging) => take_over(record, logging),
                Err(wrong) => errors.reject(&wrong),
            };
        }
        Command::DataPlane(DataPlaneArgs { attempt: Some(what), unfiltered }) => {
            Ok(data_plane::sandbox::attempt::attempt(what, !unfiltered))
        }
        Command::DataPlane(_) => {
            return match Logging::from_environment() {
                Ok(logging) => run_data_plane(logging),
                Err(wrong) => errors.reject(&wrong),
            };
        }
        Command::Demo => Ok(outcome::print(DEMO)),
        Command::Bench(args) => Ok(bench::bench(&args).map(|never| match never {})),
        Command::Completions { shell } => Ok(generated::completions(shell)),
        Command::Manual { directory } => Ok(generated::manual(&directory)),
    };
    match checked {
        Ok(outcome) => errors.finish(outcome),
        Err(wrong) => errors.reject(&wrong),
    }
}

/// `ringway ls` and `ringway rm` are commands of `ringway port`.
fn spelled_out(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "ls" || word == "rm") {
        words.insert(1, "port".into());
    }
    words
}

/// The daemon, whose last words go the way of its log: nothing waits for them for long. It may need
/// all of its ports. `given` is the socket of a back-end's guest.
fn run_daemon(
    config: RunConfig,
    needs_all: bool,
    over: Vec<LowOption>,
    logging: Logging,
    given: Option<OwnedFd>,
) -> ExitCode {
    let (kept, sockets) = supervisor::run::TakenOver::from_service_manager();
    match kept {
        Ok(None) => {}
        Ok(Some(taken)) => return go_on(Ok(taken), logging),
        Err(error) => {
            outcome::say(&format!("what the service manager has kept is of no use: {error:#}"));
        }
    }
    let sockets = sockets.with_given(back_end::PORT, given);
    // First of all: capabilities are each thread's own.
    let entered = enter(config.settings.sandbox, &passed_taps(&config), logging);
    let (sandbox, log) = match entered {
        Ok(entered) => entered,
        Err(error) => return Errors::Text.finish(Err(error)),
    };
    let outcome = supervisor::run::run(
        supervisor::run::Start { config, needs_all, over, sandbox, sockets },
        &log,
    );
    finish(&log, &outcome)
}

/// The numbers of taps that another program has opened; their ports take copies.
fn passed_taps(config: &RunConfig) -> Vec<RawFd> {
    let number = |kind: &PortKind| match kind {
        PortKind::TapFd { fd } => Some(*fd),
        _ => None,
    };
    config.ports.iter().filter_map(|port| number(&port.kind)).collect()
}

/// The sandbox of a supervisor, and its log. What it was started with is taken by now, but for
/// taps.
fn enter(sandbox: bool, taps: &[RawFd], logging: Logging) -> anyhow::Result<(Sandbox, Log)> {
    ringway_host::close_inherited_fds(taps);
    let sandbox = if sandbox { Sandbox::enter()? } else { Sandbox::Off };
    Ok((sandbox, Log::start(logging).context("starting the log's thread")?))
}

/// The daemon that takes the place of another program in this process.
fn take_over(record: i32, logging: Logging) -> ExitCode {
    go_on(supervisor::run::found(record), logging)
}

/// The daemon that goes on where another one was.
fn go_on(found: anyhow::Result<supervisor::run::TakenOver>, logging: Logging) -> ExitCode {
    let entered = found.and_then(|taken| Ok((enter(taken.is_in_sandbox(), &[], logging)?, taken)));
    let ((sandbox, log), taken) = match entered {
        Ok(entered) => entered,
        Err(error) => return Errors::Text.finish(Err(error)),
    };
    let outcome = supervisor::run::take_over(taken, sandbox, &log);
    finish(&log, &outcome)
}

/// Whether this program could go on from the record at standard input.
fn check_record() -> anyhow::Result<()> {
    let record = std::io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
    supervisor::run::check(record.into())
}

/// The process that carries packets; its log goes where the supervisor's goes.
fn run_data_plane(logging: Logging) -> ExitCode {
    // First of all: much of the sandbox is each thread's own.
    let prepared = match data_plane::prepare() {
        Ok(prepared) => prepared,
        Err(error) => return Errors::Text.finish(Err(error)),
    };
    let log = match Log::start(logging).context("starting the log's thread") {
        Ok(log) => log,
        Err(error) => return Errors::Text.finish(Err(error)),
    };
    let outcome = data_plane::run(prepared);
    finish(&log, &outcome)
}

fn finish(log: &Log, outcome: &anyhow::Result<()>) -> ExitCode {
    if let Err(error) = outcome {
        log.write_last(&format!("{error:#}"));
    }
    log.flush(LAST_LINES);
    if outcome.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
