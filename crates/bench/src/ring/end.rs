//! One end of what carries packets, and what is done with it: the same loops drive all of them, so
//! that only the ends differ.
//!
//! How: [`Work`] runs rounds of at most [`BATCH`] packets, stage by stage: move, publish, count.
//! Every [`SAMPLE_EVERY`]th round that moved something is timed; the mean of the usual ones is the
//! cost of a packet on this side, whatever else the processor did in between.
//!
//! Limits: one packet length at a time; ends are polled and never sleep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use ringway_testkit::TestMemory;
use ringway_testkit::frames::Mac;
use ringway_virtq::{Broken, SharedSlice};

/// Packets between two publications, as DPDK's programs do it.
pub(crate) const BATCH: usize = 32;

/// Rounds between two that are timed: a look at the clock costs as much as some packets. A prime,
/// so that rounds which take used buffers back, every so many, are neither all timed nor none.
const SAMPLE_EVERY: u32 = 17;

/// The addresses in a packet.
const HERE: Mac = [2, 0x72, 0x77, 0, 0, 1];
const THERE: Mac = [2, 0x72, 0x77, 0, 0, 2];

/// Free for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

/// Where the time is written in a packet: behind the Ethernet header.
const STAMP_AT: usize = 14;
const STAMP_LEN: usize = 8;

/// Longest round trip that is told apart, in ns.
const ROUND_TRIP_MAX_NS: u64 = 10_000_000_000;

/// An end that packets go in and come out of.
pub(crate) trait End {
    /// Puts one packet in. `false`: there is no room.
    fn send(&mut self, packet: &Template) -> Result<bool, Broken>;

    /// Makes what was sent visible to the other end.
    fn flush_sent(&mut self);

    /// Takes the next packet out, and copies it to the start of `into`, unless this end leaves
    /// packets where they are; returns its length.
    fn receive(&mut self, into: &mut [u8]) -> Result<Option<usize>, Broken>;

    /// Gives the room of what was received back.
    fn flush_received(&mut self);
}

/// The packet that is sent, in memory of our own, in the two forms that ends take it in.
#[derive(Debug)]
pub(crate) struct Template {
    bytes: Vec<u8>,
    shared: [SharedSlice; 1],
    /// Keeps `shared` mapped.
    _memory: TestMemory,
}

impl Template {
    /// A packet of `len` bytes (14 at least) from one local address to another.
    pub fn new(len: usize) -> std::io::Result<Self> {
        Self::with_addresses(len, [THERE, HERE])
    }

    /// The same, the other way.
    pub fn answer(len: usize) -> std::io::Result<Self> {
        Self::with_addresses(len, [HERE, THERE])
    }

    fn with_addresses(len: usize, to_and_from: [Mac; 2]) -> std::io::Result<Self> {
        let room = (len as u64).next_multiple_of(4096);
        let memory = TestMemory::new(&[(0, room)])?;
        let mut bytes = vec![0x5a; len];
        let header = [&to_and_from[0][..], &to_and_from[1], &ETHER_TYPE].concat();
        bytes[..header.len()].copy_from_slice(&header);
        let shared = memory.region(0).split_at(len).0;
        shared.write(0, &bytes);
        Ok(Self { bytes, shared: [shared], _memory: memory })
    }

    /// The packet as private bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The packet as a lent one.
    pub fn shared(&self) -> &[SharedSlice] {
        &self.shared
    }

    /// Writes a number into the packet.
    pub(super) fn set_stamp(&mut self, stamp: u64) {
        let stamp = stamp.to_le_bytes();
        self.bytes[STAMP_AT..STAMP_AT + STAMP_LEN].copy_from_slice(&stamp);
        self.shared[0].write(STAMP_AT, &stamp);
    }
}

fn stamp_of(packet: &[u8]) -> u64 {
    let bytes = packet.get(STAMP_AT..).and_then(<[u8]>::first_chunk);
    bytes.map_or(NO_STAMP, |bytes| u64::from_le_bytes(*bytes))
}

/// What one side has done, to be looked at by another thread. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Counts {
    packets: AtomicU64,
}

impl Counts {
    /// Packets moved.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Only one thread writes, so that a plain store is enough.
    fn add(&self, packets: usize) {
        self.packets.store(self.packets() + packets as u64, Ordering::Relaxed);
    }
}

/// What a side knows when it is over.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Ns of processor time per packet, if packets were moved.
    pub cost_ns: Option<f64>,
    /// Round trips in ns, if it took times.
    pub round_trips: Option<Histogram<u64>>,
}

/// What a side does.
#[derive(Debug)]
pub(crate) enum Role {
    /// Sends as much as there is room for.
    Send,
    /// Receives whatever comes.
    Receive,
    /// Sends everything back, and drops what there is no room for.
    Echo,
    /// Sends at a steady rate and takes the time until each packet is back.
    Probe(Box<Probe>),
}

/// The state of a side that takes times.
#[derive(Debug)]
pub(crate) struct Probe {
    /// Between two packets.
    every: Duration,
    /// When the first packet was back; until then one is sent now and then.
    started: Option<Instant>,
    /// When the next packet is due, since the start.
    due: Duration,
    warm_up: Duration,
    /// In ns, of packets that were due after the warm-up.
    round_trips: Histogram<u64>,
}

/// In packets that are sent before times are taken.
const NO_STAMP: u64 = 0;

/// Between two of these.
const KNOCK_EVERY: Duration = Duration::from_millis(1);

impl Probe {
    /// At that many packets per second, or as many as there is room for; times are taken from
    /// `warm_up` after the first packet was back.
    pub fn new(packets_per_second: Option<f64>, warm_up: Duration) -> Self {
        Self {
            every: packets_per_second
                .map_or(Duration::ZERO, |rate| Duration::from_secs_f64(1.0 / rate.max(1.0))),
            started: None,
            due: Duration::ZERO,
            warm_up,
            round_trips: histogram(),
        }
    }

    /// The stamp of the next packet, if one is due. A packet that finds no room stays due: its
    /// time counts from then, so that a peer that stalls is not spared.
    fn next_stamp(&self, now: Duration) -> Option<u64> {
        (self.due <= now).then(|| ns_of(self.due).max(NO_STAMP + 1))
    }

    fn arrived(&mut self, stamp: u64, now: Duration) {
        let sent_at = Duration::from_nanos(stamp);
        if stamp != NO_STAMP && sent_at >= self.warm_up {
            self.round_trips.saturating_record(ns_of(now.saturating_sub(sent_at)));
        }
    }

    fn round<E: End>(
        &mut self,
        end: &mut E,
        packet: &mut Template,
        into: &mut [u8],
    ) -> Result<usize, Broken> {
        let Some(started) = self.started else { return self.knock(end, packet, into) };
        let now = started.elapsed();
        let mut sent = 0;
        while sent < BATCH
            && let Some(stamp) = self.next_stamp(now)
        {
            packet.set_stamp(stamp);
            if !end.send(packet)? {
                break;
            }
            self.due += self.every;
            sent += 1;
        }
        if sent > 0 {
            end.flush_sent();
        }
        let now = started.elapsed();
        receive_batch(end, into, |_, received| {
            self.arrived(stamp_of(received), now);
            Ok(())
        })
    }

    /// Until there is an answer: a peer may need seconds to come up.
    fn knock<E: End>(
        &mut self,
        end: &mut E,
        packet: &mut Template,
        into: &mut [u8],
    ) -> Result<usize, Broken> {
        packet.set_stamp(NO_STAMP);
        if end.send(packet)? {
            end.flush_sent();
        }
        std::thread::sleep(KNOCK_EVERY);
        let received = receive_batch(end, into, |_, _| Ok(()))?;
        if received > 0 {
            self.started = Some(Instant::now());
        }
        Ok(received)
    }
}

/// The mean without the slowest hundredth, in which the thread was interrupted.
fn usual_mean(costs: &Histogram<u64>) -> Option<f64> {
    let most = costs.value_at_quantile(0.99);
    let usual = costs.iter_recorded().filter(|cost| cost.value_iterated_to() <= most);
    let (sum, count) = usual.fold((0, 0), |(sum, count), cost| {
        let here = cost.count_since_last_iteration();
        (sum + cost.value_iterated_to() * here, count + here)
    });
    // Both are far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    let mean = sum as f64 / count as f64;
    (count > 0).then_some(mean)
}

/// One side's loop.
#[derive(Debug)]
pub(crate) struct Work<'a> {
    role: Role,
    packet: Template,
    received: Vec<u8>,
    counts: &'a Counts,
    until_timed: u32,
    /// In tenths of ns per packet.
    costs: Histogram<u64>,
}

impl<'a> Work<'a> {
    /// For packets of `len` bytes.
    pub fn new(role: Role, len: usize, counts: &'a Counts) -> std::io::Result<Self> {
        let room = ringway_net::PACKET_LEN_MAX as usize;
        let (packet, received) = (Template::new(len)?, vec![0; room]);
        let costs = histogram();
        Ok(Self { role, packet, received, counts, until_timed: SAMPLE_EVERY, costs })
    }

    /// Runs that many rounds, or fewer if told to stop.
    pub fn rounds(
        &mut self,
        end: &mut impl End,
        rounds: u32,
        stop: &AtomicBool,
    ) -> Result<(), Broken> {
        for _ in 0..rounds {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let began = (self.until_timed == 0).then(Instant::now);
            let moved = self.round(end)?;
            if moved == 0 {
                std::hint::spin_loop();
                continue;
            }
            if let Some(began) = began {
                self.costs.saturating_record(ns_of(began.elapsed()) * 10 / moved as u64);
                self.until_timed = SAMPLE_EVERY;
            }
            self.until_timed -= 1;
            self.counts.add(moved);
        }
        Ok(())
    }

    /// What it knows now that it is over.
    pub fn end(self) -> Ended {
        let cost_ns = usual_mean(&self.costs).map(|cost| cost / 10.0);
        let round_trips = match self.role {
            Role::Probe(probe) => Some(probe.round_trips),
            Role::Send | Role::Receive | Role::Echo => None,
        };
        Ended { cost_ns, round_trips }
    }

    fn round(&mut self, end: &mut impl End) -> Result<usize, Broken> {
        match &mut self.role {
            Role::Send => send_batch(end, &self.packet),
            Role::Receive => receive_batch(end, &mut self.received, |_, _| Ok(())),
            Role::Echo => {
                let packet = &mut self.packet;
                let moved = receive_batch(end, &mut self.received, |end, received| {
                    packet.set_stamp(stamp_of(received));
                    end.send(packet).map(|_| ())
                })?;
                if moved > 0 {
                    end.flush_sent();
                }
                Ok(moved)
            }
            Role::Probe(probe) => probe.round(end, &mut self.packet, &mut self.received),
        }
    }
}

fn send_batch<E: End>(end: &mut E, packet: &Template) -> Result<usize, Broken> {
    let mut sent = 0;
    while sent < BATCH && end.send(packet)? {
        sent += 1;
    }
    if sent > 0 {
        end.flush_sent();
    }
    Ok(sent)
}

fn receive_batch<E: End>(
    end: &mut E,
    into: &mut [u8],
    mut each: impl FnMut(&mut E, &[u8]) -> Result<(), Broken>,
) -> Result<usize, Broken> {
    let mut received = 0;
    while received < BATCH {
        let Some(len) = end.receive(into)? else { break };
        each(end, &into[..len])?;
        received += 1;
    }
    if received > 0 {
        end.flush_received();
    }
    Ok(received)
}

/// Three digits of any time up to [`ROUND_TRIP_MAX_NS`].
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(ROUND_TRIP_MAX_NS, 3).expect("three digits are possible")
}

fn ns_of(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_that_were_interrupted_do_not_count() {
        let mut costs = histogram();
        assert_eq!(usual_mean(&costs), None);
        costs.saturating_record_n(100, 660);
        costs.saturating_record_n(400, 330);
        costs.saturating_record_n(1_000_000, 9);
        let mean = usual_mean(&costs).expect("rounds");
        assert!((199.0..202.0).contains(&mean), "{mean}");
    }
}
