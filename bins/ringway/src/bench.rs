//! `ringway bench`: what was typed becomes options, what was found is shown as asked for.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand, ValueEnum};
use ringway_bench::report::{Report, html, markdown, terminal};
use ringway_bench::ring;
use ringway_virtq::Format;

/// Packet lengths of `--quick`, in bytes.
const QUICK_PACKET_LENS: [usize; 2] = [64, 1518];

/// `ringway bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Drivers and devices on one ring, ringway's and DPDK's, beside the limit of the machine
    Ring(RingArgs),
}

/// How results are shown.
#[derive(Debug, Args)]
struct Output {
    /// Print JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown
    #[arg(long)]
    markdown: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// `ringway bench ring`
#[derive(Debug, Args)]
struct RingArgs {
    /// How long each number is measured
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// How often everything is measured
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// A first impression: 0.2 s, once, two packet lengths, no round trips
    #[arg(long, conflicts_with_all = ["seconds", "repeats", "sizes"])]
    quick: bool,
    /// Packet lengths in bytes: 64 to 65536
    #[arg(long, value_delimiter = ',', value_name = "BYTES", default_values_t = ring::PACKET_LENS)]
    sizes: Vec<usize>,
    /// Ring formats
    #[arg(long, value_delimiter = ',', value_name = "FORMAT", default_value = "split,packed")]
    formats: Vec<RingFormat>,
    /// Entries of each queue
    #[arg(long, default_value_t = 256, value_name = "ENTRIES")]
    queue_size: u16,
    /// Do not measure round trips
    #[arg(long)]
    no_latency: bool,
    #[command(flatten)]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RingFormat {
    Split,
    Packed,
}

/// Measures and shows.
///
/// # Errors
/// The options make no sense, ringway itself fails, or the results cannot be written.
pub fn bench(args: BenchArgs) -> anyhow::Result<()> {
    match args.what {
        What::Ring(args) => {
            let report = ring::measure(&args.options()?)?;
            args.output.show(&report)
        }
    }
}

impl RingArgs {
    fn options(&self) -> anyhow::Result<ring::Options> {
        let duration = Duration::try_from_secs_f64(self.seconds).context("--seconds")?;
        let mut options = ring::Options {
            duration,
            repeats: self.repeats,
            packet_lens: self.sizes.clone(),
            formats: self.formats.iter().map(|&format| format.into()).collect(),
            queue_size: self.queue_size,
            latency: !self.no_latency,
            command: typed(),
        };
        if self.quick {
            options.duration = Duration::from_millis(200);
            options.repeats = 1;
            options.packet_lens = QUICK_PACKET_LENS.to_vec();
            options.latency = false;
        }
        Ok(options)
    }
}

impl From<RingFormat> for Format {
    fn from(format: RingFormat) -> Self {
        match format {
            RingFormat::Split => Self::Split,
            RingFormat::Packed => Self::Packed,
        }
    }
}

impl Output {
    fn show(&self, report: &Report) -> anyhow::Result<()> {
        if let Some(file) = &self.html {
            let page = html::render(report)?;
            std::fs::write(file, page).with_context(|| file.display().to_string())?;
        }
        if self.json {
            println!("{}", serde_json::to_string_pretty(report)?);
        } else if self.markdown {
            print!("{}", markdown::render(report));
        } else {
            print!("{}", terminal::render(report));
        }
        Ok(())
    }
}

/// The command line, as it would be typed to measure the same again.
fn typed() -> String {
    let words = std::env::args().skip(1);
    let shown = ["--json", "--markdown"];
    let words = words.filter(|word| !shown.contains(&word.as_str()));
    std::iter::once("ringway".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}
