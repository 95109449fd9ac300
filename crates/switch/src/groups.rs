//! Ports that want multicast groups, and ports of routers; for all workers at once.
//!
//! Theory of operation: a membership (group, VLAN, port) is one word with its age, in a bucket of
//! eight that its hash names, so asking looks at one cache line and changing is one
//! compare-exchange. Ages are ticks of about four seconds.
//!
//! Fairness: a port has at most [`GROUPS_PER_PORT_MAX`] memberships, and all ports together fill a
//! quarter of the table. A port whose membership finds no place is given all groups for as long
//! as a membership lasts: it may get too much, never too little, and no other port notices.
//!
//! Groups are told apart as Ethernet does: by 23 bits of IPv4 addresses, 32 bits of IPv6 ones.

mod noted;

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use ringway_net::MacAddress;

use crate::copy::Copied;
use crate::mac_table::mix;
use crate::{PORTS_MAX, PortId, VlanId};

pub use noted::{GROUP_NOTES_MAX, GroupNote};

/// Memberships of one port.
pub const GROUPS_PER_PORT_MAX: usize = 32;

const SLOTS: usize = 8;
const BUCKETS: usize = 4 * PORTS_MAX * GROUPS_PER_PORT_MAX / SLOTS;
const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();
/// Buckets in which old memberships are looked for when a port has too many.
const SWEEP_BUCKETS_MAX: usize = 8;
/// A tick is 4096 ms.
const TICK_SHIFT: u32 = 12;
/// RFC 3376 §8.4: a membership lasts twice the query interval and ten seconds more, 260 seconds.
const AGE_MAX_TICKS: u32 = 65;
/// After a leave there is time for one more report (RFC 3376 §8.8: two seconds).
const LEAVE_TICKS: u32 = 2;
const VLANS: usize = 4096;

const USED: u64 = 1 << 63;
const VLAN_SHIFT: u32 = 51;
const V6: u64 = 1 << 50;
const GROUP_SHIFT: u32 = 18;
const PORT_SHIFT: u32 = 10;
const TICK_MASK: u64 = (1 << PORT_SHIFT) - 1;

const _: () = assert!(BUCKETS.is_power_of_two());

/// Protocol families; each has its own querier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

/// A group in a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group(u64);

impl Group {
    /// `None`: a group that everybody gets. Those of 224.0.0.0/24 are never reported, and without
    /// all-nodes and solicited-node addresses IPv6 does not work at all.
    pub fn of_v4(vlan: VlanId, [_, b, c, d]: [u8; 4]) -> Option<Self> {
        let group = u32::from_be_bytes([0, b & 0x7f, c, d]);
        (group > 0xff).then(|| Self::new(vlan, Family::V4, group))
    }

    /// See [`of_v4`](Self::of_v4).
    pub fn of_v6(vlan: VlanId, address: [u8; 16]) -> Option<Self> {
        let [.., a, b, c, d] = address;
        let group = u32::from_be_bytes([a, b, c, d]);
        (group != 1 && a != 0xff).then(|| Self::new(vlan, Family::V6, group))
    }

    /// The group that packets to this address are for.
    pub fn of_mac(vlan: VlanId, MacAddress(mac): MacAddress) -> Option<Self> {
        match mac {
            [0x01, 0x00, 0x5e, b, c, d] => Self::of_v4(vlan, [0, b, c, d]),
            [0x33, 0x33, a, b, c, d] => {
                Self::of_v6(vlan, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d])
            }
            _ => None,
        }
    }

    fn new(vlan: VlanId, family: Family, group: u32) -> Self {
        let family = if family == Family::V6 { V6 } else { 0 };
        let vlan = u64::from(vlan.raw()) << VLAN_SHIFT;
        Self(USED | vlan | family | u64::from(group) << GROUP_SHIFT)
    }

    pub fn family(self) -> Family {
        if self.0 & V6 != 0 { Family::V6 } else { Family::V4 }
    }

    fn at(self, port: PortId) -> u64 {
        self.0 | u64::from(port.0) << PORT_SHIFT
    }
}

/// Memberships, queriers and routers. Shared: all methods take `&self`.
pub(crate) struct GroupTable {
    buckets: Box<[[AtomicU64; SLOTS]]>,
    seed: [u64; 2],
    owned: [AtomicU16; PORTS_MAX],
    /// When the port last had a membership too many.
    overflows: [AtomicU32; PORTS_MAX],
    /// When a query last came from the port.
    routers: [AtomicU32; PORTS_MAX],
    /// When a query was last heard, for each VLAN and family.
    queriers: Box<[[AtomicU32; 2]]>,
    hand: AtomicUsize,
}

impl Copied for GroupTable {
    fn copied(&self) -> Self {
        Self {
            buckets: self.buckets.copied(),
            seed: self.seed,
            owned: self.owned.copied(),
            overflows: self.overflows.copied(),
            routers: self.routers.copied(),
            queriers: self.queriers.copied(),
            hand: self.hand.copied(),
        }
    }
}

/// A time in ticks, from 1 on: 0 is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GroupTick(u32);

impl GroupTick {
    pub fn of_ms(now_ms: u64) -> Self {
        Self(u32::try_from(now_ms >> TICK_SHIFT).unwrap_or(u32::MAX - 1) + 1)
    }

    fn stamp(self) -> u64 {
        u64::from(self.0) & TICK_MASK
    }

    /// Whether a stamp of a word is young. Another worker's clock may be a little ahead.
    fn is_young(self, word: u64) -> bool {
        let age = self.stamp().wrapping_sub(word) & TICK_MASK;
        age < u64::from(AGE_MAX_TICKS) || age == TICK_MASK
    }

    fn is_lately(self, at: &AtomicU32) -> bool {
        let at = at.load(Relaxed);
        at != 0 && self.0.saturating_sub(at) < AGE_MAX_TICKS
    }

    /// Notes that it was then; whether it had not been lately.
    fn note(self, at: &AtomicU32) -> bool {
        let is_news = !self.is_lately(at);
        if at.load(Relaxed) != self.0 {
            at.store(self.0, Relaxed);
        }
        is_news
    }
}

impl GroupTable {
    pub fn new(seed: u64) -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| [const { AtomicU64::new(0) }; SLOTS]).collect(),
            seed: [mix(!seed), mix(mix(!seed)) | 1],
            owned: [const { AtomicU16::new(0) }; PORTS_MAX],
            overflows: [const { AtomicU32::new(0) }; PORTS_MAX],
            routers: [const { AtomicU32::new(0) }; PORTS_MAX],
            queriers: (0..VLANS).map(|_| [const { AtomicU32::new(0) }; 2]).collect(),
            hand: AtomicUsize::new(0),
        }
    }

    /// A query came in: there is a querier, and a router behind that port; whether that is news.
    pub fn hear_query(&self, port: PortId, vlan: VlanId, family: Family, now: GroupTick) -> bool {
        let is_new_router = now.note(&self.routers[port.index()]);
        now.note(&self.queriers[usize::from(vlan.raw())][family as usize]) || is_new_router
    }

    /// Whether a querier asks for memberships; without one hosts stop reporting them.
    pub fn has_querier(&self, vlan: VlanId, family: Family, now: GroupTick) -> bool {
        now.is_lately(&self.queriers[usize::from(vlan.raw())][family as usize])
    }

    /// Whether a router is behind that port.
    pub fn has_router(&self, port: PortId, now: GroupTick) -> bool {
        now.is_lately(&self.routers[port.index()])
    }

    /// Whether packets to that group go to that port.
    pub fn wants(&self, port: PortId, group: Group, now: GroupTick) -> bool {
        let is_member = self.is_member(group.at(port), now);
        is_member || now.is_lately(&self.overflows[port.index()]) || self.has_router(port, now)
    }

    /// One that is too old goes: it would look young again once the ticks have gone round.
    fn is_member(&self, wanted: u64, now: GroupTick) -> bool {
        self.buckets[self.bucket_of(wanted)].iter().any(|slot| {
            let word = slot.load(Relaxed);
            let is_it = word & !TICK_MASK == wanted;
            if is_it && !now.is_young(word) {
                self.replace(slot, word, 0);
                return false;
            }
            is_it
        })
    }

    /// The port reports the group; whether that is news.
    pub fn join(&self, port: PortId, group: Group, now: GroupTick) -> bool {
        if self.refresh(port, group, now.stamp()) {
            return false;
        }
        self.insert(group.at(port) | now.stamp(), now) || self.overflow(port, now)
    }

    /// The port has left the group: it loses it soon unless it reports it again; whether it had it.
    pub fn leave(&self, port: PortId, group: Group, now: GroupTick) -> bool {
        let early = now.0.wrapping_sub(AGE_MAX_TICKS - LEAVE_TICKS);
        self.refresh(port, group, u64::from(early) & TICK_MASK)
    }

    /// The port wants more groups than can be noted; whether that is news.
    pub fn overflow(&self, port: PortId, now: GroupTick) -> bool {
        now.note(&self.overflows[port.index()])
    }

    /// Memberships that are noted for the port, old ones included.
    pub fn owned_by(&self, port: PortId) -> usize {
        usize::from(self.owned[port.index()].load(Relaxed))
    }

    /// Forgets everything about a port. Walks the whole table, if it is a member of any.
    pub fn forget(&self, port: PortId) {
        let is_any = self.owned_by(port) > 0;
        let slots = self.buckets.iter().flatten();
        for slot in slots.take_while(|_| is_any) {
            let word = slot.load(Relaxed);
            if word != 0 && port_in(word) == port {
                self.replace(slot, word, 0);
            }
        }
        self.overflows[port.index()].store(0, Relaxed);
        self.routers[port.index()].store(0, Relaxed);
    }

    /// New stamp for a membership that is there.
    fn refresh(&self, port: PortId, group: Group, stamp: u64) -> bool {
        let wanted = group.at(port);
        for slot in &self.buckets[self.bucket_of(wanted)] {
            let word = slot.load(Relaxed);
            if word & !TICK_MASK == wanted {
                // If another worker was faster, its stamp is as good.
                return word == wanted | stamp || self.replace(slot, word, wanted | stamp);
            }
        }
        false
    }

    /// A membership that is not there yet, with its stamp; `false`: it finds no place.
    fn insert(&self, membership: u64, now: GroupTick) -> bool {
        let port = port_in(membership);
        if self.owned_by(port) >= GROUPS_PER_PORT_MAX {
            self.sweep(now);
            if self.owned_by(port) >= GROUPS_PER_PORT_MAX {
                return false;
            }
        }
        let slots = &self.buckets[self.bucket_of(membership & !TICK_MASK)];
        slots.iter().any(|slot| {
            let word = slot.load(Relaxed);
            let is_free = word == 0 || !now.is_young(word);
            is_free && self.replace(slot, word, membership)
        })
    }

    /// Frees what has expired in the next few buckets.
    fn sweep(&self, now: GroupTick) {
        let hand = self.hand.fetch_add(SWEEP_BUCKETS_MAX, Relaxed);
        for step in 0..SWEEP_BUCKETS_MAX {
            for slot in &self.buckets[hand.wrapping_add(step) % BUCKETS] {
                let word = slot.load(Relaxed);
                if word != 0 && !now.is_young(word) {
                    self.replace(slot, word, 0);
                }
            }
        }
    }

    /// `false`: another worker has changed it in the meantime.
    fn replace(&self, slot: &AtomicU64, old: u64, new: u64) -> bool {
        if slot.compare_exchange(old, new, Relaxed, Relaxed).is_err() {
            return false;
        }
        if old != 0 {
            self.owned[port_in(old).index()].fetch_sub(1, Relaxed);
        }
        if new != 0 {
            self.owned[port_in(new).index()].fetch_add(1, Relaxed);
        }
        true
    }

    fn bucket_of(&self, wanted: u64) -> usize {
        let product = u128::from(wanted ^ self.seed[0]) * u128::from(self.seed[1]);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
        let folded = (product >> 64) as u64 ^ product as u64;
        (folded >> (u64::BITS - BUCKET_BITS)) as usize
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the port is eight bits of the word")]
fn port_in(word: u64) -> PortId {
    PortId((word >> PORT_SHIFT) as u16 & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: PortId = PortId(0);
    const VICTIM: PortId = PortId(255);
    const VLAN: VlanId = VlanId::NONE;

    fn group(n: u32) -> Group {
        let [a, b, c, d] = (n + 256).to_be_bytes();
        Group::of_v4(VLAN, [a, b, c, d]).unwrap()
    }

    fn at(now_ms: u64) -> GroupTick {
        GroupTick::of_ms(now_ms)
    }

    #[test]
    fn a_membership_is_of_one_port_group_and_vlan() {
        let table = GroupTable::new(1);
        table.join(VICTIM, group(1), at(0));
        assert!(table.wants(VICTIM, group(1), at(0)));
        assert!(!table.wants(VICTIM, group(2), at(0)) && !table.wants(HOSTILE, group(1), at(0)));
        let elsewhere = Group::of_v4(VlanId::new(4094).unwrap(), [0, 0, 1, 1]).unwrap();
        let six = Group::new(VLAN, Family::V6, 0x101);
        assert!(!table.wants(VICTIM, elsewhere, at(0)) && !table.wants(VICTIM, six, at(0)));
    }

    #[test]
    fn memberships_age_and_leaves_shorten_them() {
        let table = GroupTable::new(1);
        let start_ms = 70_000_000;
        table.join(VICTIM, group(1), at(start_ms));
        table.join(VICTIM, group(2), at(start_ms));
        assert!(table.wants(VICTIM, group(1), at(start_ms + 260_000)));
        assert!(!table.wants(VICTIM, group(1), at(start_ms + 270_000)));
        table.leave(VICTIM, group(2), at(start_ms));
        assert!(table.wants(VICTIM, group(2), at(start_ms + 2_000)));
        assert!(!table.wants(VICTIM, group(2), at(start_ms + 9_000)));
        table.join(VICTIM, group(2), at(start_ms + 2_000));
        assert!(table.wants(VICTIM, group(2), at(start_ms + 100_000)));
        // Ticks go round after 70 minutes.
        let round_ms = (TICK_MASK + 1) << TICK_SHIFT;
        assert!(!table.wants(VICTIM, group(1), at(start_ms + round_ms)));
        assert_eq!(table.owned_by(VICTIM), 1, "it was forgotten");
    }

    #[test]
    fn a_port_that_reports_everything_harms_only_itself() {
        let table = GroupTable::new(7);
        for n in 0..100_000 {
            table.join(HOSTILE, group(n), at(0));
        }
        assert_eq!(table.owned_by(HOSTILE), GROUPS_PER_PORT_MAX);
        assert!(table.wants(HOSTILE, group(1_000_000), at(0)), "it gets everything");
        for n in 0..16 {
            table.join(VICTIM, group(n), at(0));
        }
        assert_eq!(table.owned_by(VICTIM), 16);
        assert!((0..16).all(|n| table.wants(VICTIM, group(n), at(0))));
        assert!(!table.wants(VICTIM, group(99), at(0)));
        // Later the hostile port behaves, and has its share again: old memberships are swept.
        let later_ms = 300_000;
        assert!(!table.wants(HOSTILE, group(99), at(later_ms)));
        for n in 0..BUCKETS / SWEEP_BUCKETS_MAX {
            table.join(HOSTILE, group(u32::try_from(n % 16).unwrap()), at(later_ms));
        }
        assert!(table.wants(HOSTILE, group(3), at(later_ms)));
    }

    #[test]
    fn a_port_that_is_gone_has_no_memberships() {
        let table = GroupTable::new(7);
        table.join(VICTIM, group(1), at(0));
        table.hear_query(VICTIM, VLAN, Family::V4, at(0));
        assert!(table.has_querier(VLAN, Family::V4, at(0)) && table.has_router(VICTIM, at(0)));
        assert!(!table.has_querier(VLAN, Family::V6, at(0)));
        table.forget(VICTIM);
        assert!(!table.wants(VICTIM, group(1), at(0)));
        assert_eq!(table.owned_by(VICTIM), 0);
        assert!(!table.has_querier(VLAN, Family::V4, at(300_000)));
    }

    #[test]
    fn groups_that_everybody_needs_are_not_groups() {
        for mac in [[1, 0, 0x5e, 0, 0, 251], [0x33, 0x33, 0, 0, 0, 1], [0x33, 0x33, 0xff, 1, 2, 3]]
        {
            assert_eq!(Group::of_mac(VLAN, MacAddress(mac)), None);
        }
        assert_eq!(Group::of_mac(VLAN, MacAddress::BROADCAST), None);
        let mac = MacAddress([1, 0, 0x5e, 0x01, 2, 3]);
        assert_eq!(Group::of_mac(VLAN, mac), Group::of_v4(VLAN, [239, 0x81, 2, 3]));
    }
}
