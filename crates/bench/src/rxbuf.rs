//! `ringway bench rxbuf`: kinds of traffic × schemes of receive buffers, through a real ring, into
//! a receiver that may only hold so much memory.
//!
//! How: [`method`]. The more memory a scheme ties up per byte of payload, the less fits the limit.
//!
//! Limits: one thread, so no cache line moves between cores; what a smaller window costs over a
//! network is not in the rate but in its own column, and in a test of the driver with TCP.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ringway_driver::{FRAGMENTS_MAX, Held, NetRx, RxOptions, RxScheme};
use ringway_net::{Features, NetHeader, Packet, PacketSink, Put};
use ringway_testkit::{Mirror, MirrorOptions, TestMemory};
use ringway_virtq::{SharedSlice, SplitDevice, SplitDriver};

use crate::machine::{pin, processors};
use crate::options::Options;
use crate::progress::in_turns;
use crate::report::{Column, Grid, Report};

/// Bytes of memory that the receiver holds at most: what Linux gives a socket by default.
const HELD_MAX: u64 = 212_992;
const QUEUE_SIZE: u16 = 256;
/// Packets between two publications.
const BATCH: usize = 32;
/// Room for the largest buffers in every entry, and for what is held.
const BUFFERS_LEN: u64 = 64 << 20;
/// Rounds without a packet until that is an error.
const STALLED_ROUNDS_MAX: u32 = 1000;
const PACKET_LEN_MAX: usize = 65_226;

/// Kinds of traffic: a name, and lengths in bytes that follow each other again and again.
const WORKLOADS: [(&str, &[usize]); 6] = [
    ("acknowledgements", &[66]),
    ("MTU 1500", &[1514]),
    ("MTU 9000", &[9014]),
    ("64 KiB GSO", &[65_226]),
    ("64 KiB GSO among acknowledgements", &[65_226, 66, 66, 66]),
    (
        "mixed small (7 × 64, 4 × 570, 1 × 1514)",
        &[64, 570, 64, 64, 570, 64, 1514, 64, 570, 64, 570, 64],
    ),
];

const COLUMNS: [Column; 5] = [
    ("Gb/s", 2),
    ("ns/packet", 1),
    ("memory per payload byte", 2),
    ("KiB of payload within the limit", 0),
    ("buffer at the end, bytes", 0),
];

#[derive(Debug, Clone, Copy, Default)]
struct BufferUse {
    packets: u64,
    payload: u64,
    truesize: u64,
    buffer_len: u32,
    seconds: f64,
}

pub fn measure(options: &Options) -> anyhow::Result<Report> {
    let mut report = Report::begin("rxbuf", &method(options))?;
    if let Some(&first) = processors().first() {
        pin(first)?;
    }
    let grid = Grid::new("Receive buffers", &["traffic", "scheme"], &COLUMNS);
    let mut grid = grid.plotted("bytes of memory per byte of payload", &[2]);
    let mut rows = Vec::new();
    for (traffic, lens) in WORKLOADS {
        let row = |scheme: RxScheme| (vec![traffic.into(), scheme.name().into()], (lens, scheme));
        rows.extend(RxScheme::ALL.map(row));
    }
    in_turns(options.repeats, &rows, |round, name, &(lens, scheme), _| {
        grid.add(name, round, &measure_one(lens, scheme, options.duration)?.values().map(Some));
        Ok(())
    })?;
    let page = |row: &[String]| Some(vec![row[0].clone(), RxScheme::Page.name().to_string()]);
    report.tables.push(grid.table_with(&[("Gb/s, × page", 0)], page));
    Ok(report)
}

fn measure_one(lens: &[usize], scheme: RxScheme, duration: Duration) -> anyhow::Result<BufferUse> {
    // Twice the limit: a packet is held before the limit is looked at.
    let spare_len = u32::try_from(2 * HELD_MAX).unwrap_or(u32::MAX);
    let mut mirror = Mirror::<SplitDriver, SplitDevice>::new(&MirrorOptions {
        rx: RxOptions { spare_len, ..RxOptions::of(scheme) },
        tx_len_max: 64,
        queue_size: QUEUE_SIZE,
        buffers_len: BUFFERS_LEN,
        without: Features::empty(),
    })?;
    let outside = TestMemory::new(&[(0, (PACKET_LEN_MAX as u64).next_multiple_of(4096))])?;
    let mut lens = lens.iter().cycle();
    let mut next = lens.next().copied().context("a length")?;
    // As many as there can be: each is accounted for with its linear area at least.
    let held = Vec::with_capacity(4096);
    let mut receiver = Receiver { held, truesize: 0, into: vec![0; PACKET_LEN_MAX] };
    let mut buffer_use = BufferUse::default();
    let mut began = Instant::now();
    let (mut is_warm, mut stalled) = (false, 0);
    while !is_warm || began.elapsed() < duration || buffer_use.packets == 0 {
        if !is_warm && began.elapsed() >= duration / 4 {
            (is_warm, began, buffer_use) = (true, Instant::now(), BufferUse::default());
        }
        let mut put = 0;
        while put < BATCH && put_one(&mut mirror.to_guest, outside.region(0), next)? {
            next = lens.next().copied().context("a length")?;
            put += 1;
        }
        mirror.to_guest.flush();
        let received = receiver.take(&mut mirror.driver.rx, &mut buffer_use)?;
        let is_idle = put == 0 && received == 0;
        // One idle round is ended by reading; many show that nothing will ever move again.
        stalled = if is_idle { stalled + 1 } else { 0 };
        ensure!(stalled < STALLED_ROUNDS_MAX, "nothing moves any more");
        if is_idle || receiver.truesize >= HELD_MAX {
            receiver.read(&mut mirror.driver.rx);
        }
        let _ = mirror.driver.rx.flush();
    }
    buffer_use.seconds = began.elapsed().as_secs_f64();
    buffer_use.buffer_len = mirror.driver.rx.statistics().buffer_len;
    Ok(buffer_use)
}

fn put_one(sink: &mut impl PacketSink, memory: SharedSlice, len: usize) -> anyhow::Result<bool> {
    let payload = [memory.split_at(len).0];
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    match sink.put(&Packet { header: &NetHeader::ZERO, payload: &payload, len }) {
        Put::Done => Ok(true),
        Put::NoRoom => Ok(false),
        Put::Refused | Put::Unfinished => bail!("the device refused {len} bytes"),
    }
}

/// A socket and its application.
struct Receiver {
    held: Vec<Held>,
    truesize: u64,
    into: Vec<u8>,
}

impl Receiver {
    /// Holds what has arrived, until the limit; what is in too many places to be held is copied.
    fn take(
        &mut self,
        rx: &mut NetRx<SplitDriver>,
        buffer_use: &mut BufferUse,
    ) -> anyhow::Result<usize> {
        let mut received = 0;
        while self.truesize < HELD_MAX {
            let packet = match rx.receive() {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(broken) => bail!("the ring is broken: {}", broken.0),
            };
            received += 1;
            buffer_use.packets += 1;
            buffer_use.payload += u64::from(packet.len);
            if packet.fragments().len() > FRAGMENTS_MAX {
                // Into memory of its own, as long as itself.
                packet.copy_to(&mut self.into[..packet.len as usize]);
                buffer_use.truesize += u64::from(packet.len);
                continue;
            }
            buffer_use.truesize += u64::from(packet.truesize);
            self.truesize += u64::from(packet.truesize);
            self.held.extend(rx.hold());
        }
        Ok(received)
    }

    fn read(&mut self, rx: &mut NetRx<SplitDriver>) {
        for held in self.held.drain(..) {
            held.copy_to(&mut self.into[..held.len as usize]);
            std::hint::black_box(&self.into);
            rx.release(held);
        }
        self.truesize = 0;
    }
}

impl BufferUse {
    // Numbers of packets and bytes are far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    fn values(&self) -> [f64; 5] {
        let (packets, payload) = (self.packets as f64, self.payload as f64);
        let memory_per_byte = self.truesize as f64 / payload;
        [
            payload * 8.0 / 1e9 / self.seconds,
            self.seconds * 1e9 / packets,
            memory_per_byte,
            HELD_MAX as f64 / memory_per_byte / 1024.0,
            f64::from(self.buffer_len),
        ]
    }
}

fn method(options: &Options) -> [String; 2] {
    [
        options.rounds(),
        format!(
            "Device and driver in one thread, a split receiveq of {QUEUE_SIZE} entries. The driver \
             takes packets out of the ring and holds them until they tie up {HELD_MAX} bytes of \
             memory, whole buffers counted; then the application reads all of them."
        ),
    ]
}
