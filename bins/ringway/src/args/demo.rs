//! The demonstration, and what keeps its directory.

use std::path::PathBuf;

use clap::Args;

/// `ringway demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Print the results as JSON
    #[arg(long)]
    pub json: bool,
    /// Use two guests that live in this process, even where User Mode Linux is available
    #[arg(long)]
    pub embedded: bool,
    /// Leave the logs of the guests and of ringway behind, and say where
    #[arg(long)]
    pub keep_logs: bool,
}

/// `ringway keep`: internal, see `demo::keeper`.
#[derive(Debug, Args)]
pub struct KeepArgs {
    /// Remove this directory when the demonstration is gone
    #[arg(long, value_name = "DIRECTORY")]
    pub remove: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, last = true)]
    pub command: Vec<std::ffi::OsString>,
}
