//! `ringway bench scale`: what one more port costs, and one more queue pair.
//!
//! How: [`method`]. All guests are driven by this one thread, which polls.
//!
//! Limits: one worker, which all queue pairs of a guest share; several are in [`workers`].

mod guests;
pub mod workers;

use std::time::Duration;

use anyhow::ensure;
use ringway_testkit::Usage;

use crate::options::Options;
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};
use guests::{Guests, start};

const SIZES: [(usize, usize); 9] =
    [(2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (64, 1), (2, 2), (2, 4), (2, 8)];

const COLUMNS: [Column; 6] = [
    ("daemon, ns/packet", 0),
    ("Mpps, all together", 3),
    ("memory per port, KiB", 0),
    ("attach, ms", 2),
    ("idle, % of a processor", 3),
    ("idle, wake-ups/s", 1),
];

pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let mut report = Report::begin("scale", &method(options))?;
    let grid = Grid::new("Ports and queue pairs", &["ports", "queue pairs each"], &COLUMNS);
    let mut grid = grid.plotted("ns of the daemon", &[0]);
    let rows = SIZES.map(|size| (vec![size.0.to_string(), size.1.to_string()], size));
    in_turns(options.repeats, &rows, |round, name, &(ports, pairs), _| {
        grid.add(name, round, &measure_one(ports, pairs, options.duration)?.map(Some));
        Ok(())
    })?;
    report.tables.push(grid.table());
    Ok(report)
}

fn measure_one(ports: usize, pairs: usize, duration: Duration) -> anyhow::Result<[f64; 6]> {
    let (daemon, names) = start(ports, pairs, 1)?;
    let pid = daemon.pid();
    let alone = Usage::look(pid)?;
    let mut guests = Guests::attach(&daemon, &names, pairs)?;
    let attached = Usage::look(pid)?;
    guests.introduce()?;
    let idle = Usage::look(pid)?;
    std::thread::sleep(duration);
    let idle = Usage::look(pid)?.since(&idle);
    // The first packets fill the rings and warm everything up.
    guests.exchange(duration / 4)?;
    let before = Usage::look(pid)?;
    let moved = guests.exchange(duration)?;
    let busy = Usage::look(pid)?.since(&before);
    ensure!(moved > 0.0, "nothing arrived");
    let ports = f64::from(u32::try_from(ports)?);
    Ok([
        busy.processor_ns / moved,
        moved / busy.seconds / 1e6,
        attached.since(&alone).memory_kib / ports,
        guests.attach_ms(),
        idle.processor_ns / idle.seconds / 1e7,
        idle.wakeups / idle.seconds,
    ])
}

fn method(options: &Options) -> [String; 3] {
    [
        options.rounds(),
        "A daemon with one worker; guests in user space, two and two of which send packets of 64 \
         bytes to each other, on all of their queue pairs in turn. The daemon's processor time \
         counts whole: system calls and wake-ups, too."
            .into(),
        "Memory is private memory of the daemon after all have attached beyond that before; a \
         guest's own memory is shared and does not count."
            .into(),
    ]
}
