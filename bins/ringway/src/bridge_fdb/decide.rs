//! What follows from what bridges have: which entries are of stations that have left, which
//! neighbours they lack and which are gone, and the smallest MTU behind a tap.

use std::net::IpAddr;

use ringway_supervisor::wire::{SeenIp, Station};
use ringway_switch::{Vlan, VlanId};

use super::messages::{Entry, Link, Neighbour};

/// A tap that is a port of a bridge, perhaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapPort {
    /// Its interface.
    pub interface: u32,
    pub vlan: Vlan,
}

/// The entries of these stations at these taps.
pub fn left(entries: &[Entry], taps: &[TapPort], stations: &[Station]) -> Vec<Entry> {
    let has_left = |entry: &Entry| {
        let mut at = taps.iter().filter(|tap| tap.interface == entry.interface);
        at.any(|tap| stations.iter().any(|station| is_it(entry, &tap.vlan, station)))
    };
    entries.iter().filter(|entry| entry.is_learned && has_left(entry)).copied().collect()
}

fn is_it(entry: &Entry, tap: &Vlan, station: &Station) -> bool {
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
    // What comes without a tag is in the bridge's own VLAN, whatever that is.
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

/// The neighbours that the bridges behind taps are to have: each of those that are in the VLAN of
/// what the tap carries without a tag.
pub fn neighbours(links: &[Link], taps: &[TapPort], residents: &[Resident]) -> Vec<Neighbour> {
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
    let neighbour = |(interface, ip, _, address)| Neighbour { interface, ip, address };
    all.into_iter().map(neighbour).collect()
}

/// The bridge that an interface is a port of.
pub fn bridge_of(links: &[Link], interface: u32) -> Option<u32> {
    links.iter().find(|link| link.interface == interface)?.bridge
}

/// What is to go from these bridges and what is to come, where there are the neighbours `present`
/// that a ringway has put there.
pub fn differences(
    bridges: &[u32],
    present: &[Neighbour],
    wanted: &[Neighbour],
) -> (Vec<Neighbour>, Vec<Neighbour>) {
    let is_ours = |neighbour: &&Neighbour| bridges.contains(&neighbour.interface);
    // What has only another station is replaced.
    let is_left = |neighbour: &&Neighbour| {
        let same = |it: &Neighbour| (it.interface, it.ip) == (neighbour.interface, neighbour.ip);
        !wanted.iter().any(same)
    };
    let gone = present.iter().filter(is_ours).filter(is_left).copied().collect();
    let new = wanted.iter().filter(|neighbour| !present.contains(neighbour)).copied().collect();
    (gone, new)
}

/// The smallest MTU among these taps and what is in the same bridges.
pub fn smallest_mtu(links: &[Link], taps: &[u32]) -> Option<u32> {
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
        let entry = |interface, vlan| Entry { interface, address: ADDRESS, vlan, is_learned: true };
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
        let link = |interface, bridge| Link { interface, mtu: 1500, bridge, ..Link::default() };
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
        assert_eq!(wanted, [of(8, 1, 1), of(9, 2, 2)]);
        // Left behind, right, moved to another station, and of a bridge that is not ours.
        let present = [of(8, 4, 4), of(8, 1, 1), of(9, 5, 2), of(7, 4, 4)];
        let (gone, new) = differences(&[8, 9], &present, &wanted);
        assert_eq!((&gone[..], &new[..]), (&present[..1], &wanted[1..]));
        assert_eq!(differences(&[8, 9], &wanted, &wanted), (vec![], vec![]));
        let twice = [resident(ten, 1), Resident { address: [4; 6], ..resident(ten, 1) }];
        assert_eq!(neighbours(&links, &taps, &twice).len(), 1);
        let ours = Resident { address: [4; 6], is_locked: true, ..resident(ten, 1) };
        let told = neighbours(&links, &taps, &[resident(ten, 1), ours]);
        assert_eq!(told, [Neighbour { address: [4; 6], ..of(8, 1, 1) }], "what others say is less");
    }

    #[test]
    fn the_smallest_mtu_is_that_of_what_a_bridge_has() {
        let link = |interface, mtu, bridge| Link { interface, mtu, bridge, ..Link::default() };
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
        let entry = Entry { interface: 1, address: ADDRESS, vlan: 0, is_learned: true };
        let other = [2, 0, 0, 0, 0, 2];
        let others = [
            Entry { interface: 2, ..entry },
            Entry { address: other, ..entry },
            Entry { is_learned: false, ..entry },
        ];
        assert_eq!(left(&others, &taps, &stations), []);
        assert_eq!(left(&[entry], &taps, &stations), [entry]);
    }
}
