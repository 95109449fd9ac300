//! The whole switch against a reference written down as simply as possible: random ports, policies,
//! packets, moves and pauses, handled by two switches over one table, as two workers would.

mod common;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use common::*;
use proptest::prelude::*;
use ringway_net::{DropReason, MacAddress};
use ringway_switch::{
    AGE_MAX_MS, FLAPS_MAX, PolicyError, PortError, PortId, PortPolicy, Shared, Switch, TagChange,
    Vlan, VlanId, VlanSet,
};

/// So few addresses that no bucket is ever full: the reference knows no refusals.
const STATIONS: u32 = 6;
const PORTS: u16 = 5;
/// An age is counted in ticks of 1024 ms.
const TICK_MS: u64 = 1024;

#[derive(Debug, Clone)]
enum Operation {
    AddPort(PortId),
    RemovePort(PortId),
    SetPolicy(PortId, PortPolicy),
    Packet {
        worker: usize,
        from: PortId,
        packet: Packet,
    },
    /// Two ports claim the same station, one after the other.
    Fight {
        ports: [PortId; 2],
        station: MacAddress,
        packets: usize,
    },
    Wait {
        ms: u64,
    },
}

/// A packet by what matters about it.
#[derive(Debug, Clone)]
struct Packet {
    to: MacAddress,
    from: MacAddress,
    tci: Option<u16>,
    content: Content,
}

#[derive(Debug, Clone)]
enum Content {
    Arp { mac: MacAddress, ip: u8 },
    Ip { ip: u8 },
    Other,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let frame = match &self.content {
            Content::Arp { mac, ip } => ethernet(self.to, self.from, ARP, &arp(*mac, address(*ip))),
            Content::Ip { ip } => {
                ethernet(self.to, self.from, IPV4, &ipv4(UDP, address(*ip), [10, 0, 0, 9], &[0; 8]))
            }
            Content::Other => plain(self.to, self.from),
        };
        self.tci.map_or(frame.clone(), |tci| tagged(&frame, 0x8100, tci))
    }
}

fn address(n: u8) -> [u8; 4] {
    [10, 0, 0, n]
}

fn port() -> impl Strategy<Value = PortId> {
    (0..PORTS).prop_map(PortId)
}

fn station() -> impl Strategy<Value = MacAddress> {
    (0..STATIONS).prop_map(mac)
}

fn any_address() -> impl Strategy<Value = MacAddress> {
    prop_oneof![
        12 => station(),
        1 => Just(BROADCAST),
        1 => Just(MacAddress([0x33, 0x33, 0, 0, 0, 1])),
        1 => (0..0x11u8).prop_map(|last| MacAddress([1, 0x80, 0xc2, 0, 0, last])),
        1 => Just(MacAddress::ZERO),
    ]
}

fn packet() -> impl Strategy<Value = Packet> {
    let content = prop_oneof![
        3 => Just(Content::Other),
        1 => (station(), 0..4u8).prop_map(|(mac, ip)| Content::Arp { mac, ip }),
        1 => (1..4u8).prop_map(|ip| Content::Ip { ip }),
    ];
    let tci = prop_oneof![
        4 => Just(None),
        3 => (0..4u16, 0..2u16).prop_map(|(vlan, priority)| Some(priority << 13 | vlan)),
        1 => Just(Some(4095)),
    ];
    (any_address(), any_address(), tci, content).prop_map(|(to, from, tci, content)| Packet {
        to,
        from,
        tci,
        content,
    })
}

fn any_vlan() -> impl Strategy<Value = Vlan> {
    let number = || (1..4u16).prop_map(vlan);
    let set = prop::collection::vec(number(), 0..3).prop_map(VlanSet::from_iter);
    prop_oneof![
        3 => Just(Vlan::None),
        2 => number().prop_map(Vlan::Access),
        2 => (set, prop::option::of(number()))
            .prop_map(|(tagged, native)| Vlan::Trunk { tagged, native }),
    ]
}

fn policy() -> impl Strategy<Value = PortPolicy> {
    let ip = (1..4u8).prop_map(|n| IpAddr::V4(Ipv4Addr::from(address(n))));
    let rare = || prop::bool::weighted(0.2);
    (
        any_vlan(),
        (rare(), rare()),
        prop::option::weighted(0.2, station()),
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(ip, 1..3)],
        prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(station(), 1..3)],
    )
        .prop_map(|(vlan, (isolated, is_uplink), locked_mac, locked_ips, static_macs)| {
            PortPolicy {
                vlan,
                isolated,
                is_uplink,
                locked_mac,
                locked_ips,
                static_macs,
                ..PortPolicy::default()
            }
        })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        3 => port().prop_map(Operation::AddPort),
        1 => port().prop_map(Operation::RemovePort),
        3 => (port(), policy()).prop_map(|(port, policy)| Operation::SetPolicy(port, policy)),
        1 => port().prop_map(|port| Operation::SetPolicy(port, PortPolicy::default())),
        40 => (0..2usize, port(), packet())
            .prop_map(|(worker, from, packet)| Operation::Packet { worker, from, packet }),
        2 => (port(), port(), station(), 1..20_usize).prop_map(|(one, other, station, packets)| {
            Operation::Fight { ports: [one, other], station, packets }
        }),
        3 => prop_oneof![0..3000_u64, 0..2 * AGE_MAX_MS].prop_map(|ms| Operation::Wait { ms }),
    ]
}

/// The last sight of a station.
#[derive(Debug, Clone, Copy)]
struct Seen {
    port: PortId,
    tick: u64,
    moves_in_tick: u8,
}

#[derive(Default)]
struct Reference {
    policies: HashMap<PortId, PortPolicy>,
    ports: BTreeMap<PortId, ()>,
    learned: HashMap<(u16, MacAddress), Seen>,
    fixed: HashMap<(u16, MacAddress), PortId>,
    now_ms: u64,
}

impl Reference {
    fn policy(&self, port: PortId) -> PortPolicy {
        self.policies.get(&port).cloned().unwrap_or_default()
    }

    fn add(&mut self, port: PortId) -> Result<(), PortError> {
        match self.ports.insert(port, ()) {
            None => Ok(()),
            Some(()) => Err(PortError::Exists(port)),
        }
    }

    fn remove(&mut self, port: PortId) -> bool {
        let was_there = self.ports.remove(&port).is_some();
        if was_there {
            self.policies.remove(&port);
            self.learned.retain(|_, seen| seen.port != port);
            self.fixed.retain(|_, owner| *owner != port);
        }
        was_there
    }

    fn set(&mut self, port: PortId, policy: &PortPolicy) -> Result<(), PolicyError> {
        policy.check()?;
        if self.policy(port).vlan != policy.vlan {
            self.learned.retain(|_, seen| seen.port != port);
        }
        self.policies.insert(port, policy.clone());
        self.fixed.retain(|_, owner| *owner != port);
        let Some(vlan) = untagged(&policy.vlan) else { return Ok(()) };
        let mut taken = 0;
        for mac in policy.static_macs.iter().chain(&policy.locked_mac) {
            if *self.fixed.entry((vlan, *mac)).or_insert(port) != port {
                taken += 1;
            } else {
                self.learned.remove(&(vlan, *mac));
            }
        }
        if taken == 0 { Ok(()) } else { Err(PolicyError::MacsTaken(taken)) }
    }

    fn tick(&self) -> u64 {
        self.now_ms / TICK_MS
    }

    fn where_is(&self, vlan: u16, mac: MacAddress) -> Option<PortId> {
        if let Some(port) = self.fixed.get(&(vlan, mac)) {
            return Some(*port);
        }
        let seen = self.learned.get(&(vlan, mac))?;
        (self.tick() - seen.tick < AGE_MAX_MS / TICK_MS + 2).then_some(seen.port)
    }

    /// `false`: the address belongs to another port.
    fn learn(&mut self, from: PortId, vlan: u16, mac: MacAddress) -> bool {
        if !mac.is_station() {
            return true;
        }
        if let Some(owner) = self.fixed.get(&(vlan, mac)) {
            return *owner == from;
        }
        let tick = self.tick();
        let new = Seen { port: from, tick, moves_in_tick: 0 };
        let old = self.where_is(vlan, mac).and_then(|_| self.learned.get(&(vlan, mac)).copied());
        let seen = match old {
            Some(old) if old.port == from && old.tick == tick => old,
            Some(old) if old.port != from => {
                let moves = if old.tick == tick { old.moves_in_tick } else { 0 };
                if moves == FLAPS_MAX { old } else { Seen { moves_in_tick: moves + 1, ..new } }
            }
            _ => new,
        };
        self.learned.insert((vlan, mac), seen);
        true
    }

    /// Where a packet goes, and with which tag.
    fn send(
        &mut self,
        from: PortId,
        packet: &Packet,
    ) -> Result<Vec<(PortId, Option<u16>)>, DropReason> {
        let policy = self.policy(from);
        let vlan = admitted(&policy.vlan, packet.tci).ok_or(DropReason::Vlan)?;
        unspoofed(&policy, packet)?;
        if !self.learn(from, vlan, packet.from) {
            return Err(DropReason::SpoofedMac);
        }
        if packet.to.0[..5] == [1, 0x80, 0xc2, 0, 0] && packet.to.0[5] < 0x10 {
            return Err(DropReason::NoRoute);
        }
        let known = self.where_is(vlan, packet.to).filter(|_| !packet.to.is_multicast());
        let out = |reference: &Self, to: PortId| {
            let target = reference.policy(to);
            if !reference.ports.contains_key(&to) || to == from {
                return Err(DropReason::NoRoute);
            }
            if policy.isolated && !target.is_uplink || target.isolated && !policy.is_uplink {
                return Err(DropReason::Isolated);
            }
            delivered(&target.vlan, vlan, packet.tci).ok_or(DropReason::Vlan)
        };
        if let Some(to) = known {
            return out(self, to).map(|tci| vec![(to, tci)]);
        }
        let is_for = |to: PortId| match self.policy(to).locked_mac {
            Some(locked) => packet.to.is_multicast() || locked == packet.to,
            None => true,
        };
        let targets = self.ports.keys().filter(|to| is_for(**to));
        Ok(targets.filter_map(|to| Some((*to, out(self, *to).ok()?))).collect())
    }
}

fn untagged(vlan: &Vlan) -> Option<u16> {
    match vlan {
        Vlan::None => Some(0),
        Vlan::Access(vlan) => Some(vlan.raw()),
        Vlan::Trunk { native, .. } => native.map(VlanId::raw),
    }
}

fn number(tci: Option<u16>) -> u16 {
    tci.map_or(0, |tci| tci & 0xfff)
}

fn admitted(vlan: &Vlan, tci: Option<u16>) -> Option<u16> {
    match (vlan, number(tci)) {
        (Vlan::None, _) => Some(0),
        (_, 0) => untagged(vlan),
        (Vlan::Trunk { tagged, .. }, tag) => {
            VlanId::new(tag).filter(|vlan| tagged.contains(*vlan)).map(VlanId::raw)
        }
        _ => None,
    }
}

fn delivered(target: &Vlan, vlan: u16, tci: Option<u16>) -> Option<Option<u16>> {
    match target {
        Vlan::None => (vlan == 0).then_some(tci),
        _ if vlan == 0 => None,
        _ if untagged(target) == Some(vlan) => Some(None),
        Vlan::Trunk { tagged, .. } if tagged.contains(VlanId::new(vlan)?) => {
            Some(Some(tci.unwrap_or(0) & 0xf000 | vlan))
        }
        _ => None,
    }
}

fn unspoofed(policy: &PortPolicy, packet: &Packet) -> Result<(), DropReason> {
    let owns_mac = |mac: MacAddress| policy.locked_mac.is_none_or(|locked| locked == mac);
    let owns_ip = |ip: u8| {
        let ip = IpAddr::V4(Ipv4Addr::from(address(ip)));
        policy.locked_ips.is_empty() || policy.locked_ips.contains(&ip)
    };
    let is_locked = policy.locked_mac.is_some() || !policy.locked_ips.is_empty();
    if !is_locked {
        return Ok(());
    }
    if !owns_mac(packet.from) {
        return Err(DropReason::SpoofedMac);
    }
    match packet.content {
        Content::Arp { mac, .. } if !owns_mac(mac) => Err(DropReason::SpoofedMac),
        Content::Arp { ip, .. } | Content::Ip { ip } if !owns_ip(ip) => Err(DropReason::SpoofedIp),
        Content::Other if !policy.locked_ips.is_empty() => Err(DropReason::SpoofedIp),
        _ => Ok(()),
    }
}

/// The tag of the packet that the receiver sees.
fn changed(tci: Option<u16>, change: TagChange) -> Option<u16> {
    match change {
        TagChange::Keep => tci,
        TagChange::Insert(tci) | TagChange::Replace(tci) => Some(tci),
        TagChange::Strip => None,
    }
}

/// All switches do the same.
fn both<T: PartialEq + std::fmt::Debug>(
    switches: &mut [Switch; 2],
    mut act: impl FnMut(&mut Switch) -> T,
) -> T {
    let [one, other] = switches;
    let result = act(one);
    assert_eq!(act(other), result, "the second switch disagrees");
    result
}

/// The same packet through a switch and the reference.
fn exchange(
    switch: &mut Switch,
    reference: &mut Reference,
    from: PortId,
    packet: &Packet,
) -> Result<(), TestCaseError> {
    if !reference.ports.contains_key(&from) {
        return Ok(());
    }
    let now_ns = reference.now_ms * NS_PER_MS;
    let went = send(switch, from, &packet.bytes(), now_ns).expect("no rate limit");
    let went = went.map(|targets| {
        let tag = |change| changed(packet.tci, change);
        targets.into_iter().map(|(to, change)| (to, tag(change))).collect()
    });
    prop_assert_eq!(went, reference.send(from, packet), "{:?}", packet);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_goes_where_the_reference_says(
        seed: u64,
        operations in prop::collection::vec(operation(), 1..400),
    ) {
        let shared = Shared::new(seed);
        let mut switches = [Switch::over(shared.clone()), Switch::over(shared)];
        let mut reference = Reference::default();
        for operation in operations {
            match operation {
                Operation::AddPort(port) => {
                    let added = both(&mut switches, |switch| switch.add_port(port));
                    prop_assert_eq!(added, reference.add(port));
                }
                Operation::RemovePort(port) => {
                    let removed = both(&mut switches, |switch| switch.remove_port(port));
                    prop_assert_eq!(removed, reference.remove(port));
                }
                Operation::SetPolicy(port, policy) => {
                    let set = both(&mut switches, |switch| switch.set_port(port, policy.clone()));
                    prop_assert_eq!(set, reference.set(port, &policy));
                }
                Operation::Wait { ms } => reference.now_ms += ms,
                Operation::Packet { worker, from, packet } => {
                    exchange(&mut switches[worker], &mut reference, from, &packet)?;
                }
                Operation::Fight { ports, station, packets } => {
                    let (to, tci, content) = (mac(0), None, Content::Other);
                    let packet = Packet { to, from: station, tci, content };
                    for n in 0..packets {
                        exchange(&mut switches[n % 2], &mut reference, ports[n % 2], &packet)?;
                    }
                }
            }
            prop_assert!(switches[0].ports().eq(reference.ports.keys().copied()));
        }
    }
}
