//! What is measured under each policy: throughput, round trips alone, and round trips beside a
//! stream, while iperf3 sends in either direction.
//!
//! Limits: the percentile beside a stream is of 500 round trips.

use anyhow::ensure;
use ringway_guests::traffic;

use super::super::Options;
use super::super::rig::Rig;
use crate::verdict::Needed;

/// As many pings beside a stream run at once, so that enough are answered in short time; each of
/// them sleeps between its requests, which it would not with a shorter interval.
pub(super) const PINGERS: u32 = 5;

/// Seconds that each of them is asked to leave between two requests.
const PING_EVERY: &str = "0.01";

/// What it leaves at most, in milliseconds: it adds a tick of its own.
const PING_EVERY_MS_MAX: u32 = 20;

/// What is printed where the stream beside pings failed: they were not beside one.
const NO_STREAM: &str = "NO-STREAM";

/// Until iperf3's server listens again, in seconds.
const SERVER_RESTS: &str = "0.2";

/// How long after the stream the first of them begins, in seconds and in milliseconds.
const STREAM_STARTS: (&str, u32) = ("0.3", 300);

/// How long the stream goes on behind them at least, in milliseconds.
const STREAM_ENDS_MS: u32 = 400;

/// One ping of so many may stay without an answer; with more, the rest says nothing of them all.
const ANSWERED_NOT: u32 = 50;

/// Needed of throughput against any other row.
const THROUGHPUT: Needed = Needed::AtLeast(0.98);

/// Needed of times against any other row.
const TIME: Needed = Needed::AtMost(1.1);

/// One kind of figure: its name, with the unit, and what is needed.
pub(super) const FIGURES: [(&str, Needed); 8] = [
    ("TCP out, Gb/s", THROUGHPUT),
    ("TCP in, Gb/s", THROUGHPUT),
    ("ping -f, mean, ms", TIME),
    ("ping -A, 99th percentile, ms", TIME),
    ("ping beside TCP out, mean, ms", TIME),
    ("ping beside TCP out, 99th percentile, ms", TIME),
    ("ping beside TCP in, mean, ms", TIME),
    ("ping beside TCP in, 99th percentile, ms", TIME),
];

/// All figures of one policy in one round.
pub(super) type Turn = [Option<f64>; FIGURES.len()];

/// What is measured in one go, and gives one figure or two, in the order of [`FIGURES`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Measure {
    /// One stream from the guest.
    TcpOut,
    /// One stream to it.
    TcpIn,
    /// Pings as fast as they are answered: their mean.
    Flood,
    /// Pings one after the other: their 99th percentile.
    Alone,
    /// Pings beside a stream from the guest: mean and 99th percentile.
    BesideOut,
    /// Pings beside a stream to it: the same.
    BesideIn,
}

impl Measure {
    pub(super) const ALL: [Self; 6] =
        [Self::TcpOut, Self::TcpIn, Self::Flood, Self::Alone, Self::BesideOut, Self::BesideIn];

    /// Its first figure.
    fn first(self) -> usize {
        match self {
            Self::BesideIn => 6,
            Self::TcpOut | Self::TcpIn | Self::Flood | Self::Alone | Self::BesideOut => {
                self as usize
            }
        }
    }

    /// Measures once.
    ///
    /// # Errors
    /// Something does not answer; the figures stay as they are.
    pub(super) fn take(
        self,
        rig: &mut Rig,
        options: &Options,
        turn: &mut Turn,
    ) -> anyhow::Result<()> {
        let (address, seconds, pings) = (rig.address(), options.seconds, Pings::new(options));
        rig.side().must(&format!("ping -c 1 -W 10 {address}"))?;
        let first = self.first();
        match self {
            Self::TcpOut | Self::TcpIn => {
                let report = traffic::tcp(&mut rig.side(), &address, seconds, self.way())?;
                turn[first] = Some(report.gigabits());
            }
            Self::Flood => {
                turn[first] = Some(traffic::flood(&mut rig.side(), &address, pings.alone)?);
            }
            Self::Alone => {
                let line = format!("ping -A -c {} {address}", pings.alone);
                turn[first] = percentile(&round_trips(rig, &line, pings.alone)?);
            }
            Self::BesideOut | Self::BesideIn => {
                let line = beside(pings, &address, self.way());
                let times = round_trips(rig, &line, PINGERS * pings.beside)?;
                (turn[first], turn[first + 1]) = (mean(&times), percentile(&times));
            }
        }
        rig.rest()
    }

    /// What iperf3 is told about the direction.
    fn way(self) -> &'static str {
        match self {
            Self::TcpIn | Self::BesideIn => "-R",
            Self::TcpOut | Self::Flood | Self::Alone | Self::BesideOut => "",
        }
    }
}

/// How many pings are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pings {
    /// In a flood, and one after the other.
    pub(super) alone: u32,
    /// By each of [`PINGERS`] beside a stream.
    pub(super) beside: u32,
}

impl Pings {
    pub(super) fn new(options: &Options) -> Self {
        Self { alone: options.pings / 4, beside: options.pings / 100 }
    }

    /// How long the stream beside them takes, in seconds.
    fn stream_seconds(self) -> u32 {
        (STREAM_STARTS.1 + self.beside * PING_EVERY_MS_MAX + STREAM_ENDS_MS).div_ceil(1000)
    }
}

/// The command line for pings beside a stream: this way, or with `-R` the other.
fn beside(pings: Pings, address: &str, way: &str) -> String {
    let stream = format!("iperf3 -c {address} -t {} {way} >/dev/null 2>&1", pings.stream_seconds());
    let ping = format!("ping -i {PING_EVERY} -c {} {address} &", pings.beside);
    let pings = vec![ping; PINGERS as usize].join(" ");
    let starts = STREAM_STARTS.0;
    format!(
        "{{ sleep {SERVER_RESTS}; {{ {stream} || echo {NO_STREAM}; }} & sleep {starts}; {pings} wait; }}"
    )
}

/// All round trips that `count` pings print, in ms, the shortest first.
fn round_trips(rig: &mut Rig, line: &str, count: u32) -> anyhow::Result<Vec<f64>> {
    let select = format!(r"sed -n -e 's/.*time=\([0-9.]*\) ms.*/\1/p' -e '/{NO_STREAM}/p'");
    let (_, text) = rig.side().run(&format!("{line} | {select}"))?;
    ensure!(!text.contains(NO_STREAM), "{line}: there was no stream");
    let mut times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let (answered, enough) = (times.len(), (count - count / ANSWERED_NOT) as usize);
    ensure!(answered >= enough, "{line}: {answered} of {count} pings were answered: {text}");
    times.sort_by(f64::total_cmp);
    Ok(times)
}

#[allow(clippy::cast_precision_loss, reason = "a few hundred")]
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value that 99 of 100 are not above; `sorted` begins with the lowest.
fn percentile(sorted: &[f64]) -> Option<f64> {
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_one_measure() {
        let ends = |measure: &Measure| match measure {
            Measure::BesideOut | Measure::BesideIn => measure.first() + 2,
            _ => measure.first() + 1,
        };
        let mut expected = 0;
        for measure in &Measure::ALL {
            assert_eq!(measure.first(), expected);
            expected = ends(measure);
        }
        assert_eq!(expected, FIGURES.len());
    }

    #[test]
    fn percentiles() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred), Some(99.0));
        assert_eq!(percentile(&[7.0]), Some(7.0));
        assert_eq!(percentile(&[]), None);
    }

    #[test]
    fn a_stream_lasts_longer_than_the_pings_beside_it() {
        let pings = Pings { alone: 2500, beside: 100 };
        assert_eq!(pings.stream_seconds(), 3);
        let line = beside(pings, "10.0.0.1", "-R");
        assert_eq!(line.matches("ping -i 0.01 -c 100 10.0.0.1 &").count(), 5);
        assert!(line.contains("{ iperf3 -c 10.0.0.1 -t 3 -R >"), "{line}");
    }
}
