//! What every measurement is told. Limits: what only one kind is told is its own affair.

use std::time::Duration;

use anyhow::ensure;
use ringway_virtq::Format;

const DURATION_MIN: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct Options {
    pub duration: Duration,
    pub repeats: usize,
    /// The command line, for the report.
    pub command: String,
}

impl Options {
    /// Whether they make sense for what takes threads or processes; what runs on one thread
    /// ([`rxbuf`](crate::rxbuf)) can be measured for a shorter time, too.
    pub(crate) fn ensure_measurable(&self) -> anyhow::Result<()> {
        ensure!(self.repeats > 0, "nothing to measure");
        ensure!(self.duration >= DURATION_MIN, "at least 10 ms for each number");
        Ok(())
    }

    pub(crate) fn rounds(&self) -> String {
        let (seconds, repeats) = (self.duration.as_secs_f64(), self.repeats);
        format!(
            "Rounds: {repeats}; in each, every row once, {seconds} s for each number. Shown: \
             median (lowest–highest); ratios are taken within a round."
        )
    }
}

/// A ring format, as it is typed.
pub(crate) fn format(typed: &str) -> Result<Format, String> {
    match typed {
        "split" => Ok(Format::Split),
        "packed" => Ok(Format::Packed),
        _ => Err("formats are split and packed".into()),
    }
}

/// What a ring format is called in options and tables.
pub(crate) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Split => "split",
        Format::Packed => "packed",
    }
}
