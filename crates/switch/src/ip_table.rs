//! IP addresses that stations were seen to use, for all workers at once.
//!
//! A port has [`IPS_PER_PORT_MAX`] slots. What was not seen for [`AGE_MAX_MS`] is forgotten;
//! nothing else makes room. One worker at a time notes something at a port: another one goes on
//! without, and the guest will say it again.
//!
//! An address that several ports use belongs to the one that announced it last (gratuitous ARP), or
//! else to the one that used it first, for as long as that uses it every [`CONTESTED_MS`].

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::hint::spin_loop;
use core::net::{IpAddr, Ipv6Addr};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU64};

use ringway_net::MacAddress;

use crate::copy::Copied;
use crate::own_ip::OwnIp;
use crate::{AGE_MAX_MS, PORTS_MAX, PortId, VlanId};

/// Addresses of one port that are noted.
pub const IPS_PER_PORT_MAX: usize = 16;

/// After that time without a sign of its first user an address goes to another one. Hosts ask for
/// what they use about as often.
const CONTESTED_MS: u64 = 30_000;

/// The time within which announcements of one station count as one.
const ANNOUNCED_EVERY_MS: u64 = 1000;

/// The address in a station is above the VLAN.
const VLAN_BITS: u32 = 16;

/// An IP address that a station was seen to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenIp {
    /// Where the station is.
    pub port: PortId,
    /// The VLAN that it is in; 0: none.
    pub vlan: u16,
    /// The station.
    pub address: MacAddress,
    /// Its IP address.
    pub ip: IpAddr,
}

/// The key of a station: its VLAN and its MAC address.
#[derive(Clone, Copy)]
pub(crate) struct StationKey {
    pub vlan: VlanId,
    pub address: MacAddress,
}

/// The entry of one address.
#[derive(Clone, Copy, PartialEq, Eq)]
struct AddressEntry {
    /// IPv4 addresses as IPv6 writes them (RFC 4291 §2.5.5.2); 0: there is none.
    ip: u128,
    station: u64,
    first_ms: u64,
    last_ms: u64,
    /// When it was last announced; 0: never.
    announced_ms: u64,
}

impl AddressEntry {
    fn is_there(&self, now_ms: u64) -> bool {
        self.ip != 0 && now_ms.saturating_sub(self.last_ms) < AGE_MAX_MS
    }

    #[expect(clippy::cast_possible_truncation, reason = "the VLAN is the lower 16 bits")]
    fn vlan(&self) -> u16 {
        self.station as u16
    }
}

#[derive(Default)]
struct AddressSlot {
    ip: [AtomicU64; 2],
    station: AtomicU64,
    first_ms: AtomicU64,
    last_ms: AtomicU64,
    announced_ms: AtomicU64,
}

impl AddressSlot {
    fn get(&self) -> AddressEntry {
        let [above, below] = &self.ip;
        AddressEntry {
            ip: u128::from(above.load(Relaxed)) << 64 | u128::from(below.load(Relaxed)),
            station: self.station.load(Relaxed),
            first_ms: self.first_ms.load(Relaxed),
            last_ms: self.last_ms.load(Relaxed),
            announced_ms: self.announced_ms.load(Relaxed),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "the two halves of an address")]
    fn set(&self, entry: AddressEntry) {
        let [above, below] = &self.ip;
        above.store((entry.ip >> 64) as u64, Relaxed);
        below.store(entry.ip as u64, Relaxed);
        self.station.store(entry.station, Relaxed);
        self.first_ms.store(entry.first_ms, Relaxed);
        self.last_ms.store(entry.last_ms, Relaxed);
        self.announced_ms.store(entry.announced_ms, Relaxed);
    }
}

/// The addresses of one port.
#[derive(Default)]
struct PortAddresses {
    is_in_use: AtomicBool,
    all: [AddressSlot; IPS_PER_PORT_MAX],
}

impl PortAddresses {
    /// The right to read and write them, unless another thread has it.
    fn try_use(&self) -> Option<InUse<'_>> {
        // PAIRS WITH: ip_table.rs::drop
        let taken = self.is_in_use.compare_exchange(false, true, Acquire, Relaxed);
        taken.is_ok().then(|| InUse(self))
    }

    /// Waits for it: not for the data path.
    fn wait(&self) -> InUse<'_> {
        loop {
            if let Some(addresses) = self.try_use() {
                return addresses;
            }
            spin_loop();
        }
    }
}

struct InUse<'a>(&'a PortAddresses);

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        // PAIRS WITH: ip_table.rs::try_use
        self.0.is_in_use.store(false, Release);
    }
}

/// The addresses of all ports.
pub(crate) struct IpTable(Box<[PortAddresses]>);

impl IpTable {
    pub fn new() -> Self {
        Self((0..PORTS_MAX).map(|_| PortAddresses::default()).collect())
    }

    /// A station uses this address, or announces it; `true`: that is new.
    pub fn note(
        &self,
        port: PortId,
        StationKey { vlan, address }: StationKey,
        OwnIp { ip, is_announced }: OwnIp,
        now_ms: u64,
    ) -> bool {
        let Some(addresses) = self.0[port.index()].try_use() else { return false };
        let ip = match ip {
            IpAddr::V4(ip) => ip.to_ipv6_mapped().to_bits(),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        let station = address.to_u64() << VLAN_BITS | u64::from(vlan.raw());
        let is_it = |entry: &AddressEntry| entry.ip == ip && entry.vlan() == vlan.raw();
        let mut all = addresses.0.all.iter();
        let own = all.clone().find(|slot| is_it(&slot.get()));
        let Some(slot) = own.or_else(|| all.find(|slot| !slot.get().is_there(now_ms))) else {
            return false;
        };
        let before = slot.get();
        let is_known = own.is_some() && before.is_there(now_ms);
        let first_ms = if is_known { before.first_ms } else { now_ms };
        let announced = if is_known { before.announced_ms } else { 0 };
        let is_late = announced == 0 || now_ms.saturating_sub(announced) >= ANNOUNCED_EVERY_MS;
        let is_news = is_announced && is_late;
        let announced_ms = if is_news { now_ms.max(1) } else { announced };
        slot.set(AddressEntry { ip, station, first_ms, last_ms: now_ms, announced_ms });
        !is_known || before.station != station || is_news
    }

    /// Addresses that were seen at that port may be seen elsewhere.
    pub fn forget(&self, port: PortId) {
        let addresses = self.0[port.index()].wait();
        addresses
            .0
            .all
            .iter()
            .for_each(|slot| slot.ip.iter().for_each(|half| half.store(0, Relaxed)));
    }

    /// Each address with the one station that has it.
    pub fn list(&self, now_ms: u64) -> Vec<SeenIp> {
        let mut all = Vec::new();
        for (port, addresses) in (0..).map(PortId).zip(&self.0) {
            let addresses = addresses.wait();
            let entries =
                addresses.0.all.iter().map(AddressSlot::get).filter(|entry| entry.is_there(now_ms));
            all.extend(entries.map(|entry| (entry, port)));
        }
        all.sort_unstable_by_key(|(entry, port)| {
            let is_quiet = now_ms.saturating_sub(entry.last_ms) >= CONTESTED_MS;
            let last_to_announce = Reverse(entry.announced_ms);
            (entry.ip, entry.vlan(), is_quiet, last_to_announce, entry.first_ms, port.0)
        });
        all.dedup_by_key(|(entry, _)| (entry.ip, entry.vlan()));
        let shown = |(entry, port): (AddressEntry, PortId)| SeenIp {
            port,
            vlan: entry.vlan(),
            address: MacAddress::from_u64(entry.station >> VLAN_BITS),
            ip: Ipv6Addr::from_bits(entry.ip).to_canonical(),
        };
        all.into_iter().map(shown).collect()
    }
}

impl Copied for IpTable {
    /// Nothing is noted there that anyone would be told.
    fn copied(&self) -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: PortId = PortId(1);
    const OTHER: PortId = PortId(2);

    fn at(port: PortId) -> StationKey {
        StationKey { vlan: VlanId::NONE, address: MacAddress::local(port.0.into()) }
    }

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    fn uses(ip: IpAddr) -> OwnIp {
        OwnIp { ip, is_announced: false }
    }

    fn owners(table: &IpTable, now_ms: u64) -> Vec<(PortId, IpAddr)> {
        table.list(now_ms).iter().map(|entry| (entry.port, entry.ip)).collect()
    }

    #[test]
    fn a_port_has_so_many_places_and_what_is_not_seen_any_more_makes_room() {
        let table = IpTable::new();
        let v6: IpAddr = [0xfd00, 0, 0, 0, 0, 0, 0, 1].into();
        assert!(table.note(ONE, at(ONE), uses(v6), 0));
        for last in 1..IPS_PER_PORT_MAX {
            assert!(table.note(ONE, at(ONE), uses(ip(u8::try_from(last).unwrap())), 5));
        }
        assert!(!table.note(ONE, at(ONE), uses(ip(1)), 6), "it is known");
        assert!(!table.note(ONE, at(ONE), uses(ip(100)), 6), "there is no room");
        assert!(table.note(OTHER, at(OTHER), uses(ip(100)), 6), "every port has its own");
        assert!(owners(&table, 6).contains(&(ONE, v6)));
        assert!(table.note(ONE, at(ONE), uses(ip(100)), AGE_MAX_MS), "the first was forgotten");
        assert!(!owners(&table, AGE_MAX_MS).contains(&(ONE, v6)));
        assert_eq!(owners(&table, AGE_MAX_MS + 6), [(ONE, ip(100))], "and then all others");
    }

    #[test]
    fn an_address_belongs_to_its_first_user_until_that_leaves_or_is_quiet() {
        let table = IpTable::new();
        table.note(ONE, at(ONE), uses(ip(1)), 0);
        table.note(OTHER, at(OTHER), uses(ip(1)), 1000);
        assert_eq!(owners(&table, 2000), [(ONE, ip(1))]);
        table.note(OTHER, at(OTHER), uses(ip(1)), CONTESTED_MS);
        assert_eq!(owners(&table, CONTESTED_MS), [(OTHER, ip(1))], "the first one is quiet");
        table.note(ONE, at(ONE), uses(ip(1)), CONTESTED_MS + 1);
        assert_eq!(owners(&table, CONTESTED_MS + 1), [(ONE, ip(1))], "it is still there");
        table.forget(ONE);
        assert_eq!(owners(&table, CONTESTED_MS + 1), [(OTHER, ip(1))]);
        table.note(ONE, at(ONE), uses(ip(1)), CONTESTED_MS + 2);
        assert_eq!(owners(&table, CONTESTED_MS + 2), [(OTHER, ip(1))], "now it is the second");
        assert_eq!(owners(&table, 3 * CONTESTED_MS), [(OTHER, ip(1))], "both are quiet");
    }

    #[test]
    fn an_address_goes_at_once_to_the_one_that_announces_it() {
        let table = IpTable::new();
        let announced = OwnIp { ip: ip(1), is_announced: true };
        table.note(ONE, at(ONE), announced, 0);
        assert!(table.note(OTHER, at(OTHER), announced, 100));
        assert_eq!(owners(&table, 100), [(OTHER, ip(1))]);
        table.note(ONE, at(ONE), uses(ip(1)), 200);
        assert_eq!(owners(&table, 200), [(OTHER, ip(1))], "that is only use");
        assert!(!table.note(OTHER, at(OTHER), announced, 300), "it was told");
        assert!(table.note(ONE, at(ONE), announced, ANNOUNCED_EVERY_MS + 1));
        assert_eq!(owners(&table, 2000), [(ONE, ip(1))], "it moves back");
        table.note(OTHER, at(OTHER), uses(ip(1)), CONTESTED_MS + 2000);
        assert_eq!(owners(&table, CONTESTED_MS + 2000), [(OTHER, ip(1))], "the last is quiet");
    }

    #[test]
    fn vlans_are_told_apart_and_a_station_may_be_exchanged() {
        let table = IpTable::new();
        let vlan = VlanId::new(10).unwrap();
        let ten = |last: u32| StationKey { vlan, address: MacAddress::local(last) };
        table.note(ONE, at(ONE), uses(ip(1)), 0);
        assert!(table.note(ONE, ten(9), uses(ip(1)), 0));
        assert!(table.note(ONE, ten(8), uses(ip(1)), 0));
        let list = table.list(0);
        let shown: Vec<_> = list.iter().map(|entry| (entry.vlan, entry.address)).collect();
        assert_eq!(shown, [(0, MacAddress::local(1)), (10, MacAddress::local(8))]);
    }

    #[test]
    fn a_place_in_use_is_left_alone() {
        let table = IpTable::new();
        let in_use = table.0[ONE.index()].try_use();
        assert!(!table.note(ONE, at(ONE), uses(ip(1)), 0));
        drop(in_use);
        assert!(table.note(ONE, at(ONE), uses(ip(1)), 0));
    }
}
