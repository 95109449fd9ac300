//! `ringway bench pacing`: the same guest under each policy of notification, real and in turns.
//!
//! How: one ringway and one guest, whose port is told another policy before each turn: two guests of
//! the same kind differ by more than two policies. In every round each figure is measured under
//! every policy before the next figure is, so that what is compared is seconds apart ([`figures`]).
//! Ratios are taken between turns of the same round; the verdict says what all of them together say
//! about the ratio, if they do ([`tables`]). The last policy takes part twice: both turns together are
//! what is judged, and how far they are apart is what such a ratio is worth on this machine.
//!
//! Limits: guests of one processor; fewer than six rounds decide nothing.

mod figures;
mod tables;

use std::path::Path;

use anyhow::{Context, bail};
use ringway_guests::{net, stage};

use super::rig::{Carrier, Plan, Rig};
use super::{Options, Pairing, check, machine_with_guests, sides};
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::Report;
use figures::{Measure, PINGERS, Pings, Turn};
use tables::{Turns, tables};

/// What is compared, as after `notify=`; the last one is measured against each other, and against
/// itself.
const POLICIES: [&str; 8] = [
    "timer:50us",
    "timer:150us",
    "timer:250us",
    "every",
    "on-empty",
    "coalesce:16/50us",
    "adaptive",
    "adaptive",
];

/// The first of the two that are the same: nothing is judged by it.
const SAME: usize = POLICIES.len() - 2;

/// What the policy of this number is called.
fn policy_name(policy: usize) -> &'static str {
    if policy == SAME { "the same once more" } else { POLICIES[policy] }
}

/// Measures. This process is the first of its namespaces.
///
/// # Errors
/// The options make no sense, or these are not namespaces of our own.
pub fn measure_pacing(options: &Options) -> anyhow::Result<Report> {
    check(options)?;
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    stage::end_with_parent(directory.path());
    net::prepare()?;
    let mut report = empty_report(options, machine_with_guests())?;
    let in_a_round = Measure::ALL.len() * POLICIES.len();
    let mut progress = Progress::start(options.pairings.len() * options.repeats * in_a_round);
    for &pairing in &options.pairings {
        match boot(pairing, directory.path(), &progress) {
            Ok(mut rig) => {
                report.commands.extend(rig.commands());
                let turns = pair(&mut rig, options, &mut progress, &mut report);
                report.tables.extend(tables(pairing, &turns));
            }
            Err(why) => report.left_out.push(format!("{}: {why:#}", pairing.name())),
        }
    }
    progress.end();
    Ok(report)
}

fn boot(pairing: Pairing, directory: &Path, progress: &Progress) -> anyhow::Result<Rig> {
    if let Some(why) = pairing.why_not() {
        bail!(why);
    }
    progress.note(&format!("booting: {}", pairing.name()));
    Rig::boot(Plan { pairing, carrier: Carrier::Ringway }, directory)
}

/// All rounds with one guest; what fails is left out and named.
fn pair(rig: &mut Rig, options: &Options, progress: &mut Progress, report: &mut Report) -> Turns {
    let mut turns = Turns::default();
    for repeat in 0..options.repeats {
        turns.iter_mut().for_each(|turns| turns.push(Turn::default()));
        for measure in Measure::ALL {
            for policy in order(repeat) {
                let what = format!("{}, {}", rig.plan.pairing.name(), policy_name(policy));
                progress.step(&what);
                let turn = &mut turns[policy][repeat];
                let told = rig.set_policy(POLICIES[policy]);
                if let Err(why) = told.and_then(|()| measure.take(rig, options, turn)) {
                    report.left_out.push(format!("{what}: {why:#}"));
                }
            }
        }
    }
    turns
}

/// All policies in another order in each round: nobody is always the first, or behind the same one.
fn order(round: usize) -> impl Iterator<Item = usize> {
    // Steps that are odd meet all of so many.
    const { assert!(POLICIES.len().is_power_of_two()) };
    let step = 2 * round + 1;
    (0..POLICIES.len()).map(move |at| (round + step * at) % POLICIES.len())
}

fn empty_report(options: &Options, machine: Machine) -> anyhow::Result<Report> {
    let Options { seconds, repeats, command, .. } = options;
    let Pings { alone, beside } = Pings::new(options);
    let method = format!(
        "Rounds: {repeats}; in each, every figure is measured under every policy in turn, {seconds} s \
         for each throughput; {alone} pings alone, {} beside a stream. Out is from the guest. It is \
         one guest, whose port is told the policy before each turn.",
        PINGERS * beside
    );
    let judged =
        "Ratios are taken round by round: the median of the averages of every two of them, \
                  and the interval of Wilcoxon's signed-rank test. Enough: yes or no if the whole \
                  interval says so, for the row that looks worst; fewer than 6 rounds have none. \
                  The last policy takes part twice: the mean of both is judged, and their ratio is \
                  chance."
            .to_string();
    Ok(Report {
        title: "ringway bench pacing".into(),
        date: date().context("date")?,
        command: command.clone(),
        machine,
        method: vec![method, sides::METHOD.into(), judged],
        left_out: Vec::new(),
        commands: Vec::new(),
        tables: Vec::new(),
        plots: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_a_turn_behind_everybody_else() {
        let mut behind = std::collections::BTreeSet::new();
        for round in 0..POLICIES.len() / 2 {
            let order: Vec<usize> = order(round).collect();
            behind.extend(order.windows(2).map(|two| (two[0], two[1])));
            let mut all = order;
            all.sort_unstable();
            assert_eq!(all, (0..POLICIES.len()).collect::<Vec<_>>());
        }
        for policy in 0..POLICIES.len() {
            assert!(behind.iter().filter(|(_, second)| *second == policy).count() >= 3);
        }
    }
}
