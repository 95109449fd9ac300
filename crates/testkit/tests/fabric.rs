//! A fabric of 1,000 hosts with 100 guests each, in virtual time: routes and table entries, what is
//! sent while all guests are silent, and how long it takes until all hosts know of a change. What
//! ringway does itself (its table, its announcements) is the real thing; of the others the work is
//! counted, and its price assumed.
//!
//! `RINGWAY_ACCEPT=1` rewrites the table.
#![allow(clippy::cast_possible_truncation, reason = "small numbers that the test chooses")]

use std::collections::BTreeMap;
use std::fmt::Write;

use ringway_net::MacAddress;
use ringway_switch::{ANNOUNCE_EVERY_MS, Announcer, PORTS_MAX, PortId, Switch, VlanId};
use ringway_testkit::{Rng, golden};

const HOSTS: usize = 1000;
const GUESTS_EACH: usize = 100;
const SEEDS: u64 = 20;

/// Two of them; a host forgets a route when both have withdrawn it.
const REFLECTORS: usize = 2;

/// Assumed: the time of a reflector for each copy of a route, and of a host (bgpd, zebra, kernel)
/// for each route of its own networks.
const COPY_US: u64 = 1;
const IMPORT_US: u64 = 50;
const WAY_US: u64 = 500;

/// As in `docs/many-hosts.md`: `timers bgp 3 9`.
const KEEPALIVE_US: u64 = 3_000_000;
const HOLD_US: u64 = 9_000_000;

/// A MAC address, and the same with its IP address.
const ROUTES_OF_GUEST: usize = 2;

/// The places of guests: for each host, how many guests in which network.
struct Fabric {
    hosts: Vec<BTreeMap<u32, usize>>,
    /// Of each network: guests, hosts.
    networks: BTreeMap<u32, (usize, usize)>,
}

impl Fabric {
    fn new(networks: u32, rng: &mut Rng) -> Self {
        let mut fabric = Self { hosts: Vec::new(), networks: BTreeMap::new() };
        for _ in 0..HOSTS {
            let mut host = BTreeMap::new();
            for _ in 0..GUESTS_EACH {
                *host.entry(rng.below(networks.into()) as u32).or_default() += 1;
            }
            for (network, guests) in &host {
                let all = fabric.networks.entry(*network).or_default();
                (all.0, all.1) = (all.0 + guests, all.1 + 1);
            }
            fabric.hosts.push(host);
        }
        fabric
    }

    /// All routes: guests, and each host in each of its networks.
    fn routes(&self) -> usize {
        HOSTS * GUESTS_EACH * ROUTES_OF_GUEST + self.networks.values().map(|it| it.1).sum::<usize>()
    }

    fn routes_of(&self, host: usize) -> usize {
        GUESTS_EACH * ROUTES_OF_GUEST + self.hosts[host].len()
    }

    /// Stations of other hosts in the networks of this one.
    fn stations_for(&self, host: usize) -> usize {
        self.hosts[host].iter().map(|(network, own)| self.networks[network].0 - own).sum()
    }

    /// Routes that a host takes over into its tables.
    fn imported_by(&self, host: usize) -> usize {
        let others = self.hosts[host].keys().map(|network| self.networks[network].1 - 1);
        self.stations_for(host) * ROUTES_OF_GUEST + others.sum::<usize>()
    }

    /// Routes of one host that another one takes over.
    fn common(&self, from: usize, to: usize) -> usize {
        let common = self.hosts[from].iter().filter(|it| self.hosts[to].contains_key(it.0));
        common.map(|(_, guests)| guests * ROUTES_OF_GUEST + 1).sum()
    }

    /// When the last host has followed a change of all routes of `host`, which reflectors hear of
    /// at these times. A reflector serves one host after the other, from a random one on.
    fn follow(&self, host: usize, heard_us: [u64; REFLECTORS], rng: &mut Rng) -> u64 {
        let copies = self.routes_of(host) as u64;
        let starts = heard_us.map(|_| rng.below(HOSTS as u64) as usize);
        let arrival = |to: usize| {
            let of = |at: usize| {
                let turn = ((to + HOSTS - starts[at]) % HOSTS) as u64 + 1;
                heard_us[at] + turn * copies * COPY_US + WAY_US
            };
            (0..REFLECTORS).map(of).max().unwrap_or(0)
        };
        let others = (0..HOSTS).filter(|to| *to != host);
        let done = others.map(|to| arrival(to) + self.common(host, to) as u64 * IMPORT_US);
        done.max().unwrap_or(0)
    }

    /// A host ends without a word: each reflector notices when nothing came for the hold time.
    fn after_death(&self, rng: &mut Rng) -> u64 {
        let host = rng.below(HOSTS as u64) as usize;
        let noticed = [0; REFLECTORS].map(|_: u64| HOLD_US - rng.below(KEEPALIVE_US));
        self.follow(host, noticed, rng)
    }

    /// All guests of a host have arrived at once.
    fn after_arrival(&self, rng: &mut Rng) -> u64 {
        let host = rng.below(HOSTS as u64) as usize;
        let told = GUESTS_EACH as u64 * ROUTES_OF_GUEST as u64 * IMPORT_US + WAY_US;
        self.follow(host, [told; REFLECTORS], rng)
    }

    /// All hosts come at once, with all routes: a reflector sends everything to each.
    fn after_start(&self) -> u64 {
        let sent = self.routes() as u64 * HOSTS as u64 * COPY_US + WAY_US;
        let imported = (0..HOSTS).map(|host| self.imported_by(host)).max().unwrap_or(0);
        sent.max(imported as u64 * IMPORT_US)
    }

    /// Announcements that a host gets each second while all guests are silent, and that all hosts
    /// send (one copy to each other host of the network).
    fn announcements(&self, rng: &mut Rng) -> (f64, f64) {
        const FROM_MS: u64 = 2 * ANNOUNCE_EVERY_MS;
        const TO_MS: u64 = 4 * ANNOUNCE_EVERY_MS;
        let (mut copies, mut of_network) = (0, BTreeMap::<u32, usize>::new());
        for (network, guests) in self.hosts.iter().flatten() {
            for _ in 0..*guests {
                let mut announcer = Announcer::default();
                announcer.comes_up(rng.below(ANNOUNCE_EVERY_MS), 0);
                while let Some(due_ms) = announcer.due_ms().filter(|due_ms| *due_ms < TO_MS) {
                    let is_sent = announcer.look(due_ms, 0);
                    if is_sent && due_ms >= FROM_MS {
                        copies += self.networks[network].1 - 1;
                        *of_network.entry(*network).or_default() += 1;
                    }
                }
            }
        }
        let seconds = (TO_MS - FROM_MS) as f64 / 1000.0;
        let at = |host: &BTreeMap<u32, usize>| {
            host.keys().map(|network| of_network.get(network).copied().unwrap_or(0)).sum::<usize>()
        };
        let most = self.hosts.iter().map(at).max().unwrap_or(0);
        (most as f64 / seconds, copies as f64 / seconds)
    }

    /// Ports of a host's ringway: its guests, and a tap for each network.
    fn ports(&self) -> usize {
        GUESTS_EACH + self.hosts.iter().map(BTreeMap::len).max().unwrap_or(0)
    }

    /// Of a host whose guests talk to all others: stations that its ringway knows behind its taps.
    fn known_behind_taps(&self, host: usize) -> usize {
        let mut switch = Switch::new(1);
        for port in 0..GUESTS_EACH + self.hosts[host].len() {
            switch.add_port(PortId(port as u16)).expect("there are as many ports");
        }
        let mut number = 0;
        for (tap, (network, own)) in (GUESTS_EACH as u16..).zip(&self.hosts[host]) {
            for _ in 0..self.networks[network].0 - own {
                number += 1;
                let (vlan, address) = (VlanId::new(tap), MacAddress::local(number));
                switch.shared().remember(PortId(tap), vlan, address, 0);
            }
        }
        switch.shared().addresses(0, usize::MAX, 0, |_| true).addresses.len()
    }
}

fn seconds(us: u64) -> String {
    format!("{:.2} s", us as f64 / 1e6)
}

/// The median and the largest of all seeds.
fn spread(mut run: impl FnMut(&mut Rng) -> u64) -> String {
    let mut all: Vec<u64> = (0..SEEDS).map(|seed| run(&mut Rng::new(seed))).collect();
    all.sort_unstable();
    format!("{}, {}", seconds(all[all.len() / 2]), seconds(all[all.len() - 1]))
}

#[test]
fn a_thousand_hosts_are_counted_and_the_first_limit_is_named() {
    let layouts = [1000, 100, 10, 1];
    let fabrics = layouts.map(|networks| Fabric::new(networks, &mut Rng::new(5)));
    let host = 0;
    type Row<'a> = (&'a str, Box<dyn Fn(&Fabric) -> String>);
    let rows: [Row<'_>; 11] = [
        ("routes of all", Box::new(|it| it.routes().to_string())),
        ("routes that a host takes over", Box::new(move |it| it.imported_by(host).to_string())),
        ("entries of its bridges", Box::new(move |it| it.stations_for(host).to_string())),
        ("ports of its ringway, of 256", Box::new(|it| it.ports().to_string())),
        (
            "stations that it knows behind taps",
            Box::new(move |it| it.known_behind_taps(host).to_string()),
        ),
        (
            "announcements that a host gets",
            Box::new(|it| format!("{:.0}/s", it.announcements(&mut Rng::new(5)).0)),
        ),
        (
            "announcements that all send",
            Box::new(|it| format!("{:.0}/s", it.announcements(&mut Rng::new(5)).1)),
        ),
        ("a host dies: median, longest", Box::new(|it| spread(|rng| it.after_death(rng)))),
        ("100 guests arrive: median, longest", Box::new(|it| spread(|rng| it.after_arrival(rng)))),
        ("all start: reflectors", Box::new(|it| seconds(it.after_start()))),
        ("all start: import", Box::new(move |it| seconds(it.imported_by(host) as u64 * IMPORT_US))),
    ];
    let mut text = format!("{:36}", "networks");
    layouts.iter().for_each(|networks| write!(text, "{networks:>17}").expect("text"));
    text.push('\n');
    for (name, value) in rows {
        write!(text, "{name:36}").expect("text");
        fabrics.iter().for_each(|fabric| write!(text, "{:>17}", value(fabric)).expect("text"));
        text.push('\n');
    }
    golden::compare("many-hosts.md", "fabric", &text);
    assert!(fabrics.iter().all(|fabric| fabric.ports() <= PORTS_MAX));
    // The first limit: a tap's share of the table, and not that of ports or of routes.
    let [first, .., last] = &fabrics;
    assert!(last.known_behind_taps(host) < last.stations_for(host) / 50);
    assert!(first.known_behind_taps(host) < first.stations_for(host) / 2);
}
