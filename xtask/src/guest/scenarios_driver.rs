//! Our driver on DPDK's device: `testpmd` has two `net_vhost` ports and forwards between them, and
//! two guests of ours send to each other.
//!
//! How: the guests are a test of the test kit, which takes its back-end from the environment: all
//! schemes of receive buffers on both ring formats, every byte verified. A packet's header goes
//! with it, segments to be cut and all, because the ports hand a packet's offloads on as they came
//! (`legacy-ol-flags`).
//!
//! Limits: one queue pair per port.

use std::time::Duration;

use anyhow::ensure;
use ringway_extent::Extent;
use ringway_guests::{Stage, Testpmd, testpmd};

use crate::test_program::TestProgram;

pub const PROGRAM: TestProgram = TestProgram("driver_daemon");

/// Tells it where the back-end is.
const BACKEND_VARIABLE: &str = "RINGWAY_BACKEND_DIRECTORY";

/// That test sends as much.
const GIB: Extent = Extent::new("RINGWAY_GIB", 0, 10);

/// It takes no longer, plus as much for each GiB asked for.
const LIMIT: Duration = Duration::from_secs(30);

/// Of each port: it takes large packets from its guest, and hands offloads on.
const PORT_OPTIONS: &str = ",tso=1,legacy-ol-flags=1";

/// Packets from one port go out on the other, in several buffers if need be.
const OPTIONS: &str = "--forward-mode=io --tx-offloads=0x8000";

pub fn limit() -> Duration {
    LIMIT + Duration::from_secs(LIMIT.as_secs() * GIB.amount())
}

/// All schemes on both formats, in both directions.
pub fn vhost(stage: &Stage) -> anyhow::Result<()> {
    GIB.announced();
    stage.step("testpmd");
    let port = |number, name: &str| testpmd::vhost(number, &stage.file(name), PORT_OPTIONS);
    let ports = [port(0, "a.sock"), port(1, "b.sock")].concat();
    let testpmd = Testpmd::start_with(stage, &ports, OPTIONS)?;
    stage.step("guests");
    PROGRAM.verify(stage, (BACKEND_VARIABLE, &stage.directory), limit())?;
    stage.step("counts");
    let counted = testpmd.finish()?;
    ensure!(counted.received > 0 && counted.sent > 0, "testpmd counted {counted:?}");
    Ok(())
}
