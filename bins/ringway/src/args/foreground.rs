//! How `ringway run` behaves to those who start it.

use clap::Args;

use crate::config::{RunConfig, SpecError};
use crate::log::Logging;
use crate::log_filter;
use crate::log_format::Format;

/// Options that are no settings of a file.
#[derive(Debug, Args)]
pub struct ForegroundArgs {
    /// End with exit status 1 if a port of the file cannot be opened, as for those of --port
    #[arg(long, conflicts_with = "keep_going")]
    strict: bool,
    /// Serve the others if a port cannot be opened, as for those of a file
    #[arg(long)]
    keep_going: bool,
    /// Log more, as RINGWAY_LOG=debug does
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
    /// Log warnings and errors only, as RINGWAY_LOG=warn does
    #[arg(short, long)]
    quiet: bool,
    /// The format of log lines [default: text, or as the journal of systemd wants them if standard
    /// error leads there]
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
}

impl ForegroundArgs {
    /// The same, and whether each of its ports has to be opened: a file may name one whose tap
    /// comes later, and who types them is there to see what is wrong.
    pub fn with_need(&self, config: RunConfig) -> (RunConfig, bool) {
        let needs_all = self.strict || config.file.is_none() && !self.keep_going;
        (config, needs_all)
    }

    /// The filter and the format of the log.
    ///
    /// # Errors
    /// The environment names something else than levels, or no format.
    pub fn logging(&self) -> Result<Logging, Vec<SpecError>> {
        let filter = match (self.verbose, self.quiet) {
            (true, _) => log_filter::read("--verbose", "debug"),
            (_, true) => log_filter::read("--quiet", "warn"),
            _ => log_filter::from_environment(),
        };
        let format = self.log_format.map_or_else(Format::from_environment, Ok);
        match (filter, format) {
            (Ok(filter), Ok(format)) => Ok(Logging { filter, format }),
            (filter, format) => Err(filter.err().into_iter().chain(format.err()).collect()),
        }
    }
}
