//! DPDK's testpmd in the daemon's place: two vhost-user devices, and what comes at one goes out at
//! the other.
//!
//! Limits: packets that fit one of its buffers here; it looks nothing up.

use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::testpmd::{Setting, Testpmd};
use ringway_virtq::DriverQueue;

use super::copying::Copying;
use super::guests::{Pair, Plan, QUEUE_SIZE};
use super::{COLUMNS, Row, values};
use crate::machine::keeping_to;
use crate::programs;
use crate::ring::testpmd::{cost_ns, forget_cost};

/// Longest packet, in bytes.
pub(super) const PACKET_LEN_MAX: u32 = 1518;

/// On the guests' processor: a value for each column.
pub(super) fn measure<Q: DriverQueue>(
    row: Row,
    of_worker: usize,
    duration: Duration,
) -> anyhow::Result<[Option<f64>; COLUMNS.len()]> {
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let sockets = ["a", "b"].map(|name| directory.path().join(name));
    let stage = programs::stage(directory.path(), "ringway".into(), Some(programs::dpdk()?));
    let device = |number: usize| {
        let socket = sockets[number].display();
        ["--vdev".to_string(), format!("net_vhost{number},iface={socket},queues=1")]
    };
    let options = format!(
        "--disable-link-check --txd={QUEUE_SIZE} --rxd={QUEUE_SIZE} --forward-mode=io \
         --max-pkt-len={PACKET_LEN_MAX}"
    );
    let device = [device(0), device(1)].concat();
    let setting =
        Setting { name: "testpmd", processor: of_worker, device: &device, options: &options };
    let mut program = keeping_to(&[of_worker], || Testpmd::start_at(&stage, &setting))??;
    program.run("set record-core-cycles on")?;
    program.forward(true)?;
    let plan = Plan::of(row.packet_len as usize);
    let mut pair = Pair::<Q>::attach(sockets, &plan)?;
    pair.exchange(plan.burst, duration / 4)?;
    forget_cost(&mut program)?;
    let packets = pair.exchange(plan.burst, duration)?;
    ensure!(packets > 0.0, "nothing arrived");
    let packet_ns = cost_ns(&mut program)?.context("testpmd says no cost")?;
    program.forward(false)?;
    let (copies, ns) =
        keeping_to(&[of_worker], || anyhow::Ok(Copying::new(&plan)?.run(duration)))??;
    Ok(values(row.packet_len, packet_ns, ns / copies, None))
}
