//! A running `ringway run`, and what it counts.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use ringway_control::protocol::{StatsReply, WorkerStats, request_stats};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::process::Process;
use super::stage::Stage;
pub use crate::port_stats::{Moved, Pacing, PortStatistics};
use crate::shell;

/// Longest wait for ringway to come up, or to end.
const LIMIT: Duration = Duration::from_secs(10);

/// A running ringway.
#[derive(Debug)]
pub struct Ringway {
    /// Dropped before the process ends.
    _last_statistics: LastStatistics,
    process: Process,
    client: Client,
    sockets: Vec<PathBuf>,
}

/// The part of the output of `ringway attach --json` that is used here.
#[derive(Debug, Deserialize)]
struct Attachment {
    arguments: Vec<String>,
}

/// Asks a ringway over its control socket.
#[derive(Debug, Clone)]
struct Client {
    binary: PathBuf,
    control: PathBuf,
}

impl Client {
    fn question(&self, words: &[&str]) -> Command {
        let mut command = shell::command(&[&self.binary]);
        command.args(words).arg("--control").arg(&self.control);
        command
    }

    fn told(&self, words: &[&str]) -> anyhow::Result<String> {
        shell::output(&mut self.question(words))
    }

    fn told_json<R: DeserializeOwned>(&self, words: &[&str]) -> anyhow::Result<R> {
        let text = self.told(&[words, &["--json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("ringway {}: {text}", words.join(" ")))
    }

    fn stats(&self) -> anyhow::Result<StatsReply> {
        Ok(request_stats(&self.control)?)
    }
}

impl Ringway {
    /// Starts it with these ports (as after `--port`) and waits until it listens.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start(stage: &Stage, ports: &[String]) -> anyhow::Result<Self> {
        Self::start_with(stage, ports, &[])
    }

    /// The same with further arguments of `ringway run`.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start_with(stage: &Stage, ports: &[String], more: &[&str]) -> anyhow::Result<Self> {
        Self::start_named(stage, "ringway", ports, more)
    }

    /// The same, where there are several.
    ///
    /// # Errors
    /// It does not come up: the text has what it printed.
    pub fn start_named(
        stage: &Stage,
        name: &str,
        ports: &[String],
        more: &[&str],
    ) -> anyhow::Result<Self> {
        let binary = stage.programs.ringway.clone();
        let control = stage.file(&format!("{name}.control"));
        let mut command = shell::command(&[&binary]);
        command.arg("run").arg("--control").arg(&control).env("RINGWAY_LOG", "info");
        for port in ports {
            command.arg("--port").arg(port);
        }
        command.args(more);
        let mut sockets: Vec<PathBuf> = ports.iter().filter_map(|port| socket(port)).collect();
        sockets.push(control.clone());
        let mut process = Process::start(stage, name, command)?;
        let client = Client { binary, control };
        let file = stage.logs.join(format!("{name}.statistics"));
        let _last_statistics = LastStatistics { client: client.clone(), file };
        process.wait_until("listening", LIMIT, |_| {
            client.stats().is_ok_and(|stats| stats.ports.len() == ports.len())
        })?;
        Ok(Self { _last_statistics, process, client, sockets })
    }

    /// How it was started, as one would type it.
    pub fn command(&self) -> &str {
        self.process.command()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// The statistics of a port.
    ///
    /// # Errors
    /// It does not answer, or has no such port.
    pub fn port(&self, name: &str) -> anyhow::Result<PortStatistics> {
        let stats = self.client.stats()?;
        let port = stats.port(name);
        Ok(PortStatistics(
            port.with_context(|| format!("ringway: no port {name} in {stats:?}"))?.clone(),
        ))
    }

    /// The output of ringway up to now.
    pub fn printed(&self) -> String {
        self.process.printed()
    }

    /// Ends the process that carries packets, as a failing machine would.
    ///
    /// # Errors
    /// It does not say which process that is.
    pub fn kill_data_plane(&self) -> anyhow::Result<()> {
        let data_plane = self.client.stats()?.data_plane;
        let pid = data_plane.and_then(|it| it.pid).context("there is no data plane")?;
        shell::run(shell::command(&["kill", "-KILL"]).arg(pid.to_string()))
    }

    /// Lets its own program take over from itself.
    ///
    /// # Errors
    /// It refuses.
    pub fn upgrade(&self) -> anyhow::Result<()> {
        self.told(&["upgrade"]).map(drop)
    }

    /// Its statistics.
    ///
    /// # Errors
    /// It does not answer.
    pub fn stats(&self) -> anyhow::Result<StatsReply> {
        self.client.stats()
    }

    /// The statistics of its workers; at least one.
    ///
    /// # Errors
    /// It does not answer.
    pub fn workers(&self) -> anyhow::Result<Vec<WorkerStats>> {
        let workers = self.client.stats()?.workers;
        ensure!(!workers.is_empty(), "ringway: no worker");
        Ok(workers)
    }

    /// Arguments that a program has to be given to use a port, from `ringway attach`.
    ///
    /// # Errors
    /// It refuses.
    pub fn attach(&self, port: &str, program: &str) -> anyhow::Result<Vec<String>> {
        self.attach_with(port, program, &[])
    }

    /// The same with further arguments of `ringway attach`.
    ///
    /// # Errors
    /// It refuses.
    pub fn attach_with(
        &self,
        port: &str,
        program: &str,
        more: &[&str],
    ) -> anyhow::Result<Vec<String>> {
        let words = ["attach", port, "--for", program, "--memory", "256"];
        let attachment: Attachment = self.client.told_json(&[&words, more].concat())?;
        Ok(attachment.arguments)
    }

    /// Changes an option of a port.
    ///
    /// # Errors
    /// It refuses.
    pub fn set(&self, name: &str, option: &str) -> anyhow::Result<()> {
        self.told(&["port", "set", name, option]).map(drop)
    }

    /// The output of a command that asks ringway this.
    ///
    /// # Errors
    /// It refuses.
    pub fn told(&self, question: &[&str]) -> anyhow::Result<String> {
        self.client.told(question)
    }

    /// The same as JSON.
    ///
    /// # Errors
    /// It refuses, or prints something else.
    pub fn told_json<R: DeserializeOwned>(&self, question: &[&str]) -> anyhow::Result<R> {
        self.client.told_json(question)
    }

    /// The command that asks it this.
    pub fn question(&self, words: &[&str]) -> Command {
        self.client.question(words)
    }

    /// Removes a port.
    ///
    /// # Errors
    /// It refuses.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        self.told(&["port", "remove", name]).map(drop)
    }

    /// Ends it as a failing machine would: it cannot clean up.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Ends it as a user does, and checks that it leaves nothing behind.
    ///
    /// # Errors
    /// It does not end, fails, or leaves a socket.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let status = self.process.terminate(LIMIT)?;
        ensure!(status.success(), "ringway: {status} after SIGTERM:\n{}", self.process.printed());
        match self.sockets.iter().find(|path| path.exists()) {
            Some(left) => bail!("ringway: left {} behind", left.display()),
            None => Ok(()),
        }
    }
}

/// Writes what ringway counts if it still runs when this is dropped: something else has failed.
#[derive(Debug)]
struct LastStatistics {
    client: Client,
    file: PathBuf,
}

impl Drop for LastStatistics {
    fn drop(&mut self) {
        if let Ok(text) = self.client.told(&["stats"]) {
            // Without the file, the failure itself is still reported.
            let _ = std::fs::write(&self.file, text);
        }
    }
}

/// The socket of a guest port.
fn socket(port: &str) -> Option<PathBuf> {
    let (_, rest) = port.split_once("=vm:")?;
    rest.split(',').next().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_are_those_of_listening_ports() {
        assert_eq!(socket("vm0=vm:/a/b.sock,packed=off"), Some(PathBuf::from("/a/b.sock")));
        assert_eq!(socket("up=tap:tap0"), None);
    }
}
