//! Guests that have nothing in common on one switch: what one leaves undone, the other never sees.
//!
//! Two User Mode Linux guests and a tap. The first guest has an ordinary MTU, split rings, neither
//! checksum nor segmentation offload, and small receive buffers; the second has everything.

use anyhow::ensure;
use ringway_guests::{Direction, Side, Stage, traffic};

use super::scene::{self, ADDRESSES, MTU, OFFLOADED_LEN_MIN, Scene, TAP};

const PLAIN: &str = ADDRESSES[0];
const RICH: &str = ADDRESSES[1];
const HERE: &str = "10.99.0.3";

/// A server of its own for this side: one that another client has just left is still busy.
const HERES_PORT: &str = "-p 5202";

/// The features that the first guest does without; without checksums there is no segmentation
/// either.
const PLAIN_OPTIONS: &str = ",packed=off,mrg_rxbuf=off,csum=off,guest_csum=off";
const RICH_OPTIONS: &str = ",mtu=9000";

/// The longest packet of an ordinary MTU, in bytes.
const PACKET_LEN_MAX: u64 = 1514;

pub fn mixed(stage: &Stage) -> anyhow::Result<()> {
    let (options, tap) = ([PLAIN_OPTIONS, RICH_OPTIONS], format!("up=tap:{TAP}"));
    let mut scene = Scene::two_guests(stage, options, &[tap], &[])?;
    scene::set_up_tap(HERE, MTU)?;
    // Detached from the consoles, which belong to commands.
    scene.must(0, &format!("iperf3 -s -D && iperf3 -s -D {HERES_PORT}"))?;
    scene.must(1, "iperf3 -s -D")?;
    check_segments(&mut scene)?;
    for (name, mut side, (address, port)) in [
        ("guest with everything to guest without", scene.side(1), (PLAIN, "")),
        ("tap to guest without", Side::Here, (PLAIN, HERES_PORT)),
        ("tap to guest with everything", Side::Here, (RICH, "")),
    ] {
        stage.step(name);
        let [out, back] = scene::rates(&mut side, address, 1, port)?;
        stage.note(&format!("{name}: {out:.2} Gb/s out, {back:.2} Gb/s in"));
    }
    let names = ["GUEST_CSUM", "GUEST_TSO4", "GUEST_TSO6", "HOST_TSO4", "CSUM", "MRG_RXBUF"];
    for (guest, format, has) in [(0, "split", false), (1, "packed", true)] {
        scene.port(guest)?.check_negotiated(format, &names.map(|name| (name, has)))?;
    }
    scene.finish()
}

/// The packets that one guest sends are far longer than those that the other receives.
fn check_segments(scene: &mut Scene<'_>) -> anyhow::Result<()> {
    scene.stage.step("segmentation on delivery");
    let before = scene.port(0)?.moved(Direction::ToGuest);
    let sent = scene.moved(1, Direction::FromGuest, |scene| {
        traffic::tcp(&mut scene.side(1), PLAIN, 1, "").map(drop)
    })?;
    let received = scene.port(0)?.moved(Direction::ToGuest).since(before);
    scene.stage.note(&format!("sent {sent}; received {received}"));
    ensure!(sent.mean_len() > OFFLOADED_LEN_MIN, "{sent}: the sender does not leave it undone");
    ensure!(received.mean_len() <= PACKET_LEN_MAX, "{received}: unsegmented packets");
    Ok(())
}
