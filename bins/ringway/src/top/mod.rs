//! `ringway top`: the ports of a running ringway, second by second.
//!
//! One thread asks, the main thread draws and hears keys. Limits: a ringway that does not answer
//! is told on the last line, and asked again every second.

mod rates;
mod screen;
mod state;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::args::TopArgs;
use crate::control::client::ControlError;
use crate::control::{StatsReply, request_stats};
use crate::{layout, outcome};
use rates::Rates;
use state::{DisplayState, Next};

/// Time between two reports.
const PERIOD: Duration = Duration::from_secs(1);

/// Longest time in which no key is looked for: a report may wait for so long.
const KEY_WAIT: Duration = Duration::from_millis(100);

type Report = Result<StatsReply, ControlError>;

/// Shows the ports until `q`, or once.
///
/// # Errors
/// No ringway answers at first, or the terminal does not work.
pub fn top(args: &TopArgs) -> anyhow::Result<()> {
    let control = args.ask.control_or_default();
    let first = request_stats(&control)?;
    if args.ask.json || args.once || !has_screen() {
        return once(args, &control, first);
    }
    let reports = ask_on(control)?;
    let signal = note_signals()?;
    let mut terminal = ratatui::try_init().context("preparing the terminal")?;
    let outcome = show(&mut terminal, first, &reports, &signal);
    ratatui::try_restore().context("restoring the terminal")?;
    match signal.load(Ordering::Relaxed) {
        0 => outcome,
        // The terminal is as before; it ends by that signal, as its sender expects.
        number => Ok(signal_hook::low_level::emulate_default_handler(i32::try_from(number)?)?),
    }
}

/// A terminal on which something can be drawn.
pub fn has_screen() -> bool {
    let kind = std::env::var("TERM").unwrap_or_default();
    io::stdout().is_terminal() && !["", "dumb"].contains(&kind.as_str())
}

/// Where the number of a signal that ends this command will be.
fn note_signals() -> anyhow::Result<Arc<AtomicUsize>> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let noted = usize::try_from(number)?;
        signal_hook::flag::register_usize(number, Arc::clone(&signal), noted)
            .context("catching signals")?;
    }
    Ok(signal)
}

/// Two reports, and one table of what was in between.
fn once(args: &TopArgs, control: &Path, first: StatsReply) -> anyhow::Result<()> {
    let mut rates = Rates::default();
    rates.follow(first);
    thread::sleep(PERIOD);
    rates.follow(request_stats(control)?);
    let text = match args.ask.json {
        true => rates::json(&rates.rows) + "\n",
        false => screen::plain(&DisplayState::default(), &rates, layout::width()),
    };
    outcome::print(&text)
}

/// Asks every second, in a thread of its own: an answer may take seconds.
fn ask_on(control: PathBuf) -> anyhow::Result<Receiver<Report>> {
    let (sender, reports) = sync_channel(1);
    let ask = move |sender: SyncSender<Report>| {
        loop {
            thread::sleep(PERIOD);
            if sender.send(request_stats(&control)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new()
        .name("ask".to_string())
        .spawn(move || ask(sender))
        .context("starting the thread that asks")?;
    Ok(reports)
}

fn show(
    terminal: &mut DefaultTerminal,
    first: StatsReply,
    reports: &Receiver<Report>,
    signal: &AtomicUsize,
) -> anyhow::Result<()> {
    let (mut state, mut rates, mut trouble) = (DisplayState::default(), Rates::default(), None);
    rates.follow(first);
    let mut is_new = true;
    while signal.load(Ordering::Relaxed) == 0 {
        if is_new {
            terminal.draw(|frame| screen::draw(frame, &state, &rates, trouble.as_deref()))?;
        }
        is_new = event::poll(KEY_WAIT)?;
        if is_new
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && state.press(key, state.shown(&rates.rows).len()) == Next::End
        {
            return Ok(());
        }
        match reports.try_recv() {
            Ok(Ok(report)) => {
                let detailed = state.detailed(&rates.rows).map(str::to_owned);
                rates.follow(report);
                state.stay_at(detailed.as_deref(), &rates.rows);
                (trouble, is_new) = (None, true);
            }
            Ok(Err(error)) => (trouble, is_new) = (Some(error.to_string()), true),
            Err(_) => {}
        }
    }
    Ok(())
}
