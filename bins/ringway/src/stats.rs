//! `ringway stats`: asks a running ringway once, or every second until Ctrl-C.
//!
//! Limits: with `--watch` it ends with an error when the ringway it watches is gone.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::Context;

use crate::args::StatsArgs;
use crate::control::{StatsReply, request_stats};
use crate::{layout, stats_view};

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Moves to the upper left corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

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
    let now = request_stats(&args.ask.control_or_default())?;
    let mut text = String::new();
    if args.ask.json {
        text.push_str(&serde_json::to_string(&now)?);
        text.push('\n');
    } else {
        if args.watch && io::stdout().is_terminal() {
            text.push_str(CLEAR);
        }
        text.push_str(&stats_view::table(&now, before, layout::width()));
    }
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush())?;
    Ok(now)
}

/// SIGINT and SIGTERM make the returned stream readable; reading waits one period at most.
fn catch_signals() -> anyhow::Result<UnixStream> {
    let (read, write) = UnixStream::pair().context("socketpair")?;
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::low_level::pipe::register(signal, write.try_clone()?)
            .context("catching signals")?;
    }
    read.set_read_timeout(Some(PERIOD))?;
    Ok(read)
}

fn is_timeout(why: &io::Error) -> bool {
    matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |why: &io::Error| why.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref::<io::Error>().is_some_and(broken)
}
