//! One number, or one set of round trips: two threads on two processors, for a while.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use ringway_testkit::Mirror;
use ringway_virtq::{
    DeviceQueue, DriverQueue, Format, PackedDevice, PackedDriver, SplitDevice, SplitDriver,
};

use super::ends::{Common, Part, play};
use super::guest::Guest;
use super::host::Host;
use super::technique::Technique;
use crate::machine::pin;
use crate::spread::Spread;

/// Longest wait for the first that counts.
const FIRST_LIMIT: Duration = Duration::from_secs(10);

/// What the guest and the host do, and the bytes of each packet.
pub(super) type Traffic = ([Part; 2], usize);

/// Measures: the Gb/s of a stream, or of round trips the shortest, mean, longest and standard
/// deviation, in ms.
pub(super) fn measure(
    technique: &Technique,
    traffic: Traffic,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<Vec<f64>> {
    let on = match technique.format {
        Format::Split => on::<SplitDriver, SplitDevice>,
        Format::Packed => on::<PackedDriver, PackedDevice>,
    };
    on(technique, traffic, processors, duration)
}

fn on<D: DriverQueue + Send, V: DeviceQueue + Send>(
    technique: &Technique,
    (parts, packet_len): Traffic,
    processors: [usize; 2],
    duration: Duration,
) -> anyhow::Result<Vec<f64>> {
    let Mirror { mut driver, mut to_guest, mut from_guest, _memory } =
        Mirror::<D, V>::new(&technique.rings)?;
    let common = &Common::new(technique, packet_len, duration / 4)?;
    let (times, elapsed) = thread::scope(|scope| {
        let guest = scope.spawn(|| {
            pin(processors[0])?;
            play(&mut Guest::new(common, &mut driver), parts[0], common)
        });
        let host = scope.spawn(|| {
            pin(processors[1])?;
            let mut host = Host::new(common, &mut to_guest, &mut from_guest)?;
            play(&mut host, parts[1], common)
        });
        thread::sleep(common.warm_up + duration);
        // On a busy machine nothing may have had its turn yet.
        while common.counted.load(Ordering::Relaxed) == 0
            && !(guest.is_finished() || host.is_finished())
            && common.started.elapsed() < FIRST_LIMIT
        {
            thread::sleep(duration);
        }
        let elapsed = common.started.elapsed() - common.warm_up;
        common.stop.store(true, Ordering::Relaxed);
        let guest = guest.join().map_err(|_| anyhow!("the guest panicked"))?;
        let host = host.join().map_err(|_| anyhow!("the host panicked"))?;
        anyhow::Ok(([guest?, host?].concat(), elapsed))
    })?;
    if parts.contains(&Part::Ping) {
        let Spread { low, mean, high, deviation, .. } =
            Spread::of(times).context("nothing came back")?;
        return Ok(vec![low, mean, high, deviation]);
    }
    let packets = common.counted.load(Ordering::Relaxed);
    ensure!(packets > 0, "nothing moved");
    // Far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    let bits = packets as f64 * packet_len as f64 * 8.0;
    Ok(vec![bits / elapsed.as_secs_f64() / 1e9])
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::technique::{rows, tests::named};
    use super::*;
    use crate::machine::processors;

    /// Does something with both ends of a row with a split ring, in one thread.
    pub(crate) fn with_ends<T>(
        row: &str,
        act: impl FnOnce(&mut Guest<'_, SplitDriver>, &mut Host<'_, SplitDevice>) -> T,
    ) -> T {
        let technique = Technique { format: Format::Split, ..named(row) };
        let mut mirror = Mirror::new(&technique.rings).expect("memory");
        let common = Common::new(&technique, technique.packet_len, Duration::ZERO);
        let common = common.expect("eventfds");
        let mut guest = Guest::new(&common, &mut mirror.driver);
        let host = Host::new(&common, &mut mirror.to_guest, &mut mirror.from_guest);
        act(&mut guest, &mut host.expect("memory"))
    }

    fn two_processors() -> [usize; 2] {
        let here = processors();
        [here[0], *here.last().expect("one at least")]
    }

    #[test]
    fn every_row_moves_packets_both_ways() {
        for (name, technique) in rows() {
            for traffic in super::super::traffic(&technique) {
                let found =
                    measure(&technique, traffic, two_processors(), Duration::from_millis(15));
                let found = found.unwrap_or_else(|why| panic!("{name:?}, {traffic:?}: {why:#}"));
                assert!(found[0] > 0.0, "{name:?}, {traffic:?}");
                let is_stream = traffic.0.contains(&Part::Source);
                assert_eq!(found.len(), if is_stream { 1 } else { 4 });
            }
        }
    }

    #[test]
    fn full_rings_go_on_long_before_the_timer_ends() {
        // Far longer than a measurement waits for the first packet that counts.
        let technique = Technique { timer_us: Some(600_000_000), ..named("150 µs timer") };
        let out = super::super::traffic(&technique)[0];
        let found = measure(&technique, out, two_processors(), Duration::from_millis(50));
        assert!(found.as_ref().is_ok_and(|found| found[0] > 0.0), "{found:?}");
    }
}
