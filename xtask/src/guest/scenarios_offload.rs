//! Guests that have nothing in common on one switch: what one leaves undone, the other never sees.
//!
//! Two User Mode Linux guests and a tap. The first guest has an ordinary MTU, split rings, neither
//! checksum nor segmentation offload, and small receive buffers; the second has everything.

use anyhow::ensure;
use ringway_guests::ringway::{Ringway, Way};
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};

use super::scene::{self, ADDRESSES, OFFLOADED_LEN_MIN, TAP, must};

/// The guests' and this side's addresses.
const PLAIN: &str = ADDRESSES[0];
const RICH: &str = ADDRESSES[1];
const HERE: &str = "10.99.0.3";

/// A server of its own for this side: one that another client has just left is still busy.
const HERES_PORT: &str = "-p 5202";

/// What the first guest does without; without checksums there is no segmentation either.
const PLAIN_OPTIONS: &str = ",packed=off,mrg_rxbuf=off,csum=off,guest_csum=off";
const RICH_OPTIONS: &str = ",mtu=9000";

/// MTUs in bytes, and the longest packet of the smaller one.
const MTU: u32 = 1500;
const PACKET_LEN_MAX: u64 = 1514;

/// TCP both ways between all three.
pub fn mixed(stage: &Stage) -> anyhow::Result<()> {
    let (options, tap) = ([PLAIN_OPTIONS, RICH_OPTIONS], format!("up=tap:{TAP}"));
    let (ringway, [mut plain, mut rich]) = scene::two_guests(stage, options, &[tap], &[])?;
    scene::set_up_tap(HERE, MTU)?;
    // Detached from the consoles, which belong to commands.
    must(&mut plain, &format!("iperf3 -s -D && iperf3 -s -D {HERES_PORT}"))?;
    must(&mut rich, "iperf3 -s -D")?;
    check_segments(stage, &ringway, &mut Side::Guest(&mut rich))?;
    for (name, mut side, (address, port)) in [
        ("guest with everything to guest without", Side::Guest(&mut rich), (PLAIN, "")),
        ("tap to guest without", Side::Here, (PLAIN, HERES_PORT)),
        ("tap to guest with everything", Side::Here, (RICH, "")),
    ] {
        stage.step(name);
        let out = traffic::tcp(&mut side, address, 1, port)?.gigabits();
        let back = traffic::tcp(&mut side, address, 1, &format!("{port} -R"))?.gigabits();
        stage.note(&format!("{name}: {out:.2} Gb/s out, {back:.2} Gb/s in"));
    }
    for (name, features) in [("vm0", false), ("vm1", true)] {
        let port = ringway.port(name)?;
        let names = ["GUEST_CSUM", "GUEST_TSO4", "GUEST_TSO6", "HOST_TSO4", "CSUM", "MRG_RXBUF"];
        let features: Vec<_> = names.into_iter().map(|name| (name, features)).collect();
        port.check_negotiated(if name == "vm0" { "split" } else { "packed" }, &features)?;
        port.check_healthy(&["no_room", "link_down", "filtered"])?;
    }
    drop((plain, rich));
    ringway.finish()
}

/// The packets that one guest sends are far longer than those that the other receives.
fn check_segments(stage: &Stage, ringway: &Ringway, rich: &mut Side<'_>) -> anyhow::Result<()> {
    stage.step("segmentation on delivery");
    let moved = |name, way| anyhow::Ok(ringway.port(name)?.moved(way));
    let before = (moved("vm1", Way::From)?, moved("vm0", Way::To)?);
    traffic::tcp(rich, PLAIN, 1, "")?;
    let sent = moved("vm1", Way::From)?.since(before.0);
    let received = moved("vm0", Way::To)?.since(before.1);
    stage.note(&format!("sent {sent}; received {received}"));
    ensure!(sent.mean_len() > OFFLOADED_LEN_MIN, "{sent}: the sender does not leave it undone");
    ensure!(received.mean_len() <= PACKET_LEN_MAX, "{received}: unsegmented packets");
    Ok(())
}
