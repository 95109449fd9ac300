//! Options of all measurements, as they are typed. Limits: options of only one kind are its own
//! affair.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::Args;
use ringway_virtq::Format;

const DURATION_MIN: Duration = Duration::from_millis(10);

/// Says that the namespaces are there.
pub const HERE: &str = "--here";

/// How much is measured, and how it is shown; each kind has defaults of its own.
#[derive(Debug, Clone, Default, Args)]
#[group(skip)]
pub struct Options {
    /// How long each number is measured
    #[arg(long = "seconds", value_name = "SECONDS", value_parser = seconds, default_value = "1")]
    pub duration: Duration,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    pub repeats: usize,
    /// A first impression
    #[arg(long, conflicts_with_all = ["duration", "repeats"])]
    pub quick: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    pub json: bool,
    /// Print Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Measure here and now, without namespaces around it (internal)
    #[arg(long, hide = true)]
    pub here: bool,
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

/// The command line, as it would be typed to measure the same again.
pub(crate) fn typed() -> String {
    let words = std::env::args().skip(1);
    let shown = ["--json", "--markdown", HERE];
    let words = words.filter(|word| !shown.contains(&word.as_str()));
    std::iter::once("ringway bench".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

fn seconds(typed: &str) -> anyhow::Result<Duration> {
    Ok(Duration::try_from_secs_f64(typed.parse()?)?)
}

pub(crate) fn format(typed: &str) -> Result<Format, String> {
    match typed {
        "split" => Ok(Format::Split),
        "packed" => Ok(Format::Packed),
        _ => Err("formats are split and packed".into()),
    }
}

pub(crate) fn format_name(format: Format) -> &'static str {
    match format {
        Format::Split => "split",
        Format::Packed => "packed",
    }
}
