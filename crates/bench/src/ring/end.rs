//! One end of what carries packets, and what is done with it: the same loops drive all of them, so
//! that only the ends differ.
//!
//! How: [`Work`] runs rounds of at most [`BATCH`] packets, stage by stage: move, publish, count.
//! Every [`SAMPLE_EVERY`]th round that moved something is timed; the median of these is the cost of
//! a packet on this side, also where the processor did something else in between.
//!
//! Limits: one packet length at a time; ends are polled and never sleep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use ringway_testkit::TestMemory;
use ringway_testkit::frames::Mac;
use ringway_virtq::{Broken, SharedSlice};

use crate::spread::Spread;

/// Packets between two publications, as DPDK's programs do it.
const BATCH: usize = 32;

/// Rounds between two that are timed: a look at the clock costs as much as some packets. A prime,
/// so that rounds which take used buffers back, every so many, are neither all timed nor none.
const SAMPLE_EVERY: u32 = 17;

const SAMPLES_MAX: usize = 1 << 20;

pub(crate) const HERE: Mac = [2, 0x72, 0x77, 0, 0, 1];
pub(crate) const THERE: Mac = [2, 0x72, 0x77, 0, 0, 2];

/// Free for experiments (IEEE 802).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];

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

    pub fn with_addresses(len: usize, [to, from]: [Mac; 2]) -> std::io::Result<Self> {
        let memory = TestMemory::new(&[(0, (len as u64).next_multiple_of(4096))])?;
        let mut bytes = [&to[..], &from, &ETHER_TYPE].concat();
        bytes.resize(len, 0x5a);
        let shared = memory.region(0).split_at(len).0;
        shared.write(0, &bytes);
        Ok(Self { bytes, shared: [shared], _memory: memory })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn shared(&self) -> &[SharedSlice] {
        &self.shared
    }

    /// Writes a number into the packet, behind the Ethernet header.
    #[cfg(test)]
    pub(super) fn set_number(&mut self, number: u64) {
        self.bytes[14..22].copy_from_slice(&number.to_le_bytes());
    }
}

/// Whether a packet is one of these.
pub(crate) fn is_ours(packet: &[u8]) -> bool {
    packet.get(12..14) == Some(&ETHER_TYPE)
}

/// The counters of one side, to be looked at by another thread. On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PacketCounter {
    packets: AtomicU64,
}

impl PacketCounter {
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Only one thread writes, so that a plain store is enough.
    fn add(&self, packets: usize) {
        self.packets.store(self.packets() + packets as u64, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Work<'a> {
    /// Sends as much as there is room for; or receives all that comes.
    sends: bool,
    packet: Template,
    received: Vec<u8>,
    counter: &'a PacketCounter,
    until_timed: u32,
    /// In ns per packet, one for each round that was timed.
    costs: Vec<f32>,
}

impl<'a> Work<'a> {
    pub fn new(sends: bool, len: usize, counter: &'a PacketCounter) -> std::io::Result<Self> {
        let received = vec![0; ringway_net::PACKET_LEN_MAX as usize];
        let (packet, costs) = (Template::new(len)?, Vec::with_capacity(SAMPLES_MAX));
        Ok(Self { sends, packet, received, counter, until_timed: SAMPLE_EVERY, costs })
    }

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
            let moved = match self.sends {
                true => send(end, &self.packet, BATCH),
                false => receive(end, &mut self.received, BATCH),
            }?;
            if moved == 0 {
                std::hint::spin_loop();
                continue;
            }
            if let Some(began) = began {
                if self.costs.len() < SAMPLES_MAX {
                    // At most BATCH.
                    #[allow(clippy::cast_precision_loss)]
                    self.costs.push(began.elapsed().as_secs_f32() * 1e9 / moved as f32);
                }
                self.until_timed = SAMPLE_EVERY;
            }
            self.until_timed -= 1;
            self.counter.add(moved);
        }
        Ok(())
    }

    /// Ns of processor time per packet, now that it is over; `None`: nothing was moved.
    pub fn cost_ns(self) -> Option<f64> {
        Some(Spread::of(self.costs.into_iter().map(f64::from))?.median)
    }
}

/// Sends packets as long as there is room, and no more than so many; how many those were.
pub(crate) fn send<E: End>(end: &mut E, packet: &Template, max: usize) -> Result<usize, Broken> {
    let mut sent = 0;
    while sent < max && end.send(packet)? {
        sent += 1;
    }
    if sent > 0 {
        end.flush_sent();
    }
    Ok(sent)
}

/// Receives what is there, and no more than so many packets; how many those were.
pub(crate) fn receive<E: End>(end: &mut E, into: &mut [u8], max: usize) -> Result<usize, Broken> {
    let mut received = 0;
    while received < max && end.receive(into)?.is_some() {
        received += 1;
    }
    if received > 0 {
        end.flush_received();
    }
    Ok(received)
}
