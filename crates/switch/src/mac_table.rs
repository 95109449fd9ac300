//! Which port a MAC address was last seen on.
//!
//! Theory of operation: a hash of the address, keyed with a secret seed, names one bucket of
//! eight entries. The eight keys of a bucket (address and port in one word) fill one cache line
//! and their ages the next, so looking an address up touches one line, and never more than
//! [`PROBES_MAX`] entries. All memory is taken when the table is made.
//!
//! Fairness: a port owns at most its share of the entries, and to learn more it gives up one of
//! its own. An entry of another port is replaced only when it has expired. Since all shares
//! together are a quarter of the table, a guest that invents addresses can neither push another
//! port's addresses out nor keep them from being learned, short of finding collisions of a hash
//! whose seed it does not know; and even then the address is only flooded.

use alloc::boxed::Box;
use alloc::vec;

use ringway_net::MacAddress;

use crate::{PORTS_MAX, PortId};

/// Addresses that all ports together may own.
pub const MACS_MAX: usize = 4096;
/// Addresses that one port may own, however few ports there are.
pub const MACS_PER_PORT_MAX: usize = 1024;
/// Entries that are looked at to find an address.
pub const PROBES_MAX: usize = 8;
/// An address that was not seen for so long is forgotten, in milliseconds: five minutes, as
/// usual for bridges. It may happen up to 1.1 seconds later, never earlier.
pub const AGE_MAX_MS: u64 = 300_000;

/// Four times as many entries as may be owned keep full buckets rare.
const BUCKETS: usize = 4 * MACS_MAX / PROBES_MAX;
const BUCKET_BITS: u32 = BUCKETS.trailing_zeros();
/// Buckets that are searched for something to give up when a port has used up its share.
const SWEEP_BUCKETS_MAX: usize = 8;
/// Ages are kept in ticks of 1024 ms: a shift instead of a division for each packet.
const TICK_SHIFT: u32 = 10;
/// The first age in ticks that is too old: both ends of an age are rounded down, so a difference
/// of one tick more than the maximum may still be young enough.
const AGE_MAX_TICKS: u32 = 294;
const PORT_BITS: u32 = 16;
/// No station has the address of all zeros, so no entry has this key.
const FREE: u64 = 0;

const _: () = assert!(BUCKETS.is_power_of_two());
const _: () = assert!(AGE_MAX_TICKS as u64 == (AGE_MAX_MS >> TICK_SHIFT) + 2);

/// Eight entries: keys in one cache line, ages in the next.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// Address in the upper 48 bits, port in the lower 16; [`FREE`] if there is no entry.
    keys: [u64; PROBES_MAX],
    /// When each was last seen.
    seen_ticks: [u32; PROBES_MAX],
}

const _: () = assert!(size_of::<Bucket>() == 128);

/// What became of an address that a port was seen to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Learned {
    /// Known on this port before.
    Known,
    /// New in the table.
    New,
    /// Was on another port until now.
    Moved,
    /// Not in the table: no station has this address, or there is no room for it.
    Refused,
}

/// Addresses and their ports. One owner, no sharing.
pub struct MacTable {
    buckets: Box<[Bucket]>,
    /// Entries of each port.
    owned: [u16; PORTS_MAX],
    /// Entries each port may have now.
    share: u16,
    /// The time of the last [`learn`](Self::learn).
    now_ticks: u32,
    /// Where the next search for something to give up begins.
    hand: usize,
    seed: [u64; 2],
}

impl MacTable {
    /// An empty table. `seed` should be secret and different for each table.
    pub fn new(seed: u64) -> Self {
        let bucket = Bucket { keys: [FREE; PROBES_MAX], seen_ticks: [0; PROBES_MAX] };
        Self {
            buckets: vec![bucket; BUCKETS].into_boxed_slice(),
            owned: [0; PORTS_MAX],
            share: share(1),
            now_ticks: 0,
            hand: 0,
            seed: [mix(seed), mix(mix(seed)) | 1],
        }
    }

    /// Divides the table among that many ports. Who owns more than the new share loses the rest.
    pub fn divide(&mut self, ports: usize) {
        self.share = share(ports);
        if self.owned.iter().all(|owned| *owned <= self.share) {
            return;
        }
        for key in self.buckets.iter_mut().flat_map(|bucket| &mut bucket.keys) {
            if *key != FREE && self.owned[port_in(*key).index()] > self.share {
                self.owned[port_in(*key).index()] -= 1;
                *key = FREE;
            }
        }
    }

    /// Entries that `port` owns, expired ones included.
    pub fn owned_by(&self, port: PortId) -> usize {
        usize::from(self.owned[port.index()])
    }

    /// The port of `address`, if it was seen within [`AGE_MAX_MS`] before the last time given.
    #[inline]
    pub fn port_of(&self, address: MacAddress) -> Option<PortId> {
        let bucket = &self.buckets[self.bucket_of(address)];
        let at = bucket.find(address)?;
        self.is_fresh(bucket.seen_ticks[at]).then(|| port_in(bucket.keys[at]))
    }

    /// Notes that `address` is on `port`. `now_ms` counts milliseconds from any start and does
    /// not go backwards.
    #[inline]
    pub fn learn(&mut self, port: PortId, address: MacAddress, now_ms: u64) -> Learned {
        self.now_ticks = ticks(now_ms);
        if !address.is_station() {
            return Learned::Refused;
        }
        let at_bucket = self.bucket_of(address);
        let bucket = &mut self.buckets[at_bucket];
        match bucket.find(address) {
            Some(at) if bucket.keys[at] == key(address, port) => {
                // Most packets find their entry seen in this very tick: do not dirty the line.
                if bucket.seen_ticks[at] != self.now_ticks {
                    bucket.seen_ticks[at] = self.now_ticks;
                }
                Learned::Known
            }
            Some(at) => self.relearn(port, address, at_bucket, at),
            None => self.insert(port, address, at_bucket),
        }
    }

    /// Forgets everything that was learned from `port`. Walks the whole table.
    pub fn forget_port(&mut self, port: PortId) {
        for key in self.buckets.iter_mut().flat_map(|bucket| &mut bucket.keys) {
            if *key != FREE && port_in(*key) == port {
                *key = FREE;
            }
        }
        self.owned[port.index()] = 0;
    }

    /// The address is known on another port: its station has moved (or the old entry expired).
    #[cold]
    fn relearn(
        &mut self,
        port: PortId,
        address: MacAddress,
        at_bucket: usize,
        at: usize,
    ) -> Learned {
        let was_fresh = self.is_fresh(self.buckets[at_bucket].seen_ticks[at]);
        self.remove(at_bucket, at);
        match self.insert(port, address, at_bucket) {
            Learned::New if was_fresh => Learned::Moved,
            learned => learned,
        }
    }

    #[cold]
    fn insert(&mut self, port: PortId, address: MacAddress, at_bucket: usize) -> Learned {
        if self.owned[port.index()] >= self.share && !self.give_up_one(port, at_bucket) {
            return Learned::Refused;
        }
        let Some(at) = self.place_for(port, at_bucket) else { return Learned::Refused };
        let bucket = &mut self.buckets[at_bucket];
        bucket.keys[at] = key(address, port);
        bucket.seen_ticks[at] = self.now_ticks;
        self.owned[port.index()] += 1;
        Learned::New
    }

    /// A free place in the bucket, made free if necessary: by an expired entry of anyone, or by
    /// the oldest entry of `port` itself.
    fn place_for(&mut self, port: PortId, at_bucket: usize) -> Option<usize> {
        let bucket = &self.buckets[at_bucket];
        if let Some(at) = bucket.keys.iter().position(|key| *key == FREE) {
            return Some(at);
        }
        let at = self.expired_in(at_bucket).or_else(|| self.oldest_of(port, at_bucket))?;
        self.remove(at_bucket, at);
        Some(at)
    }

    /// Takes one entry away from `port`, so that it may have another: one in this bucket if there
    /// is any, else the next one in a bounded walk on through the table.
    fn give_up_one(&mut self, port: PortId, at_bucket: usize) -> bool {
        if let Some(at) = self.oldest_of(port, at_bucket) {
            self.remove(at_bucket, at);
            return true;
        }
        for _ in 0..SWEEP_BUCKETS_MAX {
            let at_bucket = self.hand;
            self.hand = (self.hand + 1) % BUCKETS;
            if let Some(at) = self.oldest_of(port, at_bucket) {
                self.remove(at_bucket, at);
                return true;
            }
        }
        false
    }

    fn oldest_of(&self, port: PortId, at_bucket: usize) -> Option<usize> {
        let bucket = &self.buckets[at_bucket];
        (0..PROBES_MAX)
            .filter(|at| bucket.keys[*at] != FREE && port_in(bucket.keys[*at]) == port)
            .min_by_key(|at| bucket.seen_ticks[*at])
    }

    fn expired_in(&self, at_bucket: usize) -> Option<usize> {
        let bucket = &self.buckets[at_bucket];
        (0..PROBES_MAX)
            .find(|at| bucket.keys[*at] != FREE && !self.is_fresh(bucket.seen_ticks[*at]))
    }

    fn remove(&mut self, at_bucket: usize, at: usize) {
        let key = &mut self.buckets[at_bucket].keys[at];
        self.owned[port_in(*key).index()] -= 1;
        *key = FREE;
    }

    #[inline]
    fn is_fresh(&self, seen_ticks: u32) -> bool {
        self.now_ticks.saturating_sub(seen_ticks) < AGE_MAX_TICKS
    }

    /// The upper and the lower half of a 128-bit product folded together: every bit of the result
    /// depends on every bit of the address and of both seeds.
    #[inline]
    fn bucket_of(&self, address: MacAddress) -> usize {
        let product = u128::from(address.to_u64() ^ self.seed[0]) * u128::from(self.seed[1]);
        #[expect(clippy::cast_possible_truncation, reason = "the two halves of the product")]
        let folded = (product >> 64) as u64 ^ product as u64;
        (folded >> (u64::BITS - BUCKET_BITS)) as usize
    }
}

impl Bucket {
    #[inline]
    fn find(&self, address: MacAddress) -> Option<usize> {
        let wanted = address.to_u64();
        // A free entry reads as the address of all zeros, which nobody may ask for.
        if wanted == 0 {
            return None;
        }
        self.keys.iter().position(|key| key >> PORT_BITS == wanted)
    }
}

fn share(ports: usize) -> u16 {
    let share = (MACS_MAX / ports.max(1)).min(MACS_PER_PORT_MAX);
    u16::try_from(share).unwrap_or(u16::MAX)
}

#[inline]
fn key(address: MacAddress, port: PortId) -> u64 {
    address.to_u64() << PORT_BITS | u64::from(port.0)
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the port is the lower half word of a key")]
fn port_in(key: u64) -> PortId {
    PortId(key as u16)
}

/// 32 bits of ticks last for 139 years.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "bounded by the clock's start")]
fn ticks(now_ms: u64) -> u32 {
    (now_ms >> TICK_SHIFT) as u32
}

/// Spreads the bits of a seed over a whole word (a step of the splitmix generator).
fn mix(seed: u64) -> u64 {
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

    /// A table and more addresses than fit in the one bucket they all belong to.
    fn collisions() -> (MacTable, Vec<MacAddress>) {
        let table = MacTable::new(42);
        let addresses: Vec<MacAddress> = (0..100_000)
            .map(MacAddress::local)
            .filter(|address| table.bucket_of(*address) == 7)
            .take(PROBES_MAX + 2)
            .collect();
        assert_eq!(addresses.len(), PROBES_MAX + 2);
        (table, addresses)
    }

    #[test]
    fn a_full_bucket_keeps_what_others_own_until_it_expires() {
        let (mut table, addresses) = collisions();
        for address in &addresses[..PROBES_MAX] {
            assert_eq!(table.learn(OWNER, *address, 0), Learned::New);
        }
        let late = addresses[PROBES_MAX];
        assert_eq!(table.learn(OTHER, late, AGE_MAX_MS), Learned::Refused);
        assert_eq!(table.port_of(late), None);
        for address in &addresses[..PROBES_MAX] {
            assert_eq!(table.port_of(*address), Some(OWNER));
        }
        assert_eq!(table.learn(OTHER, late, 2 * AGE_MAX_MS), Learned::New);
        assert_eq!(table.port_of(late), Some(OTHER));
        assert_eq!((table.owned_by(OWNER), table.owned_by(OTHER)), (PROBES_MAX - 1, 1));
    }

    #[test]
    fn in_a_full_bucket_a_port_replaces_its_own_oldest() {
        let (mut table, addresses) = collisions();
        let now_ms = |n: usize| 10_000 * n as u64;
        for (n, address) in addresses[..PROBES_MAX].iter().enumerate() {
            let port = if n == 0 { OTHER } else { OWNER };
            table.learn(port, *address, now_ms(n));
        }
        assert_eq!(table.learn(OWNER, addresses[1], now_ms(PROBES_MAX)), Learned::Known);
        let late = addresses[PROBES_MAX];
        assert_eq!(table.learn(OWNER, late, now_ms(PROBES_MAX)), Learned::New);
        assert_eq!(table.port_of(addresses[0]), Some(OTHER), "older, but not its own");
        assert_eq!(table.port_of(addresses[1]), Some(OWNER), "first, but seen again");
        assert_eq!(table.port_of(addresses[2]), None, "its own oldest");
        assert_eq!(table.owned_by(OWNER), PROBES_MAX - 1);
    }

    #[test]
    fn an_expired_entry_counts_as_new_wherever_it_turns_up() {
        let (mut table, addresses) = collisions();
        table.learn(OWNER, addresses[0], 0);
        assert_eq!(table.learn(OTHER, addresses[0], 2 * AGE_MAX_MS), Learned::New);
        assert_eq!((table.owned_by(OWNER), table.owned_by(OTHER)), (0, 1));
    }

    #[test]
    fn a_seed_changes_who_collides() {
        let (table, addresses) = collisions();
        let mut buckets = [42, 43].map(|seed| {
            let table = MacTable::new(seed);
            addresses.iter().map(|address| table.bucket_of(*address)).collect::<Vec<_>>()
        });
        assert!(buckets[0].iter().all(|bucket| *bucket == table.bucket_of(addresses[0])));
        buckets[1].sort_unstable();
        buckets[1].dedup();
        assert!(buckets[1].len() > PROBES_MAX / 2, "{:?}", buckets[1]);
    }

    #[test]
    fn neighbouring_addresses_spread_evenly() {
        let table = MacTable::new(42);
        let mut counts = vec![0_u32; BUCKETS];
        for n in 0..u32::try_from(BUCKETS).unwrap() {
            counts[table.bucket_of(MacAddress::local(n))] += 1;
        }
        let most = counts.iter().max().copied().unwrap_or(0);
        assert!(most <= 12, "{most} of {BUCKETS} addresses in one bucket");
    }
}
