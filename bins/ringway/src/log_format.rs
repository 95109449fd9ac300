//! The format of log lines: text for people, JSON for programs, or as systemd's journal wants it.
//!
//! Source: sd-daemon(3) for the journal: `<6>` and the like in front of a line is its priority,
//! and a service finds out by `JOURNAL_STREAM` that its standard error leads there. The journal has
//! a clock of its own.

use std::io;

use clap::ValueEnum;
use serde_json::json;
use tracing::{Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;

use crate::config::SpecError;
use crate::log_filter::is_coloured;

/// How processes of one ringway tell each other.
pub const FORMAT_VARIABLE: &str = "RINGWAY_LOG_FORMAT";

/// The device and the inode of the stream to the journal, if there is one.
const STREAM_VARIABLE: &str = "JOURNAL_STREAM";

/// The format of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The time, the level, and what happened
    Text,
    /// One object with `timestamp`, `level`, `message`, and what else is known of it
    Json,
    /// Without a time, and with the level as the journal of systemd reads it
    Journal,
}

impl Format {
    /// As the process that started this one says, or as suits standard error.
    ///
    /// # Errors
    /// The environment names no format.
    pub fn from_environment() -> Result<Self, SpecError> {
        let value = std::env::var_os(FORMAT_VARIABLE).filter(|value| !value.is_empty());
        let Some(value) = value else { return Ok(Self::of_standard_error()) };
        let text = value.to_string_lossy();
        Self::from_str(&text, false).map_err(|_| {
            let typed = format!("{FORMAT_VARIABLE}={text}");
            SpecError::new(&typed, "is no format", "write text, json or journal")
        })
    }

    fn of_standard_error() -> Self {
        let stream = std::env::var(STREAM_VARIABLE).ok();
        let here = rustix::fs::fstat(io::stderr()).ok();
        let here = here.map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
        if stream.is_some() && stream == here { Self::Journal } else { Self::Text }
    }

    /// As it is typed.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Json => "json",
            Self::Journal => "journal",
        }
    }

    /// The layer that writes events there, without what a writer puts in front.
    pub fn layer<S, W>(self, to: W) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
        W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
    {
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(to)
            .with_ansi(self == Self::Text && is_coloured())
            .with_target(false)
            // It would write to standard error by itself, and panic where that fails.
            .log_internal_errors(false);
        match self {
            Self::Text => layer.boxed(),
            Self::Json => layer.json().flatten_event(true).boxed(),
            Self::Journal => layer.without_time().with_level(false).boxed(),
        }
    }

    /// The prefix of a line that the layer writes.
    pub fn prefix(self, level: Level) -> &'static str {
        match (self, level) {
            (Self::Text | Self::Json, _) => "",
            (Self::Journal, Level::ERROR) => "<3>",
            (Self::Journal, Level::WARN) => "<4>",
            (Self::Journal, Level::INFO) => "<6>",
            (Self::Journal, _) => "<7>",
        }
    }

    /// A whole line, for what the layer cannot write.
    pub fn line(self, level: Level, message: &str) -> String {
        let mut timestamp = String::new();
        // A clock that cannot be written leaves the line without a time.
        let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
        match self {
            Self::Text => format!("{timestamp} {level:>5} {message}\n"),
            Self::Json => {
                let level = level.as_str();
                format!("{}\n", json!({"timestamp": timestamp, "level": level, "message": message}))
            }
            Self::Journal => format!("{}{message}\n", self.prefix(level)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_read_as_it_is_written() {
        for format in Format::value_variants() {
            assert_eq!(Format::from_str(format.name(), false).as_ref(), Ok(format));
        }
    }

    #[test]
    fn the_journal_gets_priorities_in_front() {
        let levels = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        let lines = levels.map(|level| Format::Journal.line(level, "stopping"));
        assert_eq!(lines, [3, 4, 6, 7, 7].map(|priority| format!("<{priority}>stopping\n")));
    }
}
