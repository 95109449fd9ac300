//! How far a measurement is: a moving line with the time left on a terminal, a plain line for each
//! step elsewhere. All of it goes to standard error; the results alone are on standard output.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

/// How often the moving line moves.
const TICK: Duration = Duration::from_millis(200);

/// Between two plain lines.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The progress of one measurement.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    steps: usize,
    done: usize,
    started: Instant,
    told: Instant,
}

impl Progress {
    /// Starts; that many steps of about the same length follow.
    pub fn start(steps: usize) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(steps as u64);
            let template = "{spinner} {pos}/{len} [{bar:24}] {eta} left: {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style.progress_chars("=> "));
            }
            bar.enable_steady_tick(TICK);
            bar
        });
        let now = Instant::now();
        Self { bar, steps, done: 0, started: now, told: now }
    }

    /// The next step begins.
    pub fn step(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_position(self.done as u64);
            bar.set_message(what.to_string());
        } else if self.told.elapsed() >= LINE_EVERY || self.done == 0 {
            self.told = Instant::now();
            let left = time_left(self.started.elapsed(), self.done, self.steps);
            let left = left.map_or(String::new(), |left| format!(", {} s left", left.as_secs()));
            self.line(&format!("{}/{}{left}: {what}", self.done, self.steps));
        }
        self.done += 1;
    }

    /// Something to be told that stays on the screen.
    pub fn note(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.println(what),
            None => self.line(what),
        }
    }

    /// Takes the moving line away.
    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        // A standard error that was closed is no reason to stop.
        let _ = writeln!(std::io::stderr(), "{text}");
    }
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

/// If the rest goes as what is done. `None`: nothing is done.
fn time_left(elapsed: Duration, done: usize, steps: usize) -> Option<Duration> {
    let each = elapsed.checked_div(u32::try_from(done).ok()?)?;
    Some(each.saturating_mul(u32::try_from(steps.saturating_sub(done)).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_goes_as_what_is_done() {
        assert_eq!(time_left(Duration::from_secs(4), 2, 5), Some(Duration::from_secs(6)));
        assert_eq!(time_left(Duration::from_secs(4), 0, 5), None);
    }
}
