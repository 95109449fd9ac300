//! What is measured under each policy: throughput, round trips alone, and round trips beside a
//! stream, while iperf3 sends in either direction.
//!
//! Limits: the percentile beside a stream is of some 500 round trips.

use std::fmt;

use ringway_guests::traffic;

use super::super::rig::Rig;
use super::super::{Options, Pairing};
use super::slices::{Load, VISITS, Visit, visits};
use super::tables::Turns;
use super::{POLICIES, order};
use crate::verdict::Needed;

/// Pings beside a stream, sent every 4 ms.
const BESIDE: Option<&str> = Some("-i 0.004");

/// Pings alone, one after the other: each when the one before is answered.
const ALONE: Option<&str> = Some("-A");

/// Streams with pings beside them make one percentile together.
const STREAMS_TOGETHER: usize = 2;

/// What iperf3 is told for a stream from the guest, and for one to it.
const WAYS: [&str; 2] = ["", "-R"];

/// The same for one from the guest that every policy carries, and that is fast enough for the worker
/// to wait for several packets of it (1.1 Gb/s of 64 KiB): whoever moves fewer packets has no more
/// time for pings.
pub(super) const fn held_back(pairing: Pairing) -> &'static str {
    match pairing {
        Pairing::QemuHost => "-b 1500M",
        Pairing::UmlHost | Pairing::UmlPair => "-b 5G",
    }
}

/// Needed of throughput against any other row.
const THROUGHPUT: Needed = Needed::AtLeast(0.98);

/// Needed of times against any other row.
const TIME: Needed = Needed::AtMost(1.1);

/// One kind of figure: its name, with the unit, and what is needed.
pub(super) const FIGURES: [(&str, Needed); 9] = [
    ("TCP out, Gb/s", THROUGHPUT),
    ("TCP in, Gb/s", THROUGHPUT),
    ("ping -f, mean, ms", TIME),
    ("ping -A, 99th percentile, ms", TIME),
    ("ping beside TCP out, mean, ms", TIME),
    ("ping beside TCP out, 99th percentile, ms", TIME),
    ("ping beside TCP in, mean, ms", TIME),
    ("ping beside TCP in, 99th percentile, ms", TIME),
    ("ping beside TCP held back, out, mean, ms", TIME),
];

/// What is measured in one go, and gives one figure or two.
#[derive(Debug, Clone, Copy)]
pub(super) enum Measure {
    /// A stream this way, 0 from the guest and 1 to it: figures 0 and 1.
    Stream(usize),
    /// Pings as fast as they are answered: the mean of each flood.
    Flood,
    /// Pings one after the other: the 99th percentile of each slice.
    Alone,
    /// Pings beside a stream this way: the mean of each slice, the 99th percentile of all together.
    Beside(usize),
    /// Pings beside a stream that does not send all it could: the mean of each slice.
    BesideHeldBack,
}

impl Measure {
    pub(super) const ALL: [Self; 7] = [
        Self::Stream(0),
        Self::Stream(1),
        Self::Flood,
        Self::Alone,
        Self::Beside(0),
        Self::Beside(1),
        Self::BesideHeldBack,
    ];

    /// Its first figure.
    fn first(self) -> usize {
        match self {
            Self::Stream(way) => way,
            Self::Flood => 2,
            Self::Alone => 3,
            Self::Beside(way) => 4 + 2 * way,
            Self::BesideHeldBack => 8,
        }
    }

    /// Measures under every policy in one round, and adds what was found.
    ///
    /// # Errors
    /// Something does not answer; what was found before stays.
    pub(super) fn take(
        self,
        rig: &mut Rig,
        options: &Options,
        round: usize,
        turns: &mut Turns,
    ) -> anyhow::Result<()> {
        let first = self.first();
        match self {
            Self::Flood => {
                let mut means = [None; POLICIES.len()];
                for policy in order(round) {
                    rig.set_policy(POLICIES[policy])?;
                    let address = rig.address();
                    let flood = traffic::flood(&mut rig.side(), &address, options.pings / 4)?;
                    means[policy] = Some(flood);
                    rig.rest()?;
                }
                add(turns, first, means);
            }
            Self::Stream(way) => {
                let load = Load { stream: Some(WAYS[way]), pings: None };
                for visit in streams(rig, load, round, options.seconds as usize)? {
                    add(turns, first, visit.each_ref().map(|slice| Some(slice.gigabits[way])));
                }
            }
            Self::Alone => {
                let load = Load { stream: None, pings: ALONE };
                for mut visit in streams(rig, load, round, options.seconds as usize)? {
                    add(
                        turns,
                        first,
                        visit.each_mut().map(|slice| percentile(&mut slice.times_ms)),
                    );
                }
            }
            Self::Beside(way) => {
                let load = Load { stream: Some(WAYS[way]), pings: BESIDE };
                let mut times: [Vec<f64>; POLICIES.len()] = Default::default();
                for visit in streams(rig, load, round, STREAMS_TOGETHER)? {
                    add(turns, first, visit.each_ref().map(|slice| mean(&slice.times_ms)));
                    let of = times.iter_mut().zip(visit);
                    of.for_each(|(times, slice)| times.extend(slice.times_ms));
                }
                add(turns, first + 1, times.each_mut().map(|times| percentile(times)));
            }
            Self::BesideHeldBack => {
                let stream = Some(held_back(rig.plan.pairing));
                let load = Load { stream, pings: BESIDE };
                for visit in streams(rig, load, round, options.seconds as usize)? {
                    add(turns, first, visit.each_ref().map(|slice| mean(&slice.times_ms)));
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FIGURES[self.first()].0.fmt(f)
    }
}

/// The visits of so many streams, one after the other.
fn streams(rig: &mut Rig, load: Load, round: usize, count: usize) -> anyhow::Result<Vec<Visit>> {
    let mut all = Vec::new();
    for stream in 0..count {
        all.extend(visits(rig, load, (round * count + stream) * VISITS)?);
    }
    Ok(all)
}

/// One more value of each policy for a figure.
fn add(turns: &mut Turns, figure: usize, values: [Option<f64>; POLICIES.len()]) {
    turns.iter_mut().zip(values).for_each(|(turns, value)| turns[figure].push(value));
}

#[allow(clippy::cast_precision_loss, reason = "some thousands")]
pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value that 99 of 100 are not above.
fn percentile(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_one_measure() {
        let ends = |measure: &Measure| match measure {
            Measure::Beside(_) => measure.first() + 2,
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
        let mut hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut hundred), Some(99.0));
        assert_eq!(percentile(&mut [7.0]), Some(7.0));
        assert_eq!(percentile(&mut []), None);
    }
}
