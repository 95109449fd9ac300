//! What happens right now: a moving line on a terminal, plain lines elsewhere. All of it goes to
//! standard error, so that the result alone is on standard output.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Steps of a demonstration.
const STEPS: u64 = 6;

/// How often the moving line moves.
const TICK: Duration = Duration::from_millis(100);

/// The progress of one demonstration.
pub struct Progress {
    bar: Option<ProgressBar>,
    started: Instant,
}

impl Progress {
    /// Starts to show progress.
    pub fn start() -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(STEPS);
            let template = "{spinner} {elapsed:>3} [{bar:24}] {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        Self { bar, started: Instant::now() }
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.inc(1);
                bar.set_message(what.to_string());
            }
            None => self.note(what),
        }
    }

    /// Something to be told that stays on the screen.
    pub fn note(&self, what: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        match &self.bar {
            Some(bar) => bar.println(what),
            // The receiver has gone: no reason to stop.
            None => drop(writeln!(std::io::stderr(), "[{seconds:4.1} s] {what}")),
        }
    }

    /// Takes the moving line away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
