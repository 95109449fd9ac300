//! More packets than the guest takes, at a fixed load: how many are lost where a descriptor of a
//! packet is allocated early and where it is allocated on arrival, and what happens when that
//! fails.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use ringway_testkit::Mirror;
use ringway_virtq::{SplitDevice, SplitDriver};

use super::ends::{BATCH, Common, End, Part, play};
use super::guest::Guest;
use super::host::Host;
use super::technique::{SHORT_LEN, Technique, rows};
use crate::machine::pin;
use crate::report::Column;

/// Of so many allocations one fails, where they fail.
const FAILS_EVERY: u32 = 100;

/// Load ÷ what is taken without a limit.
const OVERLOAD: f64 = 1.5;

pub(super) const COLUMNS: [Column; 4] = [
    ("offered, kpps", 0),
    ("received, kpps", 0),
    ("no buffer, % of these", 1),
    ("no descriptor, % of the others", 2),
];

/// Each row by the technique's row that it is taken from, and how often allocations fail.
pub(super) const ROWS: [(&str, &str, Option<u32>); 3] = [
    ("allocated with each receive buffer", "mergeable buffers", None),
    ("allocated on arrival", "deferred packets", None),
    ("allocated on arrival, 1 % fail", "deferred packets", Some(FAILS_EVERY)),
];

pub(super) fn measure(
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<[[f64; COLUMNS.len()]; ROWS.len()]> {
    let (mut found, mut offered) = ([[0.0; COLUMNS.len()]; ROWS.len()], f64::INFINITY);
    let technique = |name| rows().into_iter().find(|row| row.0[0] == name).map(|row| row.1);
    for (values, (_, name, fails_every)) in found.iter_mut().zip(ROWS) {
        let technique = technique(name).ok_or_else(|| anyhow!("no row {name}"))?;
        let technique = Technique { packet_len: SHORT_LEN, ..technique };
        if offered.is_infinite() {
            let taken = run(&technique, None, processors, offered, duration)?;
            offered = OVERLOAD * taken.received / taken.seconds;
        }
        let run = run(&technique, fails_every, processors, offered, duration)?;
        // Every packet is somewhere.
        let sum = run.received + run.not_allocated;
        ensure!(run.put.total_cmp(&sum).is_eq(), "packets are missing: {run:?}");
        *values = run.values();
    }
    Ok(found)
}

#[derive(Debug, Clone, Copy)]
struct Run {
    offered: f64,
    /// Put into the ring.
    put: f64,
    received: f64,
    not_allocated: f64,
    seconds: f64,
}

impl Run {
    fn values(&self) -> [f64; COLUMNS.len()] {
        [
            self.offered / self.seconds / 1e3,
            self.received / self.seconds / 1e3,
            (self.offered - self.put) / self.offered * 1e2,
            self.not_allocated / self.put * 1e2,
        ]
    }
}

/// Offers so many packets per second, or as many as there is room for.
fn run(
    technique: &Technique,
    fails_every: Option<u32>,
    processors: [usize; 2],
    offered: f64,
    duration: Duration,
) -> anyhow::Result<Run> {
    let Mirror { mut driver, mut to_guest, mut from_guest, _memory } =
        Mirror::<SplitDriver, SplitDevice>::new(&technique.rings)?;
    let common = &Common::new(technique, technique.packet_len, Duration::ZERO)?;
    thread::scope(|scope| {
        let guest = scope.spawn(|| {
            pin(processors[0])?;
            let mut guest = Guest::new(common, &mut driver);
            guest.fails_every = fails_every;
            play(&mut guest, Part::Sink, common)?;
            anyhow::Ok(guest.not_allocated)
        });
        let host = scope.spawn(|| {
            pin(processors[1])?;
            let host = &mut Host::new(common, &mut to_guest, &mut from_guest)?;
            let load = load(host, offered, duration);
            // What is in the ring is received.
            thread::sleep(duration.max(Duration::from_millis(20)));
            common.stop.store(true, Ordering::Relaxed);
            load
        });
        let host = host.join().map_err(|_| anyhow!("the host panicked"))?;
        let guest = guest.join().map_err(|_| anyhow!("the guest panicked"))?;
        let ((offered, put, seconds), not_allocated) = (host?, guest?);
        let received = common.counted.load(Ordering::Relaxed);
        // Far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let [offered, put, all, not_allocated] =
            [offered, put, received, not_allocated].map(|count| count as f64);
        Ok(Run { offered, put, received: all - not_allocated, not_allocated, seconds })
    })
}

/// Packets offered, those of them that found room, and the seconds that it took.
fn load(host: &mut impl End, rate: f64, duration: Duration) -> anyhow::Result<(u64, u64, f64)> {
    let (mut offered, mut put) = (0, 0);
    let began = Instant::now();
    loop {
        let elapsed = began.elapsed();
        if elapsed >= duration {
            return Ok((offered, put, elapsed.as_secs_f64()));
        }
        // A rate without end offers a batch each time. What is due while this thread did not run
        // is offered at once.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let due = (rate * elapsed.as_secs_f64()).min(1e15) as u64;
        let most = if rate.is_infinite() { BATCH } else { u32::MAX };
        let due = due.saturating_sub(offered).min(most.into());
        let room = host.put(u32::try_from(due)?)?;
        host.flush(true, false);
        offered += due;
        put += u64::from(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::processors;

    #[test]
    fn every_packet_is_counted_once_and_nothing_stalls() {
        let here = processors();
        let two = [here[0], here[here.len() - 1]];
        let found = measure(two, Duration::from_millis(30)).expect("it goes on");
        assert!(found.iter().all(|row| row[1] > 0.0), "{found:?}");
        let failed = found.map(|row| row[3] > 0.0);
        assert_eq!(failed, [false, false, true], "{found:?}");
    }
}
