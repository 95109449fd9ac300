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
use ringway_driver::Sent;
use ringway_net::NetHeader;
use ringway_testkit::frames::{self, Link, Stamp};
use ringway_testkit::{AnyUserGuest, GuestOptions};

use super::Stage;
use super::measured::{Measured, RoundTrip};
use super::switch::{GUESTS, socket};
use crate::units::approximate;

/// Echo requests measured.
const ROUND_TRIPS: u64 = 200;

/// Longest wait for one of them.
const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// Bytes of an echo request and of its answer, as `ping` has them.
const ECHO_LEN: usize = 98;

/// Bytes of a large packet, and of the segments it would be cut into.
const LARGE_LEN: usize = 60_000;
const SEGMENT_LEN: u16 = 1448;

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
        let guest = AnyUserGuest::attach(&socket(stage, name), &GuestOptions::default());
        guest.with_context(|| format!("guest {name}"))
    };
    let mut pair = Pair { guests: [attach(GUESTS[0])?, attach(GUESTS[1])?], flow: 0 };
    pair.settle(stage)?;
    stage.progress.step("measuring the round trip between them");
    let round_trip = pair.round_trips(stage)?;
    stage.progress.step("measuring throughput from b to a");
    let b_to_a = pair.throughput(stage, 1)?;
    stage.progress.step("measuring throughput from a to b");
    let a_to_b = pair.throughput(stage, 0)?;
    ask()?;
    for guest in pair.guests {
        guest.detach()?;
    }
    Ok(Measured {
        guests: "embedded in this process".to_string(),
        a_to_b_bits_per_second: a_to_b,
        b_to_a_bits_per_second: b_to_a,
        round_trip,
    })
}

/// Both guests.
struct Pair {
    guests: [AnyUserGuest; 2],
    /// Counts what is sent, so that nothing late is taken for something new.
    flow: u64,
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
        let stamp = self.new_stamp();
        let packet = frames::udp(self.link(from), stamp, ECHO_LEN);
        if self.guests[from].send(&packet)? != Sent::Done {
            bail!("guest {}: no room for one packet", GUESTS[from]);
        }
        self.guests[from].flush();
        let to = &mut self.guests[1 - from];
        let until = Instant::now() + limit;
        loop {
            while let Some((_, packet)) = to.receive()? {
                if frames::read_stamp(&packet) == Some(stamp) {
                    to.flush();
                    return Ok(true);
                }
            }
            to.flush();
            if Instant::now() > until {
                return Ok(false);
            }
            to.wait_call(CALL_LIMIT)?;
        }
    }

    /// Bits per second that arrive while one guest sends as fast as it can.
    fn throughput(&mut self, stage: &Stage<'_>, from: usize) -> anyhow::Result<f64> {
        let stamp = self.new_stamp();
        let large = frames::tcp_large(self.link(from), stamp, LARGE_LEN, SEGMENT_LEN);
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
    fn send_for_a_slice(
        &mut self,
        from: usize,
        (header, packet): &(NetHeader, Vec<u8>),
    ) -> anyhow::Result<u64> {
        let until = Instant::now() + SLICE;
        let mut arrived = Vec::new();
        let mut bytes = 0;
        while Instant::now() < until {
            for _ in 0..BURST_PACKETS {
                if self.guests[from].send_with(header, packet)? != Sent::Done {
                    break;
                }
            }
            self.guests[from].flush();
            let to = &mut self.guests[1 - from];
            let before = bytes;
            while to.receive_into(&mut arrived)?.is_some() {
                bytes += if arrived.len() == packet.len() { arrived.len() as u64 } else { 0 };
            }
            to.flush();
            if bytes == before {
                to.wait_call(CALL_LIMIT)?;
            }
        }
        Ok(bytes)
    }

    fn link(&self, from: usize) -> Link {
        Link { from: self.guests[from].mac(), to: self.guests[1 - from].mac() }
    }

    fn new_stamp(&mut self) -> Stamp {
        self.flow += 1;
        Stamp { flow: self.flow, sequence: 0 }
    }
}
