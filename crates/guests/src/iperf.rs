//! iperf3: a server of ours, and what a client reports.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use super::process::Process;
use super::stage::Stage;
use crate::shell;

/// Starts a server on this side.
///
/// # Errors
/// There is no iperf3, or its port is taken.
pub fn start_server(stage: &Stage) -> anyhow::Result<Process> {
    start(stage, "iperf3-server", shell::command(&["iperf3", "-s", "--forceflush"]))
}

/// Starts a server that listens at one address of this side only.
///
/// # Errors
/// There is no iperf3, or its port is taken.
pub fn start_server_at(stage: &Stage, address: &str) -> anyhow::Result<Process> {
    let words = ["iperf3", "-s", "--forceflush", "-B", address];
    start(stage, "iperf3-server", shell::command(&words))
}

/// The same at another port: a server serves one client at a time.
///
/// # Errors
/// There is no iperf3, or the port is taken.
pub fn start_server_on(stage: &Stage, address: &str, port: u16) -> anyhow::Result<Process> {
    let (name, port) = (format!("iperf3-server-{port}"), port.to_string());
    let words = ["iperf3", "-s", "--forceflush", "-B", address, "-p", &port];
    start(stage, &name, shell::command(&words))
}

fn start(stage: &Stage, name: &str, command: Command) -> anyhow::Result<Process> {
    let mut server = Process::start(stage, name, command)?;
    let is_listening = |process: &mut Process| process.printed().contains("Server listening");
    server.wait_until("listening", Duration::from_secs(10), is_listening)?;
    Ok(server)
}

/// The measurements of a client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IperfReport {
    /// The rate at the receiver.
    pub bits_per_second: f64,
    /// Over so many seconds.
    pub seconds: f64,
    /// UDP packets that arrived.
    pub packets: Option<f64>,
    /// TCP segments that were sent again, where the sender's system knows.
    pub retransmits: Option<u64>,
    /// UDP packets that were lost, in percent of those sent.
    pub lost_percent: Option<f64>,
}

impl IperfReport {
    /// Reads what `iperf3 -J` prints.
    ///
    /// # Errors
    /// The measurement failed, or this is something else.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let start = text.find('{').ok_or_else(|| anyhow!("iperf3: no JSON in {text:?}"))?;
        let json = text.get(start..).unwrap_or_default();
        let value: Value = serde_json::from_str(json).with_context(|| format!("iperf3: {text}"))?;
        if let Some(error) = value["error"].as_str() {
            bail!("iperf3: {error}");
        }
        let end = &value["end"];
        let sum = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
        let rate = sum["bits_per_second"].as_f64();
        let udp = |key: &str| end["sum"][key].as_f64();
        Ok(Self {
            seconds: sum["seconds"].as_f64().unwrap_or(0.0),
            packets: udp("packets").zip(udp("lost_packets")).map(|(sent, lost)| sent - lost),
            bits_per_second: rate.ok_or_else(|| anyhow!("iperf3: no rate in {json}"))?,
            retransmits: end["sum_sent"]["retransmits"].as_u64(),
            lost_percent: end["sum"]["lost_percent"].as_f64(),
        })
    }

    /// UDP packets that `iperf3 -J -u --bidir` sent and that did not arrive, in both directions
    /// together.
    ///
    /// # Errors
    /// The measurement failed, or this is something else.
    pub fn lost_both_ways(text: &str) -> anyhow::Result<u64> {
        Self::parse(text)?;
        let json = text.get(text.find('{').unwrap_or(0)..).unwrap_or_default();
        let end = &serde_json::from_str::<Value>(json)?["end"];
        let lost = ["sum", "sum_bidir_reverse"].map(|sum| end[sum]["lost_packets"].as_u64());
        let [out, back] = lost;
        let both = out.zip(back).ok_or_else(|| anyhow!("iperf3: not both ways: {json}"))?;
        Ok(both.0 + both.1)
    }

    /// The rate in Gb/s.
    pub fn gigabits(&self) -> f64 {
        self.bits_per_second / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_reports_have_a_rate_and_retransmits() {
        let text = "noise\n{\"end\":{\"sum_sent\":{\"bits_per_second\":2e9,\"retransmits\":3},\
                    \"sum_received\":{\"bits_per_second\":1.5e9}}}\n";
        let report = IperfReport::parse(text).expect("a report");
        assert_eq!((report.gigabits(), report.retransmits), (1.5, Some(3)));
    }

    #[test]
    fn udp_reports_have_a_loss() {
        let text = "{\"end\":{\"sum\":{\"bits_per_second\":2e7,\"lost_percent\":0.5,\
                    \"seconds\":2,\"packets\":1000,\"lost_packets\":5}}}";
        let report = IperfReport::parse(text).expect("a report");
        assert_eq!((report.seconds, report.packets), (2.0, Some(995.0)));
        assert_eq!((report.bits_per_second, report.lost_percent), (2e7, Some(0.5)));
    }

    #[test]
    fn what_was_lost_in_both_directions_is_added_up() {
        let sum = "{\"bits_per_second\":2e6,\"lost_packets\":";
        let both = format!("{{\"end\":{{\"sum\":{sum}2}},\"sum_bidir_reverse\":{sum}3}}}}}}");
        assert_eq!(IperfReport::lost_both_ways(&both).expect("both"), 5);
        assert!(IperfReport::lost_both_ways(&format!("{{\"end\":{{\"sum\":{sum}2}}}}}}")).is_err());
    }

    #[test]
    fn failures_are_errors() {
        let error = IperfReport::parse("{\"error\":\"unable to connect\",\"end\":{}}");
        assert!(error.expect_err("failed").to_string().contains("unable to connect"));
        assert!(IperfReport::parse("no route to host").is_err());
        assert!(IperfReport::parse("{\"end\":{}}").is_err());
    }
}
