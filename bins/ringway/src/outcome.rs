//! How a command ends: its exit status, and its errors on standard error, one line each for people
//! or one line of JSON for programs.
//!
//! Limits: results go to standard output and errors to standard error, in JSON, too.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;

use crate::config::SpecError;
use crate::control::refusal;

/// The exit status for a command line, or a file that it names, that is wrong.
const EXIT_USAGE: u8 = 2;

/// The text of `--help` about how a command ends.
pub const EXIT_HELP: &str = "\
Exit status: 0 success; 1 failure; 2 the command line or the configuration file is wrong.
Errors are lines on standard error; of commands with --json they are one line of JSON: \
{\"version\":1,\"ok\":false,\"error\":\"…\",\"errors\":[\"…\"]}";

/// How errors are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errors {
    /// For people.
    Text,
    /// For programs: the command was given `--json`.
    Json,
}

impl Errors {
    /// As a command with or without `--json` writes them.
    pub fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }

    /// Rejects a command line, or a file.
    pub fn reject(self, errors: &[SpecError]) -> ExitCode {
        self.write(&errors.iter().map(ToString::to_string).collect::<Vec<_>>());
        ExitCode::from(EXIT_USAGE)
    }

    /// The end of a command.
    pub fn finish(self, outcome: anyhow::Result<()>) -> ExitCode {
        match outcome {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                self.write(&[format!("{error:#}")]);
                ExitCode::FAILURE
            }
        }
    }

    /// Writes errors to standard error.
    pub fn write(self, errors: &[String]) {
        match self {
            Self::Text => errors.iter().for_each(|error| say(error)),
            Self::Json => say(&refusal(errors)),
        }
    }
}

/// Prints what was asked for.
///
/// # Errors
/// Standard output does not take it.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    printed(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

/// A reader that has seen enough closes its end, as `head` does: that is no failure.
fn printed(outcome: io::Result<()>) -> anyhow::Result<()> {
    match outcome {
        Err(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        outcome => outcome.context("standard output"),
    }
}

/// Writes a line to standard error. Where that takes none, the line is lost, and nothing else.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The end of a command line that is no command, or asks for help only.
pub fn unparsed(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if error.use_stderr() && is_json {
        let text = error.to_string();
        let text = text.split("\n\n").next().unwrap_or_default();
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Errors::Json.write(&[lines.join(" ").trim_start_matches("error: ").to_string()]);
    } else if let Err(why) = error.print()
        && !error.use_stderr()
    {
        return Errors::Text.finish(printed(Err(why)));
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE))
}
