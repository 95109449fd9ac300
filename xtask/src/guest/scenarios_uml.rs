//! Two User Mode Linux guests on one ringway.

use anyhow::ensure;
use ringway_guests::{Stage, traffic};

use super::scene::{ADDRESSES, MTU, Scene, format_name};

/// The features that Linux 6.1 always takes of those offered.
const ALWAYS: &str = "GUEST_TSO4 HOST_TSO4 GUEST_TSO6 HOST_TSO6 CSUM GUEST_CSUM MRG_RXBUF CTRL_VQ \
                      EVENT_IDX INDIRECT_DESC MAC STATUS VERSION_1";

/// Boots both and lets the second talk to the first. `packed`: packed rings are offered; `mtu`:
/// what ringway advises, in bytes.
pub fn pair(stage: &Stage, packed: bool, mtu: Option<u32>) -> anyhow::Result<()> {
    let mut options = format!(",packed={}", if packed { "on" } else { "off" });
    options.extend(mtu.map(|mtu| format!(",mtu={mtu}")));
    let mut scene = Scene::two_guests(stage, [&options; 2], &[], &[])?;
    let (wanted, found) = (mtu.unwrap_or(MTU), scene.must(1, "cat /sys/class/net/eth0/mtu")?);
    ensure!(found.trim() == wanted.to_string(), "the guest's MTU is {found}, not {wanted}");
    // Detached from the console, which belongs to commands.
    scene.must(0, "iperf3 -s -D")?;
    scene.carry(1, ADDRESSES[0])?;
    if let Some(mtu) = mtu {
        traffic::full_packets(&mut scene.side(1), ADDRESSES[0], mtu)?;
    }
    let mut negotiated: Vec<_> = ALWAYS.split(' ').map(|name| (name, true)).collect();
    negotiated.extend([("RING_PACKED", packed), ("MTU", mtu.is_some())]);
    for guest in [0, 1] {
        scene.port(guest)?.check_negotiated(format_name(packed), &negotiated)?;
    }
    scene.finish()
}
