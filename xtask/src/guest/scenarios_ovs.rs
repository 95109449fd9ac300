//! Guests behind a tap that Open vSwitch reads with a raw socket: nothing may be left undone in
//! their packets (`offloads=off`). And OVN, which switches and filters between them.

use anyhow::ensure;
use ringway_guests::{Direction, Ovs, Stage, iperf, net, traffic};

use super::scene::{ADDRESSES, GUEST, HERE, MTU, Scene, TAP, port};

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
    scene.boot_uml(&[GUEST])?;
    scene.must(0, &format!("ping -c 5 -i 0.2 -W 5 {HERE}"))?;
    let mut rates = Vec::new();
    for option in ["", "-R"] {
        stage.step(&format!("TCP {option}"));
        let before = scene.ringway.port("up")?.moved(Direction::ToGuest);
        rates.push(traffic::tcp(&mut scene.side(0), HERE, 1, option)?.gigabits());
        let moved = scene.ringway.port("up")?.moved(Direction::ToGuest).since(before);
        ensure!(moved.mean_len() <= SEGMENT_LEN_MAX, "{moved}: not cut");
    }
    stage.note(&format!("TCP with Open vSwitch: {:.2} and {:.2} Gb/s", rates[0], rates[1]));
    scene.finish()
}

/// Each guest is a port of OVN of its own behind one tap, told apart by VLANs: OVN switches between
/// guests of the same ringway, and its rules hold between them.
pub fn children(stage: &Stage) -> anyhow::Result<()> {
    net::create_tap(TAP)?;
    net::ip(&format!("link set {TAP} up"))?;
    stage.step("OVN");
    let ovs = Ovs::start_ovn(stage, TAP)?;
    ovs.network(stage, &["ls-add", "sw0", "--", "lsp-add", "sw0", TAP])?;
    for (child, tag, at) in [("c0", "101", 0), ("c1", "102", 1)] {
        let station = format!("52:54:00:00:20:0{at} {}", ADDRESSES[at]);
        let add = ["lsp-add", "sw0", child, TAP, tag, "--", "lsp-set-addresses", child, &station];
        ovs.network(stage, &add)?;
    }
    let options =
        [0, 1].map(|at| format!(",vlan=10{},isolated=on,mac=52:54:00:00:20:0{at}", at + 1));
    let up = [format!("up=tap:{TAP},trunk=all,uplink=on,offloads=off")];
    let mut scene = Scene::two_guests(stage, [&options[0], &options[1]], &up, &[])?;
    let ping = format!("ping -c 3 -i 0.2 -W 5 {}", ADDRESSES[1]);
    scene.must(0, &ping)?;
    stage.step("TCP through OVN");
    scene.must(1, "iperf3 -s -D")?;
    let rate = traffic::tcp(&mut scene.side(0), ADDRESSES[1], 1, "")?.gigabits();
    stage.note(&format!("TCP between guests through OVN: {rate:.2} Gb/s"));
    stage.step("a rule between two guests");
    let rule = ["acl-add", "sw0", "to-lport", "1000", "outport == \"c1\" && icmp4", "drop"];
    ovs.network(stage, &rule)?;
    let quick = format!("ping -c 2 -i 0.2 -W 1 {}", ADDRESSES[1]);
    let (status, text) = scene.side(0).run(&quick)?;
    ensure!(status != 0, "a rule of OVN drops that: {text}");
    traffic::tcp(&mut scene.side(0), ADDRESSES[1], 1, "")?;
    ovs.network(stage, &["acl-del", "sw0"])?;
    scene.must(0, &ping)?;
    stage.step("with offloads");
    scene.ringway.set("up", "offloads=on")?;
    let line = format!("iperf3 -c {} -t 1 --connect-timeout 1500", ADDRESSES[1]);
    let (status, _) = scene.side(0).run(&line)?;
    ensure!(status != 0, "TCP works with offloads, too: docs/many-hosts.md says otherwise");
    scene.finish()
}
