//! `ringway bench history --guest`: the two tables of 2008 with a real Linux guest, row by row.
//!
//! How: [`method`]. Each row has a guest of its own, on a device of this program that does as the
//! row says ([`device`]).
//!
//! Limits: what a guest of today does not let one switch is named with the reason ([`rows`]).

pub(super) mod device;
mod rig;
pub(super) mod rows;

use anyhow::ensure;
use ringway_net::Features;

use super::pairing::{GuestOptions, Pairing};
use super::turns::Turns;
use super::{begin, sides};
use crate::progress::Progress;
use crate::report::{Column, Grid, Report};
use rig::TechniqueRig;
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
pub fn measure_history(options: &GuestOptions, words: &[String]) -> anyhow::Result<Report> {
    ensure!(options.pairs[0] != Pairing::UmlPair, "there is a tap at the other end");
    let (mut report, directory) = begin("history", options, &method(options))?;
    let pairing = options.pairs[0];
    NOT_SWITCHED.iter().for_each(|why| report.leave_out(why));
    let rows = rows::rows();
    let is_named = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word));
    let is_wanted = |name| is_named(name) && !is_fixed(pairing, name);
    let rows: Vec<_> = rows.into_iter().filter(|row| is_wanted(row.0)).collect();
    let (name, mut progress) =
        (pairing.name(), Progress::start(rows.len() * options.amount.repeats));
    let mut turns = Turns { name, options, report: &mut report, progress: &mut progress };
    let rows = (0..).zip(rows).map(|(number, (name, technique))| (name, (number, technique)));
    let mut rigs = turns.boot(rows, |(number, technique)| {
        TechniqueRig::boot(number, technique, pairing, directory.path())
    });
    let [mut streams, mut pings, mut capacity] =
        [("streams", &STREAMS[..]), ("floods of pings", &PINGS), ("receive rings", &CAPACITY)]
            .map(|(what, columns)| Grid::new(format!("{name}: {what}"), &["switched on"], columns));
    for (name, rig) in &rigs {
        capacity.add(&[(*name).into()], 0, &[rig.capacity]);
        if rig.refused != Features::empty() {
            turns.leave_out(name, &format!("the guest does not accept {}", rig.refused));
        }
    }
    turns.take(&mut rigs, [&mut streams, &mut pings]);
    let streams = streams.plotted("Gb/s", &[0, 1]);
    report.tables.extend([streams.table_of_runs(), pings.table(), capacity.table()]);
    progress.end();
    Ok(report)
}

fn method(options: &GuestOptions) -> Vec<String> {
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
