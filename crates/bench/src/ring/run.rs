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
use ringway_guests::dpdk_files::DpdkFiles;
use ringway_virtq::{Broken, Format};

use super::device::Backend;
use super::driver::AnyDriverEnd;
use super::end::{Counts, End, Role, Work};
use super::limit::{LimitEnd, depths};
use super::row::{Direction, Row, Who};
use super::testpmd::{Part, Setting, Testpmd};
use crate::machine::pin;

/// Longest wait for the first packets.
const FIRST_PACKET_LIMIT: Duration = Duration::from_secs(10);

/// Until two programs of DPDK's have found each other and packets flow.
const PROGRAMS_WARM_UP: Duration = Duration::from_millis(1500);

/// Rounds between two looks at the vhost-user socket.
const ROUNDS: u32 = 4096;

/// How often each depth of the limit's ring is tried.
const DEPTH_ROUNDS: usize = 2;

const DRIVER: usize = 0;
const DEVICE: usize = 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Setup<'a> {
    pub row: Row,
    pub format: Format,
    pub packet_len: usize,
    pub queue_size: u16,
    /// Packets in flight at most where the limit is measured; a power of two.
    pub limit_depth: u64,
    /// Of the driver and of the device.
    pub processors: [usize; 2],
    pub duration: Duration,
    pub dpdk: Option<&'a DpdkFiles>,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Throughput {
    pub per_second: f64,
    /// Processor time per packet of the driver and of the device, in ns.
    pub cost_ns: [Option<f64>; 2],
    /// How DPDK's programs were started.
    pub commands: Vec<String>,
    pub version: Option<String>,
}

/// The two sides' counters and the end of both.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Of the driver and of the device.
    sides: [Counts; 2],
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

impl Setup<'_> {
    /// The depth at which the limit, which this is, is fastest now.
    pub fn fastest_depth(&self, direction: Direction) -> anyhow::Result<u64> {
        let depths = depths(self.packet_len, self.queue_size);
        let mut best = (0.0, u64::from(self.queue_size));
        for limit_depth in depths.repeat(DEPTH_ROUNDS) {
            let found = Setup { limit_depth, ..*self }.throughput(direction)?;
            if found.per_second > best.0 {
                best = (found.per_second, limit_depth);
            }
        }
        Ok(best.1)
    }

    /// Sends in one direction as fast as it goes: starts both sides, looks, stops both.
    pub fn throughput(&self, direction: Direction) -> anyhow::Result<Throughput> {
        let guest_sends = direction == Direction::GuestToHost;
        let role = |sends: bool| if sends { Role::Send } else { Role::Receive };
        let roles = [role(guest_sends), role(!guest_sends)];
        let directory = tempfile::Builder::new().prefix("ringway-bench").tempdir()?;
        let socket = directory.path().join("s");
        let shared = Shared::default();
        thread::scope(|scope| {
            let _stop = StopAtEnd(&shared.stop);
            let mut programs = [None, None];
            let mut threads: [Option<Side<'_>>; 2] = [None, None];
            let (shared, socket) = (&shared, &socket);
            match self.row {
                Row::Limit => {
                    let ends = LimitEnd::pair(self.packet_len, self.limit_depth)?;
                    let start = |end, side| {
                        Some(scope.spawn(move || self.limit(end, roles[side], shared, side)))
                    };
                    threads = [start(ends.0, DRIVER), start(ends.1, DEVICE)];
                }
                Row::Pair { driver, device } => {
                    // The device listens before its driver comes.
                    if device == Who::Dpdk {
                        programs[DEVICE] =
                            Some(self.testpmd(Part::Device, roles[DEVICE], socket)?);
                    } else {
                        let backend = Backend::bind(socket)?;
                        let run = move || self.device(backend, roles[DEVICE], shared);
                        threads[DEVICE] = Some(scope.spawn(run));
                    }
                    if driver == Who::Dpdk {
                        programs[DRIVER] =
                            Some(self.testpmd(Part::Driver, roles[DRIVER], socket)?);
                    } else {
                        let run = move || self.driver(socket, driver, roles[DRIVER], shared);
                        threads[DRIVER] = Some(scope.spawn(run));
                    }
                }
            }
            let watched = self.watch_both(guest_sends, shared, &mut programs);
            shared.stop.store(true, Ordering::Relaxed);
            let mut costs = [None, None];
            for (cost_ns, side) in costs.iter_mut().zip(threads) {
                if let Some(side) = side {
                    *cost_ns = side.join().map_err(|_| anyhow!("a side panicked"))??;
                }
            }
            let mut found = watched?;
            // The directory is another one each time.
            let place = format!("{}/", directory.path().display());
            found.commands.iter_mut().for_each(|it| *it = it.replace(&place, ""));
            for (cost_ns, ours) in found.cost_ns.iter_mut().zip(costs) {
                *cost_ns = cost_ns.or(ours);
            }
            Ok(found)
        })
    }

    fn limit(
        &self,
        mut end: LimitEnd,
        role: Role,
        shared: &Shared,
        side: usize,
    ) -> anyhow::Result<Option<f64>> {
        let _stop = StopAtEnd(&shared.stop);
        pin(self.processors[side])?;
        let work = Work::new(role, self.packet_len, &shared.sides[side])?;
        drive(&mut end, work, &shared.stop)
    }

    fn driver(
        &self,
        socket: &Path,
        who: Who,
        role: Role,
        shared: &Shared,
    ) -> anyhow::Result<Option<f64>> {
        let _stop = StopAtEnd(&shared.stop);
        pin(self.processors[DRIVER])?;
        let work = Work::new(role, self.packet_len, &shared.sides[DRIVER])?;
        let payload = who.payload(self.packet_len);
        match AnyDriverEnd::attach(socket, self.format, self.queue_size, payload)? {
            AnyDriverEnd::Split(mut end) => drive(&mut end, work, &shared.stop),
            AnyDriverEnd::Packed(mut end) => drive(&mut end, work, &shared.stop),
        }
    }

    fn device(
        &self,
        mut backend: Backend,
        role: Role,
        shared: &Shared,
    ) -> anyhow::Result<Option<f64>> {
        let _stop = StopAtEnd(&shared.stop);
        pin(self.processors[DEVICE])?;
        let mut work = Work::new(role, self.packet_len, &shared.sides[DEVICE])?;
        while !shared.stop.load(Ordering::Relaxed) {
            backend.serve()?;
            backend.rounds(&mut work, ROUNDS, &shared.stop).map_err(|why| broken(&why))?;
        }
        Ok(work.cost_ns())
    }

    fn testpmd(&self, part: Part, role: Role, socket: &Path) -> anyhow::Result<Testpmd> {
        let dpdk = self.dpdk.context("DPDK is not there")?;
        let Self { format, packet_len, queue_size, .. } = *self;
        let processor = self.processors[usize::from(part == Part::Device)];
        let setting = Setting { part, role, format, packet_len, queue_size, processor, socket };
        Testpmd::start(dpdk, &setting)
    }

    /// The rate by our own end's counter if one is ours: at most a ring's worth of packets apart
    /// from the other's.
    fn watch_both(
        &self,
        guest_sends: bool,
        shared: &Shared,
        programs: &mut [Option<Testpmd>; 2],
    ) -> anyhow::Result<Throughput> {
        let receiver = usize::from(guest_sends);
        let ours = [receiver, 1 - receiver].into_iter().find(|&side| programs[side].is_none());
        match ours {
            Some(side) => {
                // A sender fills the ring before its receiver empties it.
                let room = match self.row {
                    Row::Limit => self.limit_depth,
                    Row::Pair { .. } => u64::from(self.queue_size),
                };
                let flowing = if side == receiver { 0 } else { 4 * room };
                self.wait_until_flowing(shared, &shared.sides[side], flowing)?;
            }
            None => thread::sleep(PROGRAMS_WARM_UP),
        }
        for program in programs.iter_mut().flatten() {
            program.forget_cost()?;
        }
        let per_second = match (ours, &mut programs[receiver]) {
            (Some(side), _) => self.watch(&shared.sides[side]),
            (None, Some(program)) => program.rate(self.duration)?,
            (None, None) => bail!("no side receives"),
        };
        let mut found = Throughput { per_second, ..Throughput::default() };
        for (cost_ns, program) in found.cost_ns.iter_mut().zip(programs) {
            if let Some(program) = program {
                found.commands.push(program.command().to_string());
                found.version = program.version();
                *cost_ns = program.cost_ns()?;
            }
        }
        Ok(found)
    }

    /// Waits until more than `flowing` packets have gone through, and then warms up.
    fn wait_until_flowing(
        &self,
        shared: &Shared,
        counts: &Counts,
        flowing: u64,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + FIRST_PACKET_LIMIT;
        while counts.packets() <= flowing {
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

    fn watch(&self, counts: &Counts) -> f64 {
        let (began, before) = (Instant::now(), counts.packets());
        thread::sleep(self.duration);
        // On a busy machine a short look may fall between two turns of the receiver.
        while counts.packets() == before && began.elapsed() < FIRST_PACKET_LIMIT {
            thread::sleep(self.duration);
        }
        let (elapsed, after) = (began.elapsed(), counts.packets());
        // A number of packets is far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let packets = (after - before) as f64;
        packets / elapsed.as_secs_f64()
    }
}

fn drive(end: &mut impl End, mut work: Work<'_>, stop: &AtomicBool) -> anyhow::Result<Option<f64>> {
    while !stop.load(Ordering::Relaxed) {
        work.rounds(end, ROUNDS, stop).map_err(|why| broken(&why))?;
    }
    Ok(work.cost_ns())
}

fn broken(broken: &Broken) -> anyhow::Error {
    anyhow!("the peer broke the ring: {}", broken.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_stay_in_place_arrive_in_both_formats_and_directions() {
        let processors = crate::machine::processors();
        let processors = [processors[0], processors[processors.len() - 1]];
        for format in [Format::Split, Format::Packed] {
            for packet_len in [64, 1518] {
                let setup = Setup {
                    row: Row::Pair { driver: Who::InPlace, device: Who::Ringway },
                    format,
                    packet_len,
                    queue_size: 16,
                    limit_depth: 16,
                    processors,
                    duration: Duration::from_millis(10),
                    dpdk: None,
                };
                for direction in [Direction::GuestToHost, Direction::HostToGuest] {
                    let found = setup.throughput(direction).expect("packets");
                    assert!(found.per_second > 0.0, "{setup:?} {direction:?}");
                }
            }
        }
    }
}
