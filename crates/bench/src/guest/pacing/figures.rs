//! What is measured under each policy: throughput, round trips alone, and round trips beside a
//! stream, while iperf3 sends in either direction.
//!
//! Limits: the percentile of a slice is of some hundred round trips; what a machine does to a few of them
//! moves it.

use std::fmt;
use std::ops::Range;

use ringway_guests::traffic;

use super::super::rig::Rig;
use super::super::{Options, Pairing};
use super::POLICIES;
use super::entrants::Entrants;
use super::pings::Pings;
use super::slices::{Load, Slice, visits};
use super::tables::Turns;
use crate::verdict::Needed;

/// Pings beside a stream, sent every millisecond: enough for a percentile of each slice.
const BESIDE: Option<Pings> = Some(Pings::Periodic { period_ms: 1 });

/// The same, so few that the worker expects no answer most of the time.
const SPARSE: Option<Pings> = Some(Pings::Periodic { period_ms: 4 });

/// Pings alone.
const ALONE: Option<Pings> = Some(Pings::OneByOne);

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

/// Floods under each policy in one round.
pub(super) const FLOODS: usize = 4;

/// Pings of one flood.
pub(super) fn flood_pings(options: &Options) -> u32 {
    (options.pings / 16).max(1)
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
    /// Pings beside a stream this way: the mean and the 99th percentile of each slice.
    Beside(usize),
    /// Pings beside a stream from the guest that does not send all it could: the mean of each slice.
    BesideHeldBack,
}

/// One round of a measure.
#[derive(Debug, Clone, Copy)]
pub(super) struct Round<'a> {
    /// How many were before.
    pub number: usize,
    /// Who takes part.
    pub entrants: &'a Entrants,
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

    /// Its figures.
    pub(super) fn figures(self) -> Range<usize> {
        let (first, count) = match self {
            Self::Stream(way) => (way, 1),
            Self::Flood => (2, 1),
            Self::Alone => (3, 1),
            Self::Beside(way) => (4 + 2 * way, 2),
            Self::BesideHeldBack => (8, 1),
        };
        first..first + count
    }

    /// Measures under every policy that takes part in one round, and adds what was found.
    ///
    /// # Errors
    /// Something does not answer; what was found before stays.
    pub(super) fn take(
        self,
        rig: &mut Rig,
        options: &Options,
        round: Round<'_>,
        turns: &mut Turns,
    ) -> anyhow::Result<()> {
        let Some(load) = self.load(rig.plan.pairing) else {
            return floods(rig, flood_pings(options), round, turns);
        };
        let streams = options.seconds as usize;
        for stream in 0..streams {
            for visit in visits(rig, load, round.number * streams + stream, round.entrants)? {
                for (at, figure) in self.figures().enumerate() {
                    let value = |slice: &Option<Slice>| self.values(slice.as_ref()?)[at];
                    add(turns, figure, visit.each_ref().map(value));
                }
            }
        }
        Ok(())
    }

    /// What goes on in its slices; `None`: it has none.
    fn load(self, pairing: Pairing) -> Option<Load> {
        let (stream, pings) = match self {
            Self::Flood => return None,
            Self::Stream(way) => (Some(WAYS[way]), None),
            Self::Alone => (None, ALONE),
            Self::Beside(way) => (Some(WAYS[way]), BESIDE),
            Self::BesideHeldBack => (Some(held_back(pairing)), SPARSE),
        };
        Some(Load { stream, pings })
    }

    /// What a slice says about its figures.
    fn values(self, slice: &Slice) -> [Option<f64>; 2] {
        let times_ms = &slice.times_ms;
        match self {
            Self::Stream(way) => [Some(slice.gigabits[way]), None],
            Self::Alone => [percentile(times_ms), None],
            Self::Beside(_) => [mean(times_ms), percentile(times_ms)],
            Self::Flood | Self::BesideHeldBack => [mean(times_ms), None],
        }
    }
}

/// Floods from the guest under each policy.
fn floods(rig: &mut Rig, pings: u32, round: Round<'_>, turns: &mut Turns) -> anyhow::Result<()> {
    for order in round.entrants.orders(round.number, FLOODS) {
        let mut means = [None; POLICIES.len()];
        for policy in order {
            rig.set_policy(POLICIES[policy])?;
            let address = rig.address();
            means[policy] = Some(traffic::flood(&mut rig.side(), &address, pings)?);
            rig.rest()?;
        }
        add(turns, Measure::Flood.figures().start, means);
    }
    Ok(())
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FIGURES[self.figures().start].0.fmt(f)
    }
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
fn percentile(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_one_measure() {
        let mut expected = 0;
        for measure in &Measure::ALL {
            assert_eq!(measure.figures().start, expected);
            expected = measure.figures().end;
        }
        assert_eq!(expected, FIGURES.len());
    }

    #[test]
    fn percentiles() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&hundred), Some(99.0));
        assert_eq!(percentile(&[7.0]), Some(7.0));
        assert_eq!(percentile(&[]), None);
    }
}
