//! `ringway bench history`: what made virtio-net fast, one technique after the other, on this
//! machine.
//!
//! How: [`method`]. Each row switches one technique on ([`technique`]); a driver and a device work
//! on one pair of rings in real memory ([`ends`], [`guest`], [`host`]), and what only the past did,
//! such as a lock around everything, is done around them. [`load`] offers more than the guest
//! takes.
//!
//! Limits: one queue pair, two processors; no guest kernel, so that a notification costs a wake-up
//! but no exit.

mod ends;
mod guest;
mod host;
mod load;
mod run;
mod technique;

use anyhow::Context;

use crate::options::Options;
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};
use ends::Part;
use run::Traffic;
use technique::{SHORT_LEN, STEPS, Technique};

pub(crate) use technique::{Step, steps};

/// Length of a packet that goes there and back: an echo request of 56 bytes.
const PING_LEN: usize = 98;

const STREAMS: [Column; 3] =
    [("guest → host, Gb/s", 2), ("host → guest, Gb/s", 2), ("host → guest, 1514 bytes, Gb/s", 2)];

const BEFORE: [(&str, usize); 3] = [
    ("guest → host, × before", 0),
    ("host → guest, × before", 1),
    ("host → guest, 1514 bytes, × before", 2),
];

const ROUND_TRIPS: [Column; 4] =
    [("min, ms", 3), ("mean, ms", 3), ("max, ms", 3), ("deviation, ms", 3)];

/// What is measured of each row: streams of the longest packets that it allows, one to the guest of
/// packets that fit an ordinary MTU, and small packets one at a time.
fn traffic(technique: &Technique) -> [Traffic; 5] {
    [
        ([Part::Source, Part::Sink], technique.packet_len),
        ([Part::Sink, Part::Source], technique.packet_len),
        ([Part::Sink, Part::Source], SHORT_LEN),
        ([Part::Ping, Part::Echo], PING_LEN),
        ([Part::Echo, Part::Ping], PING_LEN),
    ]
}

pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let mut report = Report::begin("history", &method(options))?;
    let processors = report.two_processors();
    let mut streams = Grid::new("Streams", &["switched on"], &STREAMS).plotted("Gb/s", &[0, 1]);
    let title = format!("Round trips, one packet of {PING_LEN} bytes at a time");
    let mut round_trips = Grid::new(title, &["switched on", "begun by"], &ROUND_TRIPS);
    round_trips = round_trips.plotted("ms", &[1]);
    in_turns(options.repeats, &technique::rows(), |round, name, technique, _| {
        let mut rates = Vec::new();
        for traffic in traffic(technique) {
            let found = run::measure(technique, traffic, processors, options.duration);
            let found = found.with_context(|| format!("{traffic:?}"))?.into_iter().map(Some);
            let Some(begun_by) = traffic.0.iter().position(|part| *part == Part::Ping) else {
                rates.extend(found);
                continue;
            };
            let name = [&name[0], ["guest", "host"][begun_by]].map(String::from);
            round_trips.add(&name, round, &found.collect::<Vec<_>>());
        }
        streams.add(name, round, &rates);
        Ok(())
    })?;
    report.tables.push(streams.table_with(&BEFORE, before));
    report.tables.push(round_trips.table());
    let title = format!("Overload, packets of {SHORT_LEN} bytes to the guest");
    let mut overload = Grid::new(title, &["descriptors"], &load::COLUMNS);
    for round in 0..options.repeats {
        let found = load::measure(processors, options.duration).context("overload")?;
        for ((name, ..), values) in load::ROWS.iter().zip(found) {
            overload.add(&[(*name).into()], round, &values.map(Some));
        }
    }
    report.tables.push(overload.table());
    Ok(report)
}

fn before(row: &[String]) -> Option<Vec<String>> {
    let at = STEPS.iter().position(|step| row == [step.0])?;
    Some(vec![STEPS[at.checked_sub(1)?].0.to_string()])
}

fn method(options: &Options) -> Vec<String> {
    let mut method = vec![
        options.rounds(),
        "Each row keeps what the rows above it have switched on, except that timers and ring sizes \
         replace each other. A driver and a device on two processors, which sleep and wake each \
         other through eventfds; the tap is private memory of the host's."
            .into(),
        "A ratio is to the row before.".into(),
        "Overload: in each round one and a half times the packets that the guest takes with \
         descriptors allocated early, at a fixed rate. Each packet is received, or found no \
         buffer, or no memory for its descriptor: that the sum is right is checked."
            .into(),
    ];
    method.extend(STEPS.iter().map(|(name, about, _)| format!("{name}: {about}.")));
    method
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_beside_the_ones_before() {
        let name = |at: usize| vec![STEPS[at].0.to_string()];
        assert_eq!(before(&name(0)), None);
        assert_eq!(before(&name(18)), Some(name(17)));
    }
}
