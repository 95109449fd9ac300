//! Pings from this machine, each with when it was sent.
//!
//! How: those that follow each other at once are ping's, those with a period fping's. ping waits for a period
//! of less than ten milliseconds by asking for the time again and again, and what it takes of a processor, an
//! eighth where worker and stream have the same one, is missing from what is measured. fping sleeps.
//!
//! Limits: fping's times are rounded to ten microseconds where they are of the clock, and to one where they are
//! round trips.

use anyhow::{bail, ensure};

/// The program that sends with a period.
pub(super) const PROGRAM: &str = "fping";

/// One ping of so many may stay without an answer; with more, the rest says nothing of them all.
const ANSWERED_NOT: usize = 50;

/// How long an answer may take, in milliseconds: fping forgets after one period whom it has asked, if not
/// told otherwise, and that is when streams have queues.
const TIMEOUT_MS: u32 = 4_000;

/// When pings are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pings {
    /// Each when the one before is answered.
    OneByOne,
    /// One after so many milliseconds, answered or not.
    Periodic { period_ms: u32 },
}

impl Pings {
    /// A command line that sends them for so many seconds.
    ///
    /// Lines are printed all at once at the end: nobody is to be woken for each of them.
    pub(super) fn command(self, address: &str, seconds: u32) -> String {
        let command = match self {
            Self::OneByOne => format!("ping -n -D -A -w {seconds} {address}"),
            Self::Periodic { period_ms } => {
                let count = seconds * 1000 / period_ms;
                format!(
                    "{PROGRAM} -D -i {period_ms} -p {period_ms} -t {TIMEOUT_MS} -c {count} {address}"
                )
            }
        };
        format!("lines=$(mktemp) && {command} >$lines; cat $lines; rm $lines")
    }
}

/// When each ping was sent, in seconds since 1970, and its round trip in milliseconds.
///
/// # Errors
/// Too many have no answer, or it is not said how many there were.
pub(super) fn round_trips(printed: &str) -> anyhow::Result<Vec<(f64, f64)>> {
    let times: Vec<(f64, f64)> = printed.lines().filter_map(round_trip).collect();
    let Some(sent) = printed.lines().find_map(sent) else {
        let last = printed.lines().last().unwrap_or_default();
        bail!("no pings were sent: {last}");
    };
    let enough = sent - sent / ANSWERED_NOT;
    ensure!(times.len() >= enough, "{} of {sent} pings were answered", times.len());
    Ok(times)
}

/// One of them, as in `[1700000000.123456] 64 bytes from 10.0.0.2: icmp_seq=1 ttl=64 time=0.321 ms` or in
/// `[1700000000.12345] 10.0.0.2 : [0], 64 bytes, 0.321 ms (0.321 avg, 0% loss)`.
fn round_trip(line: &str) -> Option<(f64, f64)> {
    let (stamp, rest) = line.strip_prefix('[')?.split_once(']')?;
    let (before, _) = rest.split_once(" ms")?;
    let time = before.rsplit([' ', '=']).next()?;
    let (arrived, time_ms): (f64, f64) = (stamp.parse().ok()?, time.parse().ok()?);
    Some((arrived - time_ms / 1e3, time_ms))
}

/// How many were sent, as in `2 packets transmitted, 2 received, 0% packet loss, time 2ms` or in
/// `10.0.0.2 : xmt/rcv/%loss = 2/2/0%, min/avg/max = 0.500/125/250`.
fn sent(line: &str) -> Option<usize> {
    let of_ping = line.split_once(" packets transmitted").map(|(count, _)| count);
    let of_fping = || Some(line.split_once("xmt/rcv/%loss = ")?.1.split_once('/')?.0);
    of_ping.or_else(of_fping)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_PING: &str = "PING 10.90.1.2 (10.90.1.2) 56(84) bytes of data.\n\
        [1700000000.500500] 64 bytes from 10.90.1.2: icmp_seq=1 ttl=64 time=0.500 ms\n\
        [1700000000.750250] 64 bytes from 10.90.1.2: icmp_seq=2 ttl=64 time=250 ms\n\
        \n--- 10.90.1.2 ping statistics ---\n\
        2 packets transmitted, 2 received, 0% packet loss, time 2ms\n";

    const OF_FPING: &str = "[1700000000.50050] 10.90.1.2 : [0], 64 bytes, 0.500 ms (0.500 avg, 0% loss)\n\
        [1700000000.75025] 10.90.1.2 : [1], 64 bytes, 250 ms (125 avg, 0% loss)\n\
        \n10.90.1.2 : xmt/rcv/%loss = 2/2/0%, min/avg/max = 0.500/125/250\n";

    /// What fping prints of a ping that nobody has answered.
    const TIMED_OUT: &str = "10.90.1.2 : [1], timed out (0.500 avg, 50% loss)";

    #[test]
    fn both_programs_say_when_pings_were_sent() {
        for printed in [OF_PING, OF_FPING] {
            let times = round_trips(printed).expect("two of two");
            let milliseconds: Vec<f64> = times.iter().map(|&(_, time_ms)| time_ms).collect();
            assert_eq!(milliseconds, [0.5, 250.0]);
            // The second one came back a quarter of a second after the first one, and was sent with it.
            assert!(
                times.iter().all(|&(sent, _)| (sent - 1_700_000_000.5).abs() < 0.001),
                "{times:?}"
            );
        }
    }

    #[test]
    fn lost_pings_are_a_failure() {
        let lost = OF_FPING
            .lines()
            .map(|line| if line.contains("[1]") { TIMED_OUT } else { line })
            .collect::<Vec<_>>()
            .join("\n");
        for one_of_two in [OF_PING.replace("icmp_seq=2 ttl=64 time=250 ms", ""), lost] {
            let why = round_trips(&one_of_two).expect_err("half of them").to_string();
            assert!(why.contains("1 of 2 pings"), "{why}");
        }
        let why = round_trips("ping: connect: Network is unreachable\n").expect_err("none");
        assert!(why.to_string().ends_with("Network is unreachable"), "{why}");
    }

    #[test]
    fn a_period_says_how_many_pings_fill_the_time() {
        let command = Pings::Periodic { period_ms: 4 }.command("10.90.1.2", 15);
        assert!(command.contains("-i 4 -p 4 ") && command.contains("-c 3750 "), "{command}");
    }
}
