//! DPDK's `dpdk-testpmd` as an end: its virtio driver (`net_virtio_user`), or its vhost-user device
//! (`net_vhost`), in a process of its own on the same core.
//!
//! How: its own forwarding modes send or receive. Rates come from its port statistics, the cost of
//! a packet from its count of processor cycles; both by its own clock.
//!
//! Limits: packets of up to [`PACKET_LEN_MAX`] bytes: it gives lengths in 16 bits, and a packet
//! must fit one of its buffers here. It sends without filling the payload in, and receives without
//! copying it out.

use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ringway_guests::testpmd::{Setting, number_after, vhost};
use ringway_guests::{DpdkFiles, Testpmd};
use ringway_virtq::Format;

use super::row::{DRIVER, Setup};
use crate::programs;

pub(super) const PACKET_LEN_MAX: usize = 9000;

/// Bytes of a buffer beyond the packet: headroom, and what the device's header needs.
pub(crate) const BUFFER_EXTRA: u32 = 256;
pub(crate) const BUFFER_LEN_MIN: u32 = 2176;

/// Starts it on the socket `s` of a directory, and lets it forward. As a device it waits for its
/// driver, as a driver it attaches.
pub(super) fn start(
    dpdk: &DpdkFiles,
    setup: &Setup<'_>,
    side: usize,
    directory: &Path,
) -> anyhow::Result<Testpmd> {
    let Setup { queue_size, packet_len, processors, .. } = *setup;
    let socket = directory.join("s");
    let packed = u8::from(setup.format == Format::Packed);
    let (name, device) = if side == DRIVER {
        let device = format!(
            "net_virtio_user0,path={},queues=1,queue_size={queue_size},packed_vq={packed},\
             in_order=1,mrg_rxbuf=1",
            socket.display()
        );
        ("testpmd-driver", ["--vdev".to_string(), device])
    } else {
        ("testpmd-device", vhost(0, &socket, ""))
    };
    let forward = if setup.direction.is_sender(side) { "txonly" } else { "rxonly" };
    let buffer_len = (u32::try_from(packet_len)? + BUFFER_EXTRA).max(BUFFER_LEN_MIN);
    let options = format!(
        "--disable-link-check --mbuf-size={buffer_len} --txd={queue_size} --rxd={queue_size} \
         --txpkts={packet_len} --max-pkt-len={} --forward-mode={forward}",
        packet_len.max(1518)
    );
    let setting = Setting { name, processor: processors[side], device: &device, options: &options };
    let stage = programs::stage(directory, "ringway".into(), Some(dpdk.clone()));
    let mut testpmd = Testpmd::start_at(&stage, &setting)
        .with_context(|| format!("DPDK's {name} does not start, or is kept waiting"))?;
    testpmd.run("set record-core-cycles on")?;
    Ok(testpmd)
}

/// Packets per second that it receives, over `duration`.
pub(super) fn rate(testpmd: &mut Testpmd, duration: Duration) -> anyhow::Result<f64> {
    testpmd.run("show port stats 0")?;
    thread::sleep(duration);
    let text = testpmd.run("show port stats 0")?;
    number_after(&text, "Rx-pps:").with_context(|| format!("testpmd: no rate in:\n{text}"))
}

pub(crate) fn forget_cost(testpmd: &mut Testpmd) -> anyhow::Result<()> {
    testpmd.run("clear fwd stats all").map(drop)
}

/// Ns of its processor per packet since then. Rounds that find nothing to receive do not
/// count; rounds that find no room to send do.
pub(crate) fn cost_ns(testpmd: &mut Testpmd) -> anyhow::Result<Option<f64>> {
    let text = testpmd.run("show fwd stats all")?;
    let cycles: Option<f64> = number_after(&text, "CPU cycles/packet=");
    let mhz = text.split_once(" MHz").and_then(|(before, _)| before.rsplit(' ').next());
    let mhz: Option<f64> = mhz.and_then(|mhz| mhz.parse().ok());
    Ok(cycles.zip(mhz).map(|(cycles, mhz)| cycles * 1000.0 / mhz))
}
