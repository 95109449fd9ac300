//! Instructions per packet: the one measure of speed that does not depend on what else the machine
//! does, so that a test can hold it.
//!
//! How: the same program runs under `valgrind --tool=callgrind`, once for each ring format and
//! part; there it moves a known number of packets between a driver and a device in one thread, and
//! callgrind counts inside one function ([`PARTS`]) only. A worker between two guests is counted in
//! a daemon of its own, between guests in user space.
//!
//! Limits: 64-byte packets in batches of 32; what the instructions cost is not counted. Numbers
//! hold for one compiler version; after a change of it they are accepted anew.

mod callgrind;
pub(crate) mod command;
pub mod golden;

use anyhow::{anyhow, bail};
use ringway_device::{FromGuest, ToGuest};
use ringway_driver::{NetDriver, RxOptions, RxScheme, Sent};
use ringway_net::{Features, NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::{Mirror, MirrorOptions, TestMemory};
use ringway_virtq::{
    DeviceQueue, DirtyLog, DriverQueue, Format, PackedDevice, PackedDriver, SharedSlice,
    SplitDevice, SplitDriver,
};

use crate::progress::in_turns;
use crate::switch;

use callgrind::callgrind;
use golden::Counts;

/// Packets between two publications.
const BATCH: usize = 32;
const BATCHES: usize = 500;
const PACKET_LEN: usize = 64;
const QUEUE_SIZE: u16 = 256;
const BUFFERS_LEN: u64 = 8 << 20;

/// Bytes of a log that has all pages of the mirror's memory.
const LOG_LEN: u64 = 0x2_1000;

/// Bursts of packets that go through a daemon.
const BURSTS: usize = 16;
const MORE_BURSTS: usize = 80;

/// The code that is counted: its name in tables, the function, how the program is told, and
/// packets.
///
/// Of the worker its loop and the copy alone are counted, not what it does once for each visit of
/// some packets: clocks, publishing, sleeping. So the number hardly depends on when it runs.
type Part = (&'static str, &'static str, &'static [&'static str], usize);
const PARTS: [Part; 8] = [
    ("driver_send", "*instructions*driver_send*", &[], BATCH * BATCHES),
    ("device_receive", "*instructions*device_receive*", &[], BATCH * BATCHES),
    ("device_send", "*instructions*device_send*", &[], BATCH * BATCHES),
    ("device_logged", "*instructions*device_send*", &["--logged"], BATCH * BATCHES),
    ("driver_receive", "*instructions*driver_receive*", &[], BATCH * BATCHES),
    ("driver_tuned", "*instructions*driver_receive*", &["--tuned"], BATCH * BATCHES),
    ("worker", "*Run*forward_run*", &["--worker"], BURSTS * switch::BURST),
    ("worker_pieces", "*Run*forward_run*", &["--worker", "--in-two"], BURSTS * switch::BURST),
];

/// Counts everything by running `arguments FORMAT` of this program under valgrind, which must lead
/// to [`run`], and with `--worker` behind it to [`run_worker`].
pub fn count(arguments: &[&str]) -> anyhow::Result<Counts> {
    let mut rows = Vec::new();
    for format in ["split", "packed"] {
        rows.extend(PARTS.map(|part| (vec![format.to_string(), part.0.to_string()], part)));
    }
    let mut counts = Counts::new();
    in_turns(1, &rows, |_, name, (_, function, more, packets), _| {
        let instructions = callgrind(
            &[arguments, &[&*name[0]], more].concat(),
            Some(function),
            more.contains(&"--worker"),
        )?;
        // Both are far below 2^53.
        #[allow(clippy::cast_precision_loss)]
        counts.insert(name.join(" "), instructions as f64 / *packets as f64);
        Ok(())
    })?;
    Ok(counts)
}

/// All that a worker of so many does for a packet, wakes up and sleeps for included: what a run
/// takes beyond a shorter one. The others own nothing that has packets.
pub fn of_a_worker(workers: usize) -> anyhow::Result<f64> {
    let workers = workers.to_string();
    let count = |bursts: usize| {
        let bursts = bursts.to_string();
        let words = ["instructions", "--run", "split", "--worker", "--workers", &workers];
        callgrind(&[&words[..], &["--bursts", &bursts]].concat(), None, true)
    };
    let (fewer, more) = (count(BURSTS)?, count(MORE_BURSTS)?);
    let packets = (MORE_BURSTS - BURSTS) * switch::BURST;
    // Both are far below 2^53.
    #[allow(clippy::cast_precision_loss)]
    Ok(more.saturating_sub(fewer) as f64 / packets as f64)
}

/// Moves packets from guest to guest through a daemon, which is counted under valgrind.
pub fn run_worker(format: Format, load: (usize, usize), in_two: bool) -> anyhow::Result<()> {
    match format {
        Format::Split => switch::carry::<SplitDriver>(load, in_two),
        Format::Packed => switch::carry::<PackedDriver>(load, in_two),
    }
}

/// Moves the packets; what is counted under valgrind. `tuned`: into buffers whose length the driver
/// chooses. `logged`: the device marks the pages that it writes.
pub fn run(format: Format, tuned: bool, logged: bool) -> anyhow::Result<()> {
    let scheme = if tuned { RxScheme::Adaptive } else { RxScheme::Page };
    match format {
        Format::Split => mirror::<SplitDriver, SplitDevice>(scheme, logged),
        Format::Packed => mirror::<PackedDriver, PackedDevice>(scheme, logged),
    }
}

fn mirror<D: DriverQueue, V: DeviceQueue>(scheme: RxScheme, logged: bool) -> anyhow::Result<()> {
    let mut mirror = Mirror::<D, V>::new(&MirrorOptions {
        rx: RxOptions::of(scheme),
        tx_len_max: 1518,
        queue_size: QUEUE_SIZE,
        buffers_len: BUFFERS_LEN,
        without: Features::empty(),
    })?;
    let log = TestMemory::new(&[(0, LOG_LEN)])?;
    if logged {
        let regions = mirror._memory.regions().with_log(Some(DirtyLog::new(log.region(0))));
        let bound = mirror.to_guest.rebind(&mirror.areas[0], &regions);
        bound.map_err(|broken| anyhow!("receiveq: {}", broken.0))?;
    }
    let outside = TestMemory::new(&[(0, 4096)])?;
    let (lent, _) = outside.region(0).split_at(PACKET_LEN);
    lent.write(0, &[0x5a; PACKET_LEN]);
    let mut moved = 0;
    for _ in 0..BATCHES {
        moved += driver_send(&mut mirror.driver, &[0x5a; PACKET_LEN]);
        moved += device_receive(&mut mirror.from_guest);
        moved += device_send(&mut mirror.to_guest, lent);
        moved += driver_receive(&mut mirror.driver);
    }
    if moved != 4 * BATCH * BATCHES {
        bail!("{moved} packets moved, not {}", 4 * BATCH * BATCHES);
    }
    Ok(())
}

#[inline(never)]
fn driver_send<Q: DriverQueue>(driver: &mut NetDriver<Q>, packet: &[u8]) -> usize {
    let header = NetHeader::default();
    let sent = |_: &usize| matches!(driver.tx.send(&header, packet), Ok(Sent::Done));
    let moved = (0..BATCH).take_while(sent).count();
    let _ = driver.tx.flush();
    moved
}

#[inline(never)]
fn device_receive<Q: DeviceQueue>(from_guest: &mut FromGuest<Q>) -> usize {
    let mut into = [0; PACKET_LEN];
    let mut moved = 0;
    while moved < BATCH
        && let Some(packet) = from_guest.peek()
    {
        packet.copy_out(&mut into);
        std::hint::black_box(&into);
        from_guest.pop();
        moved += 1;
    }
    from_guest.flush();
    moved
}

#[inline(never)]
fn device_send<Q: DeviceQueue>(to_guest: &mut ToGuest<Q>, lent: SharedSlice) -> usize {
    let payload = [lent];
    let packet = Packet { header: &NetHeader::ZERO, payload: &payload, len: 64 };
    let moved = (0..BATCH).take_while(|_| to_guest.put(&packet) == Put::Done).count();
    to_guest.flush();
    moved
}

#[inline(never)]
fn driver_receive<Q: DriverQueue>(driver: &mut NetDriver<Q>) -> usize {
    let mut into = [0; PACKET_LEN];
    let mut moved = 0;
    while moved < BATCH
        && let Ok(Some(received)) = driver.rx.receive()
    {
        received.copy_to(&mut into);
        std::hint::black_box(&into);
        moved += 1;
    }
    let _ = driver.rx.flush();
    moved
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While a guest is migrated a worker takes at most so many times as many instructions for a
    /// packet.
    const LOGGED_MAX: f64 = 1.3;

    #[test]
    fn marks_cost_less_than_a_third_of_a_packet() {
        let counts =
            golden::parse(include_str!("../tests/golden/instructions.txt")).expect("right");
        for format in ["split", "packed"] {
            let [plain, logged, worker] = ["device_send", "device_logged", "worker"]
                .map(|part| counts[&format!("{format} {part}")]);
            let times = (worker + logged - plain) / worker;
            println!("{format}: {times:.2} times with marks");
            assert!(times > 1.0 && times <= LOGGED_MAX, "{format}: {times}");
        }
    }

    #[test]
    fn all_packets_are_moved_in_both_formats() {
        for (tuned, logged) in [(false, false), (true, false), (false, true)] {
            run(Format::Split, tuned, logged).expect("split");
            run(Format::Packed, tuned, logged).expect("packed");
        }
    }
}
