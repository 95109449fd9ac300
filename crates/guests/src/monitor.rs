//! QEMU's monitor: stops a guest, lets it go on, asks what it knows.
//!
//! How: the machine protocol over a socket (QMP), which passes on what an operator types. Limits:
//! one question at a time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Most lines before an answer: events come in between.
const LINES_MAX: usize = 1000;

/// A connection to a monitor.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
}

impl Monitor {
    /// The arguments of QEMU for a monitor at `socket`.
    pub fn arguments(socket: &Path) -> [String; 2] {
        ["-qmp".into(), format!("unix:{},server=on,wait=off", socket.display())]
    }

    /// Connects.
    ///
    /// # Errors
    /// QEMU does not listen, or does not answer.
    pub fn connect(socket: &Path) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket).context("QEMU's monitor")?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut monitor = Self { stream: BufReader::new(stream) };
        monitor.ask(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    /// Types a line, such as `stop`; what is printed.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<String> {
        let arguments = json!({ "command-line": line });
        let answer =
            self.ask(&json!({ "execute": "human-monitor-command", "arguments": arguments }))?;
        Ok(answer.as_str().unwrap_or_default().replace('\r', ""))
    }

    fn ask(&mut self, command: &Value) -> anyhow::Result<Value> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        for _ in 0..LINES_MAX {
            let mut line = String::new();
            self.stream.read_line(&mut line).with_context(|| format!("QEMU: {command}"))?;
            let answer: Value =
                serde_json::from_str(&line).with_context(|| format!("QEMU: {command}: {line}"))?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU: {command}: {error}");
            }
        }
        bail!("QEMU: {command}: no answer within {LINES_MAX} lines");
    }
}
