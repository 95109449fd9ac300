//! Two User Mode Linux guests on one ringway.

use anyhow::ensure;
use ringway_guests::console::Console;
use ringway_guests::ringway::Way;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};

use super::scene::{self, ADDRESSES, format_name, must};

#[derive(Debug)]
pub struct UmlCase {
    /// Whether packed rings are offered.
    pub packed: bool,
    /// The MTU that ringway advises, in bytes; `None`: none, and Linux uses 1500.
    pub mtu: Option<u32>,
}

/// Boots both and lets the second talk to the first.
pub fn pair(stage: &Stage, case: &UmlCase) -> anyhow::Result<()> {
    let mut options = format!(",packed={}", if case.packed { "on" } else { "off" });
    if let Some(mtu) = case.mtu {
        options.push_str(&format!(",mtu={mtu}"));
    }
    let (ringway, [mut first, mut second]) = scene::two_guests(stage, [&options; 2], &[], &[])?;
    check_mtu(&mut second, case.mtu.unwrap_or(1500))?;
    // Detached from the console, which belongs to commands.
    must(&mut first, "iperf3 -s -D")?;
    let before = ringway.port("vm1")?;
    let figures = traffic::carry(stage, &mut Side::Guest(&mut second), ADDRESSES[0])?;
    if let Some(mtu) = case.mtu {
        traffic::full_packets(&mut Side::Guest(&mut second), ADDRESSES[0], mtu)?;
    }
    stage.note(&figures.to_string());
    let after = ringway.port("vm1")?;
    for way in [Way::From, Way::To] {
        stage.step(&format!("{way:?}: {}", after.moved(way).since(before.moved(way))));
    }
    scene::check_offloads(stage, (&ringway, "vm1"), &mut second, ADDRESSES[0])?;
    for name in ["vm0", "vm1"] {
        let port = ringway.port(name)?;
        port.check_negotiated(format_name(case.packed), &negotiated(case))?;
        port.check_healthy(&["no_room", "link_down"])?;
    }
    drop((first, second));
    ringway.finish()
}

/// What Linux 6.1 takes of what is offered.
fn negotiated(case: &UmlCase) -> Vec<(&'static str, bool)> {
    let always = "GUEST_TSO4 HOST_TSO4 GUEST_TSO6 HOST_TSO6 CSUM GUEST_CSUM MRG_RXBUF CTRL_VQ \
                  EVENT_IDX INDIRECT_DESC MAC STATUS VERSION_1";
    let mut features: Vec<_> = always.split(' ').map(|name| (name, true)).collect();
    features.push(("RING_PACKED", case.packed));
    features.push(("MTU", case.mtu.is_some()));
    features
}

fn check_mtu(guest: &mut Console, wanted: u32) -> anyhow::Result<()> {
    let mtu = must(guest, "cat /sys/class/net/eth0/mtu")?;
    ensure!(mtu.trim() == wanted.to_string(), "the guest's MTU is {mtu}, not {wanted}");
    Ok(())
}
