//! QEMU's monitor: stops a guest, lets it go on, asks what it knows.
//!
//! How: the machine protocol over a socket (QMP), which passes on what an operator types. Limits:
//! one question at a time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::process::LOOK_EVERY;

/// Longest wait for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// Most lines before an answer: events come in between.
const LINES_MAX: usize = 1000;

/// A connection to a monitor.
#[derive(Debug)]
pub struct Monitor {
    stream: BufReader<UnixStream>,
    /// Those that came before an answer, oldest first.
    events: Vec<Value>,
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
        let mut monitor = Self { stream: BufReader::new(stream), events: Vec::new() };
        monitor.ask(&json!({ "execute": "qmp_capabilities" }))?;
        Ok(monitor)
    }

    /// Connects to a QEMU that has just been started.
    ///
    /// # Errors
    /// It takes too long, or does not answer.
    pub fn connect_soon(socket: &Path, limit: Duration) -> anyhow::Result<Self> {
        let deadline = Instant::now() + limit;
        while UnixStream::connect(socket).is_err() {
            ensure!(Instant::now() < deadline, "QEMU's monitor: not there after {limit:?}");
            thread::sleep(LOOK_EVERY);
        }
        Self::connect(socket)
    }

    /// Carries out a command; what it returns.
    ///
    /// # Errors
    /// QEMU refuses, or does not answer.
    pub fn execute(&mut self, command: &str, arguments: &Value) -> anyhow::Result<Value> {
        self.ask(&json!({ "execute": command, "arguments": arguments }))
    }

    /// Waits for the next event of this name that was not waited for yet; when it happened, in
    /// seconds since 1970.
    ///
    /// # Errors
    /// It takes too long.
    pub fn wait_event(&mut self, name: &str) -> anyhow::Result<f64> {
        let is_it = |event: &Value| event["event"] == name;
        while !self.events.iter().any(is_it) {
            let line = self.read_line().with_context(|| format!("waiting for {name}"))?;
            self.events.push(line);
        }
        let at = self.events.iter().position(is_it).unwrap_or_default();
        let time = self.events.remove(at)["timestamp"].take();
        let part = |key: &str| time[key].as_f64().with_context(|| format!("{name}: {time}"));
        Ok(part("seconds")? + part("microseconds")? / 1e6)
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
            let answer = self.read_line().with_context(|| format!("QEMU: {command}"))?;
            if let Some(result) = answer.get("return") {
                return Ok(result.clone());
            }
            if let Some(error) = answer.get("error") {
                bail!("QEMU: {command}: {error}");
            }
            self.events.push(answer);
        }
        bail!("QEMU: {command}: no answer within {LINES_MAX} lines");
    }

    fn read_line(&mut self) -> anyhow::Result<Value> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        serde_json::from_str(&line).with_context(|| format!("no JSON: {line}"))
    }
}
