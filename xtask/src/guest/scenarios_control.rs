//! Changes that a Linux guest makes through the control queue, and what becomes of the packets
//! then.
//!
//! Two User Mode Linux guests; QEMU answers the control queue itself. The first sends, the second
//! changes its mind, and ringway's counters say whether it got the packets.

use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_extent::Extent;
use ringway_guests::{Direction, Process, Stage, shell, silence, traffic, uml};

use super::scene::{ADDRESSES, GUEST, HERE, MTU, Scene};

/// An address that no guest has; see [`STRANGER`].
const UNKNOWN: &str = "10.99.0.77";
/// Its MAC address: the sender believes in it.
const STRANGER: &str = "52:54:00:77:77:77";
/// A group and its MAC address.
const GROUP: [&str; 2] = ["239.7.7.7", "01:00:5e:07:07:07"];
const PINGS: u64 = 5;

/// How often a guest's link goes down and comes up again, and for how long it is down. In one of
/// four rounds a ping would come while the guest knows that its link is up and does not send yet.
const LINKS: Extent = Extent::new("RINGWAY_LINKS", 6, 48);
const LINK_DOWN: Duration = Duration::from_millis(300);
/// With what a busy machine takes; a question that is lost is asked again after a second.
const SILENT_MAX_MS: f64 = 1000.0;
const PING_LIMIT: Duration = Duration::from_secs(20);

struct Pair<'a>(Scene<'a>);

pub fn control(stage: &Stage) -> anyhow::Result<()> {
    let mut pair = Pair(Scene::two_guests(stage, ["", ""], &[], &[])?);
    pair.on_sender(&format!("ip neigh add {UNKNOWN} lladdr {STRANGER} dev eth0"))?;
    // Long before it is needed, so that it listens by then.
    pair.on_receiver("iperf3 -s -D")?;
    pair.on_sender("ip route add 239.0.0.0/8 dev eth0")?;
    pair.modes_and_tables()?;
    pair.own_address()?;
    pair.vlans()?;
    pair.announcement()?;
    pair.offloads()?;
    pair.0.finish()
}

/// A guest that is spoken to all the while answers as soon as its link has come up: it is handed
/// nothing before it can ask for the address to which it answers.
pub fn link(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = Scene::with_tap(stage, "", HERE, MTU)?;
    scene.boot_uml(&[GUEST])?;
    let words = ["ping", "-n", "-D", "-O", "-i", "0.01", "-c", "120", "-W", "0.2", GUEST];
    for round in 0..LINKS.announced() {
        let mut ping = Process::start(stage, &format!("ping{round}"), shell::command(&words))?;
        ping.wait_until("answered", PING_LIMIT, |it| it.printed().contains("time="))?;
        scene.ringway.set("vm0", "link=down")?;
        thread::sleep(LINK_DOWN);
        scene.ringway.set("vm0", "link=up")?;
        let is_over = |it: &mut Process| it.printed().contains(" packets transmitted");
        ping.wait_until("at its end", PING_LIMIT, is_over)?;
        let silent_ms = silence::silence_ms(&ping.printed()).context("it is never answered")?;
        ensure!(silent_ms < SILENT_MAX_MS, "silent for {silent_ms:.0} ms");
    }
    scene.finish()
}

/// Commands for so many other stations that their table is longer than a page.
fn many_stations(verb: &str) -> String {
    let line = "52:54:00:01:$((at / 100)):$((at % 100)) dev eth0 self permanent";
    format!("for at in $(seq 800); do echo fdb {verb} {line}; done | bridge -batch -")
}

impl Pair<'_> {
    fn modes_and_tables(&mut self) -> anyhow::Result<()> {
        let fdb = |verb: &str| format!("bridge fdb {verb} {STRANGER} dev eth0 self permanent");
        let group = |verb: &str| format!("ip maddr {verb} {} dev eth0", GROUP[1]);
        let set = |what: &str| format!("ip link set eth0 {what}");
        let questions = [
            (UNKNOWN, set("promisc on"), set("promisc off")),
            (UNKNOWN, fdb("add"), fdb("del")),
            (GROUP[0], set("allmulticast on"), set("allmulticast off")),
            (GROUP[0], group("add"), group("del")),
            // More than a filter keeps: all stations.
            (UNKNOWN, many_stations("add"), many_stations("del")),
        ];
        for (to, on, off) in questions {
            self.expect(to, false)?;
            self.on_receiver(&on)?;
            self.expect(to, true)?;
            self.on_receiver(&off)?;
            self.expect(to, false)?;
        }
        let refused = self.0.port(1)?.refused_commands();
        ensure!(refused == 0, "{refused} commands were refused");
        Ok(())
    }

    fn own_address(&mut self) -> anyhow::Result<()> {
        let old = self.on_receiver("cat /sys/class/net/eth0/address")?;
        self.on_receiver(&format!("ip link set eth0 address {STRANGER}"))?;
        self.expect(UNKNOWN, true)?;
        self.on_receiver(&format!("ip link set eth0 address {}", old.trim()))?;
        self.expect(UNKNOWN, false)
    }

    fn vlans(&mut self) -> anyhow::Result<()> {
        let modules = uml::files(self.0.stage)?.modules;
        let load = ["llc/llc", "802/stp", "802/garp", "802/mrp", "8021q/8021q"]
            .map(|module| format!("insmod {}/net/{module}.ko", modules.display()))
            .join(" && ");
        self.on_sender(&load)?;
        self.on_receiver(&load)?;
        let add = "ip link add link eth0 name eth0.5 type vlan id 5 && ip link set eth0.5 up";
        let mac = self.on_receiver("cat /sys/class/net/eth0/address")?;
        self.on_sender(&format!("{add} && ip addr add 10.99.5.1/24 dev eth0.5"))?;
        let neighbour = format!("ip neigh add 10.99.5.2 lladdr {} dev eth0.5", mac.trim());
        self.on_sender(&neighbour)?;
        self.expect("10.99.5.2", false)?;
        self.on_receiver(add)?;
        self.expect("10.99.5.2", true)?;
        self.on_receiver("ip link del eth0.5")?;
        self.expect("10.99.5.2", false)
    }

    /// A guest whose link comes up again says where it is, once, without being spoken to.
    fn announcement(&mut self) -> anyhow::Result<()> {
        let carrier = "cat /sys/class/net/eth0/carrier";
        for _ in 0..2 {
            self.0.ringway.set("vm1", "link=down")?;
            ensure!(self.on_receiver(carrier)?.trim() == "0", "the guest sees its link up");
            let before = self.0.port(1)?.moved(Direction::FromGuest);
            self.0.ringway.set("vm1", "link=up")?;
            ensure!(self.on_receiver(carrier)?.trim() == "1", "the guest sees its link down");
            self.on_receiver("sleep 1")?;
            let said = self.0.port(1)?.moved(Direction::FromGuest).since(before);
            self.0.stage.step(&format!("link up: {said}"));
            ensure!(said.packets > 0, "the guest has not announced itself");
        }
        Ok(())
    }

    /// A receiver that turns its offloads off gets TCP in packets of its MTU.
    fn offloads(&mut self) -> anyhow::Result<()> {
        for (switch, is_whole) in [("on", true), ("off", false), ("on", true)] {
            self.on_receiver(&format!("ethtool -K eth0 rx-gro-hw {switch}"))?;
            let moved = self.0.moved(1, Direction::ToGuest, |scene| {
                traffic::tcp(&mut scene.side(0), ADDRESSES[1], 1, "").map(drop)
            })?;
            self.0.stage.step(&format!("offloads {switch}: {moved}"));
            ensure!(moved.packets > 100, "offloads {switch}: {moved}");
            ensure!((moved.mean_len() > 4000) == is_whole, "offloads {switch}: {moved}");
        }
        Ok(())
    }

    /// Sends a few packets and looks whether they were delivered or filtered.
    fn expect(&mut self, to: &str, is_delivered: bool) -> anyhow::Result<()> {
        let before = self.0.port(1)?;
        // Most of them are never answered.
        let ping = format!("ping -q -c {PINGS} -i 0.02 -W 0.2 -I eth0 {to}; true");
        let ping = if to.starts_with("10.99.5.") { ping.replace("eth0", "eth0.5") } else { ping };
        self.on_sender(&ping)?;
        let after = self.0.port(1)?;
        let delivered =
            after.moved(Direction::ToGuest).since(before.moved(Direction::ToGuest)).packets;
        let filtered = after.dropped(Direction::ToGuest, "filtered")
            - before.dropped(Direction::ToGuest, "filtered");
        let text = format!("to {to}: {delivered} delivered, {filtered} filtered");
        self.0.stage.step(&text);
        ensure!(delivered >= PINGS || filtered >= PINGS, "{text}: what became of the rest?");
        ensure!((delivered >= PINGS) == is_delivered, "{text}: delivered should be {is_delivered}");
        Ok(())
    }

    fn on_sender(&mut self, line: &str) -> anyhow::Result<String> {
        self.0.must(0, line)
    }

    fn on_receiver(&mut self, line: &str) -> anyhow::Result<String> {
        self.0.must(1, line)
    }
}
