//! A guest behind a tap that Open vSwitch reads with a raw socket, so that nothing may be left
//! undone in its packets (`offloads=off`).

use anyhow::ensure;
use ringway_guests::ovs::Ovs;
use ringway_guests::ringway::Way;
use ringway_guests::stage::Stage;
use ringway_guests::{iperf, net, traffic, uml};

use super::scene::{GUEST, HERE, MTU, Scene, TAP, port, socket};

/// The bridge, as an interface.
const BRIDGE: &str = "br0";

/// A segment with its headers, and a little more.
const SEGMENT_LEN_MAX: u64 = MTU as u64 + 18;

/// TCP both ways between a guest with all offloads and this machine.
pub fn userspace(stage: &Stage) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    net::ip(&format!("link set {TAP} up"))?;
    let ports = [port(stage, "vm0", ""), format!("up=tap:{TAP},offloads=off")];
    let mut scene = Scene::start(stage, &ports, &[])?;
    stage.step("Open vSwitch");
    let _ovs = Ovs::start(stage, BRIDGE, &[TAP])?;
    net::set_up(BRIDGE, HERE, MTU)?;
    let _server = iperf::start_server(stage)?;
    stage.step("guest");
    let mut guest = uml::start(stage, "vm0", &socket(stage, "vm0"))?;
    uml::wait_booted(&mut guest, GUEST)?;
    scene.guests.push(guest);
    scene.must(0, &format!("ping -c 5 -i 0.2 -W 5 {HERE}"))?;
    let mut rates = Vec::new();
    for option in ["", "-R"] {
        stage.step(&format!("TCP {option}"));
        let before = scene.ringway.port("up")?.moved(Way::To);
        rates.push(traffic::tcp(&mut scene.side(0), HERE, 1, option)?.gigabits());
        let moved = scene.ringway.port("up")?.moved(Way::To).since(before);
        ensure!(moved.mean_len() <= SEGMENT_LEN_MAX, "{moved}: not cut");
    }
    stage.note(&format!("TCP with Open vSwitch: {:.2} and {:.2} Gb/s", rates[0], rates[1]));
    scene.finish()
}
