//! Changes of the table: entries come, move and go. One at a time; readers are never disturbed.

use core::cell::Cell;
use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    AddressNews, BUCKETS, FREE, HashedAddress, Learned, MacTable, SWEEP_BUCKETS_MAX, VLAN_BITS,
    share,
};
use ringway_net::MacAddress;

use crate::entry::{Tick, Value};
use crate::{PROBES_MAX, PortId, VlanId};

/// The right to change the table.
pub(super) struct Change<'a> {
    pub(super) table: &'a MacTable,
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        // PAIRS WITH: mac_table.rs::try_change
        self.table.ownership.is_changing.store(false, Release);
    }
}

impl MacTable {
    /// Forgets what was learned, of one port or VLAN or of all; how many there were. Walks the
    /// whole table.
    pub fn flush(&self, port: Option<PortId>, vlan: Option<VlanId>) -> usize {
        let (change, count) = (self.change(), Cell::new(0));
        change.remove_keys(|key, value| {
            let in_vlan = |vlan: VlanId| key & ((1 << VLAN_BITS) - 1) == u64::from(vlan.raw());
            let is_it = !value.is_fixed()
                && port.is_none_or(|port| value.port() == port)
                && vlan.is_none_or(in_vlan);
            count.set(count.get() + usize::from(is_it));
            is_it
        });
        count.get()
    }
}

impl Change<'_> {
    pub fn divide(&self) {
        let members = &self.table.ownership.members;
        let ports = members.iter().filter(|count| count.load(Relaxed) > 0).count();
        let share = share(ports);
        self.table.ownership.share.store(share, Relaxed);
        if self.table.ownership.owned.iter().all(|owned| owned.load(Relaxed) <= share) {
            return;
        }
        let is_too_rich =
            |port: PortId| self.table.ownership.owned[port.index()].load(Relaxed) > share;
        self.remove_if(|value| !value.is_fixed() && is_too_rich(value.port()));
    }

    /// Removes all entries for which `is_wrong` says so, asking about each just before.
    pub fn remove_if(&self, is_wrong: impl Fn(Value) -> bool) {
        self.remove_keys(|_, value| is_wrong(value));
    }

    /// The same, told the keys as well.
    pub fn remove_keys(&self, is_wrong: impl Fn(u64, Value) -> bool) {
        for at_bucket in 0..BUCKETS {
            for at in 0..PROBES_MAX {
                let key = self.table.buckets[at_bucket].keys[at].load(Relaxed);
                if self.entry(at_bucket, at).is_some_and(|value| is_wrong(key, value)) {
                    self.remove(at_bucket, at);
                }
            }
        }
    }

    fn entry(&self, at_bucket: usize, at: usize) -> Option<Value> {
        let bucket = &self.table.buckets[at_bucket];
        match bucket.keys[at].load(Relaxed) {
            FREE => None,
            _ => Some(Value::from_word(bucket.values[at].load(Relaxed))),
        }
    }

    pub fn insert(&self, port: PortId, hashed: HashedAddress, now: Tick) -> Learned {
        if !self.may_own_one_more(port, hashed.bucket) {
            return Learned::Refused;
        }
        let Some(at) = self.room_for(port, hashed, Some(now)) else {
            return Learned::Refused;
        };
        self.write(hashed, at, Value::learned(port, now, hashed.tag));
        self.own(port);
        Learned::New
    }

    pub fn fix(&self, port: PortId, hashed: HashedAddress) -> bool {
        if let Some((at, old)) = self.table.find(hashed) {
            if old.is_fixed() {
                // Twice on the same port: static, and locked to it.
                return old.port() == port;
            }
            self.remove(hashed.bucket, at);
        }
        let Some(at) = self.room_for(port, hashed, None) else { return false };
        self.write(hashed, at, Value::fixed(port, hashed.tag));
        self.table.ownership.fixed[port.index()].fetch_add(1, Relaxed);
        true
    }

    fn write(&self, hashed: HashedAddress, at: usize, value: Value) {
        let bucket = &self.table.buckets[hashed.bucket];
        bucket.values[at].store(value.word(), Relaxed);
        bucket.keys[at].store(hashed.key, Relaxed);
        self.table.claims.note_change();
    }

    /// A free place in the bucket, made free if necessary: by an expired entry of anyone, or by
    /// the oldest entry of `port` itself; without a time, by the oldest that was learned.
    fn room_for(&self, port: PortId, hashed: HashedAddress, now: Option<Tick>) -> Option<usize> {
        let at_bucket = hashed.bucket;
        let mut slots = (0..PROBES_MAX).map(|step| (hashed.first_slot() + step) % PROBES_MAX);
        if let Some(at) = slots.find(|at| self.entry(at_bucket, *at).is_none()) {
            return Some(at);
        }
        let at = match now {
            Some(now) => self
                .oldest_of(at_bucket, |value| !self.table.is_fresh(value, now))
                .or_else(|| self.oldest_of(at_bucket, |value| value.port() == port)),
            None => self.oldest_of(at_bucket, |_| true),
        }?;
        self.remove(at_bucket, at);
        Some(at)
    }

    /// Whether `port` may have another entry. If need be it gives up one: of this bucket if there
    /// is any, else the next one in a bounded walk on through the table.
    pub fn may_own_one_more(&self, port: PortId, at_bucket: usize) -> bool {
        let table = self.table;
        if table.ownership.owned[port.index()].load(Relaxed) < table.ownership.share.load(Relaxed) {
            return true;
        }
        let hand = table.ownership.hand.load(Relaxed);
        let walk = (0..SWEEP_BUCKETS_MAX).map(|step| (hand + step) % BUCKETS);
        for (steps, at_bucket) in core::iter::once(at_bucket).chain(walk).enumerate() {
            table.ownership.hand.store((hand + steps) % BUCKETS, Relaxed);
            if let Some(at) = self.oldest_of(at_bucket, |value| value.port() == port) {
                self.remove(at_bucket, at);
                return true;
            }
        }
        false
    }

    /// The learned entry with the oldest stamp among those that `may_go`.
    fn oldest_of(&self, at_bucket: usize, may_go: impl Fn(Value) -> bool) -> Option<usize> {
        let learned = |at: &usize| {
            let value = self.entry(at_bucket, *at)?;
            (!value.is_fixed() && may_go(value)).then_some(value)
        };
        (0..PROBES_MAX)
            .filter(|at| learned(at).is_some())
            .min_by_key(|at| learned(at).map(Value::seen))
    }

    /// The station of that entry is on `port` from now on, if that may own one more.
    pub fn moves(
        &self,
        port: PortId,
        hashed: HashedAddress,
        (at, old): (usize, Value),
        now: Tick,
    ) -> bool {
        if !self.may_own_one_more(port, hashed.bucket) {
            return false;
        }
        self.disown(old);
        self.own(port);
        let moved = Value::learned(port, now, hashed.tag).moved_from(old);
        self.table.buckets[hashed.bucket].values[at].store(moved.word(), Relaxed);
        let (address, from) = (MacAddress::from_u64(hashed.key >> VLAN_BITS), old.port());
        self.table.claims.note_change();
        self.table.claims.note(AddressNews { address, from, to: port, is_refused: false });
        true
    }

    pub fn remove(&self, at_bucket: usize, at: usize) {
        if let Some(value) = self.entry(at_bucket, at) {
            self.table.buckets[at_bucket].keys[at].store(FREE, Relaxed);
            self.disown(value);
            self.table.claims.note_change();
        }
    }

    pub fn own(&self, port: PortId) {
        self.table.ownership.owned[port.index()].fetch_add(1, Relaxed);
    }

    pub fn disown(&self, value: Value) {
        let ownership = &self.table.ownership;
        let counts = if value.is_fixed() { &ownership.fixed } else { &ownership.owned };
        counts[value.port().index()].fetch_sub(1, Relaxed);
    }
}
