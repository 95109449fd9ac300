//! `ringway stats`: asks a running ringway once, or every second until Ctrl-C.
//!
//! Limits: with `--watch` it ends with an error when the ringway it watches is gone.

use std::io::{self, Read, Write};
use std::time::Duration;

use anyhow::{Context, ensure};

use crate::args::StatsArgs;
use crate::config::error::no_port;
use crate::control::{StatsReply, request_stats};
use crate::signals::catch_signals;
use crate::top::has_screen;
use crate::{layout, stats_view};

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Moves to the upper left corner of a terminal; behind each line, and behind the last one: clears
/// what was there before.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\n";
const CLEAR_REST: &str = "\x1b[J";

/// Prints the statistics of a running ringway.
///
/// # Errors
/// No ringway answers, or the output cannot be written.
pub fn stats(args: &StatsArgs) -> anyhow::Result<()> {
    let outcome = if args.watch { watch(args) } else { show(args, None).map(drop) };
    match outcome {
        // The reader of the output has closed it, as `head` does.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        outcome => outcome,
    }
}

fn watch(args: &StatsArgs) -> anyhow::Result<()> {
    let mut signals = catch_signals()?;
    signals.set_read_timeout(Some(PERIOD))?;
    let mut before = None;
    loop {
        before = Some(show(args, before.as_ref())?);
        // A signal makes it readable; until then this is the pause.
        match signals.read(&mut [0; 1]) {
            Err(why) if is_timeout(&why) => {}
            Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) => return Ok(()),
            Err(why) => return Err(why).context("waiting for the next second"),
        }
    }
}

/// Asks, prints, and returns what was printed.
fn show(args: &StatsArgs, before: Option<&StatsReply>) -> anyhow::Result<StatsReply> {
    let mut now = request_stats(&args.ask.control_or_default())?;
    let all = now.ports.len();
    if let Some(name) = &args.port {
        ensure!(now.names().any(|it| it == name), no_port(name, now.names()));
        now.ports.retain(|port| port.name == *name);
    }
    let mut text = match args.ask.json {
        true => serde_json::to_string(&now)? + "\n",
        false => stats_view::table_of(&now, before, all, layout::width()),
    };
    if args.watch && !args.ask.json && has_screen() {
        text = format!("{HOME}{}{CLEAR_REST}", text.replace('\n', CLEAR_LINE));
    }
    let mut output = io::stdout().lock();
    let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    written.context("standard output")?;
    Ok(now)
}

fn is_timeout(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |why: &io::Error| why.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}
