//! One number: two threads on two processors, for a while.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use ringway_driver::{RxOptions, RxScheme};
use ringway_net::{Features, PACKET_LEN_MAX};
use ringway_virtq::{
    DeviceQueue, DriverQueue, Format, PackedDevice, PackedDriver, SplitDevice, SplitDriver,
};

use super::What;
use super::guest::Guest;
use super::host::Host;
use super::sides::Common;
use super::technique::{SHORT_LEN, Technique};
use super::wake::Bells;
use crate::machine::pin;
use crate::mirror::{Mirror, Options as MirrorOptions};

/// Length of a packet that goes there and back: an echo request of 56 bytes.
const PING_LEN: usize = 98;

/// Longest wait for the first that counts.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

/// Memory for buffers of one driver, in bytes.
const BUFFERS_LEN: u64 = 160 << 20;

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Found {
    /// Gb/s of packets.
    Rate(f64),
    /// Shortest, mean, longest and standard deviation of round trips, in ms.
    Times([f64; 4]),
}

impl Found {
    /// All of it.
    pub fn values(&self) -> impl Iterator<Item = f64> + '_ {
        let values: &[f64] = match self {
            Self::Rate(rate) => std::slice::from_ref(rate),
            Self::Times(times) => times,
        };
        values.iter().copied()
    }
}

/// Measures one number of one row.
///
/// # Errors
/// A side breaks the rules, or nothing moves.
pub(super) fn measure(
    technique: &Technique,
    what: What,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<Found> {
    match technique.format {
        Format::Split => on::<SplitDriver, SplitDevice>(technique, what, processors, duration),
        Format::Packed => on::<PackedDriver, PackedDevice>(technique, what, processors, duration),
    }
}

fn on<D: DriverQueue + Send, V: DeviceQueue + Send>(
    technique: &Technique,
    what: What,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<Found> {
    let mut mirror = Mirror::<D, V>::new(&mirror_options(technique))?;
    let (bells, stop, lock) = (Bells::new()?, AtomicBool::new(false), Mutex::new(()));
    let packet_len = match what {
        What::Out | What::Back => technique.packet_len,
        What::BackShort => SHORT_LEN,
        What::PingOut | What::PingBack => PING_LEN,
    };
    let started = Instant::now();
    let warm_up = duration / 4;
    let (sent, counted) = (&AtomicU64::new(0), &AtomicU64::new(0));
    let (bells, stop, lock) = (&bells, &stop, &lock);
    let common =
        Common { technique, bells, stop, lock, packet_len, started, warm_up, sent, counted };
    let (driver, to_guest, from_guest) =
        (&mut mirror.driver, &mut mirror.to_guest, &mut mirror.from_guest);
    thread::scope(|scope| {
        let guest = scope.spawn(|| {
            let _stop = StopAtEnd(stop);
            pin(processors[0])?;
            let mut guest = Guest::new(&common, driver);
            match what {
                What::Out => guest.stream().map(|()| vec![]),
                What::Back | What::BackShort => guest.sink(false).map(|()| vec![]),
                What::PingBack => guest.sink(true).map(|()| vec![]),
                What::PingOut => guest.ping(),
            }
        });
        let host = scope.spawn(|| {
            let _stop = StopAtEnd(stop);
            pin(processors[1])?;
            let mut host = Host::new(&common, to_guest, from_guest, what.is_stream())?;
            let times = match what {
                What::Out => host.sink(false).map(|()| vec![]),
                What::PingOut => host.sink(true).map(|()| vec![]),
                What::Back | What::BackShort => host.stream().map(|()| vec![]),
                What::PingBack => host.ping(),
            }?;
            anyhow::Ok((times, host.bytes))
        });
        thread::sleep(warm_up + duration);
        // On a busy machine nothing may have had its turn yet.
        while counted.load(Ordering::Relaxed) == 0
            && !stop.load(Ordering::Relaxed)
            && started.elapsed() < FIRST_LIMIT
        {
            thread::sleep(duration);
        }
        let elapsed = started.elapsed() - warm_up;
        stop.store(true, Ordering::Relaxed);
        let guest = guest.join().map_err(|_| anyhow!("the guest panicked"))?;
        let (host, bytes) = host.join().map_err(|_| anyhow!("the host panicked"))??;
        let times = [guest?, host].concat();
        found(what, &times, bytes, elapsed)
    })
}

fn found(what: What, times: &[f64], bytes: u64, elapsed: Duration) -> anyhow::Result<Found> {
    match what {
        What::Out | What::Back | What::BackShort => {
            ensure!(bytes > 0, "nothing moved");
            // Far below 2^53.
            #[allow(clippy::cast_precision_loss)]
            let bits = bytes as f64 * 8.0;
            Ok(Found::Rate(bits / elapsed.as_secs_f64() / 1e9))
        }
        What::PingOut | What::PingBack => {
            let summary = summary(times);
            summary.map(Found::Times).ok_or_else(|| anyhow!("nothing came back"))
        }
    }
}

/// Shortest, mean, longest, and standard deviation; `None`: there are none.
fn summary(times: &[f64]) -> Option<[f64; 4]> {
    let count = f64::from(u32::try_from(times.len()).ok()?);
    let shortest = times.iter().copied().reduce(f64::min)?;
    let longest = times.iter().copied().reduce(f64::max)?;
    let mean = times.iter().sum::<f64>() / count;
    let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / count;
    Some([shortest, mean, longest, variance.sqrt()])
}

/// Both ends as the technique has them.
pub(super) fn mirror_options(technique: &Technique) -> MirrorOptions {
    let mut without = Features::IN_ORDER;
    without.set(Features::EVENT_IDX, !technique.event_idx);
    without.set(Features::NOTIFY_ON_EMPTY, !technique.notify_on_empty);
    // Where buffers take many entries, they take them in the ring.
    without.set(Features::INDIRECT_DESC, technique.scheme == RxScheme::Big);
    let rx = RxOptions { elements: technique.elements, ..RxOptions::of(technique.scheme) };
    MirrorOptions {
        rx,
        tx_len_max: PACKET_LEN_MAX,
        queue_size: technique.queue_size,
        buffers_len: BUFFERS_LEN,
        without,
    }
}

/// Ends the other side, too.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_summed_up() {
        assert_eq!(summary(&[1.0, 3.0]), Some([1.0, 2.0, 3.0, 1.0]));
        assert_eq!(summary(&[]), None);
        assert!(found(What::Out, &[], 0, Duration::from_secs(1)).is_err());
        let rate = found(What::Out, &[], 1_000_000_000, Duration::from_secs(2));
        assert_eq!(rate.ok(), Some(Found::Rate(4.0)));
    }
}
