//! The table as a list, for people: a page at a time, while workers learn and forget.
//!
//! Limits: an address that comes or goes while pages are read may be missed.

use alloc::vec::Vec;
use core::sync::atomic::Ordering::Relaxed;

use ringway_net::MacAddress;

use super::{BUCKETS, FREE, MacTable, VLAN_BITS};
use crate::entry::{Tick, Value};
use crate::{PROBES_MAX, PortId, VlanId};

/// An address that the table knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownAddress {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; `None`: among ports that know no VLANs.
    pub vlan: Option<VlanId>,
    /// Where it is.
    pub port: PortId,
    /// For how long no packet came from it, in milliseconds, a second more or less; `None`: it was
    /// configured, and is never forgotten.
    pub age_ms: Option<u64>,
    /// The port's guest was told that it is its own: no other port may use it.
    pub is_own: bool,
}

/// Some of the addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddressPage {
    /// In no particular order.
    pub addresses: Vec<KnownAddress>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<usize>,
}

impl MacTable {
    /// At most `max` addresses that are `wanted`, from place `from` on, which is 0 or `next` of the
    /// page before.
    pub fn list(
        &self,
        from: usize,
        max: usize,
        now: Tick,
        wanted: impl Fn(&KnownAddress) -> bool,
    ) -> AddressPage {
        let mut addresses = Vec::new();
        for at in from..BUCKETS * PROBES_MAX {
            if addresses.len() == max {
                return AddressPage { addresses, next: Some(at) };
            }
            let known = self.known(at / PROBES_MAX, at % PROBES_MAX, now);
            addresses.extend(known.filter(&wanted));
        }
        AddressPage { addresses, next: None }
    }

    fn known(&self, bucket: usize, at: usize, now: Tick) -> Option<KnownAddress> {
        let key = self.buckets[bucket].keys[at].load(Relaxed);
        let value = Value::from_word(self.buckets[bucket].values[at].load(Relaxed));
        if key == FREE {
            return None;
        }
        let address = MacAddress::from_u64(key >> VLAN_BITS);
        #[expect(clippy::cast_possible_truncation, reason = "the VLAN is the lowest 16 bits")]
        let vlan = VlanId::new(key as u16);
        let hashed = self.hashed(vlan.unwrap_or(VlanId::NONE), address);
        // It may be replaced at this moment.
        if !value.has_tag(hashed.tag) || !self.is_fresh(value, now) {
            return None;
        }
        let port = value.port();
        let age_ms = (!value.is_fixed()).then(|| value.age_ms(now));
        let is_own = self.claim_of(port) == Some(address);
        Some(KnownAddress { address, vlan, port, age_ms, is_own })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_together_are_the_table() {
        let table = MacTable::new(5);
        let vlan = VlanId::new(7).unwrap();
        for number in 0..100 {
            table.learn(PortId(1), VlanId::NONE, MacAddress::local(number), Tick::of_ms(0));
            table.learn(PortId(2), vlan, MacAddress::local(number), Tick::of_ms(200_000));
        }
        table.fix(PortId(3), vlan, [MacAddress::local(1000)].into_iter());
        assert!(table.claim(PortId(2), Some(vlan), MacAddress::local(4)));
        let pages = |now_ms: u64, wanted: fn(&KnownAddress) -> bool| {
            let (mut all, mut from) = (Vec::new(), Some(0));
            while let Some(at) = from {
                let page = table.list(at, 16, Tick::of_ms(now_ms), wanted);
                assert!(page.addresses.len() <= 16);
                all.extend(page.addresses);
                from = page.next;
            }
            all
        };
        let all = pages(204_800, |_| true);
        assert_eq!(all.len(), 201);
        let of = |number: u32, vlan: Option<VlanId>| {
            let is_it =
                |it: &&KnownAddress| it.address == MacAddress::local(number) && it.vlan == vlan;
            *all.iter().find(is_it).unwrap()
        };
        assert_eq!((of(4, None).port, of(4, None).is_own), (PortId(1), false));
        assert_eq!((of(4, Some(vlan)).port, of(4, Some(vlan)).is_own), (PortId(2), true));
        assert_eq!(of(4, None).age_ms, Some(204_800));
        assert_eq!(of(4, Some(vlan)).age_ms, Some(5_120));
        assert_eq!(of(1000, Some(vlan)).age_ms, None);
        assert_eq!(pages(204_800, |it| it.port == PortId(1)).len(), 100);
        assert_eq!(pages(400_000, |_| true).len(), 101, "the others are too old");
    }
}
