//! `ringway bench pacing`: the same guest under each policy of notification, real and in turns.
//!
//! How: one ringway and one guest, whose port is told another policy before each turn: two guests of
//! the same kind differ by more than two policies. What is compared is measured under the same stream
//! and with the same pings, a fifth of a second under one policy and then under the next, many times
//! over ([`slices`]); floods of pings are whole turns ([`figures`]). Ratios are taken between turns of
//! the same round; the verdict says what all of them together say about the ratio, if they do
//! ([`tables`]). The last policy takes part twice: both turns together are what is judged, and how far
//! they are apart is what such a ratio is worth on this machine.
//!
//! Limits: guests of one processor that talk with this machine; fewer than six rounds decide nothing.

mod best;
mod entrants;
mod figures;
mod orders;
mod plots;
mod slices;
mod tables;

use std::path::Path;

use anyhow::{Context, bail, ensure};
use ringway_guests::{net, stage};

use super::rig::{Carrier, Plan, Rig};
use super::{Options, Pairing, check, machine_with_guests, sides};
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::Report;
use entrants::Entrants;
use figures::{FLOODS, Measure, Round, flood_pings, held_back};
use plots::plots;
use slices::{SETTLE, SLICE, VISITS};
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
    let measures = options.pairings.len() * options.repeats * Measure::ALL.len();
    let mut progress = Progress::start(measures);
    for &pairing in &options.pairings {
        match boot(pairing, directory.path(), &progress) {
            Ok(mut rig) => {
                report.commands.extend(rig.commands());
                let turns = pair(&mut rig, options, &mut progress, &mut report);
                report.tables.extend(tables(pairing, &turns));
                report.plots.extend(plots(pairing, &turns));
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
    ensure!(
        pairing != Pairing::UmlPair,
        "policies are compared at a tap, and there is none between"
    );
    progress.note(&format!("booting: {}", pairing.name()));
    Rig::boot(Plan { pairing, carrier: Carrier::Ringway }, directory)
}

/// All rounds with one guest; what fails is left out and named.
fn pair(rig: &mut Rig, options: &Options, progress: &mut Progress, report: &mut Report) -> Turns {
    let mut turns = Turns::default();
    let mut measures = Measure::ALL.map(|measure| (measure, Entrants::all()));
    for number in 0..options.repeats {
        for (measure, entrants) in &mut measures {
            let what = format!("{}, {measure}", rig.plan.pairing.name());
            progress.step(&what);
            if let Err(why) = measure.take(rig, options, Round { number, entrants }, &mut turns) {
                report.left_out.push(format!("{what}: {why:#}"));
            }
            for policy in entrants.settle(measure.figures(), &turns) {
                progress.note(&format!("{what}: {} is not the best", policy_name(policy)));
            }
        }
    }
    turns
}

fn empty_report(options: &Options, machine: Machine) -> anyhow::Result<Report> {
    let Options { seconds, repeats, command, .. } = options;
    let slices = VISITS * *seconds as usize;
    let [slice_ms, settle_ms] = [SLICE, SETTLE].map(|time| time.as_millis());
    let floods = flood_pings(options);
    let method = format!(
        "It is one guest, whose port is told the policy before each turn. Out is from the guest. \
         Repeats: {repeats}. Of each, throughput: a stream goes on while all policies are told in turn, \
         {slices} times over; each is measured for {slice_ms} ms by the bytes that pass the tap, and is \
         a round. Single pings (ping -A from this machine): the same, the 99th percentile of each {slice_ms} ms. \
         Pings beside a stream: the same with 1,000 per second from this machine, mean and 99th percentile; with \
         250 beside one that is held back (iperf3 {}, under QEMU {}). Floods: {FLOODS} times {floods} \
         pings from the guest under each policy. A policy that is clearly worse than the best \
         fixed one (in both figures, where a measure has two; by an interval twice as wide as is shown) \
         stops, and the others have more slices, but no more floods: \
         averages of policies with fewer rounds are of an earlier time. What a policy learns of a stream, it learns anew \
         in each turn, which begins {settle_ms} ms before it is measured; what it has tried out of a guest, how long to wait for several \
         long packets, it keeps from turn to turn. Rounds of one stream are not independent of each other, so that intervals are a little too narrow.",
        held_back(Pairing::UmlHost),
        held_back(Pairing::QemuHost),
    );
    let judged =
        "Ratios are taken round by round: the median of the averages of every two of them, \
                  and the interval of Wilcoxon's signed-rank test. Enough: yes or no if the whole \
                  interval says so; fewer than 6 rounds have none. The best row is one that did \
                  not stop, chosen twice, by each half of the rounds for the other half: of six equal \
                  rows one always looks better by chance. But who stops is chosen by rounds that are \
                  judged as well: this flatters the last policy only if chance stopped the best row; \
                  in simulation the wider interval stops about one of 100 equal rows. \
                  Against each row: those that did not stop. \
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
