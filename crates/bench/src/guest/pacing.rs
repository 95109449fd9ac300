//! `ringway bench pacing`: the same guests under each policy of notification, real and in turns.
//!
//! How: one ringway and one guest for each policy, all booted before the first is measured; each
//! takes its turn in every round. A round trip beside a stream is measured while iperf3 sends, in
//! either direction. Ratios are taken between turns of the same round; the verdict says what all
//! of them together say about the ratio, if they do. The last policy takes part twice: how far
//! the two are apart is what such a ratio is worth on this machine.
//!
//! Limits: guests of one processor; the percentile of a turn beside a stream is of 500 round trips;
//! fewer than six rounds decide nothing.

use std::path::Path;

use anyhow::{Context, ensure};
use ringway_guests::{net, stage, traffic};

use super::rig::{Plan, Rig};
use super::{Options, Pairing, check, machine_with_guests, sides};
use crate::interval::Estimate;
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::{Cell, Report, Table};
use crate::verdict::Needed;
use crate::{Spread, ratios};

/// What is compared, as after `notify=`; the last one is measured against each other, and against
/// itself.
pub(super) const POLICIES: [&str; 8] = [
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
pub(super) const SAME: usize = POLICIES.len() - 2;

/// As many pings beside a stream run at once, so that enough are answered in short time; each of
/// them sleeps between its requests, which it would not with a shorter interval.
const PINGERS: u32 = 5;

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
const FIGURES: [(&str, Needed); 8] = [
    ("TCP out, Gb/s", THROUGHPUT),
    ("TCP in, Gb/s", THROUGHPUT),
    ("ping -f, mean, ms", TIME),
    ("ping -A, 99th percentile, ms", TIME),
    ("ping beside TCP out, mean, ms", TIME),
    ("ping beside TCP out, 99th percentile, ms", TIME),
    ("ping beside TCP in, mean, ms", TIME),
    ("ping beside TCP in, 99th percentile, ms", TIME),
];

/// How many pings are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pings {
    /// In a flood, and one after the other.
    alone: u32,
    /// By each of [`PINGERS`] beside a stream.
    beside: u32,
}

impl Pings {
    fn new(options: &Options) -> Self {
        Self { alone: options.pings / 4, beside: options.pings / 100 }
    }

    /// How long the stream beside them takes, in seconds.
    fn stream_seconds(self) -> u32 {
        (STREAM_STARTS.1 + self.beside * PING_EVERY_MS_MAX + STREAM_ENDS_MS).div_ceil(1000)
    }
}

/// What one turn found, by figure.
type Turn = [Option<f64>; FIGURES.len()];

/// All turns under one policy.
struct Row {
    plan: Plan,
    turns: Vec<Turn>,
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
    let mut progress = Progress::start(options.pairings.len() * POLICIES.len() * options.repeats);
    for &pairing in &options.pairings {
        let rows = match pairing.why_not() {
            Some(why) => {
                report.left_out.push(format!("{}: {why}", pairing.name()));
                continue;
            }
            None => pair(pairing, options, directory.path(), &mut progress, &mut report),
        };
        report.tables.extend(tables(pairing, &rows));
    }
    progress.end();
    Ok(report)
}

/// Everything about one kind of guest.
fn pair(
    pairing: Pairing,
    options: &Options,
    directory: &Path,
    progress: &mut Progress,
    report: &mut Report,
) -> Vec<Row> {
    let (mut rigs, mut rows) = (Vec::new(), Vec::new());
    for policy in 0..POLICIES.len() {
        let plan = Plan::paced(pairing, policy);
        progress.note(&format!("booting: {}, {}", pairing.name(), plan.name()));
        match Rig::boot(plan, directory) {
            Ok(rig) => {
                report.commands.extend(rig.commands());
                rigs.push(rig);
                rows.push(Row { plan, turns: Vec::new() });
            }
            Err(why) => {
                report.left_out.push(format!("{}, {}: {why:#}", pairing.name(), plan.name()));
            }
        }
    }
    for repeat in 0..options.repeats {
        for at in 0..rigs.len() {
            // Nobody is always the first.
            let at = (at + repeat) % rigs.len();
            progress.step(&format!("{}, {}", pairing.name(), rigs[at].plan.name()));
            let mut turn = Turn::default();
            if let Err(why) = take(&mut rigs[at], options, &mut turn) {
                let name = rigs[at].plan.name();
                report.left_out.push(format!("{}, {name}: {why:#}", pairing.name()));
            }
            rows[at].turns.push(turn);
        }
    }
    rows
}

/// Takes all figures once.
fn take(rig: &mut Rig, options: &Options, turn: &mut Turn) -> anyhow::Result<()> {
    let (address, seconds, pings) = (rig.address(), options.seconds, Pings::new(options));
    rig.side().must(&format!("ping -c 3 -i 0.1 -W 10 {address}"))?;
    for (figure, way) in ["", "-R"].into_iter().enumerate() {
        let report = traffic::tcp(&mut rig.side(), &address, seconds, way)?;
        turn[figure] = Some(report.gigabits());
    }
    turn[2] = Some(traffic::flood(&mut rig.side(), &address, pings.alone)?);
    let line = format!("ping -A -c {} {address}", pings.alone);
    let alone = round_trips(rig, &line, pings.alone)?;
    turn[3] = percentile(&alone);
    for (figure, way) in [(4, ""), (6, "-R")] {
        let line = beside(pings, &address, way);
        let times = round_trips(rig, &line, PINGERS * pings.beside)?;
        turn[figure] = mean(&times);
        turn[figure + 1] = percentile(&times);
    }
    rig.rest()
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
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value that 99 of 100 are not above; `sorted` begins with the lowest.
fn percentile(sorted: &[f64]) -> Option<f64> {
    let rank = (sorted.len() * 99).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// Of a sample, with one value less in the divisor; 0 for one value.
#[allow(clippy::cast_precision_loss, reason = "a few")]
fn deviation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some((squares / (values.len() - 1).max(1) as f64).sqrt())
}

impl Row {
    fn by_round(&self, figure: usize) -> Vec<Option<f64>> {
        self.turns.iter().map(|turn| turn[figure]).collect()
    }

    fn all(&self, figure: usize) -> Vec<f64> {
        self.turns.iter().filter_map(|turn| turn[figure]).collect()
    }
}

fn tables(pairing: Pairing, rows: &[Row]) -> Vec<Table> {
    let mut tables = vec![verdicts(pairing, rows), against_itself(pairing, rows)];
    for (figure, (name, _)) in FIGURES.iter().enumerate() {
        let cells = |row: &Row| {
            let all = row.all(figure);
            let low = all.iter().copied().reduce(f64::min);
            let high = all.iter().copied().reduce(f64::max);
            let numbers = [low, mean(&all), high, deviation(&all)].map(number);
            std::iter::once(Cell::text(row.plan.name())).chain(numbers).collect()
        };
        tables.push(Table {
            title: format!("{}: {name}", pairing.name()),
            columns: ["policy", "min", "average", "max", "deviation"].map(String::from).to_vec(),
            rows: rows.iter().map(cells).collect(),
        });
    }
    tables
}

fn number(value: Option<f64>) -> Cell {
    Cell::number(value.map(|value| Spread { median: value, low: value, high: value }), 3)
}

/// The last policy against that other one by which it looks worst.
fn verdicts(pairing: Pairing, rows: &[Row]) -> Table {
    let (ours, others) =
        rows.split_last().map_or((None, rows), |(last, others)| (Some(last), others));
    let cells = |(figure, (name, needed)): (usize, &(&str, Needed))| {
        let ours = ours?.by_round(figure);
        let against = |other: &Row| {
            let estimate = Estimate::of_ratios(ratios(&ours, &other.by_round(figure)))?;
            Some((other.plan.name(), estimate))
        };
        let others = others.iter().filter(|other| other.plan.policy() != Some(SAME));
        let worst = needed.worst(others.filter_map(against))?;
        let texts = [needed.show(), worst.verdict.name().to_string()].map(Cell::text);
        let head = [*name, worst.of].map(Cell::text);
        Some(head.into_iter().chain(shown(worst.estimate)).chain(texts).collect())
    };
    let ours = ours.map_or("ours", |row| row.plan.name());
    let columns = ["figure", "worst against", "ratio", "95 % from", "to", "needed", "enough"];
    Table {
        title: format!("{}: {ours} against the best row", pairing.name()),
        columns: columns.map(String::from).to_vec(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

/// The last policy against the same once more: what is left is chance.
fn against_itself(pairing: Pairing, rows: &[Row]) -> Table {
    let cells = |(figure, (name, _)): (usize, &(&str, Needed))| {
        let (ours, others) = rows.split_last()?;
        let same = others.iter().find(|other| other.plan.policy() == Some(SAME))?;
        let estimate = Estimate::of_ratios(ratios(&ours.by_round(figure), &same.by_round(figure)))?;
        Some(std::iter::once(Cell::text(*name)).chain(shown(estimate)).collect())
    };
    let ours = rows.last().map_or("ours", |row| row.plan.name());
    Table {
        title: format!("{}: {ours} against itself", pairing.name()),
        columns: ["figure", "ratio", "95 % from", "to"].map(String::from).to_vec(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

/// A ratio and its interval.
fn shown(Estimate { middle, interval }: Estimate) -> [Cell; 3] {
    [Some(middle), interval.map(|(low, _)| low), interval.map(|(_, high)| high)].map(number)
}

fn empty_report(options: &Options, machine: Machine) -> anyhow::Result<Report> {
    let Options { seconds, repeats, command, .. } = options;
    let Pings { alone, beside } = Pings::new(options);
    let method = format!(
        "Rounds: {repeats}; in each, every policy takes its turn, {seconds} s for each throughput; \
         {alone} pings alone, {} beside a stream. Out is from the guest. Each policy has a ringway \
         and a guest of its own, which stand still while others are measured.",
        PINGERS * beside
    );
    let judged =
        "Ratios are taken round by round: the median of the averages of every two of them, \
                  and the interval of Wilcoxon's signed-rank test. Enough: yes or no if the whole \
                  interval says so, for the row that looks worst; fewer than 6 rounds have none. \
                  The last policy takes part twice: its ratio to itself is chance."
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

    fn row(policy: usize, values: &[f64]) -> Row {
        let turns = values.iter().map(|&value| [Some(value); FIGURES.len()]).collect();
        Row { plan: Plan::paced(Pairing::UmlHost, policy), turns }
    }

    #[test]
    fn percentiles_and_deviations() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&hundred), Some(99.0));
        assert_eq!(percentile(&[7.0]), Some(7.0));
        assert_eq!(percentile(&[]), None);
        assert_eq!(deviation(&[1.0, 3.0]), Some(std::f64::consts::SQRT_2));
        assert_eq!(deviation(&[5.0]), Some(0.0));
    }

    #[test]
    fn the_worst_row_is_shown_with_its_interval() {
        let slow = [1.0, 2.0, 3.0, 1.0, 2.0, 3.0];
        let rows = [
            row(0, &slow),
            row(3, &slow.map(|value| 2.0 * value)),
            row(SAME, &slow.map(|value| 9.0 * value)),
            row(SAME + 1, &[1.0, 2.0, 3.0, 1.0, 2.0, 3.15]),
        ];
        let table = verdicts(Pairing::UmlHost, &rows);
        let texts = |at: usize| table.rows[at].iter().map(Cell::show).collect::<Vec<_>>();
        assert_eq!(texts(0)[1..], ["every", "0.500", "0.500", "0.525", "≥ 0.98", "no"]);
        assert_eq!(texts(2)[1..], ["timer:50us", "1.000", "1.000", "1.050", "≤ 1.1", "yes"]);
        let tables = tables(Pairing::UmlHost, &rows);
        let itself: Vec<String> = tables[1].rows[0].iter().map(Cell::show).collect();
        assert_eq!(itself, ["TCP out, Gb/s", "0.111", "0.111", "0.117"]);
        let average = &tables[2].rows[1];
        let shown: Vec<String> = average.iter().map(Cell::show).collect();
        assert_eq!(shown, ["every", "2.000", "4.000", "6.000", "1.789"]);
    }

    #[test]
    fn rounds_that_one_of_two_missed_are_left_out_and_few_decide_nothing() {
        let mut rows = [row(0, &[1.0; 6]), row(SAME + 1, &[1.0; 6])];
        rows[0].turns[2] = Turn::default();
        let table = verdicts(Pairing::UmlHost, &rows);
        let shown: Vec<String> = table.rows[0].iter().map(Cell::show).collect();
        assert_eq!(shown[1..], ["timer:50us", "1.000", "–", "–", "≥ 0.98", "undecided"]);
        assert!(verdicts(Pairing::UmlHost, &[]).rows.is_empty());
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
