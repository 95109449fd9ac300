//! One measurement: two ends on two cores, started, watched for a while, and stopped.
//!
//! How: ringway's ends are threads of this process, DPDK's are processes. The watching thread
//! sleeps meanwhile; it reads the receiver's counter twice, with the time.
//!
//! Limits: an end that does not deliver its first packet in time is an error.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use ringway_guests::Testpmd;
use ringway_virtq::{Broken, Format, PackedDriver, SplitDriver};

use super::device;
use super::driver::DriverEnd;
use super::end::{End, PacketCounter, Work};
use super::limit::{LimitEnd, depths};
use super::row::{DEVICE, DRIVER, LIMIT, Setup, Who};
use super::testpmd;
use crate::backend::Backend;
use crate::machine::pin;

/// Longest wait for the first packets.
const FIRST_PACKET_LIMIT: Duration = Duration::from_secs(10);

/// Until two programs of DPDK's have found each other and packets flow.
const PROGRAMS_WARM_UP: Duration = Duration::from_millis(1500);

/// Rounds between two looks at the vhost-user socket.
const ROUNDS: u32 = 4096;

/// How often each depth of the limit's ring is tried.
const DEPTH_ROUNDS: usize = 2;

#[derive(Debug, Clone, Default)]
pub(super) struct Throughput {
    pub per_second: f64,
    /// Processor time per packet of the driver and of the device, in ns.
    pub cost_ns: [Option<f64>; 2],
    /// How DPDK's programs were started.
    pub commands: Vec<String>,
}

/// The two sides' counters and the end of both.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Of the driver and of the device.
    sides: [PacketCounter; 2],
}

/// The thread of a side of ours; at its end it knows what a packet costs.
type Side<'scope> = ScopedJoinHandle<'scope, anyhow::Result<Option<f64>>>;

/// Stops the other side and the thread that watches when a side ends, even by a panic.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The loop of a side of ours until it is told to stop.
type Does<'a> = Box<dyn FnOnce(&mut Work<'_>, &AtomicBool) -> anyhow::Result<()> + Send + 'a>;

impl Setup<'_> {
    /// The depth at which the limit, which this is, is fastest now.
    pub fn fastest_depth(&self) -> anyhow::Result<u64> {
        let depths = depths(self.packet_len, self.queue_size);
        let mut best = (0.0, u64::from(self.queue_size));
        for limit_depth in depths.repeat(DEPTH_ROUNDS) {
            let found = Setup { limit_depth, ..*self }.throughput()?;
            if found.per_second > best.0 {
                best = (found.per_second, limit_depth);
            }
        }
        Ok(best.1)
    }

    /// Sends in one direction as fast as it goes: starts both sides, looks, stops both.
    pub fn throughput(&self) -> anyhow::Result<Throughput> {
        let directory = tempfile::Builder::new().prefix("ringway-bench").tempdir()?;
        let (shared, directory) = (&Shared::default(), directory.path());
        thread::scope(|scope| {
            let _stop = StopAtEnd(&shared.stop);
            let mut programs = [None, None];
            let mut threads: [Option<Side<'_>>; 2] = [None, None];
            let [one, other] = LimitEnd::pair(self.packet_len, self.limit_depth)?;
            // The device listens before its driver comes.
            for (side, end) in [(DEVICE, one), (DRIVER, other)] {
                let does: Does<'_> = match self.row.0[side] {
                    Who::Limit => Box::new(move |work, stop| drive(end, work, stop)),
                    Who::Dpdk => {
                        programs[side] = Some(self.testpmd(side, directory)?);
                        continue;
                    }
                    _ if side == DEVICE => {
                        let is_logged = self.row.0[side] == Who::Logged;
                        let backend = device::bind(&directory.join("s"), is_logged)?;
                        Box::new(move |work, stop| serve(backend, work, stop))
                    }
                    _ => Box::new(|work, stop| self.attach(&directory.join("s"), work, stop)),
                };
                threads[side] = Some(scope.spawn(move || {
                    let _stop = StopAtEnd(&shared.stop);
                    pin(self.processors[side])?;
                    let sends = self.direction.is_sender(side);
                    let mut work = Work::new(sends, self.packet_len, &shared.sides[side])?;
                    does(&mut work, &shared.stop)?;
                    Ok(work.cost_ns())
                }));
            }
            let watched = self.watch_both(shared, &mut programs);
            shared.stop.store(true, Ordering::Relaxed);
            let mut costs = [None, None];
            for (cost_ns, side) in costs.iter_mut().zip(threads) {
                if let Some(side) = side {
                    *cost_ns = side.join().map_err(|_| anyhow!("a side panicked"))??;
                }
            }
            let mut found = watched?;
            // The directory is another one each time.
            let place = format!("{}/", directory.display());
            found.commands.iter_mut().for_each(|it| *it = it.replace(&place, ""));
            for (cost_ns, ours) in found.cost_ns.iter_mut().zip(costs) {
                *cost_ns = cost_ns.or(ours);
            }
            Ok(found)
        })
    }

    fn attach(&self, at: &Path, work: &mut Work<'_>, stop: &AtomicBool) -> anyhow::Result<()> {
        let (size, payload) = (self.queue_size, self.row.payload(self.packet_len));
        match self.format {
            Format::Split => {
                drive(DriverEnd::<SplitDriver>::attach(at, size, payload)?, work, stop)
            }
            Format::Packed => {
                drive(DriverEnd::<PackedDriver>::attach(at, size, payload)?, work, stop)
            }
        }
    }

    fn testpmd(&self, side: usize, directory: &Path) -> anyhow::Result<Testpmd> {
        let dpdk = self.dpdk.context("DPDK is not there")?;
        testpmd::start(dpdk, self, side, directory)
    }

    /// The rate by our own end's counter if one is ours: at most a ring's worth of packets apart
    /// from the other's.
    fn watch_both(
        &self,
        shared: &Shared,
        programs: &mut [Option<Testpmd>; 2],
    ) -> anyhow::Result<Throughput> {
        let receiver = usize::from(self.direction.is_sender(DRIVER));
        let ours = [receiver, 1 - receiver].into_iter().find(|&side| programs[side].is_none());
        match ours {
            Some(side) => {
                // A sender fills the ring before its receiver empties it.
                let size = u64::from(self.queue_size);
                let room = if self.row == LIMIT { self.limit_depth } else { size };
                let flowing = if side == receiver { 0 } else { 4 * room };
                self.wait_until_flowing(shared, &shared.sides[side], flowing)?;
            }
            None => thread::sleep(PROGRAMS_WARM_UP),
        }
        for program in programs.iter_mut().flatten() {
            testpmd::forget_cost(program)?;
        }
        let per_second = match (ours, &mut programs[receiver]) {
            (Some(side), _) => self.watch(&shared.sides[side]),
            (None, Some(program)) => testpmd::rate(program, self.duration)?,
            (None, None) => bail!("no side receives"),
        };
        let mut found = Throughput { per_second, ..Throughput::default() };
        for (cost_ns, program) in found.cost_ns.iter_mut().zip(programs) {
            if let Some(program) = program {
                found.commands.push(program.command().to_string());
                *cost_ns = testpmd::cost_ns(program)?;
            }
        }
        Ok(found)
    }

    /// Waits until more than `flowing` packets have gone through, and then warms up.
    fn wait_until_flowing(
        &self,
        shared: &Shared,
        counter: &PacketCounter,
        flowing: u64,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + FIRST_PACKET_LIMIT;
        while counter.packets() <= flowing {
            if shared.stop.load(Ordering::Relaxed) {
                bail!("a side has ended");
            }
            if Instant::now() > deadline {
                bail!("no more than {flowing} packets within {FIRST_PACKET_LIMIT:?}");
            }
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(self.duration / 4);
        Ok(())
    }

    fn watch(&self, counter: &PacketCounter) -> f64 {
        let (began, before) = (Instant::now(), counter.packets());
        thread::sleep(self.duration);
        // On a busy machine a short look may fall between two turns of the receiver.
        while counter.packets() == before && began.elapsed() < FIRST_PACKET_LIMIT {
            thread::sleep(self.duration);
        }
        let (elapsed, after) = (began.elapsed(), counter.packets());
        // A number of packets is far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let packets = (after - before) as f64;
        packets / elapsed.as_secs_f64()
    }
}

fn drive(mut end: impl End, work: &mut Work<'_>, stop: &AtomicBool) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        work.rounds(&mut end, ROUNDS, stop).map_err(|why| broken(&why))?;
    }
    Ok(())
}

fn serve(mut backend: Backend, work: &mut Work<'_>, stop: &AtomicBool) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        backend.serve()?;
        device::rounds(&mut backend, work, ROUNDS, stop).map_err(|why| broken(&why))?;
    }
    Ok(())
}

fn broken(broken: &Broken) -> anyhow::Error {
    anyhow!("the peer broke the ring: {}", broken.0)
}

#[cfg(test)]
mod tests {
    use super::super::row::{PacketDirection, Row};
    use super::*;

    #[test]
    fn packets_that_stay_in_place_or_are_logged_arrive_in_both_formats_and_directions() {
        let processors = crate::machine::processors();
        let processors = [processors[0], processors[processors.len() - 1]];
        let both_ways = |len| {
            [PacketDirection::GuestToHost, PacketDirection::HostToGuest]
                .map(|direction| (len, direction))
        };
        for format in [Format::Split, Format::Packed] {
            let cases = [64, 1518].into_iter().flat_map(both_ways);
            let rows = [Row([Who::InPlace, Who::Ringway]), Row([Who::Ringway, Who::Logged])];
            for ((packet_len, direction), row) in cases.flat_map(|case| rows.map(|row| (case, row)))
            {
                let setup = Setup {
                    row,
                    direction,
                    format,
                    packet_len,
                    queue_size: 16,
                    limit_depth: 16,
                    processors,
                    duration: Duration::from_millis(10),
                    dpdk: None,
                };
                let found = setup.throughput().expect("packets");
                assert!(found.per_second > 0.0, "{setup:?}");
            }
        }
    }
}
