//! Two guests and the path between them, in virtual time: how fast one stream gets through.
//!
//! How: what the sender hands to its device arrives at the receiver's after [`Path::delay_ns`], and
//! acknowledgements take as long back. The receiver's processor handles one packet after the other
//! and is busy as long as [`cost_ps`] says; the acknowledgement leaves when it is done. Whenever it
//! has caught up, the application reads. The sender and the path take no time. Nothing is measured:
//! every number follows from the model.

use std::collections::VecDeque;

use anyhow::{Context, bail, ensure};
use ringway_driver::RxScheme;
use ringway_driver::rx_buffer::ENTRY_COST_BYTES;
use ringway_net::{NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::TestMemory;
use smoltcp::time::Instant;

use crate::stack::{ADDRESSES, Arrived, Stack};

/// Copying a byte, in ps.
pub const BYTE_PS: u64 = 100;
/// Another place to copy from, as long as copying so many bytes.
pub const FRAGMENT_COST_BYTES: u32 = 64;
/// Window of a receiver that has said nothing yet.
const FIRST_EDGE: u64 = 65_535;
/// The payload that is sent.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// Turns without which a stream of this kind always ends.
const TURNS_MAX: u64 = 1 << 22;

#[derive(Debug, Clone, Copy)]
pub struct Path {
    pub scheme: RxScheme,
    /// Payload of packets, again and again, in bytes.
    pub payloads: &'static [usize],
    pub delay_ns: u64,
    /// Neighbouring buffers are one place.
    pub coalesces: bool,
}

/// The measured numbers of a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Found {
    pub payload: u64,
    pub ns: u64,
    pub packets: u64,
    pub buffers: u64,
    pub fragments: u64,
    /// Bytes of packets, and of the memory that held them.
    pub len: u64,
    pub truesize: u64,
}

struct OnTheWay {
    arrives_ps: u64,
    header: NetHeader,
    bytes: Vec<u8>,
    /// Up to where the one who sent it allows payload to come.
    edge: u64,
}

struct Run {
    path: Path,
    ends: [Stack; 2],
    /// To each end.
    ways: [VecDeque<OnTheWay>; 2],
    memory: TestMemory,
    now_ps: u64,
    busy_until_ps: u64,
    /// Packets in the receiver's ring.
    waiting: u32,
    /// Payload that the sender has written, and may write.
    written: u64,
    edge: u64,
    next: usize,
    read: u64,
}

const SENDER: usize = 0;
const RECEIVER: usize = 1;

/// How long the receiver's processor is busy with a packet.
fn cost_ps(arrived: &Arrived, coalesces: bool) -> u64 {
    let fragments = if coalesces { arrived.fragments } else { arrived.buffers };
    let bytes = u64::from(arrived.len)
        + u64::from(arrived.buffers) * u64::from(ENTRY_COST_BYTES)
        + u64::from(fragments) * u64::from(FRAGMENT_COST_BYTES);
    bytes * BYTE_PS
}

/// The stream, once `warm_up` bytes have been read, until `measured` more have.
pub fn run(path: Path, warm_up: u64, measured: u64) -> anyhow::Result<Found> {
    let mut ends = [Stack::new(SENDER, RxScheme::Page)?, Stack::new(RECEIVER, path.scheme)?];
    ends[RECEIVER].listen()?;
    ends[SENDER].connect(ADDRESSES[RECEIVER])?;
    let mut run = Run {
        path,
        ends,
        ways: [VecDeque::new(), VecDeque::new()],
        memory: TestMemory::new(&[(0, 1 << 17)])?,
        now_ps: 0,
        busy_until_ps: 0,
        waiting: 0,
        written: 0,
        edge: FIRST_EDGE,
        next: 0,
        read: 0,
    };
    let mut found = Found::default();
    run.until(warm_up, &mut found)?;
    let (began_ps, began) = (run.now_ps, run.read);
    let mut found = Found::default();
    run.until(warm_up + measured, &mut found)?;
    found.payload = run.read - began;
    found.ns = (run.now_ps - began_ps) / 1000;
    Ok(found)
}

impl Run {
    fn until(&mut self, read: u64, found: &mut Found) -> anyhow::Result<()> {
        for _ in 0..TURNS_MAX {
            self.sender()?;
            self.receiver(found)?;
            if self.read >= read {
                return Ok(());
            }
            self.wait()?;
        }
        bail!("the stream does not end")
    }

    /// Takes the acknowledgements that have arrived, and sends all that it may.
    fn sender(&mut self) -> anyhow::Result<()> {
        while let Some(edge) = self.arrive(SENDER)? {
            self.edge = self.edge.max(edge);
            self.ends[SENDER].take(now(self.now_ps))?;
        }
        self.leave(SENDER);
        while self.ends[SENDER].socket().may_send() {
            let len = self.path.payloads[self.next % self.path.payloads.len()];
            if self.written + len as u64 > self.edge {
                break;
            }
            let sent = self.ends[SENDER].socket().send_slice(&ZEROS[..len]);
            ensure!(sent == Ok(len), "no room for a packet: {sent:?}");
            self.written += len as u64;
            self.next += 1;
            self.leave(SENDER);
        }
        Ok(())
    }

    /// Ends with a packet, if it is time for that, and begins with the next.
    fn receiver(&mut self, found: &mut Found) -> anyhow::Result<()> {
        while self.arrive(RECEIVER)?.is_some() {
            self.waiting += 1;
        }
        if self.now_ps < self.busy_until_ps {
            return Ok(());
        }
        let end = &mut self.ends[RECEIVER];
        if self.waiting == 0 || end.nic.memory.is_half_full() {
            self.read += end.read();
        }
        self.leave(RECEIVER);
        if let Some(arrived) = self.ends[RECEIVER].take(now(self.now_ps))? {
            self.waiting -= 1;
            self.busy_until_ps = self.now_ps + cost_ps(&arrived, self.path.coalesces);
            found.add(&arrived);
        }
        Ok(())
    }

    /// Puts the next packet that is at this end into its ring; up to where it allows payload to
    /// come.
    fn arrive(&mut self, end: usize) -> anyhow::Result<Option<u64>> {
        let Some(packet) = self.ways[end].front() else { return Ok(None) };
        if packet.arrives_ps > self.now_ps {
            return Ok(None);
        }
        let (memory, _) = self.memory.region(0).split_at(packet.bytes.len());
        memory.write(0, &packet.bytes);
        let len = u32::try_from(packet.bytes.len())?;
        let put = Packet { header: &packet.header, payload: &[memory], len };
        let to_guest = &mut self.ends[end].nic.mirror.to_guest;
        let put = to_guest.put(&put);
        to_guest.flush();
        match put {
            Put::Done => Ok(self.ways[end].pop_front().map(|packet| packet.edge)),
            Put::NoRoom => Ok(None),
            Put::Refused | Put::Unfinished => bail!("the device refused {len} bytes"),
        }
    }

    /// Lets an end send what is due, and puts it on its way.
    fn leave(&mut self, end: usize) {
        let arrives_ps = self.now_ps + self.path.delay_ns * 1000;
        let from = &mut self.ends[end];
        from.send(now(self.now_ps));
        let edge = from.nic.memory.edge;
        let from_guest = &mut from.nic.mirror.from_guest;
        while let Some(packet) = from_guest.peek() {
            let mut bytes = vec![0; packet.len as usize];
            packet.copy_out(&mut bytes);
            let header = *packet.header;
            self.ways[1 - end].push_back(OnTheWay { arrives_ps, header, bytes, edge });
            from_guest.pop();
        }
        from_guest.flush();
    }

    /// Until something happens.
    fn wait(&mut self) -> anyhow::Result<()> {
        let arrivals = self.ways.iter().filter_map(|way| Some(way.front()?.arrives_ps));
        let next = arrivals.chain([self.busy_until_ps]).filter(|at| *at > self.now_ps).min();
        self.now_ps = next.context("nothing moves any more")?;
        Ok(())
    }
}

impl Found {
    // Far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    pub fn gigabits(&self) -> f64 {
        self.payload as f64 * 8.0 / self.ns as f64
    }

    /// Memory by bytes, ring entries and places of a packet.
    #[allow(clippy::cast_precision_loss)]
    pub fn per_packet(&self) -> String {
        let by = |of: u64, by: u64| of as f64 / by as f64;
        let entries = by(self.buffers, self.packets);
        let places = by(self.fragments, self.packets);
        format!("{:.2} {entries:.1} {places:.1}", by(self.truesize, self.len))
    }

    fn add(&mut self, arrived: &Arrived) {
        self.packets += 1;
        self.len += u64::from(arrived.len);
        self.truesize += u64::from(arrived.truesize);
        self.buffers += u64::from(arrived.buffers);
        self.fragments += u64::from(arrived.fragments);
    }
}

fn now(ps: u64) -> Instant {
    Instant::from_micros(i64::try_from(ps / 1_000_000).unwrap_or(i64::MAX))
}
