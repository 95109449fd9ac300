//! Our driver on DPDK's device: `testpmd` has two `net_vhost` ports and forwards between them, and
//! two guests of ours send to each other.
//!
//! How: the guests are the test in [`driver_test`]. A packet's header goes with it, segments to be
//! cut and all, because the ports hand a packet's offloads on as they came (`legacy-ol-flags`).
//!
//! Limits: one queue pair per port.

use anyhow::{Context, ensure};

use crate::driver_test::{self, SOCKETS};
use crate::paths::Paths;
use ringway_guests::console::Console;
use ringway_guests::stage::Stage;
use ringway_guests::testpmd::Testpmd;

/// Of each port: it takes large packets from its guest, and hands offloads on.
const PORT_OPTIONS: &str = "queues=1,tso=1,legacy-ol-flags=1";

/// What comes in on one port goes out on the other, in several buffers if need be.
const OPTIONS: &str = "--forward-mode=io --tx-offloads=0x8000";

/// In front of what the test says about what it has done.
const VERIFIED: &str = "verified: ";

/// All schemes on both formats, in both directions.
pub fn vhost(stage: &Stage) -> anyhow::Result<()> {
    stage.step("testpmd");
    let sockets = (0..).zip(SOCKETS.map(|name| stage.file(name)));
    let ports = sockets.flat_map(|(number, socket): (u8, _)| {
        let port = format!("net_vhost{number},iface={},{PORT_OPTIONS}", socket.display());
        ["--vdev".to_string(), port]
    });
    let testpmd = Testpmd::start_with(stage, &ports.collect::<Vec<_>>(), OPTIONS)?;
    stage.step("guests");
    let test = driver_test::command(&Paths::new(), &stage.directory);
    let (status, text) =
        Console::start(stage, "guests", test)?.wait_end(0, driver_test::limit())?;
    ensure!(status.success(), "the guests: {status}:\n{text}");
    let verified = text.lines().find_map(|line| line.split_once(VERIFIED)).map(|(_, what)| what);
    stage.note(verified.with_context(|| format!("nothing was verified:\n{text}"))?);
    stage.step("counts");
    let counted = testpmd.finish()?;
    ensure!(counted.received > 0 && counted.sent > 0, "testpmd counted {counted:?}");
    Ok(())
}
