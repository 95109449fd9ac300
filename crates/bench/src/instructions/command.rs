//! The command `ringway bench instructions`.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::Args;
use ringway_virtq::Format;

use super::{count, golden, run, run_worker};
use crate::options::format;

#[derive(Debug, Args)]
pub(crate) struct InstructionsArgs {
    /// Fail if a number is more than 3 % above the one in this file
    #[arg(long, value_name = "FILE", conflicts_with = "accept")]
    check: Option<PathBuf>,
    /// Write the numbers to this file
    #[arg(long, value_name = "FILE")]
    accept: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Move packets in this format, to be counted (internal)
    #[arg(long, hide = true, value_name = "FORMAT", value_parser = format)]
    run: Option<Format>,
    /// Through a daemon, whose worker is counted (internal)
    #[arg(long, hide = true, requires = "run")]
    worker: bool,
    /// With so many workers, and so many bursts (internal)
    #[arg(long, hide = true, requires = "worker", default_value_t = 1)]
    workers: usize,
    #[arg(long, hide = true, requires = "worker", default_value_t = super::BURSTS)]
    bursts: usize,
    /// In two pieces (internal)
    #[arg(long, hide = true, requires = "worker")]
    in_two: bool,
    /// Into receive buffers whose length the driver chooses (internal)
    #[arg(long, hide = true, requires = "run")]
    tuned: bool,
    /// With a device that marks the pages that it writes (internal)
    #[arg(long, hide = true, requires = "run")]
    logged: bool,
}

impl InstructionsArgs {
    pub fn count(&self) -> anyhow::Result<()> {
        match self.run {
            Some(format) if self.worker => {
                return run_worker(format, (self.workers, self.bursts), self.in_two);
            }
            Some(format) => return run(format, self.tuned, self.logged),
            None => {}
        }
        let counts = count(&["instructions", "--run"])?;
        let text = golden::text(&counts);
        if self.json {
            println!("{}", serde_json::to_string_pretty(&counts)?);
        } else {
            print!("{text}");
        }
        if let Some(file) = &self.accept {
            std::fs::write(file, text).with_context(|| file.display().to_string())?;
        }
        let Some(file) = &self.check else { return Ok(()) };
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        let complaints = golden::complaints(&golden::parse(&text)?, &counts);
        ensure!(complaints.is_empty(), "{}", complaints.join("\n"));
        Ok(())
    }
}
