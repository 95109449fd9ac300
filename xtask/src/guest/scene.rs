//! How many scenarios begin, and what they ask their guests.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use ringway_guests::console::Console;
use ringway_guests::ringway::{Ringway, Way};
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{net, uml};

pub const TAP: &str = "tap0";

/// Longest time until it is there, or gone.
pub const TAP_LIMIT: Duration = Duration::from_secs(30);

/// Packets of this mean length can only be those of segmentation offload.
pub const OFFLOADED_LEN_MIN: u64 = 4000;

/// The addresses of two User Mode Linux guests.
pub const ADDRESSES: [&str; 2] = ["10.99.0.1", "10.99.0.2"];

/// Where the guest of a port connects.
pub fn socket(stage: &Stage, port: &str) -> PathBuf {
    stage.file(&format!("{port}.sock"))
}

/// A port of this name, with options behind a comma.
pub fn port(stage: &Stage, name: &str, options: &str) -> String {
    format!("{name}=vm:{}{options}", socket(stage, name).display())
}

/// This machine's end of the uplink, once it is there.
pub fn set_up_tap(address: &str, mtu: u32) -> anyhow::Result<()> {
    net::wait_exists(TAP, true, TAP_LIMIT)?;
    net::set_up(TAP, address, mtu)
}

/// Ringway with a guest's port `vm0` that has these options, an uplink whose end here has this
/// address and MTU, and more arguments.
pub fn with_tap(
    stage: &Stage,
    options: &str,
    (address, mtu): (&str, u32),
    arguments: &[&str],
) -> anyhow::Result<Ringway> {
    stage.step("ringway and a tap");
    let ports = [port(stage, "vm0", options), format!("up=tap:{TAP},mtu={mtu}")];
    let ringway = Ringway::start_with(stage, &ports, arguments)?;
    set_up_tap(address, mtu)?;
    Ok(ringway)
}

/// Ringway with two User Mode Linux guests at [`ADDRESSES`] on ports with these options, with more
/// ports and arguments.
pub fn two_guests(
    stage: &Stage,
    options: [&str; 2],
    more: &[String],
    arguments: &[&str],
) -> anyhow::Result<(Ringway, [Console; 2])> {
    stage.step("ringway and two guests");
    let ports = [port(stage, "vm0", options[0]), port(stage, "vm1", options[1])];
    let ringway = Ringway::start_with(stage, &[&ports, more].concat(), arguments)?;
    let start = |name: &str| uml::start(stage, name, &socket(stage, name));
    let mut guests = [start("vm0")?, start("vm1")?];
    for (guest, address) in guests.iter_mut().zip(ADDRESSES) {
        uml::wait_booted(guest, address)?;
    }
    Ok((ringway, guests))
}

/// TCP alone between the guest of a port and an address, both ways, so that the mean length of
/// packets tells whether they were segmented on the way.
pub fn check_offloads(
    stage: &Stage,
    (ringway, port): (&Ringway, &str),
    guest: &mut Console,
    address: &str,
) -> anyhow::Result<()> {
    for (way, option) in [(Way::From, ""), (Way::To, "-R")] {
        let before = ringway.port(port)?.moved(way);
        traffic::tcp(&mut Side::Guest(guest), address, 1, option)?;
        let moved = ringway.port(port)?.moved(way).since(before);
        stage.step(&format!("segmentation offload {way:?} the guest: {moved}"));
        ensure!(moved.mean_len() > OFFLOADED_LEN_MIN, "{way:?}, {moved}: no segmentation offload");
    }
    Ok(())
}

/// Runs a command line in a guest that must succeed; what it printed.
pub fn must(guest: &mut Console, line: &str) -> anyhow::Result<String> {
    Side::Guest(guest).must(line)
}

/// `packed` or `split`, as ringway says it.
pub fn format_name(is_packed: bool) -> &'static str {
    if is_packed { "packed" } else { "split" }
}
