//! The port that a MAC address was last seen on, for all workers at once.
//!
//! Theory of operation: a hash of the VLAN and the address, keyed with a secret seed, names one
//! bucket of eight entries. The eight keys of a bucket fill one cache line and what is known about
//! them the next, so looking an address up touches two lines, and never more than [`PROBES_MAX`]
//! entries. All memory is taken when the table is made.
//!
//! Sharing: a worker that only looks an address up never waits and never writes. An entry is two
//! words, a key and a value; the value repeats some bits of the key's hash, so a reader that meets
//! an entry while it is being replaced sees that the two do not belong together, and floods. A
//! worker that must change more than a stamp of age takes a flag. On the data path a worker that
//! does not get it goes on without having learned, as the next packet will try again.
//!
//! Fairness: a port owns at most its share of the entries, and to learn more it gives up one of
//! its own. An entry of another port is replaced only when it has expired. Since all shares
//! together are a quarter of the table, a guest that invents addresses can neither push another
//! port's addresses out nor keep them from being learned, short of finding collisions of a hash
//! whose seed it does not know; and even then the address is only flooded. Two ports that claim
//! the same address move it [`FLAPS_MAX`](crate::FLAPS_MAX) times per second, not with each packet.

mod change;
mod claims;
mod list;

use alloc::boxed::Box;
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

use ringway_net::MacAddress;

use change::Change;
pub use claims::AddressNews;
use claims::Claims;
pub use list::{AddressPage, KnownAddress};

use crate::copy::Copied;
use crate::entry::{Tick, Value};
use crate::{AGE_MAX_MS, PORTS_MAX, PortId, VlanId};

/// Addresses that all ports together may own.
pub const MACS_MAX: usize = 4096;
/// Addresses that one port may own, however few ports there are.
pub const MACS_PER_PORT_MAX: usize = 1024;
/// Entries that are looked at to find an address.
pub const PROBES_MAX: usize = 8;

/// Four times as many entries as may be owned keep full buckets rare.
const BUCKETS: usize = 4 * MACS_MAX / PROBES_MAX;
const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();
/// Buckets that are searched for something to give up when a port has used up its share.
const SWEEP_BUCKETS_MAX: usize = 8;
/// The address in a key is above the VLAN.
const VLAN_BITS: u32 = 16;
/// Bits of the hash between those of the tag and those that choose the bucket.
const FIRST_SLOT_SHIFT: u32 = 32;
/// No station has the address of all zeros, so no entry has this key.
const FREE: u64 = 0;

const _: () = assert!(BUCKETS.is_power_of_two());

/// Eight entries: keys in one cache line, values in the next.
#[repr(C, align(64))]
struct Bucket {
    /// Address in the upper 48 bits, VLAN in the lower 16; [`FREE`] if there is no entry.
    keys: [AtomicU64; PROBES_MAX],
    values: [AtomicU64; PROBES_MAX],
}

const _: () = assert!(size_of::<Bucket>() == 128);

/// The result for an address that a port was seen to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// Known on this port before.
    Known,
    /// New in the table.
    New,
    /// Was on another port until now.
    Moved,
    /// Stays on another port: it was configured there, or belongs to it.
    Fixed,
    /// Stays on another port for now: it has moved too often within a second.
    Flapping,
    /// Not in the table: no station has this address, or there is no room for it, or another worker
    /// is changing the table right now.
    Refused,
}

/// An address, its hash, and where its entry must be.
#[derive(Clone, Copy)]
struct HashedAddress {
    key: u64,
    bucket: usize,
    /// The hash: the bits that did not choose the bucket tell entries of a bucket apart.
    tag: u64,
}

impl HashedAddress {
    /// Where in the bucket the entry goes if there is room.
    #[inline]
    fn first_slot(self) -> usize {
        (self.tag >> FIRST_SLOT_SHIFT) as usize % PROBES_MAX
    }
}

/// Addresses and their ports. Shared: all methods take `&self`.
pub(crate) struct MacTable {
    buckets: Box<[Bucket]>,
    seed: [u64; 2],
    /// Ticks from which on an entry is too old.
    age_max: AtomicU32,
    /// Only for those who change the table.
    ownership: Ownership,
    claims: Claims,
}

/// The worker that may change the table, and how much of it each port owns. Changes write here, so
/// it has cache lines of its own: every lookup reads the seed.
#[repr(align(64))]
struct Ownership {
    /// Entries each port may have now.
    share: AtomicU16,
    /// A worker changes the table.
    is_changing: AtomicBool,
    /// Where the next search for something to give up begins.
    hand: AtomicUsize,
    /// How many switches have each port.
    members: [AtomicU16; PORTS_MAX],
    /// Learned entries of each port.
    owned: [AtomicU16; PORTS_MAX],
    /// Its other entries.
    fixed: [AtomicU16; PORTS_MAX],
}

impl MacTable {
    /// An empty table. `seed` should be secret and different for each table.
    pub fn new(seed: u64) -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| Bucket::new()).collect(),
            seed: [mix(seed), mix(mix(seed)) | 1],
            age_max: AtomicU32::new(Tick::count_of_age(AGE_MAX_MS)),
            ownership: Ownership {
                share: AtomicU16::new(share(1)),
                is_changing: AtomicBool::new(false),
                hand: AtomicUsize::new(0),
                members: [const { AtomicU16::new(0) }; PORTS_MAX],
                owned: [const { AtomicU16::new(0) }; PORTS_MAX],
                fixed: [const { AtomicU16::new(0) }; PORTS_MAX],
            },
            claims: Claims::new(),
        }
    }

    /// One more switch has `port`. The more ports, the smaller the share of each; who owns more
    /// than the new share loses the rest.
    pub fn join(&self, port: PortId) {
        let change = self.change();
        self.ownership.members[port.index()].fetch_add(1, Relaxed);
        change.divide();
    }

    /// One switch less has `port`, and everything on it is forgotten. Walks the whole table, if
    /// there is anything.
    pub fn leave(&self, port: PortId) {
        let change = self.change();
        self.ownership.members[port.index()].fetch_sub(1, Relaxed);
        self.release(port);
        self.claims.forget_moves(port);
        if self.entries_of(port) > 0 {
            change.remove_if(|value| value.port() == port);
        }
        change.divide();
    }

    /// Entries that `port` has learned, expired ones included.
    pub fn owned_by(&self, port: PortId) -> usize {
        usize::from(self.ownership.owned[port.index()].load(Relaxed))
    }

    /// The same with those that are fixed to it.
    pub fn entries_of(&self, port: PortId) -> usize {
        let fixed = self.ownership.fixed[port.index()].load(Relaxed);
        self.owned_by(port) + usize::from(fixed)
    }

    /// The port of `address`, if it was seen not too long before `now`.
    #[inline]
    pub fn port_of(&self, vlan: VlanId, address: MacAddress, now: Tick) -> Option<PortId> {
        let hashed = self.hashed(vlan, address);
        let (_, value) = self.find(hashed)?;
        self.is_fresh(value, now).then(|| value.port())
    }

    #[inline]
    fn is_fresh(&self, value: Value, now: Tick) -> bool {
        value.is_fresh(now, self.age_max.load(Relaxed))
    }

    /// Stations that were not seen for so long are not known any more.
    pub fn set_age_max(&self, age_max_ms: u64) {
        self.age_max.store(Tick::count_of_age(age_max_ms), Relaxed);
    }

    /// Notes that `address` is on `port`.
    #[inline]
    pub fn learn(&self, port: PortId, vlan: VlanId, address: MacAddress, now: Tick) -> Learned {
        if !address.is_station() {
            return Learned::Refused;
        }
        let hashed = self.hashed(vlan, address);
        match self.find(hashed) {
            Some((at, value)) if value.port() == port => {
                // Most packets find their entry seen in this very tick: do not dirty the line.
                if value.seen() != now && !value.is_fixed() {
                    self.touch(hashed, at, value, now);
                }
                Learned::Known
            }
            Some((_, value)) if value.is_fixed() => Learned::Fixed,
            Some((_, value)) if value.is_flapping(now) => Learned::Flapping,
            _ => self.relearn(port, hashed, now),
        }
    }

    /// Fixes exactly these addresses, in `vlan`, to `port`. What does not fit is left out; returns
    /// how many those are. Walks the whole table, if others were fixed to it.
    pub fn fix(
        &self,
        port: PortId,
        vlan: VlanId,
        addresses: impl Iterator<Item = MacAddress>,
    ) -> usize {
        let change = self.change();
        if self.ownership.fixed[port.index()].load(Relaxed) > 0 {
            change.remove_if(|value| value.is_fixed() && value.port() == port);
        }
        addresses.filter(|address| !change.fix(port, self.hashed(vlan, *address))).count()
    }

    /// Forgets everything that `port` has learned. Walks the whole table, if it has.
    pub fn forget(&self, port: PortId) {
        let change = self.change();
        if self.owned_by(port) > 0 {
            change.remove_if(|value| value.port() == port && !value.is_fixed());
        }
    }

    /// New stamp of age; if another worker changes the entry at this moment, its value stays.
    #[cold]
    fn touch(&self, hashed: HashedAddress, at: usize, value: Value, now: Tick) {
        let word = &self.buckets[hashed.bucket].values[at];
        let _ = word.compare_exchange(value.word(), value.seen_at(now).word(), Relaxed, Relaxed);
    }

    /// The address is not known, or on another port: its station is new or has moved, or the old
    /// entry expired.
    #[cold]
    fn relearn(&self, port: PortId, hashed: HashedAddress, now: Tick) -> Learned {
        if self.is_anothers(port, hashed.key) {
            return Learned::Fixed;
        }
        let Some(change) = self.try_change() else { return Learned::Refused };
        // It may have changed before the flag was taken.
        let Some((at, old)) = self.find(hashed) else {
            return change.insert(port, hashed, now);
        };
        if old.port() == port {
            return Learned::Known;
        }
        if old.is_fixed() {
            return Learned::Fixed;
        }
        if !self.is_fresh(old, now) {
            change.remove(hashed.bucket, at);
            return change.insert(port, hashed, now);
        }
        if change.moves(port, hashed, (at, old), now) { Learned::Moved } else { Learned::Refused }
    }

    /// A station moves to `port` unheard if it is at one that `is_left`, and may be here. When it
    /// was seen last stays. Not for the data path.
    pub fn follow(
        &self,
        port: PortId,
        vlan: VlanId,
        address: MacAddress,
        is_left: impl Fn(PortId) -> bool,
    ) {
        let hashed = self.hashed(vlan, address);
        let change = self.change();
        let Some((at, old)) = self.find(hashed) else { return };
        let may_move = old.port() != port && !old.is_fixed() && is_left(old.port());
        if may_move && self.claims.other_owner(port, hashed.key).is_none() {
            change.moves(port, hashed, (at, old), old.seen());
        }
    }

    #[inline]
    fn find(&self, hashed: HashedAddress) -> Option<(usize, Value)> {
        // A free entry reads as the address of all zeros, which no caller may ask for.
        if hashed.key >> VLAN_BITS == 0 {
            return None;
        }
        let bucket = &self.buckets[hashed.bucket];
        let is_at = |at: usize| bucket.keys[at].load(Relaxed) == hashed.key;
        // Where most entries are: buckets are a quarter full at most, on average.
        let first = hashed.first_slot();
        let at = if is_at(first) { first } else { (0..PROBES_MAX).find(|at| is_at(*at))? };
        // The value may already be that of another key; its tag tells.
        let value = Value::from_word(bucket.values[at].load(Relaxed));
        value.has_tag(hashed.tag).then_some((at, value))
    }

    /// The upper and the lower half of a 128-bit product folded together: every bit of the result
    /// depends on every bit of the key and of both seeds.
    #[inline]
    fn hashed(&self, vlan: VlanId, address: MacAddress) -> HashedAddress {
        let key = address.to_u64() << VLAN_BITS | u64::from(vlan.raw());
        let product = u128::from(key ^ self.seed[0]) * u128::from(self.seed[1]);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
        let folded = (product >> 64) as u64 ^ product as u64;
        let bucket = (folded >> (u64::BITS - BUCKET_BITS)) as usize;
        HashedAddress { key, bucket, tag: folded }
    }

    /// The right to change the table, unless another worker has it.
    fn try_change(&self) -> Option<Change<'_>> {
        // PAIRS WITH: mac_table/change.rs::drop; a change starts from what the one before left.
        let taken = self.ownership.is_changing.compare_exchange(false, true, Acquire, Relaxed);
        taken.is_ok().then(|| Change { table: self })
    }

    /// Waits for it: not for the data path.
    fn change(&self) -> Change<'_> {
        loop {
            if let Some(change) = self.try_change() {
                return change;
            }
            core::hint::spin_loop();
        }
    }
}

impl Copied for Bucket {
    fn copied(&self) -> Self {
        Self { keys: self.keys.copied(), values: self.values.copied() }
    }
}

impl Copied for Ownership {
    fn copied(&self) -> Self {
        Self {
            share: self.share.copied(),
            // Nothing changes the copy.
            is_changing: AtomicBool::new(false),
            hand: self.hand.copied(),
            members: self.members.copied(),
            owned: self.owned.copied(),
            fixed: self.fixed.copied(),
        }
    }
}

impl Copied for MacTable {
    fn copied(&self) -> Self {
        Self {
            buckets: self.buckets.copied(),
            seed: self.seed,
            age_max: self.age_max.copied(),
            ownership: self.ownership.copied(),
            claims: self.claims.copied(),
        }
    }
}

impl Bucket {
    fn new() -> Self {
        Self {
            keys: [const { AtomicU64::new(FREE) }; PROBES_MAX],
            values: [const { AtomicU64::new(0) }; PROBES_MAX],
        }
    }
}

fn share(ports: usize) -> u16 {
    let share = (MACS_MAX / ports.max(1)).min(MACS_PER_PORT_MAX);
    u16::try_from(share).unwrap_or(u16::MAX)
}

/// Spreads the bits of a seed over a whole word (a step of the splitmix generator).
pub(crate) fn mix(seed: u64) -> u64 {
    let mut word = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const OWNER: PortId = PortId(0);
    const OTHER: PortId = PortId(1);

    fn learn(table: &MacTable, port: PortId, address: MacAddress, now_ms: u64) -> Learned {
        table.learn(port, VlanId::NONE, address, Tick::of_ms(now_ms))
    }

    fn port_of(table: &MacTable, address: MacAddress, now_ms: u64) -> Option<PortId> {
        table.port_of(VlanId::NONE, address, Tick::of_ms(now_ms))
    }

    /// A table and more addresses than fit in the one bucket they all belong to.
    fn collisions() -> (MacTable, Vec<MacAddress>) {
        let table = MacTable::new(42);
        let addresses: Vec<MacAddress> = (0..100_000)
            .map(MacAddress::local)
            .filter(|address| table.hashed(VlanId::NONE, *address).bucket == 7)
            .take(PROBES_MAX + 2)
            .collect();
        assert_eq!(addresses.len(), PROBES_MAX + 2);
        (table, addresses)
    }

    #[test]
    fn a_full_bucket_keeps_what_others_own_until_it_expires() {
        let (table, addresses) = collisions();
        for address in &addresses[..PROBES_MAX] {
            assert_eq!(learn(&table, OWNER, *address, 0), Learned::New);
        }
        let late = addresses[PROBES_MAX];
        assert_eq!(learn(&table, OTHER, late, AGE_MAX_MS), Learned::Refused);
        assert_eq!(port_of(&table, late, AGE_MAX_MS), None);
        for address in &addresses[..PROBES_MAX] {
            assert_eq!(port_of(&table, *address, AGE_MAX_MS), Some(OWNER));
        }
        assert_eq!(learn(&table, OTHER, late, 2 * AGE_MAX_MS), Learned::New);
        assert_eq!(port_of(&table, late, 2 * AGE_MAX_MS), Some(OTHER));
        assert_eq!((table.owned_by(OWNER), table.owned_by(OTHER)), (PROBES_MAX - 1, 1));
    }

    #[test]
    fn in_a_full_bucket_a_port_replaces_its_own_oldest() {
        let (table, addresses) = collisions();
        let now_ms = |n: usize| 10_000 * n as u64;
        for (n, address) in addresses[..PROBES_MAX].iter().enumerate() {
            let port = if n == 0 { OTHER } else { OWNER };
            learn(&table, port, *address, now_ms(n));
        }
        assert_eq!(learn(&table, OWNER, addresses[1], now_ms(PROBES_MAX)), Learned::Known);
        let late = addresses[PROBES_MAX];
        assert_eq!(learn(&table, OWNER, late, now_ms(PROBES_MAX)), Learned::New);
        assert_eq!(
            port_of(&table, addresses[0], now_ms(PROBES_MAX)),
            Some(OTHER),
            "older, but not its own"
        );
        assert_eq!(
            port_of(&table, addresses[1], now_ms(PROBES_MAX)),
            Some(OWNER),
            "first, but seen again"
        );
        assert_eq!(port_of(&table, addresses[2], now_ms(PROBES_MAX)), None, "its own oldest");
        assert_eq!(table.owned_by(OWNER), PROBES_MAX - 1);
    }

    #[test]
    fn an_expired_entry_counts_as_new_wherever_it_turns_up() {
        let (table, addresses) = collisions();
        learn(&table, OWNER, addresses[0], 0);
        assert_eq!(learn(&table, OTHER, addresses[0], 2 * AGE_MAX_MS), Learned::New);
        assert_eq!((table.owned_by(OWNER), table.owned_by(OTHER)), (0, 1));
    }

    #[test]
    fn a_seed_changes_who_collides() {
        let (table, addresses) = collisions();
        let mut buckets = [42, 43].map(|seed| {
            let table = MacTable::new(seed);
            addresses
                .iter()
                .map(|address| table.hashed(VlanId::NONE, *address).bucket)
                .collect::<Vec<_>>()
        });
        assert!(
            buckets[0]
                .iter()
                .all(|bucket| *bucket == table.hashed(VlanId::NONE, addresses[0]).bucket)
        );
        buckets[1].sort_unstable();
        buckets[1].dedup();
        assert!(buckets[1].len() > PROBES_MAX / 2, "{:?}", buckets[1]);
    }

    #[test]
    fn neighbouring_addresses_spread_evenly() {
        let table = MacTable::new(42);
        let mut counts = std::vec![0_u32; BUCKETS];
        for n in 0..u32::try_from(BUCKETS).unwrap() {
            counts[table.hashed(VlanId::NONE, MacAddress::local(n)).bucket] += 1;
        }
        let most = counts.iter().max().copied().unwrap_or(0);
        assert!(most <= 12, "{most} of {BUCKETS} addresses in one bucket");
    }

    #[test]
    fn a_fixed_address_neither_moves_nor_ages_nor_counts() {
        let (table, addresses) = collisions();
        assert_eq!(table.fix(OWNER, VlanId::NONE, addresses[..1].iter().copied()), 0);
        assert_eq!(table.fix(OTHER, VlanId::NONE, addresses[..1].iter().copied()), 1, "taken");
        assert_eq!(learn(&table, OTHER, addresses[0], 0), Learned::Fixed);
        assert_eq!(learn(&table, OWNER, addresses[0], 9 * AGE_MAX_MS), Learned::Known);
        assert_eq!(port_of(&table, addresses[0], 20 * AGE_MAX_MS), Some(OWNER));
        for address in &addresses[1..] {
            learn(&table, OTHER, *address, 0);
        }
        assert_eq!(port_of(&table, addresses[0], 0), Some(OWNER), "a full bucket keeps it");
        assert_eq!((table.owned_by(OWNER), table.owned_by(OTHER)), (0, PROBES_MAX - 1));
        table.fix(OWNER, VlanId::NONE, core::iter::empty());
        assert_eq!(port_of(&table, addresses[0], 0), None);
    }

    #[test]
    fn fixing_makes_room_among_what_was_learned() {
        let (table, addresses) = collisions();
        for address in &addresses[..PROBES_MAX] {
            learn(&table, OTHER, *address, 0);
        }
        assert_eq!(table.fix(OWNER, VlanId::NONE, addresses[PROBES_MAX..].iter().copied()), 0);
        assert_eq!(port_of(&table, addresses[PROBES_MAX], 0), Some(OWNER));
        assert_eq!(table.owned_by(OTHER), PROBES_MAX - 2);
    }

    #[test]
    fn a_flapping_address_stays_for_the_rest_of_a_second() {
        let (table, addresses) = collisions();
        learn(&table, OWNER, addresses[0], 0);
        let ports = [OTHER, OWNER];
        let moves =
            (0..100).filter(|n| learn(&table, ports[n % 2], addresses[0], 0) == Learned::Moved);
        assert_eq!(moves.count(), usize::from(crate::FLAPS_MAX));
        assert_eq!(learn(&table, OWNER, addresses[0], 0), Learned::Flapping);
        assert_eq!(learn(&table, OWNER, addresses[0], 1100), Learned::Moved);
        assert_eq!(port_of(&table, addresses[0], 1100), Some(OWNER));
    }

    #[test]
    fn the_same_address_in_two_vlans_is_two_stations() {
        let table = MacTable::new(1);
        let (one, two) = (VlanId::new(1).unwrap(), VlanId::new(2).unwrap());
        let (address, now) = (MacAddress::local(1), Tick::of_ms(0));
        assert_eq!(table.learn(OWNER, one, address, now), Learned::New);
        assert_eq!(table.learn(OTHER, two, address, now), Learned::New);
        assert_eq!(table.port_of(one, address, now), Some(OWNER));
        assert_eq!(table.port_of(two, address, now), Some(OTHER));
        assert_eq!(table.port_of(VlanId::NONE, address, now), None);
    }

    #[test]
    fn a_key_with_the_value_of_another_is_not_believed() {
        let (table, addresses) = collisions();
        learn(&table, OWNER, addresses[0], 0);
        learn(&table, OTHER, addresses[1], 0);
        let hashed = |at: usize| table.hashed(VlanId::NONE, addresses[at]);
        let word = |at: usize| {
            let (slot, _) = table.find(hashed(at)).unwrap();
            &table.buckets[hashed(at).bucket].values[slot]
        };
        // A reader that read the key before, and the value after a replacement, sees this.
        let (torn, whole) = (word(0), word(1).load(Relaxed));
        torn.store(whole, Relaxed);
        assert_eq!(port_of(&table, addresses[0], 0), None);
        assert_eq!(port_of(&table, addresses[1], 0), Some(OTHER));
    }

    #[test]
    fn while_a_worker_changes_the_table_others_go_on_without_learning() {
        let (table, addresses) = collisions();
        learn(&table, OWNER, addresses[0], 0);
        let change = table.try_change().unwrap();
        assert!(table.try_change().is_none());
        assert_eq!(learn(&table, OTHER, addresses[1], 0), Learned::Refused);
        assert_eq!(learn(&table, OTHER, addresses[0], 0), Learned::Refused);
        assert_eq!(learn(&table, OWNER, addresses[0], 5000), Learned::Known, "a new stamp of age");
        assert_eq!(port_of(&table, addresses[0], 5000), Some(OWNER));
        drop(change);
        assert_eq!(learn(&table, OTHER, addresses[1], 0), Learned::New);
    }
}
