//! The flows of all guests: found by what a packet says, or by the name that a socket carries.
//!
//! Limits: [`Limits`], of which no guest can take another's share. Allocated once.

use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::net::SocketAddr;

use ringway_net::{MacAddress, Nanos};

use crate::timers::Timers;

/// A port of the switch, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guest(pub u16);

/// The kind of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// A connection.
    Tcp,
    /// Datagrams between two ports.
    Udp,
    /// Echo requests with one identifier; it stands in the place of the guest's port.
    Echo,
}

/// The key that tells flows apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The port that the guest is behind.
    pub guest: Guest,
    /// The kind of flow.
    pub protocol: Protocol,
    /// The guest's end.
    pub from: SocketAddr,
    /// The other end.
    pub to: SocketAddr,
}

/// The number of a flow. A later flow has another number, also in the same place of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId {
    index: u32,
    generation: u32,
}

impl FlowId {
    /// In one word, as epoll carries it.
    pub const fn to_u64(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Its place in the table, which is below [`Limits::flows`]; other flows have had it before.
    pub const fn index(self) -> usize {
        self.index as usize
    }

    /// From the word of [`to_u64`](Self::to_u64).
    #[expect(clippy::cast_possible_truncation, reason = "the two halves of a word")]
    pub const fn from_u64(word: u64) -> Self {
        Self { index: word as u32, generation: (word >> 32) as u32 }
    }
}

/// Upper limits, for each guest and for all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Ports that guests may be behind.
    pub guests: u16,
    /// Flows of all guests.
    pub flows: u32,
    /// Flows of one guest.
    pub flows_per_guest: u32,
    /// Connections of one guest whose other end has not answered.
    pub connecting_per_guest: u32,
    /// Echo flows of one guest.
    pub echoes_per_guest: u32,
    /// Questions of one guest to the host's resolvers.
    pub questions_per_guest: u32,
    /// New flows of one guest in a second; twice as many at once.
    pub new_flows_per_second: u32,
    /// ICMP errors and resets towards one guest in a second.
    pub errors_per_second: u32,
    /// Bytes of a connection that are on the way to its guest.
    pub in_flight: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            guests: 64,
            flows: 16_384,
            flows_per_guest: 1024,
            connecting_per_guest: 256,
            echoes_per_guest: 64,
            questions_per_guest: 256,
            new_flows_per_second: 5000,
            errors_per_second: 100,
            in_flight: u32::MAX,
        }
    }
}

/// The state of a flow besides that of its protocol.
#[derive(Debug)]
pub(crate) struct Entry<T> {
    pub key: FlowKey,
    /// Where its answers go.
    pub mac: MacAddress,
    pub used: Nanos,
    /// Bytes of data that the other end's socket took, and that the guest has.
    pub from_guest: u64,
    pub to_guest: u64,
    pub state: T,
    /// Its socket was opened once more, in the place of another flow's.
    pub is_second_try: bool,
    is_ready: bool,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Option<Entry<T>>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    by_key: HashMap<FlowKey, u32>,
    timers: Timers,
    /// The flows of each guest.
    members: Vec<Vec<FlowId>>,
    /// Flows that may have something for their guest.
    ready: Vec<VecDeque<FlowId>>,
    limits: Limits,
}

impl<T> Table<T> {
    pub fn new(limits: Limits, keys: RandomState) -> Self {
        let empty = || Slot { generation: 0, entry: None };
        let per_guest = limits.flows_per_guest as usize;
        let mut by_key = HashMap::with_hasher(keys);
        by_key.reserve(2 * limits.flows as usize);
        Self {
            slots: std::iter::repeat_with(empty).take(limits.flows as usize).collect(),
            free: (0..limits.flows).rev().collect(),
            by_key,
            timers: Timers::new(limits.flows),
            members: (0..limits.guests).map(|_| Vec::with_capacity(per_guest)).collect(),
            ready: (0..limits.guests).map(|_| VecDeque::with_capacity(per_guest)).collect(),
            limits,
        }
    }

    pub fn find(&self, key: &FlowKey) -> Option<FlowId> {
        let index = *self.by_key.get(key)?;
        Some(FlowId { index, generation: self.slots[index as usize].generation })
    }

    pub fn entry(&self, id: FlowId) -> Option<&Entry<T>> {
        let slot = self.slots.get(id.index as usize)?;
        slot.entry.as_ref().filter(|_| slot.generation == id.generation)
    }

    pub fn entry_mut(&mut self, id: FlowId) -> Option<&mut Entry<T>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.entry.as_mut().filter(|_| slot.generation == id.generation)
    }

    pub fn has_room(&self, guest: Guest) -> bool {
        let members = self.members.get(usize::from(guest.0));
        let max = self.limits.flows_per_guest as usize;
        members.is_some_and(|members| members.len() < max) && !self.free.is_empty()
    }

    /// How many flows a guest has.
    pub fn count_of(&self, guest: Guest) -> usize {
        self.members.get(usize::from(guest.0)).map_or(0, Vec::len)
    }

    /// The flows of a guest.
    pub fn of_guest(&self, guest: Guest) -> impl Iterator<Item = (FlowId, &Entry<T>)> {
        let members = self.members.get(usize::from(guest.0)).into_iter().flatten();
        members.filter_map(|id| Some((*id, self.entry(*id)?)))
    }

    /// `None`: there is no room, or such a flow exists.
    pub fn insert(
        &mut self,
        key: FlowKey,
        mac: MacAddress,
        state: T,
        now: Nanos,
    ) -> Option<FlowId> {
        if !self.has_room(key.guest) || self.by_key.contains_key(&key) {
            return None;
        }
        let index = self.free.pop()?;
        self.by_key.insert(key, index);
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(Entry {
            key,
            mac,
            used: now,
            from_guest: 0,
            to_guest: 0,
            state,
            is_second_try: false,
            is_ready: false,
        });
        let id = FlowId { index, generation: slot.generation };
        self.members[usize::from(key.guest.0)].push(id);
        Some(id)
    }

    pub fn remove(&mut self, id: FlowId) -> Option<Entry<T>> {
        self.entry(id)?;
        let slot = &mut self.slots[id.index as usize];
        let entry = slot.entry.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.by_key.remove(&entry.key);
        self.timers.set(id.index, None);
        let guest = usize::from(entry.key.guest.0);
        if let Some(place) = self.members[guest].iter().position(|other| *other == id) {
            self.members[guest].swap_remove(place);
        }
        if entry.is_ready {
            self.ready[guest].retain(|other| *other != id);
        }
        self.free.push(id.index);
        Some(entry)
    }

    /// The flow is that guest's from now on. `false`: the guest has no room, or such a flow.
    pub fn hand_over(&mut self, id: FlowId, guest: Guest) -> bool {
        let Some(entry) = self.entry(id) else { return false };
        let (before, is_ready) = (entry.key, entry.is_ready);
        let key = FlowKey { guest, ..before };
        let most = self.limits.flows_per_guest as usize;
        let has_room = usize::from(guest.0) < self.members.len() && self.count_of(guest) < most;
        if !has_room || self.by_key.contains_key(&key) {
            return false;
        }
        self.by_key.remove(&before);
        self.by_key.insert(key, id.index);
        let [from, to] = [before.guest, guest].map(|guest| usize::from(guest.0));
        self.members[from].retain(|other| *other != id);
        self.members[to].push(id);
        if is_ready {
            self.ready[from].retain(|other| *other != id);
            self.ready[to].push_back(id);
        }
        if let Some(entry) = self.entry_mut(id) {
            entry.key = key;
        }
        true
    }

    pub fn set_deadline(&mut self, id: FlowId, deadline: Option<Nanos>) {
        if self.entry(id).is_some() {
            self.timers.set(id.index, deadline);
        }
    }

    /// The same, where a deadline that comes too early does no harm: later ones are not noted.
    pub fn set_deadline_at_most(&mut self, id: FlowId, deadline: Option<Nanos>) {
        let is_earlier = |known: Option<Nanos>| match (known, deadline) {
            (None, deadline) => deadline.is_some(),
            (Some(known), Some(deadline)) => deadline < known,
            (Some(_), None) => false,
        };
        if self.entry(id).is_some() && is_earlier(self.timers.of(id.index)) {
            self.timers.set(id.index, deadline);
        }
    }

    pub fn deadline(&self) -> Option<Nanos> {
        self.timers.first().map(|(at, _)| at)
    }

    /// A flow whose time has come.
    pub fn due(&self, now: Nanos) -> Option<FlowId> {
        let (at, index) = self.timers.first()?;
        let generation = self.slots[index as usize].generation;
        (at <= now).then_some(FlowId { index, generation })
    }

    /// Puts the flow at the end of its guest's queue, if it is not in it.
    pub fn set_ready(&mut self, id: FlowId) {
        let Some(entry) = self.entry_mut(id).filter(|entry| !entry.is_ready) else { return };
        entry.is_ready = true;
        let guest = usize::from(entry.key.guest.0);
        self.ready[guest].push_back(id);
    }

    pub fn first_ready(&self, guest: Guest) -> Option<FlowId> {
        self.ready.get(usize::from(guest.0))?.front().copied()
    }

    /// Takes the first of the queue out of it.
    pub fn unset_ready(&mut self, guest: Guest) {
        if let Some(id) = self.ready[usize::from(guest.0)].pop_front()
            && let Some(entry) = self.entry_mut(id)
        {
            entry.is_ready = false;
        }
    }

    /// Puts the first of the queue at its end.
    pub fn rotate_ready(&mut self, guest: Guest) {
        let queue = &mut self.ready[usize::from(guest.0)];
        if !queue.is_empty() {
            queue.rotate_left(1);
        }
    }
}

/// A limit of so many things a second, twice as many at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    per_second: u64,
    /// When the allowance would be full; it may be twice a second's worth behind `now`.
    full_at: Nanos,
}

impl Rate {
    pub fn new(per_second: u32) -> Self {
        Self { per_second: u64::from(per_second).max(1), full_at: Nanos(0) }
    }

    pub fn take(&mut self, now: Nanos) -> bool {
        const BURST_NS: u64 = 2_000_000_000;
        let full_at = self.full_at.max(now).plus(1_000_000_000 / self.per_second);
        let is_fine = full_at.since(now) <= BURST_NS;
        if is_fine {
            self.full_at = full_at;
        }
        is_fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(guest: u16, port: u16) -> FlowKey {
        let [from, to] = [port, 80].map(|port| SocketAddr::from(([10, 0, 2, 15], port)));
        FlowKey { guest: Guest(guest), protocol: Protocol::Udp, from, to }
    }

    #[test]
    fn flows_come_and_go_and_names_do_not_return() {
        let limits = Limits { flows: 3, flows_per_guest: 2, guests: 2, ..Limits::default() };
        let mut table = Table::new(limits, RandomState::new());
        let put = |table: &mut Table<u8>, guest, port| {
            table.insert(key(guest, port), MacAddress::local(1), 7, Nanos(0))
        };
        let first = put(&mut table, 0, 1).unwrap();
        assert_eq!(put(&mut table, 0, 1), None, "twice");
        let second = put(&mut table, 0, 2).unwrap();
        assert_eq!(put(&mut table, 0, 3), None, "its share");
        assert_eq!(put(&mut table, 2, 3), None, "no such guest");
        assert!(put(&mut table, 1, 3).is_some());
        assert_eq!(put(&mut table, 1, 4), None, "full");
        table.set_ready(first);
        table.set_ready(second);
        table.set_ready(first);
        table.set_deadline(first, Some(Nanos(9)));
        assert_eq!((table.due(Nanos(8)), table.due(Nanos(9))), (None, Some(first)));
        assert!(table.remove(first).is_some());
        assert!(table.remove(first).is_none() && table.entry(first).is_none());
        assert_eq!(table.first_ready(Guest(0)), Some(second));
        table.unset_ready(Guest(0));
        assert_eq!((table.first_ready(Guest(0)), table.deadline()), (None, None));
        let again = put(&mut table, 0, 1).unwrap();
        assert_ne!(again, first);
        assert_eq!(FlowId::from_u64(again.to_u64()), again);
        table.set_deadline(first, Some(Nanos(1)));
        assert_eq!(table.deadline(), None, "its name is out of date");
    }

    #[test]
    fn rates_have_a_burst() {
        let mut rate = Rate::new(10);
        let start = Nanos(5_000_000_000);
        assert_eq!((0..100).filter(|_| rate.take(start)).count(), 20);
        let later = start.plus(1_000_000_000);
        assert_eq!((0..100).filter(|_| rate.take(later)).count(), 10);
    }
}
