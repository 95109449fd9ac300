//! Two hosts and a route reflector: guests of two ringways in two virtual networks, with bridges,
//! VXLAN and FRR's EVPN between them, set up by what `ringway attach-host` prints.
//!
//! This namespace is the router between the hosts, and the reflector.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ringway_guests::console::Console;
use ringway_guests::frr::Frr;
use ringway_guests::hosts::Network;
use ringway_guests::ringway::Ringway;
use ringway_guests::stage::Stage;
use ringway_guests::traffic::{self, Side};
use ringway_guests::{net, shell, uml};
use serde_json::Value;

use super::scene::socket;

/// VLANs of ringway, and the networks that they are on the way.
const NETWORKS: [&str; 2] = ["--network=10=10010", "--network=20=10020"];
const REFLECTOR: &str = "10.255.0.3";
const HOSTS: [&str; 2] = ["10.255.0.1", "10.255.0.2"];

/// What VXLAN leaves of 1500: ringway finds it out.
const MTU: &str = "1450";

/// The guests: host, name, VLAN, last byte of the MAC address, address.
type Guest = (usize, &'static str, u16, u8, &'static str);
const GUESTS: [Guest; 4] = [
    (0, "a", 10, 1, "172.16.0.1"),
    (0, "b", 20, 2, "172.16.0.1"),
    (1, "c", 10, 3, "172.16.0.2"),
    (1, "d", 20, 4, "172.16.0.4"),
];

/// The guest that is locked to no IP address: its own is seen.
const OPEN: &str = "d";

/// The place to which `c` moves: the same addresses on the first host.
const MOVED: Guest = (0, "e", 10, 3, "172.16.0.2");

/// How many pings look for gaps, one every 20 ms or as often as the guest can.
const PINGS: u32 = 150;

/// Longer than anything but a mechanism that does not work: then it is 10 s and more.
const SILENCE_MAX_MS: f64 = 2500.0;

/// How often a guest moves to and fro, and a variable for another number. It is even.
const MOVES: u32 = 20;
const MOVES_VARIABLE: &str = "RINGWAY_EVPN_MOVES";

/// Between the arrival of a guest and its departure elsewhere, and until it moves again.
const OVERLAPS_MS: [u64; 7] = [0, 10, 40, 90, 0, 160, 250];

/// Longest wait for what takes a second.
const LIMIT: Duration = Duration::from_secs(20);

const REFLECTOR_CONFIGURATION: &str = "\
router bgp 65000
 bgp router-id 10.255.0.3
 no bgp default ipv4-unicast
 neighbor hosts peer-group
 neighbor hosts remote-as 65000
 neighbor hosts update-source 10.255.0.3
 neighbor hosts advertisement-interval 0
 neighbor 10.255.0.1 peer-group hosts
 neighbor 10.255.0.2 peer-group hosts
 address-family l2vpn evpn
  neighbor hosts activate
  neighbor hosts route-reflector-client
";

struct Host {
    network: Network,
    frr: Frr,
    ringway: Ringway,
}

struct Fabric {
    _reflector: Frr,
    hosts: Vec<Host>,
    guests: Vec<Console>,
}

fn mac(last: u8) -> String {
    format!("52:54:00:00:10:{last:02x}")
}

/// Addresses are known everywhere, also those of guests that have sent nothing; packets arrive in
/// their own network, and in no other.
pub fn networks(stage: &Stage) -> anyhow::Result<()> {
    let mut fabric = Fabric::start(stage, &GUESTS)?;
    stage.step("routes");
    // It asks for an address that there is not, and so says which one is its own.
    Side::Guest(&mut fabric.guests[3]).run("ping -c 1 -W 1 172.16.0.99")?;
    for (own, other) in [(0, 1), (1, 0)] {
        let flood = format!("[3]:[0]:[32]:[{}]", HOSTS[other]);
        fabric.wait_route(own, &flood, true).context("type 3")?;
        for (_, name, _, last, ip) in GUESTS.iter().filter(|guest| guest.0 == other) {
            let station = format!("[2]:[0]:[48]:[{}]", mac(*last));
            fabric.wait_route(own, &station, true).with_context(|| format!("type 2: {name}"))?;
            let resident = format!("{station}:[32]:[{ip}]");
            fabric.wait_route(own, &resident, true).with_context(|| format!("its IP: {name}"))?;
        }
        // Questions for addresses go nowhere: the bridges have to answer them.
        fabric.hosts[own].network.run("bridge link set dev vxlan10 bcast_flood off")?;
        fabric.hosts[own].network.run("bridge link set dev vxlan20 bcast_flood off")?;
    }
    let mtu = fabric.must(0, "cat /sys/class/net/eth0/mtu")?;
    ensure!(mtu.trim() == MTU, "the guest's MTU is {mtu}");
    stage.step("pings");
    fabric.must(0, "ping -c 20 -i 0.05 -W 5 172.16.0.2")?;
    fabric.must(3, "ping -c 20 -i 0.05 -W 5 172.16.0.1")?;
    stage.step("two networks");
    for (guest, elsewhere) in [(0, "172.16.0.4"), (1, "172.16.0.2")] {
        let (status, text) = Side::Guest(&mut fabric.guests[guest])
            .run(&format!("ping -c 3 -i 0.2 -W 1 {elsewhere}"))?;
        ensure!(status != 0, "{elsewhere} is in the other network: {text}");
    }
    stage.step("TCP");
    fabric.must(2, "iperf3 -s -D")?;
    let mut side = Side::Guest(&mut fabric.guests[0]);
    let [out, back] = ["", "-R"].map(|way| traffic::tcp(&mut side, "172.16.0.2", 2, way));
    let [out, back] = [out?.gigabits(), back?.gigabits()];
    stage.note(&format!("TCP between hosts: {out:.2} and {back:.2} Gb/s"));
    fabric.finish()
}

/// Guests move and leave, and a host is lost: the others hear of it, and go on.
pub fn moves(stage: &Stage) -> anyhow::Result<()> {
    let mut fabric = Fabric::start(stage, &[&GUESTS[..], &[MOVED]].concat())?;
    fabric.must(0, "ping -c 3 -i 0.2 -W 5 172.16.0.2")?;
    let moves = [("from the other host", (1, "c"), (0, "e")), ("to it", (0, "e"), (1, "c"))];
    for (what, from, to) in moves {
        stage.step(&format!("a silent guest moves {what}"));
        let gap = fabric.gap_of(|fabric| {
            fabric.hosts[from.0].ringway.set(from.1, "link=down")?;
            fabric.hosts[to.0].ringway.set(to.1, "link=up")
        })?;
        stage.note(&format!("a silent guest moved {what}: at most {gap:.0} ms of silence"));
        ensure!(gap < SILENCE_MAX_MS, "{gap} ms of silence");
    }
    stage.step("moves that overlap");
    fabric.move_to_and_fro(stage)?;
    stage.step("a guest leaves");
    let left = mac(3);
    ensure!(fabric.hosts[0].knows(&left)?, "it was there");
    let resident = format!("[2]:[0]:[48]:[{left}]:[32]:[{}]", MOVED.4);
    fabric.wait_route(0, &resident, true)?;
    let begun = Instant::now();
    fabric.hosts[1].ringway.remove("c")?;
    fabric.wait_route(0, &resident, false)?;
    wait("its address is gone", || Ok(!fabric.hosts[0].knows(&left)?))
        .with_context(|| fabric.tables(&left))?;
    let ms = begun.elapsed().as_millis();
    stage.note(&format!("an address was gone on the other host {ms} ms after its port"));
    stage.step("a host is lost");
    fabric.hosts[0].ringway.set("e", "link=up")?;
    fabric.must(0, "ping -c 3 -i 0.2 -W 5 172.16.0.2")?;
    let lost = mac(4);
    wait("the other guest is known", || fabric.hosts[0].knows(&lost))?;
    let gap = fabric.gap_of(|fabric| {
        fabric.hosts[1].ringway.kill();
        Ok(())
    })?;
    ensure!(gap < SILENCE_MAX_MS, "guests of the host that is left heard nothing for {gap} ms");
    wait("its guests are forgotten", || Ok(!fabric.hosts[0].knows(&lost)?))?;
    fabric.hosts.truncate(1);
    fabric.finish()
}

impl Host {
    /// With what `ringway attach-host` says about it, and ports for its guests.
    fn start(stage: &Stage, at: usize, guests: &[Guest]) -> anyhow::Result<Self> {
        let name = format!("h{}", at + 1);
        let network = Network::create(stage, &name)?;
        connect(&network, at)?;
        let told = told(stage, at)?;
        let lines = |key: &str| {
            let lines = told[key].as_array().into_iter().flatten().filter_map(Value::as_str);
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        network.run(&format!("set -e\n{}", lines("commands").join("\n")))?;
        let bgpd = told["bgpd"].as_str().context("no configuration of bgpd")?;
        let frr = Frr::start(stage, Some(&network), &name, bgpd)?;
        let mut ports = lines("ports");
        for (_, port, vlan, last, ip) in guests.iter().filter(|guest| guest.0 == at) {
            // Silent, also when its link comes up.
            let options = "guest_announce=off,csum=on";
            let link = if *port == MOVED.1 { "down" } else { "up" };
            let ips = if *port == OPEN { "default" } else { *ip };
            let (mac, place) = (mac(*last), socket(stage, port).display().to_string());
            ports.push(format!(
                "{port}=vm:{place},vlan={vlan},locked_mac={mac},locked_ips={ips},mac={mac},\
                 mtu=auto,link={link},{options}"
            ));
        }
        let ringway = Ringway::start_named(&network.stage(stage)?, &name, &ports, &[])?;
        Ok(Self { network, frr, ringway })
    }

    /// Whether a bridge of the host knows a station. What a VXLAN device has beside it (`self`) is
    /// looked at for stations that the bridge does not know, and may be left over.
    fn knows(&self, mac: &str) -> anyhow::Result<bool> {
        Ok(!self.ports_of(mac)?.is_empty())
    }

    /// The ports of bridges behind which they know a station.
    fn ports_of(&self, mac: &str) -> anyhow::Result<Vec<String>> {
        let told = self.network.run("bridge fdb show")?;
        let of_bridge = |line: &&str| line.starts_with(mac) && line.contains(" master ");
        let port = |line: &str| Some(line.split_once(" dev ")?.1.split(' ').next()?.to_owned());
        Ok(told.lines().filter(of_bridge).filter_map(port).collect())
    }

    /// Where FRR has a station of the first network: `local`, or `remote`, and which host that is.
    fn place_of(&self, mac: &str) -> anyhow::Result<[Value; 2]> {
        let mut told = self.frr.ask("zebra", &format!("show evpn mac vni 10010 mac {mac} json"))?;
        Ok(["type", "remoteVtep"].map(|key| told[mac][key].take()))
    }
}

/// What `ringway attach-host` prints for a host.
fn told(stage: &Stage, at: usize) -> anyhow::Result<Value> {
    let mut command = shell::command(&[&stage.programs.ringway]);
    command.args(["attach-host", "frr", "--address", HOSTS[at], "--peer", REFLECTOR]);
    command.args(["--underlay", "eth0", "--json"]).args(NETWORKS);
    let text = shell::output(&mut command)?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// A link from this namespace to a host, with routes.
fn connect(network: &Network, at: usize) -> anyhow::Result<()> {
    let (id, host, link) = (network.id(), HOSTS[at], at + 1);
    net::ip(&format!("link add u{link} type veth peer name eth0 netns {id}"))?;
    net::ip(&format!("addr add 10.0.{link}.254/24 dev u{link}"))?;
    net::ip(&format!("link set u{link} up"))?;
    network.run(&format!(
        "set -e\nip addr add {host}/32 dev lo\nip addr add 10.0.{link}.1/24 dev eth0\n\
         ip link set eth0 up\nip route add 10.255.0.0/24 via 10.0.{link}.254"
    ))?;
    net::ip(&format!("route add {host}/32 via 10.0.{link}.1"))
}

impl Fabric {
    fn start(stage: &Stage, guests: &[Guest]) -> anyhow::Result<Self> {
        stage.step("two hosts and a reflector");
        Frr::prepare(stage)?;
        net::ip(&format!("addr add {REFLECTOR}/32 dev lo"))?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let reflector = Frr::start(stage, None, "reflector", REFLECTOR_CONFIGURATION)?;
        let hosts = vec![Host::start(stage, 0, guests)?, Host::start(stage, 1, guests)?];
        stage.step("guests");
        let start = |(_, name, ..): &Guest| uml::start(stage, name, &socket(stage, name));
        let mut consoles = guests.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        for (console, (.., address)) in consoles.iter_mut().zip(guests) {
            uml::wait_booted(console, address)?;
        }
        Ok(Self { _reflector: reflector, hosts, guests: consoles })
    }

    fn must(&mut self, guest: usize, line: &str) -> anyhow::Result<String> {
        Side::Guest(&mut self.guests[guest]).must(line)
    }

    fn wait_route(&self, host: usize, name: &str, is_there: bool) -> anyhow::Result<()> {
        wait(name, || Ok(self.hosts[host].frr.has_route(name)? == is_there))
    }

    /// For how long at most the first guest hears nothing from the one that moves while something
    /// happens, in milliseconds.
    fn gap_of(
        &mut self,
        happens: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        let ping = format!("ping -n -i 0.02 -c {PINGS} -W 1 172.16.0.2");
        self.must(0, &format!("({ping} > pings 2>&1; echo over >> pings) &"))?;
        sleep(Duration::from_millis(500));
        happens(self)?;
        let mut text = String::new();
        wait("all pings are over", || {
            text = self.must(0, "cat pings")?;
            Ok(text.contains("over"))
        })?;
        let total_ms = text.split_once(", time ").and_then(|(_, rest)| rest.split_once("ms"));
        let total_ms: f64 = total_ms.with_context(|| text.clone())?.0.parse()?;
        Ok(f64::from(longest_gap(&text) + 1) * total_ms / f64::from(PINGS))
    }

    /// `c` moves so often, and arrives each time before it has left; then all know where it is.
    fn move_to_and_fro(&self, stage: &Stage) -> anyhow::Result<()> {
        let count = std::env::var(MOVES_VARIABLE).map_or(Ok(MOVES), |text| text.parse())?;
        let mut pauses = OVERLAPS_MS.iter().cycle().map(|ms| Duration::from_millis(*ms));
        let (mut from, mut to) = ((1, "c"), (0, "e"));
        for _ in 0..count / 2 * 2 {
            self.hosts[to.0].ringway.set(to.1, "link=up")?;
            sleep(pauses.next().unwrap_or_default());
            self.hosts[from.0].ringway.set(from.1, "link=down")?;
            sleep(pauses.next().unwrap_or_default());
            (from, to) = (to, from);
        }
        let (mac, begun) = (mac(3), Instant::now());
        let [other, own] = [&self.hosts[0], &self.hosts[1]];
        let is_right = || {
            let is_far = other.ports_of(&mac)? == ["vxlan10"]
                && other.place_of(&mac)? == ["remote".into(), Value::from(HOSTS[1])];
            let is_near = own.ports_of(&mac)? == ["up10"];
            Ok(is_far && is_near && own.place_of(&mac)?[0] == "local")
        };
        wait("all know where it is", is_right).with_context(|| self.tables(&mac))?;
        let ms = begun.elapsed().as_millis();
        stage.note(&format!("{count} moves to and fro: all knew the place after {ms} ms"));
        Ok(())
    }

    /// Where each host has a station, as the bridge and both daemons say.
    fn tables(&self, mac: &str) -> String {
        let zebra = format!("show evpn mac vni 10010 mac {mac} json");
        let bgpd = format!("show bgp l2vpn evpn route vni 10010 mac {mac} json");
        let table = |host: &Host| {
            let fdb = host.network.run(&format!("bridge -s fdb show | grep {mac} || true"));
            let fdb = fdb.unwrap_or_default();
            let [zebra, bgpd] = [("zebra", &zebra), ("bgpd", &bgpd)]
                .map(|(daemon, line)| host.frr.ask(daemon, line).unwrap_or_default());
            format!("{fdb}\n{zebra}\n{bgpd}")
        };
        self.hosts.iter().map(table).collect::<Vec<_>>().join("\n\n")
    }

    fn finish(self) -> anyhow::Result<()> {
        drop(self.guests);
        for host in self.hosts {
            host.ringway.finish()?;
        }
        Ok(())
    }
}

/// The most pings in a row that were not answered.
fn longest_gap(text: &str) -> u32 {
    let number = |line: &str| line.split_once("icmp_seq=")?.1.split(' ').next()?.parse().ok();
    let mut answered: Vec<u32> = text.lines().filter_map(number).collect();
    answered.extend([0, PINGS + 1]);
    answered.sort_unstable();
    answered.windows(2).map(|pair| pair[1].saturating_sub(pair[0] + 1)).max().unwrap_or(PINGS)
}

fn wait(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_pings_that_were_not_answered() {
        let line = |number: u32| format!("64 bytes: icmp_seq={number} ttl=64\n");
        let all = |without: std::ops::Range<u32>| -> String {
            (1..=PINGS).filter(|number| !without.contains(number)).map(line).collect()
        };
        assert_eq!(longest_gap(&all(0..0)), 0);
        assert_eq!(longest_gap(&all(10..15)), 5);
        assert_eq!(longest_gap(&all(100..PINGS + 1)), PINGS - 99);
        assert_eq!(longest_gap(""), PINGS);
    }
}
