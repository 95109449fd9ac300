//! A stream of TCP between two guests through each scheme of receive buffers, where the receive
//! window is what the buffers of unread packets leave of a limit.
//!
//! How: drivers, devices, rings and TCP are the real ones, in one thread; time is virtual, and what
//! a packet costs the receiver follows from a model of three numbers ([`path`]). So every run finds
//! the same, on every machine. `RINGWAY_ACCEPT=1` rewrites the table.
//!
//! Limits: what the model says is all that takes time: no caches, no notifications, no losses.

mod path;
mod stack;

use std::fmt::Write;

use ringway_driver::RxScheme;
use ringway_testkit::golden;

use path::{Found, Path};

/// Bytes of memory that packets may hold which the application has not read.
const RX_LIMIT: u64 = 2 << 20;

/// Payload that is read before numbers are taken, and while they are.
const WARM_UP: u64 = 8 << 20;
const MEASURED: u64 = 24 << 20;

/// There and back, in µs: so short that only work counts; so long that only the window counts; and
/// in between.
const ROUND_TRIPS_US: [u64; 3] = [10, 160, 500];

const LONGEST: &[usize] = &[64_240];

/// Kinds of traffic: a name, and the payload of packets, again and again, in bytes.
const TRAFFIC: [(&str, &[usize]); 5] = [
    ("MTU", &[1460]),
    ("4 KiB", &[4096]),
    ("2 to 6 KiB", &[2920, 5840, 4380, 2920, 4380]),
    ("64 KiB", LONGEST),
    ("4 × MTU, 1 × 64 KiB", &[1460, 1460, 1460, 1460, 64_240]),
];

/// Those that merge buffers.
fn schemes() -> impl Iterator<Item = RxScheme> {
    RxScheme::ALL.into_iter().filter(|scheme| scheme.needs_mergeable())
}

/// One row: what each scheme finds.
struct Row {
    round_trip_us: u64,
    name: String,
    found: Vec<Found>,
}

impl Row {
    /// The last scheme's rate, `adaptive`'s, by the best of all.
    fn last_by_best(&self) -> f64 {
        let best = self.found.iter().map(Found::gigabits).fold(0.0, f64::max);
        self.found.last().map_or(0.0, Found::gigabits) / best
    }
}

/// All rows; of the longest packets one more, where neighbouring buffers stay what they are.
fn rows() -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for round_trip_us in ROUND_TRIPS_US {
        for (name, payloads) in TRAFFIC {
            for coalesces in [true, false] {
                if !coalesces && payloads != LONGEST {
                    continue;
                }
                let run = |scheme| {
                    let delay_ns = round_trip_us * 1000 / 2;
                    path::run(Path { scheme, payloads, delay_ns, coalesces }, WARM_UP, MEASURED)
                };
                let found = schemes().map(run).collect::<Result<_, _>>()?;
                let name = if coalesces { name.into() } else { format!("{name}, not coalesced") };
                rows.push(Row { round_trip_us, name, found });
            }
        }
    }
    Ok(rows)
}

fn text(rows: &[Row]) -> String {
    let mut text = format!("{:<26}", "Gb/s");
    schemes().for_each(|scheme| write!(text, "{:>9}", scheme.name()).expect("a String"));
    text += "   adaptive ÷ best";
    let mut round_trip_us = 0;
    for row in rows {
        if row.round_trip_us != round_trip_us {
            round_trip_us = row.round_trip_us;
            write!(text, "\nround trip of {round_trip_us} µs\n").expect("a String");
        }
        write!(text, "  {:<24}", row.name).expect("a String");
        for found in &row.found {
            write!(text, "{:>9.2}", found.gigabits()).expect("a String");
        }
        writeln!(text, "{:>18.3}", row.last_by_best()).expect("a String");
    }
    text += "\nmemory by bytes, entries, places, with a round trip of 160 µs\n";
    let coalesced = |row: &&Row| !row.name.contains("not coalesced");
    for row in rows.iter().filter(|row| row.round_trip_us == 160).filter(coalesced) {
        write!(text, "  {:<24}", row.name).expect("a String");
        row.found
            .iter()
            .for_each(|found| write!(text, "{:>17}", found.per_packet()).expect("a String"));
        text += "\n";
    }
    text
}

#[test]
fn the_table_in_the_documents_is_what_the_model_says() {
    let rows = rows().expect("streams that end");
    let text = text(&rows);
    golden::compare("measurements/receive-buffers.md", "tcp", &text);
    let gigabits = |round_trip_us, name: &str| {
        let row = rows.iter().find(|row| row.round_trip_us == round_trip_us && row.name == name);
        let found = row.map(|row| row.found.iter().map(Found::gigabits).collect::<Vec<f64>>());
        <[f64; 4]>::try_from(found.expect("such a row")).expect("four schemes")
    };
    let [page, mtu, ..] = gigabits(10, "64 KiB");
    assert!((0.88..=0.92).contains(&(mtu / page)), "a tenth less: {mtu} and {page}");
    let [page, mtu, ..] = gigabits(160, "MTU");
    assert!(page < 0.6 * mtu, "the window of pages: {page} and {mtu}");
    let between = rows.iter().filter(|row| row.round_trip_us == 160);
    between.for_each(|row| assert!(row.last_by_best() >= 0.99, "{}", row.name));
}
