//! DPDK's testpmd in the daemon's place: two vhost-user devices, and what comes at one goes out at
//! the other.
//!
//! Limits: packets that fit one of its buffers; it looks nothing up.

use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ringway_guests::Testpmd;
use ringway_guests::testpmd::{Setting, vhost};
use ringway_virtq::DriverQueue;

use super::copying::Copying;
use super::guests::{PacketLayout, Pair, QUEUE_SIZE};
use super::{At, Row, Values, values};
use crate::machine::keeping_to;
use crate::programs;
use crate::ring::driver::DriverEnd;
use crate::ring::testpmd::{BUFFER_EXTRA, BUFFER_LEN_MIN, cost_ns, forget_cost};

pub(super) const PACKET_LEN_MAX: u32 = 1518;

/// Starts it with two devices, on a processor, for packets of up to so many bytes.
pub(super) fn start(
    directory: &Path,
    processor: usize,
    packet_len_max: u32,
) -> anyhow::Result<Testpmd> {
    let stage = programs::stage(directory, "ringway".into(), Some(programs::dpdk()?));
    let [first, second] = sockets(directory);
    let devices = [vhost(0, &first, ""), vhost(1, &second, "")].concat();
    let buffer_len = (packet_len_max + BUFFER_EXTRA).max(BUFFER_LEN_MIN);
    let options = format!(
        "--disable-link-check --txd={QUEUE_SIZE} --rxd={QUEUE_SIZE} --forward-mode=io \
         --mbuf-size={buffer_len} --max-pkt-len={packet_len_max}"
    );
    let setting = Setting { name: "testpmd", processor, device: &devices, options: &options };
    keeping_to(&[processor], || Testpmd::start_at(&stage, &setting))?
}

/// Where its two devices are.
pub(super) fn sockets(directory: &Path) -> [PathBuf; 2] {
    ["a", "b"].map(|name| directory.join(name))
}

pub(super) fn measure<Q: DriverQueue>(row: Row, at: At) -> anyhow::Result<Values> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let mut program = start(directory.path(), at.of_worker, PACKET_LEN_MAX)?;
    program.run("set record-core-cycles on")?;
    program.forward(true)?;
    let values = exchange::<Q>(row, at, directory.path(), |exchange| {
        forget_cost(&mut program)?;
        exchange()?;
        cost_ns(&mut program)?.context("testpmd says no cost")
    })?;
    program.forward(false)?;
    Ok(values)
}

/// The same with any program at these sockets: `cost_ns` lets packets be exchanged, and says how
/// many ns each has cost.
pub(super) fn exchange<Q: DriverQueue>(
    row: Row,
    At { of_worker, duration }: At,
    directory: &Path,
    cost_ns: impl FnOnce(&mut dyn FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64>,
) -> anyhow::Result<Values> {
    let layout = PacketLayout::of(row.packet_len as usize);
    let mut pair = Pair::<DriverEnd<Q>>::attach(sockets(directory), &layout)?;
    pair.exchange(layout.burst, duration / 4)?;
    let packet_ns = cost_ns(&mut || {
        let packets = pair.exchange(layout.burst, duration)?;
        ensure!(packets > 0.0, "nothing arrived");
        Ok(())
    })?;
    let copying = || anyhow::Ok(Copying::new(&layout)?.run(duration));
    let (copies, ns) = keeping_to(&[of_worker], copying)??;
    Ok(values(row.packet_len, packet_ns, ns / copies, None))
}
