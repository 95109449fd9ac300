//! How `ringway run` behaves to those who start it.

use clap::Args;
use tracing_subscriber::EnvFilter;

use crate::config::SpecError;
use crate::log_filter;

/// What is no setting of a file.
#[derive(Debug, Args)]
pub struct ForegroundArgs {
    /// End with exit status 1 if a port of the configuration cannot be opened
    #[arg(long)]
    pub strict: bool,
    /// Log more, as RINGWAY_LOG=debug does
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Log warnings and errors only, as RINGWAY_LOG=warn does
    #[arg(short, long)]
    quiet: bool,
}

impl ForegroundArgs {
    /// What is logged.
    ///
    /// # Errors
    /// The environment names something else than levels.
    pub fn filter(&self) -> Result<EnvFilter, Vec<SpecError>> {
        let filter = match (self.verbose, self.quiet) {
            (true, _) => log_filter::read("debug"),
            (_, true) => log_filter::read("warn"),
            _ => log_filter::from_environment(),
        };
        filter.map_err(|error| vec![error])
    }
}
