//! `ringway bench history --guest`: the two tables of 2008 with a real Linux guest, row by row.
//!
//! How: each row has a guest of its own, on a device of this program that does as the row says
//! ([`device`]), with a tap behind it; the last row has ringway itself. All are booted at once and
//! measured in turns.
//!
//! Limits: what a guest of today does not let one switch is named with the reason ([`rows`]).

pub(super) mod device;
mod rig;
pub(super) mod rows;

use anyhow::ensure;
use ringway_net::Features;

use super::pairing::{Options, Pairing};
use super::{begin, sides};
use crate::progress::Progress;
use crate::report::Report;
use crate::report::grid::{Column, Grid};
use rig::Row;
use rows::{NOT_SWITCHED, STEPS};

const STREAMS: [Column; 2] = [("guest → host, Gb/s", 3), ("host → guest, Gb/s", 3)];

const PINGS: [Column; 8] = [
    ("from the guest: min, ms", 3),
    ("mean, ms", 3),
    ("max, ms", 3),
    ("deviation, ms", 3),
    ("from the host: min, ms", 3),
    ("mean, ms", 3),
    ("max, ms", 3),
    ("deviation, ms", 3),
];

const CAPACITY: [Column; 1] = [("packets of the MTU that the receive ring holds", 0)];

/// Whether a row only changes what this kind of guest has one value for.
fn is_fixed(pairing: Pairing, name: &str) -> bool {
    pairing == Pairing::UmlHost && name.starts_with("ring of")
}

/// Measures the rows whose names contain one of `words`, or all.
pub fn measure_history(options: &Options, words: &[String]) -> anyhow::Result<Report> {
    ensure!(options.pairs[0] != Pairing::UmlPair, "there is a tap at the other end");
    let (mut report, directory) = begin("history", options, &method(options))?;
    let pairing = options.pairs[0];
    NOT_SWITCHED.iter().for_each(|why| report.leave_out(why));
    let rows = rows::rows();
    let is_named = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let is_wanted = |name| is_named(name) && !is_fixed(pairing, name);
    let rows: Vec<_> = rows.into_iter().filter(|row| is_wanted(row.0)).collect();
    let mut progress = Progress::start(rows.len() * options.amount.repeats);
    let mut booted = Vec::new();
    for (number, (name, technique)) in (0..).zip(rows) {
        progress.note(&format!("booting: {name}"));
        match Row::boot((number, name, technique), pairing, directory.path()) {
            Ok(row) => booted.push(row),
            Err(why) => leave_out(&mut report, &progress, &format!("{name}: {why:#}")),
        }
    }
    measure_rows(&mut booted, options, &mut report, &mut progress);
    progress.end();
    Ok(report)
}

fn leave_out(report: &mut Report, progress: &Progress, why: &str) {
    progress.note(why);
    report.leave_out(why);
}

fn measure_rows(rows: &mut [Row], options: &Options, report: &mut Report, progress: &mut Progress) {
    let name = options.pairs[0].name();
    let head = ["switched on"];
    let mut streams =
        Grid::new(format!("{name}: streams"), &head, &STREAMS).plotted("Gb/s", &[0, 1]);
    let mut pings = Grid::new(format!("{name}: floods of pings"), &head, &PINGS);
    let mut capacity = Grid::new(format!("{name}: receive rings"), &head, &CAPACITY);
    for row in rows.iter() {
        row.rig.commands().iter().for_each(|command| report.add_command(command));
        capacity.add(&[row.name.into()], 0, &[row.capacity]);
        if row.refused != Features::empty() {
            let why = format!("{}: the guest does not accept {}", row.name, row.refused);
            leave_out(report, progress, &why);
        }
    }
    for round in 0..options.amount.repeats {
        for at in 0..rows.len() {
            let turn = (at + round) % rows.len();
            let row = &mut rows[turn];
            progress.step(row.name);
            match row.take(options) {
                Ok((rates, times)) => {
                    streams.add(&[row.name.into()], round, &rates);
                    pings.add(&[row.name.into()], round, &times);
                }
                Err(why) => leave_out(report, progress, &format!("{}: {why:#}", row.name)),
            }
        }
    }
    report.tables.extend([streams.table_of_runs(), pings.table(), capacity.table()]);
}

fn method(options: &Options) -> Vec<String> {
    let mut method = vec![
        format!("{} A flood has {} pings.", options.amount.rounds(), options.pings() / 10),
        sides::METHOD.into(),
        "Each row keeps what the rows above it have switched on, except that timers and ring sizes \
         replace each other. A real Linux guest for each row, on a device of this program with a \
         tap behind it (the last row: on ringway); streams are TCP (iperf3). Streams are shown as \
         min/avg/max/sd of all rounds, as in 2008; of each flood's min, mean, max and deviation \
         the median is shown. What a receive ring holds is counted before anything was received: \
         packets of 1514 bytes are put in until there is no room."
            .into(),
    ];
    method.extend(STEPS.iter().map(|(name, about, _)| format!("{name}: {about}.")));
    method
}
