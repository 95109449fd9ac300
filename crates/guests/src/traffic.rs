//! Traffic that pairs carry: pings, a flood of them, TCP both ways, UDP.
//!
//! How: the same commands run on this side or in a guest ([`Side`]), against an iperf3 server on
//! the other side. "Out" is from the side that runs them, "in" is back.
//!
//! Limits: rates are measured for a few seconds; they say that it works, not how fast it is.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::console::Console;
use super::iperf::IperfReport;
use super::stage::Stage;
use crate::shell;

/// Echo requests in a flood.
pub const FLOOD_PACKETS: u32 = 3_000;

/// UDP at a rate that an emulated guest can take.
const UDP: &str = "-u -b 20M -l 1400 -t 1";

/// UDP packets that may get lost, in percent: a receiver that does not get the processor in time
/// loses some, and they are not sent again.
const UDP_LOST_PERCENT_MAX: f64 = 20.0;

/// Seconds of UDP to try: on a machine that does something else meanwhile, too much of one may get
/// lost.
const UDP_ATTEMPTS_MAX: usize = 3;

/// IP and ICMP headers of an echo request in bytes.
const PING_HEADERS_LEN: u32 = 28;

/// Longest time for one command.
const LIMIT: Duration = Duration::from_secs(40);

/// Where commands run.
#[derive(Debug)]
pub enum Side<'a> {
    /// This side, in the scenario's namespace.
    Here,
    /// In a guest.
    Guest(&'a mut Console),
}

impl Side<'_> {
    /// Runs a command line; returns its status and what it printed.
    ///
    /// # Errors
    /// It does not finish in time.
    pub fn run(&mut self, line: &str) -> anyhow::Result<(i32, String)> {
        match self {
            Side::Guest(console) => console.run(line, LIMIT),
            Side::Here => {
                let seconds = LIMIT.as_secs().to_string();
                let limit = ["timeout", "-s", "KILL", &seconds, "sh", "-c", line];
                let mut command = shell::command(&limit);
                let output = command.stdin(std::process::Stdio::null()).output()?;
                let text = [output.stdout, output.stderr].concat();
                let status = output.status.code().unwrap_or(-1);
                Ok((status, String::from_utf8_lossy(&text).into_owned()))
            }
        }
    }

    /// Runs a command line that must succeed.
    ///
    /// # Errors
    /// It fails, or does not finish in time.
    pub fn must(&mut self, line: &str) -> anyhow::Result<String> {
        let (status, text) = self.run(line)?;
        ensure!(status == 0, "{line}: status {status}:\n{text}");
        Ok(text)
    }
}

/// Sends a flood of pings, none of which may be lost; returns the mean round trip in ms.
///
/// # Errors
/// One was lost, or there is no way to `address`.
pub fn flood(side: &mut Side<'_>, address: &str, packets: u32) -> anyhow::Result<f64> {
    // The addresses are resolved first: a flood does not wait for that.
    side.must(&format!("ping -c 1 -W 10 {address}"))?;
    let text = side.must(&format!("ping -f -q -c {packets} {address}"))?;
    ensure!(text.contains(&format!(" {packets} received")), "pings were lost:\n{text}");
    let [_, mean_ms, ..] = round_trips_ms(&text).with_context(|| format!("ping: {text}"))?;
    Ok(mean_ms)
}

/// Sends full packets of this MTU that must not be fragmented.
///
/// # Errors
/// One was lost, or is too long for a hop on the way.
pub fn full_packets(side: &mut Side<'_>, address: &str, mtu: u32) -> anyhow::Result<()> {
    let len = mtu - PING_HEADERS_LEN;
    // Not quietly: if one is lost, it must be seen which.
    let text = side.must(&format!("ping -M do -c 100 -i 0.01 -s {len} {address}"))?;
    ensure!(text.contains(" 100 received"), "pings of {mtu} bytes were lost:\n{text}");
    Ok(())
}

/// TCP for some seconds; `-R` as an option turns the direction round.
///
/// # Errors
/// No connection, or nothing arrives.
pub fn tcp(
    side: &mut Side<'_>,
    address: &str,
    seconds: u32,
    options: &str,
) -> anyhow::Result<IperfReport> {
    let text = iperf(side, &format!("iperf3 -J -c {address} -t {seconds} {options}"))?;
    let report = IperfReport::parse(&text)?;
    ensure!(report.bits_per_second > 0.0, "TCP {options}: nothing arrived");
    Ok(report)
}

/// Runs an iperf3 client. Its server takes a moment to listen, at first and after every client.
///
/// # Errors
/// It does not finish in time.
pub fn iperf(side: &mut Side<'_>, line: &str) -> anyhow::Result<String> {
    let mut attempts_left = 20;
    loop {
        let (_, text) = side.run(line)?;
        if !is_early(&text) || attempts_left == 0 {
            return Ok(text);
        }
        attempts_left -= 1;
        side.run("sleep 0.2")?;
    }
}

/// Whether the server was not ready yet. Between two clients it closes its listening socket and
/// opens another one: who was already waiting at the first is reset before anything was measured.
fn is_early(text: &str) -> bool {
    let is_reset = ["receive control message", "send cookie to server"]
        .iter()
        .any(|what| text.contains(&format!("unable to {what}: Connection reset by peer")));
    // A guest's console may have its own idea of tabs.
    let dense: String = text.split_whitespace().collect();
    let is_nothing_measured = dense.contains("\"connected\":[]");
    let is_refused = text.contains("Connection refused") || text.contains("server is busy");
    is_refused || (is_reset && is_nothing_measured)
}

/// UDP, of which a little may get lost.
///
/// # Errors
/// Too much was lost, or nothing arrives.
pub fn udp(stage: &Stage, side: &mut Side<'_>, address: &str) -> anyhow::Result<IperfReport> {
    let mut lost = Vec::with_capacity(UDP_ATTEMPTS_MAX);
    for _ in 0..UDP_ATTEMPTS_MAX {
        let text = iperf(side, &format!("iperf3 -J -c {address} {UDP}"))?;
        let report = IperfReport::parse(&text)?;
        match report.lost_percent {
            Some(percent) if percent <= UDP_LOST_PERCENT_MAX => return Ok(report),
            percent => lost.push(percent),
        }
        stage.note(&format!("UDP: so much was lost, in percent: {lost:?}"));
    }
    bail!("UDP: so much was lost each time, in percent: {lost:?}")
}

/// Shortest, mean, longest and standard deviation, in ms, of what ping printed at its end:
/// `rtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms`.
pub fn round_trips_ms(text: &str) -> Option<[f64; 4]> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("rtt "))?;
    let (_, times) = line.split_once("= ")?;
    let mut times = times.split(['/', ' ']).map(|time| time.parse().ok());
    Some([times.next()??, times.next()??, times.next()??, times.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips_are_read_from_ping() {
        let text = "10 packets transmitted, 10 received, 0% packet loss, time 9ms\n\
                    rtt min/avg/max/mdev = 0.050/0.126/0.300/0.010 ms, ipg/ewma 0.1/0.1 ms\n";
        assert_eq!(round_trips_ms(text), Some([0.05, 0.126, 0.3, 0.01]));
        assert_eq!(round_trips_ms("10 packets transmitted, 0 received"), None);
    }

    #[test]
    fn a_server_that_is_not_ready_yet_is_told_from_a_broken_connection() {
        let reset = "\"error\":\t\"unable to receive control message: Connection reset by peer\"";
        assert!(is_early(&format!("{{\"connected\":\t[], {reset}}}")));
        assert!(!is_early(&format!("{{\"connected\":\t[{{\"socket\":\t5}}], {reset}}}")));
        let cookie = "\"error\":\t\"unable to send cookie to server: Connection reset by peer\"";
        assert!(is_early(&format!("{{\"connected\":\t[], {cookie}}}")));
        assert!(is_early("iperf3: error - the server is busy running a test"));
        assert!(!is_early("{}"));
    }

    #[test]
    fn commands_run_here() {
        assert_eq!(Side::Here.run("echo a; exit 3").ok(), Some((3, "a\n".to_string())));
        assert!(Side::Here.must("exit 1").is_err());
    }
}
