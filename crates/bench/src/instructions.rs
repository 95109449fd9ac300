//! Instructions per packet: the one measure of speed that does not depend on what else the machine
//! does, so that a test can hold it.
//!
//! How: the same program runs under `valgrind --tool=callgrind`, once for each ring format and
//! part; there it moves a known number of packets between a driver and a device in one thread, and
//! callgrind counts inside one function ([`Part`]) only. A worker between two guests is counted in a
//! daemon ([`worker`]).
//!
//! Limits: 64-byte packets in batches of 32; what the instructions cost is not counted. Numbers
//! hold for one compiler version; after a change of it they are accepted anew.

mod golden;
pub mod worker;

use std::env;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use ringway_device::{FromGuest, ToGuest};
use ringway_driver::{NetDriver, RxOptions, RxScheme, Sent};
use ringway_net::{NetHeader, Packet, PacketSink, PacketSource, Put};
use ringway_testkit::TestMemory;
use ringway_virtq::{
    DeviceQueue, DriverQueue, Format, PackedDevice, PackedDriver, SharedSlice, SplitDevice,
    SplitDriver,
};

use crate::mirror::{Mirror, Options};
use crate::progress::Progress;

pub use golden::Golden;

/// Packets between two publications.
const BATCH: usize = 32;
/// Batches that are counted.
const BATCHES: usize = 500;
const PACKET_LEN: usize = 64;
const QUEUE_SIZE: u16 = 256;
const BUFFERS_LEN: u64 = 8 << 20;

/// The function whose instructions are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The driver sends.
    DriverSend,
    /// The device takes what was sent.
    DeviceReceive,
    /// The device sends.
    DeviceSend,
    /// The driver takes what was sent.
    DriverReceive,
    /// The same out of buffers whose length it chooses.
    DriverTuned,
}

impl Part {
    const ALL: [Self; 5] = [
        Self::DriverSend,
        Self::DeviceReceive,
        Self::DeviceSend,
        Self::DriverReceive,
        Self::DriverTuned,
    ];

    /// Its name in tables.
    fn name(self) -> &'static str {
        match self {
            Self::DriverTuned => "driver_tuned",
            _ => self.function(),
        }
    }

    /// The name of its function below.
    fn function(self) -> &'static str {
        match self {
            Self::DriverSend => "driver_send",
            Self::DeviceReceive => "device_receive",
            Self::DeviceSend => "device_send",
            Self::DriverReceive | Self::DriverTuned => "driver_receive",
        }
    }
}

/// One number.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// Ring format and part.
    pub name: String,
    /// Instructions per packet.
    pub instructions: f64,
}

/// Ring formats, as the program's arguments have them.
const FORMATS: [&str; 2] = ["split", "packed"];

/// Counts everything by running `arguments FORMAT` of this program under valgrind, which must lead
/// to [`run`], and with `--worker` behind it to [`worker::run`].
///
/// # Errors
/// `valgrind` does not run, or prints something else.
pub fn count(arguments: &[&str]) -> anyhow::Result<Vec<Count>> {
    let program = env::current_exe().context("this program")?;
    let mut progress = Progress::start(FORMATS.len() * (Part::ALL.len() + 1));
    let mut counts = Vec::new();
    let mut add = |name: String, count: &dyn Fn() -> anyhow::Result<f64>| {
        progress.step(&name);
        counts.push(Count { name, instructions: count()? });
        anyhow::Ok(())
    };
    for format in FORMATS {
        for part in Part::ALL {
            let name = format!("{format} {}", part.name());
            add(name, &|| count_one(&program, arguments, format, part))?;
        }
    }
    for format in FORMATS {
        let name = format!("{format} {}", worker::NAME);
        add(name, &|| worker::count(&program, arguments, format))?;
    }
    progress.end();
    Ok(counts)
}

fn count_one(program: &Path, arguments: &[&str], format: &str, part: Part) -> anyhow::Result<f64> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
    command.arg(format!("--toggle-collect=*instructions*{}*", part.function()));
    command.arg(program).args(arguments).arg(format);
    if part == Part::DriverTuned {
        command.arg("--tuned");
    }
    let output = command.output().context("valgrind (Debian: apt-get install valgrind)")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        bail!("valgrind: {}:\n{text}", output.status);
    }
    let collected = collected(&text).with_context(|| format!("valgrind: no count in:\n{text}"))?;
    if collected == 0 {
        bail!("valgrind: nothing was counted in {}", part.name());
    }
    Ok(per_packet(collected, BATCH * BATCHES))
}

/// Both are far below 2^53.
#[allow(clippy::cast_precision_loss)]
fn per_packet(instructions: u64, packets: usize) -> f64 {
    instructions as f64 / packets as f64
}

fn collected(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("Collected :")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Moves the packets; what is counted under valgrind. `tuned`: into buffers whose length the driver chooses.
///
/// # Errors
/// There is no memory, or the two sides do not understand each other.
pub fn run(format: Format, tuned: bool) -> anyhow::Result<()> {
    let scheme = if tuned { RxScheme::Adaptive } else { RxScheme::Page };
    match format {
        Format::Split => mirror::<SplitDriver, SplitDevice>(scheme),
        Format::Packed => mirror::<PackedDriver, PackedDevice>(scheme),
    }
}

fn mirror<D: DriverQueue, V: DeviceQueue>(scheme: RxScheme) -> anyhow::Result<()> {
    let mut mirror = Mirror::<D, V>::new(&Options {
        rx: RxOptions::of(scheme),
        tx_len_max: 1518,
        queue_size: QUEUE_SIZE,
        buffers_len: BUFFERS_LEN,
    })?;
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

    #[test]
    fn all_packets_are_moved_in_both_formats() {
        for tuned in [false, true] {
            run(Format::Split, tuned).expect("split");
            run(Format::Packed, tuned).expect("packed");
        }
    }

    #[test]
    fn the_count_is_read_from_valgrind_s_words() {
        let text = "==1== Events    : Ir\n==1== Collected : 158464\n==1== \n";
        assert_eq!(collected(text), Some(158_464));
        assert_eq!(collected("nothing"), None);
    }
}
