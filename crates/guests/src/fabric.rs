//! Two hosts and a route reflector, with bridges, VXLAN and FRR's EVPN between them, set up by what
//! `ringway attach-host` prints.
//!
//! This namespace is the router between the hosts, and the reflector.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::console::Console;
use crate::frr::Frr;
use crate::hosts::NetworkNamespace;
use crate::ringway::Ringway;
use crate::stage::Stage;
use crate::traffic::Side;
use crate::{net, shell, silence, uml};

/// VLANs of ringway, and the networks that they are on the way.
const NETWORKS: [&str; 2] = ["--network=10=10010", "--network=20=10020"];
const REFLECTOR: &str = "10.255.0.3";
/// The hosts' addresses.
pub const HOSTS: [&str; 2] = ["10.255.0.1", "10.255.0.2"];

/// A guest of a host.
#[derive(Debug, Clone, Copy)]
pub struct FabricGuest {
    /// The index of its host.
    pub host: usize,
    /// The name of its port.
    pub name: &'static str,
    /// Its VLAN.
    pub vlan: u16,
    /// The last byte of its MAC address.
    pub last: u8,
    /// Its IP address.
    pub ip: &'static str,
}

/// The guests of most scenarios.
pub const GUESTS: [FabricGuest; 4] = [
    FabricGuest { host: 0, name: "a", vlan: 10, last: 1, ip: "172.16.0.1" },
    FabricGuest { host: 0, name: "b", vlan: 20, last: 2, ip: "172.16.0.1" },
    FabricGuest { host: 1, name: "c", vlan: 10, last: 3, ip: "172.16.0.2" },
    FabricGuest { host: 1, name: "d", vlan: 20, last: 4, ip: "172.16.0.4" },
];

/// The guest that is locked to no IP address: its own is seen.
const OPEN: &str = "d";

/// The place to which `c` moves: the same addresses on the first host.
pub const MOVED: FabricGuest = FabricGuest { host: 0, name: "e", ..GUESTS[2] };

/// Longest time until a guest that has arrived is reached again, in milliseconds.
pub const REACHED_MAX_MS: f64 = 300.0;

/// Of a machine that stalls for longer than this nothing can be said.
const STALL_MAX_MS: f64 = 2500.0;

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

/// The part of the output of `ringway attach-host frr --json` that is used here.
#[derive(Debug, Deserialize)]
struct HostSetup {
    commands: Vec<String>,
    bgpd: String,
    ports: Vec<String>,
}

/// One host, with its routing daemons and its ringway.
#[derive(Debug)]
pub struct Host {
    /// Its namespace.
    pub network: NetworkNamespace,
    /// Its daemons.
    pub frr: Frr,
    /// Its ringway.
    pub ringway: Ringway,
}

/// All of it.
#[derive(Debug)]
pub struct Fabric {
    _reflector: Frr,
    /// Both hosts.
    pub hosts: Vec<Host>,
    /// In the order in which they were asked for.
    pub guests: Vec<Console>,
}

/// The MAC address of a guest, by its last byte.
pub fn mac(last: u8) -> String {
    format!("52:54:00:00:10:{last:02x}")
}

impl Host {
    /// With what `ringway attach-host` says about it, and ports for its guests.
    fn start(stage: &Stage, at: usize, guests: &[FabricGuest]) -> anyhow::Result<Self> {
        let host = format!("h{}", at + 1);
        let network = NetworkNamespace::create(stage, &host)?;
        connect(&network, at)?;
        let HostSetup { commands, bgpd, mut ports } = setup(stage, at)?;
        network.run(&format!("set -e\n{}", commands.join("\n")))?;
        let frr = Frr::start(stage, Some(&network), &host, &bgpd)?;
        for guest in guests.iter().filter(|guest| guest.host == at) {
            let name = guest.name;
            let (place, options) = (stage.socket(name), options(guest));
            let link = if name == MOVED.name { "down" } else { "up" };
            ports.push(format!("{name}=vm:{},{options},link={link}", place.display()));
        }
        let ringway = Ringway::start_named(&network.stage(stage)?, &host, &ports, &[])?;
        Ok(Self { network, frr, ringway })
    }

    /// Whether a bridge of the host knows a station. What a VXLAN device has beside it (`self`) is
    /// looked at for stations that the bridge does not know, and may be left over.
    ///
    /// # Errors
    /// The host does not say.
    pub fn knows(&self, mac: &str) -> anyhow::Result<bool> {
        Ok(!self.ports_of(mac)?.is_empty())
    }

    /// The ports of bridges behind which they know a station.
    ///
    /// # Errors
    /// The host does not say.
    pub fn ports_of(&self, mac: &str) -> anyhow::Result<Vec<String>> {
        let told = self.network.run("bridge fdb show")?;
        let of_bridge = |line: &&str| line.starts_with(mac) && line.contains(" master ");
        let port = |line: &str| Some(line.split_once(" dev ")?.1.split(' ').next()?.to_owned());
        Ok(told.lines().filter(of_bridge).filter_map(port).collect())
    }

    /// Where FRR has a station of the first network: `local`, or `remote`, and which host that is.
    ///
    /// # Errors
    /// It does not say.
    pub fn place_of(&self, mac: &str) -> anyhow::Result<[Value; 2]> {
        let mut told = self.frr.ask("zebra", &format!("show evpn mac vni 10010 mac {mac} json"))?;
        Ok(["type", "remoteVtep"].map(|key| told[mac][key].take()))
    }
}

/// Of a guest's port. The guest is silent, also when its link comes up.
pub fn options(guest: &FabricGuest) -> String {
    let FabricGuest { name, vlan, last, ip, .. } = *guest;
    let (mac, ips) = (mac(last), if name == OPEN { "default" } else { ip });
    format!(
        "vlan={vlan},locked_mac={mac},locked_ips={ips},mac={mac},mtu=auto,guest_announce=off,\
         csum=on"
    )
}

/// The output of `ringway attach-host` for a host.
fn setup(stage: &Stage, at: usize) -> anyhow::Result<HostSetup> {
    let mut command = shell::command(&[&stage.programs.ringway]);
    command.args(["attach-host", "frr", "--address", HOSTS[at], "--peer", REFLECTOR]);
    let via = format!("10.0.{}.254", at + 1);
    command.args(["--underlay", "eth0", "--via", &via, "--user", "root", "--json"]);
    command.args(NETWORKS);
    let text = shell::output(&mut command)?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// A link from this namespace to a host, with routes.
fn connect(network: &NetworkNamespace, at: usize) -> anyhow::Result<()> {
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
    /// Starts the hosts, with ports for these guests, and the guests.
    ///
    /// # Errors
    /// Something does not come up.
    pub fn start(stage: &Stage, guests: &[FabricGuest]) -> anyhow::Result<Self> {
        stage.step("two hosts and a reflector");
        Frr::prepare(stage)?;
        net::ip(&format!("addr add {REFLECTOR}/32 dev lo"))?;
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
        let reflector = Frr::start(stage, None, "reflector", REFLECTOR_CONFIGURATION)?;
        let hosts = vec![Host::start(stage, 0, guests)?, Host::start(stage, 1, guests)?];
        stage.step("guests");
        let start = |guest: &FabricGuest| uml::start(stage, guest.name, &stage.socket(guest.name));
        let mut consoles = guests.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        for (console, guest) in consoles.iter_mut().zip(guests) {
            uml::wait_booted(console, guest.ip)?;
        }
        Ok(Self { _reflector: reflector, hosts, guests: consoles })
    }

    /// Runs a line in a guest that must succeed; what it printed.
    ///
    /// # Errors
    /// It fails.
    pub fn must(&mut self, guest: usize, line: &str) -> anyhow::Result<String> {
        Side::Guest(&mut self.guests[guest]).must(line)
    }

    /// Waits until a host has a route whose name begins so, or has none.
    ///
    /// # Errors
    /// It takes too long.
    pub fn wait_route(&self, host: usize, name: &str, is_there: bool) -> anyhow::Result<()> {
        wait(name, || Ok(self.hosts[host].frr.has_route(name)? == is_there))
    }

    /// The action `takes_ms`, which returns its milliseconds, ends in time: within the limit, and
    /// as long as the machine stalls meanwhile, which two guests find out that have no part in it.
    ///
    /// # Errors
    /// It is too long, or fails.
    pub fn takes_less(
        &mut self,
        stage: &Stage,
        what: &str,
        max_ms: f64,
        takes_ms: impl FnOnce(&mut Self) -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        silence::start_pings(&mut self.guests[1], GUESTS[3].ip)?;
        let ms = takes_ms(self)?;
        let stall_ms = silence::longest_silence_ms(&mut self.guests[1])?;
        let text = format!("{what} {ms:.0} ms; others {stall_ms:.0} ms");
        stage.note(&text);
        ensure!(ms < max_ms + stall_ms && stall_ms < STALL_MAX_MS, "{text}; at most {max_ms} ms");
        Ok(())
    }

    /// For how long at most the first guest hears nothing from the one that moves while something
    /// happens, in milliseconds.
    ///
    /// # Errors
    /// It fails, or none of them is ever answered.
    pub fn silence_ms(
        &mut self,
        happens: impl FnOnce(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<f64> {
        silence::start_pings(&mut self.guests[0], MOVED.ip)?;
        happens(self)?;
        silence::longest_silence_ms(&mut self.guests[0])
    }

    /// Where each host has a station, as the bridge and both daemons say.
    pub fn tables(&self, mac: &str) -> String {
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

    /// All end.
    ///
    /// # Errors
    /// One of the two ringways leaves something behind.
    pub fn finish(self) -> anyhow::Result<()> {
        drop(self.guests);
        for host in self.hosts {
            host.ringway.finish()?;
        }
        Ok(())
    }
}

/// Waits for something.
///
/// # Errors
/// It takes too long, or fails.
pub fn wait(what: &str, mut is_so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_so()? {
        ensure!(Instant::now() < deadline, "{what}: not within {LIMIT:?}");
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The time of an action, in milliseconds.
///
/// # Errors
/// It fails.
pub fn ms_until(happens: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    happens().map(|()| begun.elapsed().as_secs_f64() * 1e3)
}
