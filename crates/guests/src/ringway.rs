//! A running `ringway run`, and what it counts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::Value;

use super::process::Process;
use super::stage::Stage;
use crate::shell;

/// Longest wait for ringway to come up, or to end.
const LIMIT: Duration = Duration::from_secs(10);

/// A running ringway.
#[derive(Debug)]
pub struct Ringway {
    /// Dropped before the process ends.
    _last_statistics: LastStatistics,
    process: Process,
    binary: PathBuf,
    control: PathBuf,
    sockets: Vec<PathBuf>,
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
        let process = Process::start(stage, name, command)?;
        let file = stage.logs.join(format!("{name}.statistics"));
        let (program, socket) = (binary.clone(), control.clone());
        let last_statistics = LastStatistics { binary: program, control: socket, file };
        let mut ringway =
            Self { _last_statistics: last_statistics, process, binary, control, sockets };
        let wanted = ports.len();
        let (binary, control) = (ringway.binary.clone(), ringway.control.clone());
        ringway.process.wait_until("listening", LIMIT, |_| {
            ask(&binary, &control).is_ok_and(|stats| ports_of(&stats).len() == wanted)
        })?;
        Ok(ringway)
    }

    /// How it was started, as one would type it.
    pub fn command(&self) -> &str {
        self.process.command()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// What it says about a port.
    ///
    /// # Errors
    /// It does not answer, or has no such port.
    pub fn port(&self, name: &str) -> anyhow::Result<Port> {
        let stats = ask(&self.binary, &self.control)?;
        let port = ports_of(&stats).iter().find(|port| port["name"] == name);
        Ok(Port(port.ok_or_else(|| anyhow!("ringway: no port {name} in {stats}"))?.clone()))
    }

    /// What it has printed so far.
    pub fn printed(&self) -> String {
        self.process.printed()
    }

    /// Ends the process that carries packets, as a failing machine would.
    ///
    /// # Errors
    /// It does not say which process that is.
    pub fn kill_data_plane(&self) -> anyhow::Result<()> {
        let stats = ask(&self.binary, &self.control)?;
        let pid = stats["data_plane"]["pid"].as_u64().context("there is no data plane")?;
        shell::run(shell::command(&["kill", "-KILL"]).arg(pid.to_string()))
    }

    /// Lets its own program take over from itself.
    ///
    /// # Errors
    /// It refuses.
    pub fn upgrade(&self) -> anyhow::Result<()> {
        let mut command = shell::command(&[&self.binary]);
        shell::output(command.args(["upgrade", "--control"]).arg(&self.control)).map(drop)
    }

    /// What it says about its workers; at least one.
    ///
    /// # Errors
    /// It does not answer.
    pub fn workers(&self) -> anyhow::Result<Vec<Value>> {
        let stats = ask(&self.binary, &self.control)?;
        let workers = stats["workers"].as_array().filter(|workers| !workers.is_empty());
        Ok(workers.ok_or_else(|| anyhow!("ringway: no worker in {stats}"))?.clone())
    }

    /// What `ringway attach` says that a program has to be given to use a port.
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
        let mut command = shell::command(&[&self.binary]);
        command.args(["attach", port, "--for", program, "--memory", "256", "--json"]).args(more);
        let text = shell::output(command.arg("--control").arg(&self.control))?;
        let given: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
        let arguments = given["arguments"].as_array().with_context(|| text.clone())?.iter();
        Ok(arguments.filter_map(Value::as_str).map(str::to_owned).collect())
    }

    /// Changes an option of a port.
    ///
    /// # Errors
    /// It refuses.
    pub fn set(&self, name: &str, option: &str) -> anyhow::Result<()> {
        self.told(&["port", "set", name, option]).map(drop)
    }

    /// What it prints when it is asked this.
    ///
    /// # Errors
    /// It refuses.
    pub fn told(&self, question: &[&str]) -> anyhow::Result<String> {
        let mut command = shell::command(&[&self.binary]);
        shell::output(command.args(question).arg("--control").arg(&self.control))
    }

    /// Removes a port.
    ///
    /// # Errors
    /// It refuses.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let mut command = shell::command(&[&self.binary]);
        command.args(["port", "remove", name, "--control"]).arg(&self.control);
        shell::output(&mut command).map(drop)
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
    binary: PathBuf,
    control: PathBuf,
    file: PathBuf,
}

impl Drop for LastStatistics {
    fn drop(&mut self) {
        let mut command = shell::command(&[&self.binary]);
        if let Ok(text) = shell::output(command.args(["stats", "--control"]).arg(&self.control)) {
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

fn ask(binary: &PathBuf, control: &PathBuf) -> anyhow::Result<Value> {
    let mut command = shell::command(&[binary]);
    let text = shell::output(command.args(["stats", "--json", "--control"]).arg(control))?;
    serde_json::from_str(&text).with_context(|| format!("ringway stats: {text}"))
}

fn ports_of(stats: &Value) -> &[Value] {
    stats["ports"].as_array().map_or(&[], Vec::as_slice)
}

/// What ringway says about one port.
#[derive(Debug)]
pub struct Port(Value);

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// How one direction of a queue is paced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pacing {
    /// Packets that may pass before the other side is told.
    pub window: u64,
    /// How long one waits for that, in microseconds.
    pub timer_us: u64,
    /// Why.
    pub cause: String,
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} packets, {} µs: {}", self.window, self.timer_us, self.cause)
    }
}

/// The two directions of a port.
#[derive(Debug, Clone, Copy)]
pub enum Way {
    /// To the guest, or into the tap.
    To,
    /// From the guest, or out of the tap.
    From,
}

/// What went through in one direction, for differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Packets that went through.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Notifications from the guest.
    pub kicks: u64,
    /// Notifications to the guest.
    pub calls: u64,
}

impl Port {
    /// What went through so far.
    pub fn moved(&self, way: Way) -> Moved {
        let direction = self.direction(way);
        let number = |key: &str| direction[key].as_u64().unwrap_or(0);
        Moved {
            packets: number("packets"),
            bytes: number("bytes"),
            kicks: number("kicks"),
            calls: number("calls"),
        }
    }

    /// Packets so far through each queue pair.
    pub fn pairs(&self, way: Way) -> Vec<u64> {
        let key = match way {
            Way::To => "to_guest",
            Way::From => "from_guest",
        };
        let pairs = self.0["pairs"].as_array().map_or(&[][..], Vec::as_slice);
        pairs.iter().map(|pair| pair[key].as_u64().unwrap_or(0)).collect()
    }

    /// Packets dropped so far for one reason.
    pub fn dropped(&self, way: Way, reason: &str) -> u64 {
        self.direction(way)["drops"][reason].as_u64().unwrap_or(0)
    }

    /// How one direction of its first queue pair is paced: `calls`, `returns` or `kicks`.
    ///
    /// # Errors
    /// No queue runs.
    pub fn pacing(&self, direction: &str) -> anyhow::Result<Pacing> {
        let all = self.0["pacing"].as_array().map_or(&[][..], Vec::as_slice);
        let one = all.iter().find(|one| one["direction"] == direction);
        let one = one.with_context(|| format!("no {direction}: {}", self.0))?;
        let number = |key: &str| one[key].as_u64().unwrap_or(0);
        Ok(Pacing {
            window: number("window"),
            timer_us: number("timer_ns") / 1000,
            cause: one["cause"].as_str().unwrap_or_default().to_string(),
        })
    }

    /// Commands of the guest that were answered with an error.
    pub fn refused_commands(&self) -> u64 {
        self.0["refused_commands"].as_u64().unwrap_or(0)
    }

    /// Whether a front-end is connected, or the tap open.
    pub fn is_connected(&self) -> bool {
        self.0["connected"] == Value::Bool(true)
    }

    /// Checks the ring format, and which features were negotiated and which not.
    ///
    /// # Errors
    /// Something is otherwise.
    pub fn check_negotiated(&self, format: &str, features: &[(&str, bool)]) -> anyhow::Result<()> {
        ensure!(self.0["format"] == format, "not {format}: {}", self.0);
        let negotiated = self.0["features"].as_array().map_or(&[][..], Vec::as_slice);
        for (name, wanted) in features {
            let is_there = negotiated.iter().any(|feature| feature == name);
            ensure!(is_there == *wanted, "{name}: negotiated {is_there}: {}", self.0);
        }
        Ok(())
    }

    /// Checks that no queue was stopped, and nothing dropped for a reason other than these and
    /// what the guest itself filtered.
    ///
    /// # Errors
    /// Something is broken, or was dropped.
    pub fn check_healthy(&self, allowed_drops: &[&str]) -> anyhow::Result<()> {
        let broken = &self.0["broken"];
        let is_fine = broken.is_null() || broken.as_array().is_some_and(Vec::is_empty);
        ensure!(is_fine, "broken: {}", self.0);
        for way in [Way::To, Way::From] {
            let drops = self.direction(way)["drops"].as_object().into_iter().flatten();
            for (reason, count) in drops.filter(|(_, count)| count.as_u64() != Some(0)) {
                let is_allowed = reason == "filtered" || allowed_drops.contains(&&**reason);
                ensure!(is_allowed, "{count} packets dropped ({reason}): {}", self.0);
            }
        }
        Ok(())
    }

    fn direction(&self, way: Way) -> &Value {
        match way {
            Way::To => &self.0["to_guest"],
            Way::From => &self.0["from_guest"],
        }
    }
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { packets, kicks, calls, .. } = self;
        write!(f, "{packets} packets of {} bytes, {kicks} kicks, {calls} calls", self.mean_len())
    }
}

impl Moved {
    /// What went through since `before`.
    pub fn since(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
            kicks: self.kicks.saturating_sub(before.kicks),
            calls: self.calls.saturating_sub(before.calls),
        }
    }

    /// Mean length of a packet in bytes.
    pub fn mean_len(self) -> u64 {
        self.bytes.checked_div(self.packets).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn port() -> Port {
        Port(json!({
            "name": "vm0", "connected": true, "format": "packed", "features": ["MRG_RXBUF"],
            "to_guest": { "packets": 4, "bytes": 40, "drops": { "no_room": 2, "offload": 0 } },
            "from_guest": { "packets": 1, "bytes": 9, "drops": {} }, "broken": [],
        }))
    }

    #[test]
    fn sockets_are_those_of_listening_ports() {
        assert_eq!(socket("vm0=vm:/a/b.sock,packed=off"), Some(PathBuf::from("/a/b.sock")));
        assert_eq!(socket("up=tap:tap0"), None);
    }

    #[test]
    fn negotiation_is_compared_both_ways() {
        let wanted = [("MRG_RXBUF", true), ("EVENT_IDX", false)];
        assert!(port().check_negotiated("packed", &wanted).is_ok());
        assert!(port().check_negotiated("split", &wanted).is_err());
        assert!(port().check_negotiated("packed", &[("MRG_RXBUF", false)]).is_err());
        assert!(port().check_negotiated("packed", &[("EVENT_IDX", true)]).is_err());
    }

    #[test]
    fn drops_and_broken_queues_are_found() {
        assert!(port().check_healthy(&["no_room"]).is_ok());
        assert!(port().check_healthy(&[]).is_err());
        let mut broken = port();
        broken.0["broken"] = json!(["transmitq1: loop"]);
        assert!(broken.check_healthy(&["no_room"]).is_err());
    }

    #[test]
    fn differences_have_a_mean() {
        let now = port().moved(Way::To);
        assert_eq!(now.since(Moved { packets: 2, bytes: 10, kicks: 0, calls: 0 }).mean_len(), 15);
        assert_eq!(now.since(now).mean_len(), 0);
    }
}
