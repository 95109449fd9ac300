//! `ringway bench pacing`: the same guests under each policy of notification, real and in turns.
//!
//! How: one ringway and one guest for each policy, all booted before the first is measured; each
//! takes its turn in every round. A round trip beside a stream is measured while iperf3 sends, in
//! either direction.
//!
//! Limits: guests of one processor; the percentile of a turn is of a few hundred round trips.

use std::path::Path;

use anyhow::{Context, ensure};
use ringway_guests::{net, stage, traffic};

use super::rig::{Plan, Rig};
use super::{Options, Pairing, check, machine_with_guests};
use crate::Spread;
use crate::machine::{Machine, date};
use crate::progress::Progress;
use crate::report::{Cell, Report, Table};

/// What is compared, as after `notify=`; the last one is measured against the best of all.
pub(super) const POLICIES: [&str; 7] = [
    "timer:50us",
    "timer:150us",
    "timer:250us",
    "every",
    "on-empty",
    "coalesce:16/50us",
    "adaptive",
];

/// Seconds between two pings beside a stream.
const PING_EVERY: &str = "0.01";

/// How long after the stream the first of them is sent, in seconds.
const STREAM_STARTS: &str = "0.3";

/// The best row's throughput times this is enough.
const THROUGHPUT_MIN: f64 = 0.98;

/// The best row's time times this is enough.
const TIME_MAX: f64 = 1.1;

/// One kind of figure: its name, with the unit, and whether more is better.
const FIGURES: [(&str, bool); 8] = [
    ("TCP out, Gb/s", true),
    ("TCP in, Gb/s", true),
    ("ping -f, mean, ms", false),
    ("ping -A, 99th percentile, ms", false),
    ("ping beside TCP out, mean, ms", false),
    ("ping beside TCP out, 99th percentile, ms", false),
    ("ping beside TCP in, mean, ms", false),
    ("ping beside TCP in, 99th percentile, ms", false),
];

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
    let (address, seconds, pings) = (rig.address(), options.seconds, options.pings);
    rig.side().must(&format!("ping -c 3 -i 0.1 -W 10 {address}"))?;
    for (figure, way) in ["", "-R"].into_iter().enumerate() {
        let report = traffic::tcp(&mut rig.side(), &address, seconds, way)?;
        turn[figure] = Some(report.gigabits());
    }
    turn[2] = Some(traffic::flood(&mut rig.side(), &address, pings)?);
    let alone = round_trips(rig, &format!("ping -A -c {pings} {address}"))?;
    turn[3] = percentile(&alone);
    for (figure, way) in [(4, ""), (6, "-R")] {
        let count = 100 * seconds;
        let stream_seconds = seconds + 1;
        let line = format!(
            "iperf3 -c {address} -t {stream_seconds} {way} >/dev/null 2>&1 & sleep {STREAM_STARTS}; \
             ping -i {PING_EVERY} -c {count} {address}; wait"
        );
        let times = round_trips(rig, &format!("{{ {line}; }}"))?;
        turn[figure] = mean(&times);
        turn[figure + 1] = percentile(&times);
    }
    rig.rest()
}

/// All round trips that a ping prints, in ms, the shortest first.
fn round_trips(rig: &mut Rig, line: &str) -> anyhow::Result<Vec<f64>> {
    let select = r"sed -n 's/.*time=\([0-9.]*\) ms.*/\1/p'";
    let (_, text) = rig.side().run(&format!("{line} | {select}"))?;
    let mut times: Vec<f64> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    ensure!(!times.is_empty(), "{line}: no round trips: {text}");
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
    fn all(&self, figure: usize) -> Vec<f64> {
        self.turns.iter().filter_map(|turn| turn[figure]).collect()
    }
}

fn tables(pairing: Pairing, rows: &[Row]) -> Vec<Table> {
    let mut tables = vec![verdicts(pairing, rows)];
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

/// The last policy against the best of all, average by average.
fn verdicts(pairing: Pairing, rows: &[Row]) -> Table {
    let cells = |(figure, (name, is_more_better)): (usize, &(&str, bool))| {
        let average = |row: &Row| Some((mean(&row.all(figure))?, row.plan.name()));
        let ours = rows.last().and_then(average)?;
        let better = |one: &(f64, &str), other: &(f64, &str)| match is_more_better {
            true => one.0.total_cmp(&other.0),
            false => other.0.total_cmp(&one.0),
        };
        let best = rows.iter().filter_map(average).max_by(better)?;
        let ratio = ours.0 / best.0;
        let (is_enough, needed) = match is_more_better {
            true => (ratio >= THROUGHPUT_MIN, format!("≥ {THROUGHPUT_MIN}")),
            false => (ratio <= TIME_MAX, format!("≤ {TIME_MAX}")),
        };
        let verdict = if is_enough { "yes" } else { "no" };
        let texts = [Cell::text(needed), Cell::text(verdict)];
        let numbers = [number(Some(ours.0)), number(Some(best.0))];
        let head = [Cell::text(*name)].into_iter().chain(numbers);
        let tail = [Cell::text(best.1), number(Some(ratio))].into_iter().chain(texts);
        Some(head.chain(tail).collect())
    };
    let ours = rows.last().map_or("ours", |row| row.plan.name());
    let columns = ["figure", ours, "the best", "of", "ratio", "needed", "enough"];
    Table {
        title: format!("{}: {ours} against the best row", pairing.name()),
        columns: columns.map(String::from).to_vec(),
        rows: FIGURES.iter().enumerate().filter_map(cells).collect(),
    }
}

fn empty_report(options: &Options, machine: Machine) -> anyhow::Result<Report> {
    let Options { seconds, repeats, pings, command, .. } = options;
    let method = format!(
        "Rounds: {repeats}; in each, every policy takes its turn, {seconds} s for each number; {pings} \
         pings alone, {} beside a stream. Out is from the guest. Each policy has a ringway and a \
         guest of its own, which stand still while others are measured.",
        100 * seconds
    );
    Ok(Report {
        title: "ringway bench pacing".into(),
        date: date().context("date")?,
        command: command.clone(),
        machine,
        method: vec![method],
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
    fn more_is_better_for_rates_and_worse_for_times() {
        let rows = [row(0, &[1.0, 1.0]), row(3, &[2.0, 2.0]), row(6, &[1.0, 2.0])];
        let table = verdicts(Pairing::UmlHost, &rows);
        let texts = |at: usize| table.rows[at].iter().map(Cell::show).collect::<Vec<_>>();
        assert_eq!(texts(0)[1..], ["1.500", "2.000", "every", "0.750", "≥ 0.98", "no"]);
        assert_eq!(texts(2)[1..], ["1.500", "1.000", "timer:50us", "1.500", "≤ 1.1", "no"]);
        let first = &tables(Pairing::UmlHost, &rows)[1];
        let shown: Vec<String> = first.rows[2].iter().map(Cell::show).collect();
        assert_eq!(shown, ["adaptive", "1.000", "1.500", "2.000", "0.707"]);
    }
}
