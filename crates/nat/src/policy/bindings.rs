//! The names for which an address was an answer, of one guest.
//!
//! A binding ends when its answer does, but not before a minute, nor while a flow uses the address,
//! nor in the minute after. An address is reached by a name only while it is bound to it.
//!
//! How: what is over does not count from its end on, and is removed later, once a second at most.
//! Limits ([`BindingLimits`]): room for an answer is made by bindings that no flow uses, those that
//! end first; a guest whose flows use all has to wait.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ringway_net::Nanos;

use super::name::HostName;

/// Shortest time for which an answer binds, in seconds.
pub const BINDING_MIN_S: u32 = 60;
/// Longest time for which an answer binds, in seconds. Flows prolong it.
pub const BINDING_MAX_S: u32 = 24 * 60 * 60;

const SECOND_NS: u64 = 1_000_000_000;
/// How long an address stays bound after the last flow that used it.
const AFTER_FLOW_NS: u64 = 60 * SECOND_NS;

/// Most bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingLimits {
    /// Addresses of a name that no flow uses.
    pub unused_per_name: usize,
    /// Bindings of a guest.
    pub all: usize,
}

impl Default for BindingLimits {
    fn default() -> Self {
        Self { unused_per_name: 64, all: 4096 }
    }
}

/// The bindings of one guest.
#[derive(Debug, Default)]
pub struct Bindings {
    limits: BindingLimits,
    places: BTreeMap<IpAddr, BoundAddress>,
    count: usize,
    /// Not later than the first end.
    first_end: Option<Nanos>,
}

/// An address: the names for which it was an answer, with the end of each answer.
#[derive(Debug, Default)]
struct BoundAddress {
    names: BTreeMap<HostName, Nanos>,
    flows: u32,
    /// A minute after the last flow.
    kept_until: Nanos,
}

impl BoundAddress {
    /// The end of a binding; `None`: a flow uses it.
    fn end(&self, answer_end: Nanos) -> Option<Nanos> {
        (self.flows == 0).then(|| answer_end.max(self.kept_until))
    }

    /// The names to which it is bound.
    fn bound(&self, now: Nanos) -> impl Iterator<Item = (&HostName, Option<Nanos>)> {
        let names = self.names.iter().map(|(name, answer_end)| (name, self.end(*answer_end)));
        names.filter(move |(_, end)| end.is_none_or(|end| now < end))
    }

    /// Removes what is over; how much that was.
    fn remove_ended(&mut self, now: Nanos) -> usize {
        let before = self.names.len();
        if self.flows == 0 && self.kept_until <= now {
            self.names.retain(|_, answer_end| now < *answer_end);
        }
        before - self.names.len()
    }
}

impl Bindings {
    /// No bindings.
    pub fn new(limits: BindingLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Notes an answer: addresses of a name, each with the seconds for which it may be remembered.
    /// Returns how many found no room, the last ones; the guest must not be told of them.
    pub fn bind(&mut self, name: &HostName, answer: &[(IpAddr, u32)], now: Nanos) -> usize {
        self.remove_ended(now);
        let most = answer.len().min(self.limits.unused_per_name);
        let told: BTreeSet<IpAddr> = answer[..most].iter().map(|(address, _)| *address).collect();
        self.make_room(name, &told);
        let has_room = |(address, ttl_s): &&(IpAddr, u32)| {
            let ttl_s = ttl_s.clamp(&BINDING_MIN_S, &BINDING_MAX_S);
            self.add(name, *address, now.plus(u64::from(*ttl_s) * SECOND_NS))
        };
        answer.len() - answer[..most].iter().take_while(has_room).count()
    }

    /// Adds or prolongs a binding; whether there was room.
    fn add(&mut self, name: &HostName, address: IpAddr, end: Nanos) -> bool {
        let place = self.places.get_mut(&address);
        if let Some(known) = place.and_then(|place| place.names.get_mut(name)) {
            *known = end.max(*known);
        } else if self.count < self.limits.all {
            self.places.entry(address).or_default().names.insert(name.clone(), end);
            self.count += 1;
        } else {
            return false;
        }
        self.first_end = Some(self.first_end.map_or(end, |first| first.min(end)));
        true
    }

    /// Removes unused bindings as far as new ones need their place: those of the name itself, then
    /// those of all names. What the answer tells stays.
    fn make_room(&mut self, name: &HostName, told: &BTreeSet<IpAddr>) {
        let is_known =
            |address| self.places.get(address).is_some_and(|it| it.names.contains_key(name));
        let new: Vec<&IpAddr> = told.iter().filter(|address| !is_known(*address)).collect();
        let is_unused = |address| self.places.get(address).is_none_or(|place| place.flows == 0);
        let unused = new.iter().filter(|address| is_unused(**address)).count();
        let (own, all) = (self.unused_of(name) + unused, self.count + new.len());
        let before = self.count;
        self.remove_first(own.saturating_sub(self.limits.unused_per_name), |address, bound| {
            bound == name && !told.contains(&address)
        });
        let all = all - (before - self.count);
        self.remove_first(all.saturating_sub(self.limits.all), |address, bound| {
            bound != name || !told.contains(&address)
        });
    }

    /// Removes unused bindings that may go, those first that end first.
    fn remove_first(&mut self, count: usize, may_go: impl Fn(IpAddr, &HostName) -> bool) {
        if count == 0 {
            return;
        }
        let mut unused: Vec<(Nanos, IpAddr, &HostName)> = Vec::new();
        for (address, place) in &self.places {
            let ends = place.names.iter().map(|(name, end)| (place.end(*end), name));
            let may = ends.filter(|(_, name)| may_go(*address, name));
            unused.extend(may.filter_map(|(end, name)| Some((end?, *address, name))));
        }
        if count < unused.len() {
            unused.select_nth_unstable(count);
        }
        let gone: Vec<(IpAddr, HostName)> = unused
            .iter()
            .take(count)
            .map(|(_, address, name)| (*address, (*name).clone()))
            .collect();
        for (address, name) in gone {
            if let Some(place) = self.places.get_mut(&address) {
                self.count -= usize::from(place.names.remove(&name).is_some());
                self.remove_empty(address);
            }
        }
    }

    fn remove_empty(&mut self, address: IpAddr) {
        if self.places.get(&address).is_some_and(|it| it.names.is_empty() && it.flows == 0) {
            self.places.remove(&address);
        }
    }

    fn unused_of(&self, name: &HostName) -> usize {
        let unused = self.places.values().filter(|place| place.flows == 0);
        unused.filter(|place| place.names.contains_key(name)).count()
    }

    /// The names to which an address is bound.
    pub fn names(&self, address: IpAddr, now: Nanos) -> impl Iterator<Item = &HostName> {
        let place = self.places.get(&address).into_iter();
        place.flat_map(move |place| place.bound(now).map(|(name, _)| name))
    }

    /// Whether the address is bound to that name.
    pub fn is_bound(&self, name: &HostName, address: IpAddr, now: Nanos) -> bool {
        let place = self.places.get(&address);
        let end = place.and_then(|place| Some(place.end(*place.names.get(name)?)));
        end.is_some_and(|end| end.is_none_or(|end| now < end))
    }

    /// All bindings, each with the nanoseconds left; without them while a flow uses it.
    pub fn all(&self, now: Nanos) -> impl Iterator<Item = (IpAddr, &HostName, Option<u64>)> {
        self.places.iter().flat_map(move |(address, place)| {
            let bound = place.bound(now);
            bound.map(move |(name, end)| (*address, name, end.map(|end| end.since(now))))
        })
    }

    /// A flow uses an address from now on. Returns whether it is bound: only then the flow has to
    /// [`release`](Self::release) it.
    pub fn hold(&mut self, address: IpAddr, now: Nanos) -> bool {
        let Some(place) = self.places.get_mut(&address) else { return false };
        // A flow wakes nothing that is over.
        self.count -= place.remove_ended(now);
        let is_bound = !place.names.is_empty();
        place.flows = place.flows.saturating_add(u32::from(is_bound));
        self.remove_empty(address);
        is_bound
    }

    /// A flow uses an address no more.
    pub fn release(&mut self, address: IpAddr, now: Nanos) {
        let Some(place) = self.places.get_mut(&address) else { return };
        place.flows = place.flows.saturating_sub(1);
        if place.flows == 0 {
            place.kept_until = now.plus(AFTER_FLOW_NS);
            let end = place.bound(now).filter_map(|(_, end)| end).min();
            self.first_end = self.first_end.into_iter().chain(end).min();
            self.remove_empty(address);
        }
    }

    /// Keeps the bindings of these names only: the policy has changed. An address stays in use by
    /// its flows.
    pub fn retain(&mut self, mut keeps: impl FnMut(&HostName) -> bool) {
        for place in self.places.values_mut() {
            let before = place.names.len();
            place.names.retain(|name, _| keeps(name));
            self.count -= before - place.names.len();
        }
        self.places.retain(|_, place| !place.names.is_empty() || place.flows > 0);
    }

    /// When [`remove_ended`](Self::remove_ended) has something to do: all of a second together.
    pub fn deadline(&self) -> Option<Nanos> {
        self.first_end.map(|end| Nanos(end.0.div_ceil(SECOND_NS).saturating_mul(SECOND_NS)))
    }

    /// Removes what is over.
    pub fn remove_ended(&mut self, now: Nanos) {
        if self.first_end.is_none_or(|first| now < first) {
            return;
        }
        for place in self.places.values_mut() {
            self.count -= place.remove_ended(now);
        }
        self.places.retain(|_, place| !place.names.is_empty() || place.flows > 0);
        let places = self.places.values();
        let ends = places.flat_map(|place| place.names.values().filter_map(|end| place.end(*end)));
        self.first_end = ends.min();
    }

    /// How many there are, with those that are over and not removed yet.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}
