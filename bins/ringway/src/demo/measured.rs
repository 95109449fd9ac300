//! What the guests measured, and how it is read from what `ping` and `iperf3` print.

use serde::Serialize;
use serde_json::Value;

/// The figures of one demonstration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// What the guests are, with their version.
    pub guests: String,
    /// From a to b, in bits of TCP payload per second.
    pub a_to_b_bits_per_second: f64,
    /// From b to a, in bits of TCP payload per second.
    pub b_to_a_bits_per_second: f64,
    /// The round trip.
    pub round_trip: RoundTrip,
}

/// Echo requests and how long their answers took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct RoundTrip {
    /// Requests sent.
    pub sent: u64,
    /// Answers that came.
    pub received: u64,
    /// Shortest, in milliseconds.
    pub min_ms: f64,
    /// Mean, in milliseconds.
    pub mean_ms: f64,
    /// Longest, in milliseconds.
    pub max_ms: f64,
}

impl RoundTrip {
    /// Reads what `ping -q` prints (its lines may have been joined).
    pub fn from_ping(text: &str) -> Option<Self> {
        let (_, times) = text.split_once("min/avg/max")?.1.split_once("= ")?;
        let mut times = times.split(['/', ' ']).map(|time| time.parse::<f64>().ok());
        Some(Self {
            sent: number_before(text, " packets transmitted")?,
            received: number_before(text, " received")
                .or_else(|| number_before(text, " packets received"))?,
            min_ms: times.next()??,
            mean_ms: times.next()??,
            max_ms: times.next()??,
        })
    }
}

fn number_before(text: &str, words: &str) -> Option<u64> {
    text.split_once(words)?.0.rsplit(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// Reads bits per second at the receiving end from what `iperf3 --json` prints.
///
/// # Errors
/// What iperf3 says went wrong, or that this is not its output.
pub fn bits_per_second(text: &str) -> Result<f64, String> {
    let report: Value =
        serde_json::from_str(text).map_err(|why| format!("iperf3 printed no JSON: {why}"))?;
    if let Some(error) = report.get("error").and_then(Value::as_str) {
        return Err(format!("iperf3: {error}"));
    }
    let rate = report.pointer("/end/sum_received/bits_per_second").and_then(Value::as_f64);
    rate.filter(|&rate| rate > 0.0).ok_or_else(|| "iperf3 measured nothing".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ping_is_understood_with_and_without_its_line_ends() {
        let text = "PING 10.0.0.1 (10.0.0.1) 56(84) bytes of data.\r\n\r\n\
                    --- 10.0.0.1 ping statistics ---\r\n\
                    100 packets transmitted, 99 received, 1% packet loss, time 77ms\r\n\
                    rtt min/avg/max/mdev = 0.048/0.104/0.173/0.055 ms\r\n";
        let right =
            RoundTrip { sent: 100, received: 99, min_ms: 0.048, mean_ms: 0.104, max_ms: 0.173 };
        assert_eq!(RoundTrip::from_ping(text), Some(right));
        assert_eq!(RoundTrip::from_ping(&text.replace("\r\n", " ")), Some(right));
    }

    #[test]
    fn a_ping_without_answers_has_no_round_trip() {
        let text = "3 packets transmitted, 0 received, 100% packet loss, time 20ms";
        assert_eq!(RoundTrip::from_ping(text), None);
        assert_eq!(RoundTrip::from_ping(""), None);
    }

    #[test]
    fn iperf3_is_understood() {
        let text = r#"{"end":{"sum_sent":{"bits_per_second":9e9},
                       "sum_received":{"bits_per_second":8.5e9}}}"#;
        assert_eq!(bits_per_second(text), Ok(8.5e9));
        let error = r#"{"start":{},"error":"unable to connect to server"}"#;
        assert_eq!(bits_per_second(error), Err("iperf3: unable to connect to server".into()));
        assert!(bits_per_second("").is_err());
        assert!(bits_per_second("{}").is_err());
    }
}
