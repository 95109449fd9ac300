//! `ringway bench pacing`: the same guest under each policy of notification, real and in turns.
//!
//! How: [`method`]. One guest has all policies: two of the same kind differ by more than two
//! policies; streams and pings go on while they change ([`slices`](super::slices)). The first
//! policy takes part twice: how far its rows are apart is what a ratio is worth here.
//!
//! Limits: guests of one processor that talk with this machine.

use std::path::Path;

use anyhow::{bail, ensure};
use ringway_guests::{shell, traffic};

use super::begin;
use super::pairing::{GuestOptions, Pairing};
use super::rig::{Rig, RigPlan};
use super::sides;
use super::slices::{self, FPING, SETTLE, SLICE, Slice};
use crate::progress::Progress;
use crate::report::{Column, Grid, Report};
use crate::spread::Spread;

pub(super) const KIND: &str = "pacing";

/// The policies that are compared, as after `notify=`. The first is held against each other, and
/// against itself.
const POLICIES: [&str; 8] = [
    "adaptive",
    "adaptive",
    "timer:50us",
    "timer:150us",
    "timer:250us",
    "every",
    "on-empty",
    "coalesce:16/50us",
];

/// The name of the first policy's second row.
const AGAIN: &str = "adaptive again";

const FIGURES: [Column; 7] = [
    ("TCP out, Gb/s", 3),
    ("TCP in, Gb/s", 3),
    ("ping -f, mean, ms", 3),
    ("ping beside TCP out, mean, ms", 3),
    ("99th percentile, ms", 3),
    ("ping beside TCP in, mean, ms", 3),
    ("99th percentile, ms", 3),
];

type PacingFigures = [[Option<f64>; FIGURES.len()]; POLICIES.len()];

/// The loads: a stream, as iperf3 is told its direction, and pings at the same time or none. With
/// the number of the first figure that it gives.
const LOADS: [(&str, bool, usize); 4] =
    [("", false, 0), ("-R", false, 1), ("", true, 3), ("-R", true, 5)];

pub fn measure_pacing(options: &GuestOptions) -> anyhow::Result<Report> {
    let (mut report, directory) = begin(KIND, options, &method(options))?;
    let grid = |pairing: &Pairing| {
        let grid = Grid::new(pairing.name(), &["policy"], &FIGURES);
        grid.plotted("Gb/s", &[0, 1]).plotted("ms", &[2, 3, 4, 5, 6])
    };
    let mut grids: Vec<Grid> = options.pairs.iter().map(grid).collect();
    let steps = grids.len() * options.amount.repeats * (LOADS.len() + 1);
    let mut progress = Progress::start(steps);
    for round in 0..options.amount.repeats {
        // Guests of both kinds alternate, so that no kind has one part of the time to itself.
        for (&pairing, grid) in options.pairs.iter().zip(&mut grids) {
            let taken = boot(pairing, directory.path(), &progress).map(|mut rig| {
                rig.commands().iter().for_each(|command| report.add_command(command));
                take(&mut rig, options, round, &mut report, &mut progress)
            });
            match taken {
                Ok(policies) => {
                    for (at, figures) in policies.iter().enumerate() {
                        let name = if at == 1 { AGAIN } else { POLICIES[at] };
                        grid.add(&[name.into()], round, figures);
                    }
                }
                Err(why) => report.leave_out(&format!("{}: {why:#}", pairing.name())),
            }
        }
    }
    progress.end();
    for grid in &grids {
        report.tables.extend([grid.table(), grid.ratios_of_first(&[0, 1, 2, 3, 4, 5, 6])]);
    }
    Ok(report)
}

fn boot(pairing: Pairing, directory: &Path, progress: &Progress) -> anyhow::Result<Rig> {
    if let Some(why) = pairing.why_not().or_else(|| shell::missing(&[FPING])) {
        bail!(why);
    }
    let has_tap = pairing != Pairing::UmlPair;
    ensure!(has_tap, "policies are compared at a tap, and there is none between");
    progress.note(&format!("booting: {}", pairing.name()));
    Rig::boot(RigPlan::all(pairing)[0], directory)
}

/// One round with a guest; what fails is left out and named.
fn take(
    rig: &mut Rig,
    options: &GuestOptions,
    round: usize,
    report: &mut Report,
    progress: &mut Progress,
) -> PacingFigures {
    let mut policies = PacingFigures::default();
    let name = rig.plan.pairing.name();
    for (stream, has_pings, figure) in LOADS {
        let what = format!("{name}, {}", FIGURES[figure].0);
        progress.step(&what);
        // As many slices as fill the time that was asked for.
        let visits = usize::try_from(options.amount.duration.as_millis() / SLICE.as_millis());
        let orders: Vec<_> = (0..visits.unwrap_or(1)).map(|visit| order(round + visit)).collect();
        match slices::take(rig, stream, has_pings, &POLICIES, &orders) {
            Ok(slices) => {
                for (figures, slices) in policies.iter_mut().zip(&slices) {
                    let median = |value: &dyn Fn(&Slice) -> Option<f64>| {
                        Some(Spread::of(slices.iter().filter_map(value))?.median)
                    };
                    if has_pings {
                        figures[figure] = median(&Slice::mean_ms);
                        figures[figure + 1] = median(&Slice::percentile_ms);
                    } else {
                        // Streams are the first figures.
                        figures[figure] = median(&|slice| Some(slice.gigabits[figure]));
                    }
                }
            }
            Err(why) => report.leave_out(&format!("{what}: {why:#}")),
        }
    }
    progress.step(&format!("{name}, {}", FIGURES[2].0));
    for policy in order(round) {
        match flood(rig, POLICIES[policy], options.pings() / 4) {
            Ok(mean_ms) => policies[policy][2] = Some(mean_ms),
            Err(why) => report.leave_out(&format!("{name}, flood: {why:#}")),
        }
    }
    policies
}

fn flood(rig: &mut Rig, policy: &str, pings: u32) -> anyhow::Result<f64> {
    rig.set_policy(policy)?;
    let address = rig.address();
    let mean_ms = traffic::flood(&mut rig.side(), &address, pings)?;
    rig.rest()?;
    Ok(mean_ms)
}

/// The order of policies in this turn: each is the first equally often, and every other turn goes
/// backwards, so that none always comes behind the same one.
fn order(turn: usize) -> Vec<usize> {
    let count = POLICIES.len();
    let mut order: Vec<usize> = (0..count).map(|at| (at * 3 + turn / 2) % count).collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}

fn method(options: &GuestOptions) -> [String; 3] {
    let [slice_ms, settle_ms] = [SLICE, SETTLE].map(|time| time.as_millis());
    [
        options.amount.rounds(),
        format!(
            "In each round a guest of its own, whose port is told the policy before each turn. Out \
             is from the guest. Throughput: a stream goes on while all policies are told in turn; \
             each is measured for {slice_ms} ms at a time by the bytes that pass the tap, \
             {settle_ms} ms after it was told. Pings beside a stream: the same with 1,000 per \
             second from this machine (fping). Floods: {} pings from the guest under each policy. \
             A figure is the median of a round's slices.",
            options.pings() / 4
        ),
        sides::METHOD.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_has_every_policy_and_the_same_two_are_apart() {
        let mut first = [0; POLICIES.len()];
        for turn in 0..2 * POLICIES.len() {
            let order = order(turn);
            let at = |policy| order.iter().position(|at| *at == policy).expect("it is there");
            assert!((0..POLICIES.len()).all(|policy| at(policy) < POLICIES.len()));
            assert!(at(0).abs_diff(at(1)) > 1, "{order:?}");
            first[order[0]] += 1;
        }
        assert_eq!(first, [2; POLICIES.len()]);
    }
}
