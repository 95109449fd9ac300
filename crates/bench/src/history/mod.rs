//! `ringway bench history`: techniques since 2008 that no guest of today lets one switch, with
//! ringway's own driver.
//!
//! How: [`method`]. A driver and a device work on one pair of rings in real memory, each on a
//! processor of its own ([`on_two`]). What Linux guests do let one switch is measured with them
//! (`--guest`).
//!
//! Limits: one queue pair, split rings; no guest kernel, so that a notification costs a wake-up but
//! no exit.

mod lock;
mod overload;
mod timer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, anyhow};
use ringway_device::{FromGuest, ToGuest};
use ringway_driver::{NetDriver, RxOptions};
use ringway_net::Features;
use ringway_testkit::{Mirror, MirrorOptions};
use ringway_virtq::{Broken, SplitDevice, SplitDriver};

use crate::machine::pin;
use crate::options::Options;
use crate::progress::in_turns;
use crate::report::{Grid, Report};

/// Bytes of the longest packet without segmentation offload.
const PACKET_LEN: usize = 1514;

/// Packets between two publications.
const BATCH: u64 = 64;

/// Rings to receive streams with.
const RINGS: MirrorOptions = MirrorOptions {
    rx: RxOptions::MERGEABLE,
    tx_len_max: 64,
    queue_size: 512,
    buffers_len: 16 << 20,
    without: Features::IN_ORDER.union(Features::EVENT_IDX),
};

type Driver = NetDriver<SplitDriver>;
type Device<'a> = (&'a mut ToGuest<SplitDevice>, &'a mut FromGuest<SplitDevice>);

pub fn measure(options: &Options) -> anyhow::Result<Report> {
    options.ensure_measurable()?;
    let mut report = Report::begin("history", &method(options))?;
    let (processors, duration) = (report.two_processors(), options.duration);
    let streams = Grid::new("Streams to a host with a timer", &["host"], &timer::COLUMNS);
    let mut streams = streams.plotted("Gb/s", &[0]);
    let rows = timer::ROWS.map(|(name, technique)| (vec![name.to_string()], technique));
    in_turns(options.repeats, &rows, |round, name, &technique, _| {
        streams.add(name, round, &[Some(timer::measure(technique, processors, duration)?)]);
        Ok(())
    })?;
    report.tables.push(streams.table_with(BEFORE, |row| row_before(&rows, row)));
    let mut locks = Grid::new("A lock around the device", &["lock"], &lock::COLUMNS);
    let rows = lock::ROWS.map(|(name, is_held)| (vec![name.to_string()], is_held));
    in_turns(options.repeats, &rows, |round, name, &is_held, _| {
        locks.add(name, round, &lock::measure(is_held, processors, duration)?.map(Some));
        Ok(())
    })?;
    report.tables.push(locks.table_with(BEFORE, |row| row_before(&rows, row)));
    let mut overload = Grid::new("Overload", &["descriptors"], &overload::COLUMNS);
    in_turns(options.repeats, &[(vec!["overload".into()], ())], |round, _, (), _| {
        let found = overload::measure(processors, duration)?;
        for ((name, ..), values) in overload::ROWS.iter().zip(found) {
            overload.add(&[(*name).into()], round, &values.map(Some));
        }
        Ok(())
    })?;
    report.tables.push(overload.table());
    Ok(report)
}

/// A ratio of the first number to that of the row before.
const BEFORE: &[(&str, usize)] = &[("× before", 0)];

fn row_before<T>(rows: &[(Vec<String>, T)], row: &[String]) -> Option<Vec<String>> {
    let at = rows.iter().position(|(name, _)| name == row)?;
    Some(rows[at.checked_sub(1)?].0.clone())
}

fn method(options: &Options) -> [String; 5] {
    [
        options.rounds(),
        format!(
            "A driver and a device on two processors, split rings, packets of {PACKET_LEN} bytes. \
             The other techniques since 2008 are measured with Linux guests (--guest uml, --guest \
             qemu), schemes of receive buffers by `ringway bench rxbuf`."
        ),
        timer::METHOD.into(),
        lock::METHOD.into(),
        overload::METHOD.into(),
    ]
}

/// Lets both ends of new rings work, each on its processor, the guest until the host has ended;
/// what they have found.
fn on_two<G: Send, H: Send>(
    rings: &MirrorOptions,
    processors: [usize; 2],
    guest: impl FnOnce(&mut Driver, &AtomicBool) -> anyhow::Result<G> + Send,
    host: impl FnOnce(Device<'_>) -> anyhow::Result<H> + Send,
) -> anyhow::Result<(G, H)> {
    let Mirror { mut driver, mut to_guest, mut from_guest, _memory, .. } = Mirror::new(rings)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let guest = scope.spawn(|| {
            pin(processors[0])?;
            guest(&mut driver, &stop)
        });
        let host = scope.spawn(|| {
            pin(processors[1])?;
            host((&mut to_guest, &mut from_guest))
        });
        let host = host.join();
        stop.store(true, Ordering::Relaxed);
        let guest = guest.join().map_err(|_| anyhow!("the guest panicked"))?;
        let host = host.map_err(|_| anyhow!("the host panicked"))?;
        Ok((guest.context("the guest")?, host.context("the host")?))
    })
}

fn broken(why: Broken) -> anyhow::Error {
    anyhow!("the peer broke the ring: {}", why.0)
}

#[cfg(test)]
fn two_processors() -> [usize; 2] {
    let here = crate::machine::processors();
    [here[0], here[here.len() - 1]]
}
