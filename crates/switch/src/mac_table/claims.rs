//! Addresses that belong to a port: the one that its guest was told is its own.
//!
//! While a port claims an address, no other port can be learned for it in the port's VLAN (in any
//! VLAN, if it is a trunk): a packet with that source address from another port is dropped. Claims
//! are asked for only when an address is new or about to move, so packets of stations that stay
//! where they are cost nothing more.
//!
//! An address that was fixed to a port by its policy stays there, whatever is claimed.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU8, AtomicU64};

use ringway_net::MacAddress;

use super::{FREE, MacTable, VLAN_BITS};
use crate::copy::Copied;
use crate::entry::Value;
use crate::{PORTS_MAX, PortId, VlanId};

/// In the place of a VLAN: all of them.
const ALL_VLANS: u64 = (1 << VLAN_BITS) - 1;

/// The news to tell: of an address that moved or was refused, or that the table has changed.
const MOVED: u8 = 1;
const CHANGED: u8 = 2;

/// Something that became of an address, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressNews {
    /// The address.
    pub address: MacAddress,
    /// Where it was, or to whom it belongs.
    pub from: PortId,
    /// Where a packet with that source address came from.
    pub to: PortId,
    /// It belongs to `from`, so the packet was dropped; otherwise it moved.
    pub is_refused: bool,
}

/// The addresses that ports have claimed, and news to be told. Changes of the table write here.
pub(super) struct Claims {
    /// The key of each port's address, or [`ALL_VLANS`] with the address; [`FREE`] without one.
    of_port: [AtomicU64; PORTS_MAX],
    /// Addresses that moved to each port.
    moved_to: [AtomicU64; PORTS_MAX],
    /// [`MOVED`] and [`CHANGED`].
    news: AtomicU8,
    /// The address of the last news.
    address: AtomicU64,
    /// Its ports, and whether it was refused: bits 0 to 15, 16 to 31 and 32.
    ports: AtomicU64,
}

impl Claims {
    pub fn new() -> Self {
        Self {
            of_port: [const { AtomicU64::new(FREE) }; PORTS_MAX],
            moved_to: [const { AtomicU64::new(0) }; PORTS_MAX],
            news: AtomicU8::new(0),
            address: AtomicU64::new(0),
            ports: AtomicU64::new(0),
        }
    }

    /// Another port whose claim covers that key, or what that claim covers.
    pub fn other_owner(&self, port: PortId, key: u64) -> Option<PortId> {
        let is_other = |(at, claim): &(usize, &AtomicU64)| {
            *at != port.index() && overlap(claim.load(Relaxed), key)
        };
        let (at, _) = self.of_port.iter().enumerate().find(is_other)?;
        u16::try_from(at).ok().map(PortId)
    }

    /// Called with the right to change the table, so there is one writer at a time.
    pub fn note(&self, news: AddressNews) {
        if !news.is_refused {
            self.moved_to[news.to.index()].fetch_add(1, Relaxed);
        }
        let refused = u64::from(news.is_refused) << 32;
        let ports = refused | u64::from(news.to.0) << 16 | u64::from(news.from.0);
        self.address.store(news.address.to_u64(), Relaxed);
        self.ports.store(ports, Relaxed);
        // PAIRS WITH: mac_table/claims.rs::take_news
        self.news.fetch_or(MOVED, Release);
    }

    /// Another port of its number begins anew.
    pub fn forget_moves(&self, port: PortId) {
        self.moved_to[port.index()].store(0, Relaxed);
    }

    /// The table has changed.
    pub fn note_change(&self) {
        self.news.fetch_or(CHANGED, Relaxed);
    }
}

impl Copied for Claims {
    fn copied(&self) -> Self {
        Self {
            of_port: self.of_port.copied(),
            moved_to: self.moved_to.copied(),
            news: self.news.copied(),
            address: self.address.copied(),
            ports: self.ports.copied(),
        }
    }
}

/// Whether two keys have the same address, and a VLAN in common.
fn overlap(one: u64, other: u64) -> bool {
    let differ = one ^ other;
    let has_all = |key: u64| key & ALL_VLANS == ALL_VLANS;
    differ == 0 || differ >> VLAN_BITS == 0 && (has_all(one) || has_all(other))
}

impl MacTable {
    /// From now on no other port is learned for this address in that VLAN (`None`: in any);
    /// `false`: another one has claimed it before. Walks the whole table for all VLANs.
    pub fn claim(&self, port: PortId, vlan: Option<VlanId>, address: MacAddress) -> bool {
        let in_key = vlan.map_or(ALL_VLANS, |vlan| u64::from(vlan.raw()));
        let wanted = address.to_u64() << VLAN_BITS | in_key;
        let claim = &self.claims.of_port[port.index()];
        if claim.load(Relaxed) == wanted && wanted != FREE {
            return true;
        }
        let change = self.change();
        claim.store(FREE, Relaxed);
        if !address.is_station() || self.claims.other_owner(port, wanted).is_some() {
            return false;
        }
        claim.store(wanted, Relaxed);
        let is_wrong = |value: Value| value.port() != port && !value.is_fixed();
        match vlan.map(|vlan| self.hashed(vlan, address)) {
            None => change.remove_keys(|key, value| overlap(key, wanted) && is_wrong(value)),
            Some(hashed) => match self.find(hashed) {
                Some((at, value)) if is_wrong(value) => change.remove(hashed.bucket, at),
                _ => {}
            },
        }
        true
    }

    /// The address that the port has claimed.
    pub fn claim_of(&self, port: PortId) -> Option<MacAddress> {
        let claim = self.claims.of_port[port.index()].load(Relaxed);
        (claim != FREE).then(|| MacAddress::from_u64(claim >> VLAN_BITS))
    }

    /// The port claims nothing any more. What was learned from it stays.
    pub fn release(&self, port: PortId) {
        self.claims.of_port[port.index()].store(FREE, Relaxed);
    }

    /// How many addresses have moved from another port to this one.
    pub fn moved_to(&self, port: PortId) -> u64 {
        self.claims.moved_to[port.index()].load(Relaxed)
    }

    /// Adds moves to that port from before.
    pub fn have_moved_to(&self, port: PortId, count: u64) {
        self.claims.moved_to[port.index()].fetch_add(count, Relaxed);
    }

    /// Whether [`take_news`](Self::take_news) or [`take_change`](Self::take_change) has something.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.claims.news.load(Relaxed) != 0
    }

    /// The state that is learned beside this table has changed.
    pub fn note_change(&self) {
        self.claims.note_change();
    }

    /// Whether something has changed since this was asked last.
    pub fn take_change(&self) -> bool {
        self.claims.news.fetch_and(!CHANGED, Relaxed) & CHANGED != 0
    }

    /// The last move, or the last packet that was refused, unless it was taken before.
    pub fn take_news(&self) -> Option<AddressNews> {
        // Nothing is noted while this is read.
        let _change = self.try_change()?;
        // PAIRS WITH: mac_table/claims.rs::note
        if self.claims.news.fetch_and(!MOVED, Acquire) & MOVED == 0 {
            return None;
        }
        let ports = self.claims.ports.load(Relaxed);
        let port = |shift: u32| PortId((ports >> shift & 0xffff) as u16);
        Some(AddressNews {
            address: MacAddress::from_u64(self.claims.address.load(Relaxed)),
            from: port(0),
            to: port(16),
            is_refused: ports >> 32 != 0,
        })
    }

    /// Whether a packet of `port` with that source address is refused, which is noted.
    pub(super) fn is_anothers(&self, port: PortId, key: u64) -> bool {
        let Some(owner) = self.claims.other_owner(port, key) else { return false };
        // One is told of; a flood of them writes nothing.
        if self.claims.news.load(Relaxed) & MOVED == 0
            && let Some(_change) = self.try_change()
        {
            let address = MacAddress::from_u64(key >> VLAN_BITS);
            self.claims.note(AddressNews { address, from: owner, to: port, is_refused: true });
        }
        true
    }
}
