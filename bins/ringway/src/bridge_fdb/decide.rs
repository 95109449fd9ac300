//! Decisions from what bridges have: which entries are of stations that have left, which neighbours
//! they lack and which are gone, and the smallest MTU behind a tap.

use std::net::IpAddr;

use ringway_supervisor::wire::{SeenIp, Station};
use ringway_switch::{Vlan, VlanId};

use super::messages::{BridgeEntry, KernelLink};
use super::neighbour::{Address, Neighbour, NeighbourEntry, Owner};
use crate::host_routes::overlap;

/// A tap that is a port of a bridge, perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapPort {
    /// Its interface.
    pub interface: u32,
    pub vlan: Vlan,
}

/// The entries of these stations at these taps.
pub fn left(entries: &[BridgeEntry], taps: &[TapPort], stations: &[Station]) -> Vec<BridgeEntry> {
    let has_left = |entry: &BridgeEntry| {
        let mut at = taps.iter().filter(|tap| tap.interface == entry.interface);
        at.any(|tap| stations.iter().any(|station| is_it(entry, &tap.vlan, station)))
    };
    entries.iter().filter(|entry| entry.is_learned && has_left(entry)).copied().collect()
}

fn is_it(entry: &BridgeEntry, tap: &Vlan, station: &Station) -> bool {
    if entry.address != station.address {
        return false;
    }
    let is_tagged = |number| match (tap, VlanId::new(number)) {
        (Vlan::Trunk { tagged, .. }, Some(vlan)) => tagged.contains(vlan),
        _ => false,
    };
    if is_tagged(station.vlan) {
        // A bridge that does not tell VLANs apart has one entry for all.
        return [0, station.vlan].contains(&entry.vlan);
    }
    // Packets without a tag are in the bridge's own VLAN, which may be any.
    let is_untagged = tap.of_untagged().is_some_and(|vlan| vlan.raw() == station.vlan);
    is_untagged && !is_tagged(entry.vlan)
}

/// A station and an IP address of its.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resident {
    /// 0: none.
    pub vlan: u16,
    pub address: [u8; 6],
    pub ip: IpAddr,
    /// It may use no other; of others it is what they said.
    pub is_locked: bool,
}

impl Resident {
    /// That was seen to use the address.
    pub fn seen(&SeenIp { vlan, address, ip }: &SeenIp) -> Self {
        Self { vlan, address, ip, is_locked: false }
    }
}

/// A neighbour that a bridge is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub neighbour: Neighbour,
    /// Its station may use no other; of others it is what they said.
    pub is_locked: bool,
}

/// The neighbours that the bridges behind taps are to have: each of those that are in the VLAN of
/// what the tap carries without a tag.
pub fn neighbours(links: &[KernelLink], taps: &[TapPort], residents: &[Resident]) -> Vec<Wanted> {
    let of_tap = |tap: &TapPort| {
        let bridge = bridge_of(links, tap.interface)?;
        let vlan = tap.vlan.of_untagged()?.raw();
        let here = residents.iter().filter(move |it| it.vlan == vlan);
        Some(here.map(move |it| (bridge, it.ip, !it.is_locked, it.address)))
    };
    let mut all: Vec<_> = taps.iter().filter_map(of_tap).flatten().collect();
    all.sort_unstable();
    // A bridge has one station for each IP address: the one that is locked to it, if there is one.
    all.dedup_by_key(|(bridge, ip, ..)| (*bridge, *ip));
    let wanted = |(interface, ip, is_free, address): (_, _, bool, _)| {
        let neighbour = Neighbour { interface, ip, address };
        Wanted { neighbour, is_locked: !is_free }
    };
    all.into_iter().map(wanted).collect()
}

/// The bridge that an interface is a port of.
pub fn bridge_of(links: &[KernelLink], interface: u32) -> Option<u32> {
    links.iter().find(|link| link.interface == interface)?.bridge
}

/// Why a bridge is not told of a neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objection {
    /// This machine has the address.
    OwnAddress,
    /// The bridge has addresses, and none of their networks has this one.
    OtherNetwork,
    /// It is not one station's.
    NoStation,
    /// Another program has put it there, or an operator.
    OfOthers,
}

impl std::fmt::Display for Objection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::OwnAddress => "it is an address of this machine",
            Self::OtherNetwork => "it is in no network of the bridge",
            Self::NoStation => "it is no address of one station",
            Self::OfOthers => "the bridge has another entry for it, which is not ringway's",
        })
    }
}

/// Changes to the neighbours of bridges.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub gone: Vec<Neighbour>,
    pub new: Vec<Neighbour>,
    /// Those that are there for another station.
    pub other: Vec<Neighbour>,
    pub refused: Vec<(Neighbour, Objection)>,
    /// Those that the kernel has found to be elsewhere itself, which it forgets.
    pub waiting: usize,
}

/// Entries to remove from these bridges and to add, where the neighbours `present` are there.
/// An entry that is not a ringway's stays as it is.
pub fn differences(
    bridges: &[u32],
    present: &[NeighbourEntry],
    addresses: &[Address],
    wanted: &[Wanted],
) -> Differences {
    let mut all = Differences::default();
    let mut allowed = Vec::new();
    for wanted in wanted {
        if let Some(why) = objection(addresses, wanted) {
            all.refused.push((wanted.neighbour, why));
            continue;
        }
        allowed.push(wanted.neighbour);
        let Neighbour { interface, ip, address } = wanted.neighbour;
        let there = present.iter().find(|it| (it.interface, it.ip) == (interface, ip));
        let is_same = |it: &NeighbourEntry| it.address == Some(address);
        match there {
            None => all.new.push(wanted.neighbour),
            Some(it) if it.owner == Owner::Other => {
                all.refused.push((wanted.neighbour, Objection::OfOthers));
            }
            Some(it) if it.owner == Owner::Ringway && is_same(it) => {}
            Some(it) if it.owner == Owner::Ringway => all.other.push(wanted.neighbour),
            // An entry that the kernel has found itself says the same, or less.
            Some(it) if is_same(it) || it.address.is_none() || wanted.is_locked => {
                all.other.push(wanted.neighbour);
            }
            Some(_) => all.waiting += 1,
        }
    }
    let is_ours =
        |it: &&NeighbourEntry| bridges.contains(&it.interface) && it.owner == Owner::Ringway;
    for &NeighbourEntry { interface, ip, address, .. } in present.iter().filter(is_ours) {
        // An entry that differs in its station only is replaced.
        if !allowed.iter().any(|it| (it.interface, it.ip) == (interface, ip)) {
            let address = address.unwrap_or_default();
            all.gone.push(Neighbour { interface, ip, address });
        }
    }
    all
}

fn objection(addresses: &[Address], wanted: &Wanted) -> Option<Objection> {
    let Neighbour { interface, ip, .. } = wanted.neighbour;
    if ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || is_broadcast(ip) {
        return Some(Objection::NoStation);
    }
    if addresses.iter().any(|own| own.ip == ip) {
        return Some(Objection::OwnAddress);
    }
    let is_link_local = |ip| matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    if wanted.is_locked || is_link_local(ip) {
        return None;
    }
    // A bridge without addresses only forwards: it has no network that would say more.
    let of_bridge = addresses.iter().filter(|own| own.interface == interface);
    let of_bridge = of_bridge.filter(|own| own.ip.is_ipv4() == ip.is_ipv4());
    let mut networks = of_bridge.filter(|own| !is_link_local(own.ip)).peekable();
    networks.peek()?;
    let len = if ip.is_ipv4() { 32 } else { 128 };
    let is_there = networks.any(|own| overlap(ip, len, own.network.0, own.network.1));
    (!is_there).then_some(Objection::OtherNetwork)
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// The smallest MTU among these taps and what is in the same bridges.
pub fn smallest_mtu(links: &[KernelLink], taps: &[u32]) -> Option<u32> {
    let own = links.iter().filter(|link| taps.contains(&link.interface));
    let bridges: Vec<u32> = own.clone().filter_map(|link| link.bridge).collect();
    let behind = links.iter().filter(|link| {
        bridges.contains(&link.interface) || link.bridge.is_some_and(|it| bridges.contains(&it))
    });
    own.chain(behind).map(|link| link.mtu).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: [u8; 6] = [2, 0, 0, 0, 0, 1];

    fn vlan(number: u16) -> VlanId {
        VlanId::new(number).expect("a VLAN")
    }

    #[test]
    fn what_a_bridge_has_learned_of_a_station_at_its_tap_goes() {
        let station = |vlan| Station { vlan, address: ADDRESS };
        let entry =
            |interface, vlan| BridgeEntry { interface, address: ADDRESS, vlan, is_learned: true };
        let plain = TapPort { interface: 1, vlan: Vlan::None };
        let ten = TapPort { interface: 2, vlan: Vlan::Access(vlan(10)) };
        let tagged = [vlan(10), vlan(20)].into_iter().collect();
        let trunk = TapPort { interface: 3, vlan: Vlan::Trunk { tagged, native: Some(vlan(7)) } };
        let taps = [plain, ten, trunk];
        let all = [entry(1, 0), entry(1, 1), entry(2, 0), entry(3, 0), entry(3, 10), entry(3, 20)];
        let left = |vlan| left(&all, &taps, &[station(vlan)]);
        assert_eq!(left(0), all[..2]);
        assert_eq!(left(10), all[2..5]);
        assert_eq!(left(20), [all[3], all[5]]);
        assert_eq!(left(7), all[3..4]);
        assert_eq!(left(8), []);
    }

    #[test]
    fn bridges_get_the_neighbours_of_their_network_and_lose_those_that_have_left() {
        let link = |interface, bridge| KernelLink {
            interface,
            mtu: 1500,
            bridge,
            ..KernelLink::default()
        };
        let links = [link(1, Some(8)), link(2, Some(9)), link(3, None), link(9, None)];
        let (ten, twenty) = (vlan(10), vlan(20));
        let tap = |interface, vlan| TapPort { interface, vlan: Vlan::Access(vlan) };
        let taps = [tap(1, ten), tap(2, twenty), tap(3, ten)];
        let resident = |vlan: VlanId, last: u8| Resident {
            vlan: vlan.raw(),
            address: [2, 0, 0, 0, 0, last],
            ip: [10, 0, 0, last].into(),
            is_locked: false,
        };
        let residents = [resident(twenty, 2), resident(ten, 1), resident(vlan(30), 3)];
        let wanted = neighbours(&links, &taps, &residents);
        let of = |interface, last: u8, ip: u8| Neighbour {
            interface,
            ip: [10, 0, 0, ip].into(),
            address: [2, 0, 0, 0, 0, last],
        };
        let all = |wanted: &[Wanted]| wanted.iter().map(|it| it.neighbour).collect::<Vec<_>>();
        assert_eq!(all(&wanted), [of(8, 1, 1), of(9, 2, 2)]);
        // Left behind, right, moved to another station, and of a bridge that is not ours.
        let left = [of(8, 4, 4), of(8, 1, 1), of(9, 5, 2), of(7, 4, 4)];
        let present = left.map(|it| entry(it, Owner::Ringway));
        let done = differences(&[8, 9], &present, &[], &wanted);
        let (gone, other) = (vec![left[0]], vec![of(9, 2, 2)]);
        assert_eq!(done, Differences { gone, other, ..Differences::default() });
        let present = all(&wanted).into_iter().map(|it| entry(it, Owner::Ringway));
        let present: Vec<_> = present.collect();
        let (nothing, new) = (Differences::default(), all(&wanted));
        assert_eq!(differences(&[8, 9], &present, &[], &wanted), nothing);
        let done = differences(&[8, 9], &[], &[], &wanted);
        assert_eq!(done, Differences { new, ..nothing });
        let twice = [resident(ten, 1), Resident { address: [4; 6], ..resident(ten, 1) }];
        assert_eq!(neighbours(&links, &taps, &twice).len(), 1);
        let ours = Resident { address: [4; 6], is_locked: true, ..resident(ten, 1) };
        let told = neighbours(&links, &taps, &[resident(ten, 1), ours]);
        let neighbour = Neighbour { address: [4; 6], ..of(8, 1, 1) };
        assert_eq!(told, [Wanted { neighbour, is_locked: true }], "what others say is less");
    }

    fn entry(Neighbour { interface, ip, address }: Neighbour, owner: Owner) -> NeighbourEntry {
        NeighbourEntry { interface, ip, address: Some(address), owner }
    }

    #[test]
    fn what_is_not_a_ringways_stays() {
        let ip = |text: &str| text.parse().expect("an address");
        let neighbour = Neighbour { interface: 8, ip: ip("10.0.0.7"), address: ADDRESS };
        let wanted = |is_locked| [Wanted { neighbour, is_locked }];
        let elsewhere = Neighbour { address: [4; 6], ..neighbour };
        let silent = NeighbourEntry { address: None, ..entry(neighbour, Owner::Kernel) };
        // The entry that is there; the outcome for a guest seen there, and for one locked to it.
        for (present, seen, locked) in [
            (entry(neighbour, Owner::Other), "refused", "refused"),
            (entry(elsewhere, Owner::Other), "refused", "refused"),
            (entry(elsewhere, Owner::Ringway), "replaced", "replaced"),
            (entry(neighbour, Owner::Kernel), "replaced", "replaced"),
            (entry(elsewhere, Owner::Kernel), "waits", "replaced"),
            (silent, "replaced", "replaced"),
        ] {
            for (is_locked, expected) in [(false, seen), (true, locked)] {
                let done = differences(&[8], &[present], &[], &wanted(is_locked));
                assert!(done.new.is_empty() && done.gone.is_empty());
                let what = match (&done.refused[..], &done.other[..], done.waiting) {
                    ([(_, Objection::OfOthers)], [], 0) => "refused",
                    ([], [_], 0) => "replaced",
                    ([], [], 1) => "waits",
                    _ => panic!("{done:?}"),
                };
                assert_eq!(what, expected, "{present:?} {is_locked}");
            }
            let gone = differences(&[8], &[present], &[], &[]).gone;
            assert_eq!(gone.len(), usize::from(present.owner == Owner::Ringway));
        }
    }

    #[test]
    fn a_guest_has_no_address_of_the_machine_nor_of_another_network() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let own =
            |interface, text, len| Address { interface, ip: ip(text), network: (ip(text), len) };
        let addresses = [
            own(8, "10.0.0.1", 24),
            own(8, "fe80::1", 64),
            own(5, "10.0.0.66", 32),
            own(5, "fd00::1", 64),
            Address { network: (ip("10.7.0.2"), 32), ..own(8, "192.0.2.1", 0) },
        ];
        for (text, seen, locked) in [
            ("10.0.0.2", None, None),
            ("10.7.0.2", None, None),
            ("10.0.0.1", Some(Objection::OwnAddress), Some(Objection::OwnAddress)),
            ("10.0.0.66", Some(Objection::OwnAddress), Some(Objection::OwnAddress)),
            ("fe80::1", Some(Objection::OwnAddress), Some(Objection::OwnAddress)),
            ("192.0.2.1", Some(Objection::OwnAddress), Some(Objection::OwnAddress)),
            ("8.8.8.8", Some(Objection::OtherNetwork), None),
            ("fe80::2", None, None),
            // The bridge has no address of that family that says where it is.
            ("fd07::2", None, None),
            ("224.0.0.1", Some(Objection::NoStation), Some(Objection::NoStation)),
            ("255.255.255.255", Some(Objection::NoStation), Some(Objection::NoStation)),
            ("::", Some(Objection::NoStation), Some(Objection::NoStation)),
            ("127.0.0.1", Some(Objection::NoStation), Some(Objection::NoStation)),
        ] {
            let neighbour = Neighbour { interface: 8, ip: ip(text), address: ADDRESS };
            for (is_locked, expected) in [(false, seen), (true, locked)] {
                let wanted = Wanted { neighbour, is_locked };
                assert_eq!(objection(&addresses, &wanted), expected, "{text} {is_locked}");
            }
        }
    }

    #[test]
    fn the_smallest_mtu_is_that_of_what_a_bridge_has() {
        let link =
            |interface, mtu, bridge| KernelLink { interface, mtu, bridge, ..KernelLink::default() };
        let links = [
            link(1, 1500, Some(9)),
            link(2, 1450, Some(9)),
            link(3, 1300, Some(8)),
            link(4, 1400, None),
            link(9, 1450, None),
        ];
        for (taps, mtu) in [(&[1][..], Some(1450)), (&[1, 4], Some(1400)), (&[7], None)] {
            assert_eq!(smallest_mtu(&links, taps), mtu, "{taps:?}");
        }
    }

    #[test]
    fn nothing_else_goes() {
        let taps = [TapPort { interface: 1, vlan: Vlan::None }];
        let stations = [Station { vlan: 0, address: ADDRESS }];
        let entry = BridgeEntry { interface: 1, address: ADDRESS, vlan: 0, is_learned: true };
        let other = [2, 0, 0, 0, 0, 2];
        let others = [
            BridgeEntry { interface: 2, ..entry },
            BridgeEntry { address: other, ..entry },
            BridgeEntry { is_learned: false, ..entry },
        ];
        assert_eq!(left(&others, &taps, &stations), []);
        assert_eq!(left(&[entry], &taps, &stations), [entry]);
    }
}
