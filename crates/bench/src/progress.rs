//! How far a measurement is: a moving line with the time left on a terminal, a plain line for each
//! step elsewhere. All of it goes to standard error; the results alone are on standard output.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

const TICK: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Progress {
    /// Hidden where there is no terminal.
    bar: ProgressBar,
    done: u64,
}

impl Progress {
    /// Starts; that many steps of about the same length follow.
    pub fn start(steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64);
        let template = "{spinner} {pos}/{len} [{bar:24}] {eta} left: {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        if !bar.is_hidden() {
            bar.enable_steady_tick(TICK);
        }
        Self { bar, done: 0 }
    }

    pub fn step(&mut self, what: &str) {
        self.bar.set_position(self.done);
        self.bar.set_message(what.to_string());
        if self.bar.is_hidden() {
            line(&format!("{}/{}: {what}", self.done, self.bar.length().unwrap_or(0)));
        }
        self.done += 1;
    }

    /// Something to be told that stays on the screen.
    pub fn note(&self, what: &str) {
        self.bar.suspend(|| line(what));
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

fn line(text: &str) {
    // A standard error that was closed is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Measures every row, behind its name, once in each round, in turns; `measure` is told the round.
/// The first error ends it.
pub(crate) fn in_turns<R>(
    rounds: usize,
    rows: &[(Vec<String>, R)],
    mut measure: impl FnMut(usize, &[String], &R, &Progress) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut progress = Progress::start(rows.len() * rounds);
    for round in 0..rounds {
        for (name, row) in rows {
            progress.step(&name.join(", "));
            measure(round, name, row, &progress).with_context(|| name.join(", "))?;
        }
    }
    progress.end();
    Ok(())
}
