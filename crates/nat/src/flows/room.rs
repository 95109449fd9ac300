//! The flows that are given up for another one.

use std::collections::HashMap;

use ringway_net::Nanos;

use super::State;
use crate::datagrams::is_question;
use crate::table::{Entry, FlowId, FlowKey, Guest, Limits, Protocol, Table};
use crate::tcp::Phase;

impl Table<State> {
    /// The flow that makes room for one more of a guest, where all guests together have as many as
    /// there may be: the oldest one of the guest that has most.
    pub fn gives_way(&self, guest: Guest, limits: &Limits) -> Option<FlowId> {
        let own = self.count_of(guest);
        if self.has_room(guest) || own >= limits.flows_per_guest as usize {
            return None;
        }
        let most = (0..limits.guests).map(Guest).max_by_key(|other| self.count_of(*other));
        let most = most.filter(|most| self.count_of(*most) > own + 1);
        most.and_then(|most| self.oldest(most, |_| true))
    }

    /// Forgets the guest's oldest connection that is over and only waits for a FIN that is
    /// repeated.
    pub fn forget_closed(&mut self, guest: Guest) -> bool {
        let oldest = self.oldest(guest, |it| it.state.phase() == Some(Phase::Closed));
        oldest.and_then(|id| self.remove(id)).is_some()
    }

    /// The guest's flow of those that was not used for longest.
    pub fn oldest(&self, guest: Guest, is_one: impl Fn(&Entry<State>) -> bool) -> Option<FlowId> {
        let those = self.of_guest(guest).filter(|(_, entry)| is_one(entry));
        those.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id)
    }

    /// The flow that gives its port of the host up for that one: the oldest of the guest that has
    /// most flows like it. `None`: none does.
    pub fn giver_of_port(&self, flow: FlowId, key: &FlowKey, limits: &Limits) -> Option<FlowId> {
        let of_guests = (0..limits.guests).map(Guest);
        let of_guests = of_guests.map(|guest| self.those_with_a_port(guest, flow, key));
        let all: Vec<Vec<(Nanos, FlowId)>> = of_guests.collect();
        let own = all.get(usize::from(key.guest.0)).map_or(0, Vec::len);
        let most = all.iter().max_by_key(|its| its.len());
        let giver = most.filter(|most| most.len() > own + 1);
        // Of its own datagrams a guest gives up the oldest ones.
        let own = all.get(usize::from(key.guest.0)).filter(|_| key.protocol != Protocol::Tcp);
        let oldest = giver.or(own)?.iter().min_by_key(|(used, _)| *used);
        oldest.map(|(_, oldest)| *oldest)
    }

    /// The guest's flows like that one whose end makes a port of the host free, and when each was
    /// used last: connections to one place have a port each; of datagrams many flows have one port,
    /// and those from outside that of a socket that listens.
    fn those_with_a_port(&self, guest: Guest, flow: FlowId, key: &FlowKey) -> Vec<(Nanos, FlowId)> {
        let is_alike = |it: &FlowKey| {
            it.protocol == key.protocol && (it.protocol != Protocol::Tcp || it.to == key.to)
        };
        let all = self.of_guest(guest).filter(|(id, entry)| {
            *id != flow && is_alike(&entry.key) && !entry.state.is_from_outside()
        });
        let shares = |it: &FlowKey| it.protocol == Protocol::Udp && !is_question(it);
        let all: Vec<_> = all.map(|(id, entry)| (entry.used, id, entry.key)).collect();
        let mut counts = HashMap::new();
        for (.., it) in all.iter().filter(|(.., it)| shares(it)) {
            *counts.entry(it.from).or_insert(0u32) += 1;
        }
        let is_alone = |it: &FlowKey| !shares(it) || counts.get(&it.from) == Some(&1);
        let alone = all.into_iter().filter(|(.., it)| is_alone(it));
        alone.map(|(used, id, _)| (used, id)).collect()
    }
}
