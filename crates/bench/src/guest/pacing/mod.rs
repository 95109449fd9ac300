//! `ringway bench pacing`: the same guest under each policy of notification, real and in turns.
//!
//! How: one ringway and one guest, whose port is told another policy before each turn: two guests of
//! the same kind differ by more than two policies. After some rounds it is a guest of the other kind, and
//! then another one of the first: what is true of one guest, or of a quarter of an hour, is not true of the
//! policies. What is compared is measured under the same stream
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
mod pings;
mod plots;
mod slices;
mod tables;

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use ringway_guests::{net, shell, stage};

use super::rig::{Carrier, Plan, Rig};
use super::{Options, Pairing, check, machine_with_guests, sides};
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::{Report, add_once};
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

/// So many rounds have one guest.
const ROUNDS_PER_GUEST: usize = 3;

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
    let mut run = Run {
        options,
        directory: directory.path(),
        progress: Progress::start(options.pairings.len() * options.repeats * Measure::ALL.len()),
        report: empty_report(options, machine_with_guests())?,
    };
    let mut kinds: Vec<Kind> = options.pairings.iter().copied().map(Kind::new).collect();
    for first in (0..options.repeats).step_by(ROUNDS_PER_GUEST) {
        let rounds = first..options.repeats.min(first + ROUNDS_PER_GUEST);
        for kind in &mut kinds {
            if let Err(why) = kind.take(rounds.clone(), &mut run) {
                run.leave_out(kind.pairing.name(), &why);
            }
        }
    }
    let Run { progress, mut report, .. } = run;
    progress.end();
    for Kind { pairing, turns, .. } in &kinds {
        report.tables.extend(tables(*pairing, turns));
        report.plots.extend(plots(*pairing, turns));
    }
    Ok(report)
}

/// One run of the benchmark, and what has come of it so far.
struct Run<'a> {
    options: &'a Options,
    directory: &'a Path,
    progress: Progress,
    report: Report,
}

impl Run<'_> {
    /// What failed is named once.
    fn leave_out(&mut self, what: &str, why: &anyhow::Error) {
        add_once(&mut self.report.left_out, &format!("{what}: {why:#}"));
    }
}

fn boot(pairing: Pairing, directory: &Path, progress: &Progress) -> anyhow::Result<Rig> {
    if let Some(why) = pairing.why_not().or_else(|| shell::missing(&[pings::PROGRAM])) {
        bail!(why);
    }
    ensure!(
        pairing != Pairing::UmlPair,
        "policies are compared at a tap, and there is none between"
    );
    progress.note(&format!("booting: {}", pairing.name()));
    Rig::boot(Plan { pairing, carrier: Carrier::Ringway }, directory)
}

/// What guests of one kind have said so far.
struct Kind {
    pairing: Pairing,
    turns: Turns,
    /// Who still takes part in each.
    measures: [(Measure, Entrants); Measure::ALL.len()],
}

impl Kind {
    fn new(pairing: Pairing) -> Self {
        let measures = Measure::ALL.map(|measure| (measure, Entrants::all()));
        Self { pairing, turns: Turns::default(), measures }
    }

    /// These rounds with a guest of their own; what fails in one is left out and named.
    ///
    /// # Errors
    /// There is no such guest.
    fn take(&mut self, rounds: Range<usize>, run: &mut Run<'_>) -> anyhow::Result<()> {
        let mut rig = boot(self.pairing, run.directory, &run.progress)?;
        for command in rig.commands() {
            add_once(&mut run.report.commands, &command);
        }
        for number in rounds {
            self.round(&mut rig, number, run);
        }
        Ok(())
    }

    fn round(&mut self, rig: &mut Rig, number: usize, run: &mut Run<'_>) {
        for (measure, entrants) in &mut self.measures {
            let what = format!("{}, {measure}", self.pairing.name());
            run.progress.step(&what);
            let round = Round { number, entrants };
            if let Err(why) = measure.take(rig, run.options, round, &mut self.turns) {
                run.leave_out(&what, &why);
            }
            for policy in entrants.settle(measure.figures(), &self.turns) {
                run.progress.note(&format!("{what}: {} is not the best", policy_name(policy)));
            }
        }
    }
}

fn empty_report(options: &Options, machine: Machine) -> anyhow::Result<Report> {
    let Options { seconds, repeats, command, .. } = options;
    let slices = VISITS * *seconds as usize;
    let [slice_ms, settle_ms] = [SLICE, SETTLE].map(|time| time.as_millis());
    let floods = flood_pings(options);
    let method = format!(
        "It is one guest for {ROUNDS_PER_GUEST} rounds, whose port is told the policy before each turn; guests of both kinds alternate. Out is from the guest. \
         Repeats: {repeats}. Of each, throughput: a stream goes on while all policies are told in turn, \
         {slices} times over; each is measured for {slice_ms} ms by the bytes that pass the tap, and is \
         a round. Single pings (ping -A from this machine): the same, the 99th percentile of each {slice_ms} ms. \
         Pings beside a stream: the same with 1,000 per second from this machine (fping), mean and 99th percentile; with \
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
                  The last policy takes part twice: the geometric mean of both is judged, and their \
                  ratio is chance."
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
