//! Two guests in user space, driven by one thread: packets go from the first to the second.
//!
//! How: the first keeps its packets where they are and writes only their headers, the second reads
//! only the first bytes of what it gets, as far as a driver has to: what is measured is the worker.
//! The next burst begins when all of the last one has arrived, so that the worker always finds a
//! whole one, and what it costs does not depend on how fast the guests are.
//!
//! Limits: a burst is no longer than what the second guest has buffers for.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail, ensure};
use ringway_driver::rx_buffer::{ADAPTIVE_LEN_PER_ENTRY, PAGE_LEN};
use ringway_net::HEADER_LEN;
use ringway_virtq::{Broken, DriverQueue};

use crate::ring::driver::{DriverEnd, Payload};
use crate::ring::end::{self, End, HERE, THERE, Template, send};

/// Entries of each queue: as many as may be usual.
pub(super) const QUEUE_SIZE: u16 = 1024;

/// Lines that packets begin at, in bytes.
pub(super) const PLACE_ALIGN: usize = 64;

/// Packets that arrive one after the other before the bursts begin, and how often: a driver that
/// chooses the length of its buffers knows by then what comes, and its first buffers are used up.
const FIRST_BURST: usize = 16;
const FIRST_BURSTS: usize = 8;

/// Longest wait for packets that must come.
const LIMIT: Duration = Duration::from_secs(10);

/// Time from one such packet to the next.
const AGAIN: Duration = Duration::from_millis(10);

/// Without packets for so long, those on the way are lost.
const SILENCE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy)]
pub(super) struct PacketLayout {
    pub packet_len: usize,
    pub in_two: bool,
    /// Bytes from one of the receiver's buffers to the next; each holds a packet whole.
    pub buffer_len: usize,
    pub buffers_len: usize,
    pub burst: usize,
}

impl PacketLayout {
    pub fn of(packet_len: usize) -> Self {
        let (page, per_entry) = (PAGE_LEN as usize, ADAPTIVE_LEN_PER_ENTRY as usize);
        let len = HEADER_LEN + packet_len;
        let entries = usize::from(QUEUE_SIZE);
        let burst = entries / len.div_ceil(page);
        let (buffer_len, per_entry) =
            if len <= page { (page, page) } else { (len.next_multiple_of(PLACE_ALIGN), per_entry) };
        Self { packet_len, in_two: false, buffer_len, buffers_len: per_entry * entries, burst }
    }
}

#[derive(Debug)]
pub(super) struct Pair<E> {
    sender: E,
    receiver: E,
    packet: Template,
}

/// Packets that have arrived, those that were lost, and the time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrived {
    pub packets: f64,
    pub lost: f64,
    pub seconds: f64,
}

impl<Q: DriverQueue> Pair<DriverEnd<Q>> {
    pub fn attach(sockets: [PathBuf; 2], layout: &PacketLayout) -> anyhow::Result<Self> {
        let len = layout.packet_len;
        let payload = if layout.in_two { Payload::InTwo { len } } else { Payload::InPlace { len } };
        let attach = |socket: &Path| {
            let end = DriverEnd::attach(socket, QUEUE_SIZE, payload);
            end.with_context(|| socket.display().to_string())
        };
        Self::new([attach(&sockets[0])?, attach(&sockets[1])?], layout.packet_len)
    }
}

impl<E: End> Pair<E> {
    /// Each sends something, after which a switch knows where both are.
    pub fn new([mut sender, mut receiver]: [E; 2], packet_len: usize) -> anyhow::Result<Self> {
        introduce(&mut receiver, &mut sender)?;
        let mut pair = Self { sender, receiver, packet: Template::new(packet_len)? };
        (0..FIRST_BURSTS).try_for_each(|_| pair.burst(FIRST_BURST))?;
        Ok(pair)
    }

    pub fn into_ends(self) -> [E; 2] {
        [self.sender, self.receiver]
    }

    /// Sends `count` packets at once and receives them.
    pub fn burst(&mut self, count: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + LIMIT;
        let (mut sent, mut received) = (0, 0);
        while received < count {
            let more = send(&mut self.sender, &self.packet, count - sent);
            sent += more.map_err(broke_the_rules)?;
            let arrived = receive(&mut self.receiver, count - received)?;
            received += arrived;
            if arrived == 0 {
                ensure!(Instant::now() <= deadline, "{received} of {sent} packets arrived");
                std::thread::yield_now();
            }
        }
        Ok(())
    }

    /// Keeps `count` packets on the way for `duration`. Where a switch loses some, there is silence
    /// after a while; then new ones take their place.
    pub fn keep_on_the_way(&mut self, count: usize, duration: Duration) -> anyhow::Result<Arrived> {
        let began = Instant::now();
        let (mut on_the_way, mut packets, mut lost) = (0, 0, 0);
        let mut last = began;
        while began.elapsed() < duration {
            on_the_way += send(&mut self.sender, &self.packet, count - on_the_way)
                .map_err(broke_the_rules)?;
            let arrived = receive(&mut self.receiver, on_the_way)?;
            (packets, on_the_way) = (packets + arrived, on_the_way - arrived);
            if arrived > 0 {
                last = Instant::now();
                continue;
            }
            if last.elapsed() > SILENCE {
                (lost, on_the_way, last) = (lost + on_the_way, 0, Instant::now());
            }
            std::thread::yield_now();
        }
        let [packets, lost] = [packets, lost].map(|count| u32::try_from(count).map(f64::from));
        Ok(Arrived { packets: packets?, lost: lost?, seconds: began.elapsed().as_secs_f64() })
    }

    /// Bursts of so many for so long; how many packets that were.
    pub fn exchange(&mut self, count: usize, duration: Duration) -> anyhow::Result<f64> {
        let began = Instant::now();
        let mut packets = 0.0;
        while began.elapsed() < duration {
            self.burst(count)?;
            packets += f64::from(u32::try_from(count)?);
        }
        Ok(packets)
    }
}

/// Sends a packet again and again until one arrives: a switch may not have noticed yet that both
/// ends are there.
fn introduce<E: End>(from: &mut E, to: &mut E) -> anyhow::Result<()> {
    let (began, packet) = (Instant::now(), Template::with_addresses(64, [HERE, THERE])?);
    while began.elapsed() < LIMIT {
        send(from, &packet, 1).map_err(broke_the_rules)?;
        std::thread::sleep(AGAIN);
        if receive(to, 1)? > 0 {
            return Ok(());
        }
    }
    bail!("no packet arrives")
}

/// Receives what is there, which stays where it is, and no more than so many packets.
fn receive<E: End>(end: &mut E, count_max: usize) -> anyhow::Result<usize> {
    end::receive(end, &mut [], count_max).map_err(broke_the_rules)
}

fn broke_the_rules(broken: Broken) -> anyhow::Error {
    anyhow!("the device broke the ring: {}", broken.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_fits_the_receiver_s_buffers() {
        for (len, buffer_len, burst) in [(64, 4096, 1024), (4084, 4096, 1024), (4085, 4160, 512)] {
            let layout = PacketLayout::of(len);
            assert_eq!((layout.buffer_len, layout.burst), (buffer_len, burst), "{len}");
        }
        let layout = PacketLayout::of(65_536);
        assert!(
            layout.burst * layout.buffer_len <= layout.buffers_len && layout.burst > 32,
            "{layout:?}"
        );
    }
}
