//! The demonstration where User Mode Linux is missing: two guests that live in this process.
//!
//! How: each is a complete driver on its own vhost-user connection, with memory and rings of its
//! own; one thread drives both. They send what a Linux guest sends at full speed: TCP packets of
//! 60 kB that are not cut into segments yet.
//!
//! Limits: no kernel and no TCP takes part, so the figures are those of ringway and of the driver
//! alone.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use ringway_net::{GsoType, NEEDS_CSUM, NetHeader};

use super::Stage;
use super::embedded_guest::EmbeddedGuest;
use super::measured::{Measured, RoundTrip};
use super::switch::{GUESTS, socket};
use crate::units::approximate;

/// Echo requests measured.
const ROUND_TRIPS: u64 = 200;

/// Longest wait for one of them.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Bytes of an echo request and of its answer, as `ping` has them.
const ECHO_LEN: usize = 98;

/// The type of Ethernet packets that is free for experiments (IEEE 802).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// Bytes of a large packet, and of the segments it would be cut into.
const LARGE_LEN: u16 = 60_000;
const SEGMENT_LEN: u16 = 1448;

/// Bytes of its headers: Ethernet, IPv4 and TCP.
const ETHERNET_LEN: u16 = 14;
const TCP_AT: u16 = ETHERNET_LEN + 20;
const HEADERS_LEN: u16 = TCP_AT + 20;

/// What its receiver is told: a checksum and segments are still to be made.
const LARGE_HEADER: NetHeader = NetHeader {
    flags: NEEDS_CSUM,
    gso_type: GsoType::TcpV4.raw(),
    hdr_len: HEADERS_LEN,
    gso_size: SEGMENT_LEN,
    csum_start: TCP_AT,
    csum_offset: 16,
    num_buffers: 0,
};

/// Large packets sent before the receiver is looked at.
const BURST_PACKETS: usize = 16;

/// Length of each measurement of throughput.
const THROUGHPUT_TIME: Duration = Duration::from_secs(2);

/// Time between two looks whether the user still wants it.
const SLICE: Duration = Duration::from_millis(100);

/// Longest wait for a call before looking by ourselves.
const CALL_LIMIT: Duration = Duration::from_millis(10);

/// Lets two embedded guests exchange traffic; `ask` is called while both are connected.
///
/// # Errors
/// A guest cannot be attached, or the two cannot reach each other.
pub fn measure(
    stage: &Stage<'_>,
    ask: &mut dyn FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<Measured> {
    stage.progress.step("attaching two embedded guests");
    let attach = |name| {
        let guest = EmbeddedGuest::attach(&socket(stage, name));
        guest.with_context(|| format!("guest {name}"))
    };
    let mut pair = Pair { guests: [attach(GUESTS[0])?, attach(GUESTS[1])?], sequence: 0 };
    pair.settle(stage)?;
    stage.progress.step("measuring the round trip between them");
    let round_trip = pair.round_trips(stage)?;
    stage.progress.step("measuring throughput from b to a");
    let b_to_a = pair.throughput(stage, 1)?;
    stage.progress.step("measuring throughput from a to b");
    let a_to_b = pair.throughput(stage, 0)?;
    ask()?;
    Ok(Measured {
        guests: "embedded in this process".to_string(),
        a_to_b_bits_per_second: a_to_b,
        b_to_a_bits_per_second: b_to_a,
        round_trip,
    })
}

/// Both guests.
struct Pair {
    guests: [EmbeddedGuest; 2],
    /// Counts echo requests and answers, so that a late one is not taken for a new one.
    sequence: u64,
}

impl Pair {
    /// Rings start some time after attaching: wait for the first answer, and for the switch to
    /// know both addresses.
    fn settle(&mut self, stage: &Stage<'_>) -> anyhow::Result<()> {
        let until = Instant::now() + ANSWER_LIMIT * 5;
        while self.echo(CALL_LIMIT)?.is_none() {
            stage.patience.check()?;
            if Instant::now() > until {
                bail!("the guests cannot reach each other");
            }
        }
        Ok(())
    }

    fn round_trips(&mut self, stage: &Stage<'_>) -> anyhow::Result<RoundTrip> {
        let mut took_ms = Vec::new();
        for _ in 0..ROUND_TRIPS {
            stage.patience.check()?;
            took_ms.extend(self.echo(ANSWER_LIMIT)?.map(|took| took.as_secs_f64() * 1000.0));
        }
        if took_ms.is_empty() {
            bail!("no echo request was answered");
        }
        let received = took_ms.len() as u64;
        Ok(RoundTrip {
            sent: ROUND_TRIPS,
            received,
            min_ms: took_ms.iter().copied().fold(f64::INFINITY, f64::min),
            mean_ms: took_ms.iter().sum::<f64>() / approximate(received),
            max_ms: took_ms.iter().copied().fold(0.0, f64::max),
        })
    }

    /// One packet there and one back; `None`: lost.
    fn echo(&mut self, limit: Duration) -> anyhow::Result<Option<Duration>> {
        let started = Instant::now();
        let arrived = self.carry(0, limit)? && self.carry(1, limit)?;
        Ok(arrived.then(|| started.elapsed()))
    }

    /// One small packet from a guest to the other one; `false`: it did not arrive in time.
    fn carry(&mut self, from: usize, limit: Duration) -> anyhow::Result<bool> {
        self.sequence += 1;
        let mut packet = self.ethernet(from, EXPERIMENT);
        packet.extend(self.sequence.to_be_bytes());
        packet.resize(ECHO_LEN, 0x5a);
        if !self.guests[from].send(&NetHeader::ZERO, &packet)? {
            bail!("guest {}: no room for one packet", GUESTS[from]);
        }
        self.guests[from].flush();
        let to = &mut self.guests[1 - from];
        let until = Instant::now() + limit;
        let mut arrived = Vec::new();
        loop {
            let mut is_here = false;
            while to.receive(&mut arrived)? {
                is_here |= arrived == packet;
            }
            to.flush();
            if is_here || Instant::now() > until {
                return Ok(is_here);
            }
            to.wait_call(CALL_LIMIT)?;
        }
    }

    /// Bits per second that arrive while one guest sends as fast as it can.
    fn throughput(&mut self, stage: &Stage<'_>, from: usize) -> anyhow::Result<f64> {
        let large = self.large(from);
        let started = Instant::now();
        let mut bytes = 0;
        while started.elapsed() < THROUGHPUT_TIME {
            stage.patience.check()?;
            bytes += self.send_for_a_slice(from, &large)?;
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(approximate(bytes) * 8.0 / seconds)
    }

    /// Bytes that arrived in one slice of time.
    fn send_for_a_slice(&mut self, from: usize, packet: &[u8]) -> anyhow::Result<u64> {
        let until = Instant::now() + SLICE;
        let mut arrived = Vec::new();
        let mut bytes = 0;
        while Instant::now() < until {
            for _ in 0..BURST_PACKETS {
                if !self.guests[from].send(&LARGE_HEADER, packet)? {
                    break;
                }
            }
            self.guests[from].flush();
            let to = &mut self.guests[1 - from];
            let before = bytes;
            while to.receive(&mut arrived)? {
                bytes += if arrived.len() == packet.len() { arrived.len() as u64 } else { 0 };
            }
            to.flush();
            if bytes == before {
                to.wait_call(CALL_LIMIT)?;
            }
        }
        Ok(bytes)
    }

    /// A TCP packet whose checksum and segments are left to its receiver.
    fn large(&self, from: usize) -> Vec<u8> {
        let mut packet = self.ethernet(from, [0x08, 0x00]);
        let mut ipv4 = [0; 20];
        ipv4[0] = 0x45;
        ipv4[2..4].copy_from_slice(&(LARGE_LEN - ETHERNET_LEN).to_be_bytes());
        ipv4[8..10].copy_from_slice(&[64, 6]);
        ipv4[12..].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        let words = ipv4.chunks_exact(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
        let sum: u32 = words.sum();
        let [.., high, low] = (!((sum & 0xffff) + (sum >> 16))).to_be_bytes();
        ipv4[10..12].copy_from_slice(&[high, low]);
        packet.extend(ipv4);
        let mut tcp = [0; 20];
        tcp[..4].copy_from_slice(&[0, 7, 0, 9]);
        tcp[12..14].copy_from_slice(&[5 << 4, 0x10]);
        packet.extend(tcp);
        packet.resize(LARGE_LEN.into(), 0x5a);
        packet
    }

    fn ethernet(&self, from: usize, kind: [u8; 2]) -> Vec<u8> {
        [&self.guests[1 - from].mac()[..], &self.guests[from].mac()[..], &kind].concat()
    }
}
