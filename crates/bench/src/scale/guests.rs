//! Guests in user space, two and two of which send to each other, all driven by one thread.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_driver::Sent;
use ringway_testkit::frames::BROADCAST;
use ringway_testkit::{AnyUserGuest, GuestOptions, RingwayProcess};

use crate::programs::NO_DAEMON;

const PACKET_LEN: usize = 64;

/// Packets that a guest sends at once on each of its queue pairs.
const BATCH: usize = 32;

/// Entries of each queue: every guest has memory for as many of the longest packets, both ways.
const QUEUE_SIZE: u16 = 64;

/// Without packets for so long, there are none under way.
const QUIET: Duration = Duration::from_millis(50);

/// A daemon with so many ports of so many queue pairs each, and workers; and the ports' names.
pub(super) fn start(
    ports: usize,
    queue_pairs: usize,
    workers: usize,
) -> anyhow::Result<(RingwayProcess, Vec<String>)> {
    let names: Vec<String> = (0..ports).map(|at| format!("g{at}")).collect();
    let options = format!("queues={queue_pairs}");
    let named: Vec<(&str, &str)> = names.iter().map(|name| (&**name, &*options)).collect();
    let daemon = RingwayProcess::start_with(&named, &["--workers", &workers.to_string()]);
    Ok((daemon.context(NO_DAEMON)?, names))
}

#[derive(Debug)]
pub(super) struct Guests {
    guests: Vec<AnyUserGuest>,
    /// The packet that each sends to its partner.
    packets: Vec<Vec<u8>>,
    /// Of each guest, those that it sends on.
    queue_pairs: Range<usize>,
    received: Vec<u8>,
    attach: Duration,
}

impl Guests {
    pub fn attach(
        daemon: &RingwayProcess,
        names: &[String],
        queue_pairs: usize,
    ) -> anyhow::Result<Self> {
        let options = GuestOptions {
            queue_size: QUEUE_SIZE,
            queue_pairs: u16::try_from(queue_pairs)?,
            ..GuestOptions::default()
        };
        let began = Instant::now();
        let attach = |name: &String| {
            AnyUserGuest::attach(&daemon.socket(name), &options).with_context(|| name.clone())
        };
        let guests: Vec<AnyUserGuest> = names.iter().map(attach).collect::<Result<_, _>>()?;
        let attach = began.elapsed();
        let macs: Vec<_> = guests.iter().map(AnyUserGuest::mac).collect();
        let partner = |at: usize| macs.get(at ^ 1).copied().unwrap_or(BROADCAST);
        let packet = |at: usize| {
            // Type 0x88b5 is free for experiments (IEEE 802).
            let mut packet = [&partner(at)[..], &macs[at][..], &[0x88, 0xb5]].concat();
            packet.resize(PACKET_LEN, 0x5a);
            packet
        };
        let packets = (0..guests.len()).map(packet).collect();
        let queue_pairs = 0..queue_pairs;
        Ok(Self { guests, packets, queue_pairs, received: Vec::new(), attach })
    }

    pub fn use_only(&mut self, pair: usize) {
        self.queue_pairs = pair..pair + 1;
    }

    /// The mean time that one of them took to attach, in ms.
    pub fn attach_ms(&self) -> f64 {
        let guests = f64::from(u32::try_from(self.guests.len()).unwrap_or(u32::MAX));
        self.attach.as_secs_f64() * 1e3 / guests
    }

    /// All say where they are, after which the switch knows it; then nothing is under way.
    pub fn introduce(&mut self) -> anyhow::Result<()> {
        self.exchange(QUIET)?;
        self.quiet()
    }

    fn quiet(&mut self) -> anyhow::Result<()> {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            if self.receive_all()? > 0 {
                last = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Each sends to its partner for so long, on all pairs in turn; how many packets arrived.
    pub fn exchange(&mut self, duration: Duration) -> anyhow::Result<f64> {
        let began = Instant::now();
        let mut received = 0;
        while began.elapsed() < duration {
            for (guest, packet) in self.guests.iter_mut().zip(&self.packets) {
                for pair in self.queue_pairs.clone() {
                    guest.send_on(pair);
                    for _ in 0..BATCH {
                        if guest.send(packet)? != Sent::Done {
                            break;
                        }
                    }
                }
                guest.flush();
            }
            let arrived = self.receive_all()?;
            received += arrived;
            if arrived == 0 {
                std::thread::yield_now();
            }
        }
        // Far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        let received = received as f64;
        Ok(received)
    }

    fn receive_all(&mut self) -> anyhow::Result<usize> {
        let here_max = self.queue_pairs.end * usize::from(QUEUE_SIZE);
        let mut received = 0;
        for guest in &mut self.guests {
            let mut here = 0;
            while here < here_max && guest.receive_into(&mut self.received)?.is_some() {
                here += 1;
            }
            if here > 0 {
                guest.flush();
            }
            received += here;
        }
        Ok(received)
    }
}
