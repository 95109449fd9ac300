//! `ringway bench rxbuf --tcp`: a stream of TCP between two guests through each scheme of receive
//! buffers, where the receive window is what the buffers of unread packets leave of a limit.
//!
//! How: drivers, devices, rings and TCP are the real ones, in one thread; time is virtual, and what
//! a packet costs the receiver follows from a model of three numbers ([`path`]). So every run finds
//! the same, on every machine, and a test holds the table.
//!
//! Limits: what the model says is all that takes time: no caches, no notifications, no losses.

mod path;
mod stack;

use ringway_driver::RxScheme;
use ringway_driver::rx_buffer::ENTRY_COST_BYTES;

use crate::options::Options;
use crate::report::{Cell, Report, Table};
use crate::spread::Spread;
use path::{BYTE_PS, FRAGMENT_COST_BYTES, Found, Path};

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

pub fn compute(options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::begin("rxbuf --tcp", &options.command, &method())?;
    report.tables.push(table(&rows()?));
    Ok(report)
}

fn table(rows: &[Row]) -> Table {
    let number = |value: f64, digits| Cell::number(Spread::of([value]), digits);
    let cells = |row: &Row| {
        let name = [Cell::text(row.round_trip_us.to_string()), Cell::text(&*row.name)];
        let rates = row.found.iter().map(|found| number(found.gigabits(), 2));
        let last = [number(row.last_by_best(), 3)];
        let per = row.found.iter().map(|found| Cell::text(found.per_packet()));
        name.into_iter().chain(rates).chain(last).chain(per).collect()
    };
    let heads = ["round trip, µs", "packets"].map(str::to_string).into_iter();
    let heads = heads.chain(schemes().map(|scheme| format!("{}, Gb/s", scheme.name())));
    let heads = heads.chain(["adaptive ÷ best".to_string()]);
    let per = schemes().map(|scheme| format!("{}: memory ÷ bytes, buffers, places", scheme.name()));
    let columns = heads.chain(per).collect();
    let title = "A stream of TCP".into();
    Table { title, columns, rows: rows.iter().map(cells).collect(), plots: Vec::new() }
}

fn method() -> [String; 4] {
    [
        "Computed in virtual time: the same on every machine. Two guests, each our driver on our \
         device and smoltcp, and a path that only delays; the sender takes no time."
            .into(),
        format!(
            "The receiver is busy with a packet for as long as copying its bytes takes, at {} \
             Gb/s, {ENTRY_COST_BYTES} bytes more for each ring entry and {FRAGMENT_COST_BYTES} for \
             each place that its bytes are in.",
            8000 / BYTE_PS
        ),
        format!(
            "Packets that the application has not read may hold {} KiB of memory, whole buffers \
             counted; the window that the receiver tells is as much payload as fits into what is \
             left of it, if it comes as it came lately. The application reads whenever no packet \
             waits, or half of that is held.",
            RX_LIMIT >> 10
        ),
        "Per packet: memory that it holds by its bytes, ring entries, and places with neighbouring \
         buffers as one. Not coalesced: each buffer is a place of its own."
            .into(),
    ]
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use ringway_testkit::golden;

    use super::*;

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
            let row =
                rows.iter().find(|row| row.round_trip_us == round_trip_us && row.name == name);
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
}
