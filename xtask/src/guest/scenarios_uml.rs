//! Two User Mode Linux guests on one ringway.

use anyhow::ensure;

use super::console::Console;
use super::ringway::{Ringway, Way};
use super::stage::Stage;
use super::traffic::{self, Side};
use super::uml::{self, must};

/// The guests' ports and addresses.
const GUESTS: [(&str, &str); 2] = [("vm0", "10.99.0.1"), ("vm1", "10.99.0.2")];

/// Packets of this mean length can only be those of segmentation offload.
const OFFLOADED_LEN_MIN: u64 = 4000;

/// One pair of guests.
#[derive(Debug)]
pub struct UmlCase {
    /// Whether packed rings are offered.
    pub packed: bool,
    /// The MTU that ringway advises, in bytes; `None`: none, and Linux uses 1500.
    pub mtu: Option<u32>,
}

/// Boots both and lets the second talk to the first.
///
/// # Errors
/// What did not work.
pub fn pair(stage: &Stage, case: &UmlCase) -> anyhow::Result<()> {
    let mut options = format!(",packed={}", if case.packed { "on" } else { "off" });
    if let Some(mtu) = case.mtu {
        options.push_str(&format!(",mtu={mtu}"));
    }
    let port = |name: &str| format!("{name}=vm:{}{options}", socket(stage, name).display());
    let ports: Vec<String> = GUESTS.iter().map(|(name, _)| port(name)).collect();
    stage.step("ringway");
    let ringway = Ringway::start(stage, &ports)?;
    stage.step("two guests");
    let start = |name: &str| uml::start(stage, name, &socket(stage, name));
    let (mut first, mut second) = (start("vm0")?, start("vm1")?);
    uml::wait_booted(&mut first, GUESTS[0].1)?;
    uml::wait_booted(&mut second, GUESTS[1].1)?;
    check_mtu(&mut second, case.mtu.unwrap_or(1500))?;
    // Detached from the console, which belongs to commands.
    must(&mut first, "iperf3 -s -D")?;
    let before = ringway.port("vm1")?;
    let figures = traffic::carry(stage, &mut Side::Guest(&mut second), GUESTS[0].1)?;
    if let Some(mtu) = case.mtu {
        traffic::full_packets(&mut Side::Guest(&mut second), GUESTS[0].1, mtu)?;
    }
    stage.note(&figures.to_string());
    let after = ringway.port("vm1")?;
    for way in [Way::From, Way::To] {
        stage.step(&format!("{way:?}: {}", after.moved(way).since(before.moved(way))));
    }
    check_offloads(stage, &ringway, &mut second)?;
    for (name, _) in GUESTS {
        let port = ringway.port(name)?;
        let format = if case.packed { "packed" } else { "split" };
        port.check_negotiated(format, &negotiated(case))?;
        port.check_healthy(&["no_room", "link_down"])?;
    }
    drop((first, second));
    ringway.finish()
}

/// What Linux 6.1 takes of what is offered.
fn negotiated(case: &UmlCase) -> Vec<(&'static str, bool)> {
    let always = [
        "GUEST_TSO4",
        "HOST_TSO4",
        "GUEST_TSO6",
        "HOST_TSO6",
        "CSUM",
        "GUEST_CSUM",
        "MRG_RXBUF",
        "CTRL_VQ",
        "EVENT_IDX",
        "INDIRECT_DESC",
        "MAC",
        "STATUS",
        "VERSION_1",
    ];
    let mut features: Vec<_> = always.iter().map(|name| (*name, true)).collect();
    features.push(("RING_PACKED", case.packed));
    features.push(("MTU", case.mtu.is_some()));
    features
}

/// TCP alone, so that the mean length of packets tells whether they were segmented by anybody.
fn check_offloads(stage: &Stage, ringway: &Ringway, guest: &mut Console) -> anyhow::Result<()> {
    stage.step("segmentation offload");
    let before = ringway.port("vm1")?.moved(Way::From);
    traffic::tcp(&mut Side::Guest(guest), GUESTS[0].1, 1, "")?;
    let moved = ringway.port("vm1")?.moved(Way::From).since(before);
    ensure!(moved.mean_len() > OFFLOADED_LEN_MIN, "{moved}: no segmentation offload");
    Ok(())
}

fn check_mtu(guest: &mut Console, wanted: u32) -> anyhow::Result<()> {
    let mtu = must(guest, "cat /sys/class/net/eth0/mtu")?;
    ensure!(mtu.trim() == wanted.to_string(), "the guest's MTU is {mtu}, not {wanted}");
    Ok(())
}

fn socket(stage: &Stage, name: &str) -> std::path::PathBuf {
    stage.file(&format!("{name}.sock"))
}
