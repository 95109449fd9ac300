//! Room for one more flow, perhaps in the place of another one.

use std::collections::HashMap;

use ringway_net::Nanos;

use super::{Flows, State};
use crate::actions::Actions;
use crate::datagrams::is_question;
use crate::socket::Close;
use crate::table::{Entry, FlowId, FlowKey, Guest, Protocol};
use crate::tcp::Phase;

impl Flows {
    /// Whether there is room for one more flow of a guest. Where all guests together have as many
    /// as there may be, it takes the place of the oldest one of the guest that has most.
    pub(super) fn has_its_share(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let own = self.table.count_of(guest);
        if !self.table.has_room(guest) && own < self.limits.flows_per_guest as usize {
            let all = (0..self.limits.guests).map(Guest);
            let most = all.max_by_key(|other| self.table.count_of(*other));
            if let Some(most) = most.filter(|most| self.table.count_of(*most) > own + 1) {
                self.evict(most, |_| true, actions);
            }
        }
        self.table.has_room(guest)
    }

    /// Room for one more flow of datagrams, perhaps in the place of the guest's oldest like it.
    pub(super) fn makes_room(&mut self, key: &FlowKey, actions: &mut Actions) -> bool {
        let kind = |key: &FlowKey| (key.protocol, self.plan.is_name_server(key.to));
        let max = match kind(key) {
            (Protocol::Echo, _) => self.limits.echoes_per_guest,
            (_, true) => self.limits.questions_per_guest,
            (_, false) => u32::MAX,
        };
        let is_alike = |it: &Entry<State>| kind(&it.key) == kind(key);
        let count = self.table.of_guest(key.guest).filter(|(_, entry)| is_alike(entry)).count();
        if count >= max as usize {
            let oldest = self.oldest(key.guest, is_alike);
            return self.end_for_room(key.guest, oldest, actions);
        }
        self.has_its_share(key.guest, actions)
            || self.evict(key.guest, |it| it.key.protocol == key.protocol, actions)
    }

    /// Forgets the guest's oldest connection that is over and only waits for a FIN that is
    /// repeated.
    pub(super) fn forget_closed(&mut self, guest: Guest) -> bool {
        let oldest = self.oldest(guest, |it| it.state.phase() == Some(Phase::Closed));
        oldest.and_then(|id| self.table.remove(id)).is_some()
    }

    /// Ends the guest's oldest connection whose client has gone before the guest has answered.
    pub(super) fn forget_abandoned(&mut self, guest: Guest, actions: &mut Actions) {
        let is_it = |state: &State| matches!(state, State::Tcp(tcp) if tcp.is_abandoned());
        if let Some(oldest) = self.oldest(guest, |entry| is_it(&entry.state)) {
            self.end(oldest, Close::Reset, actions);
        }
    }

    /// Ends the guest's flow of those that was not used for longest. `false`: there is no room all
    /// the same.
    pub(super) fn evict(
        &mut self,
        guest: Guest,
        is_one: impl Fn(&Entry<State>) -> bool,
        actions: &mut Actions,
    ) -> bool {
        let oldest = self.oldest(guest, is_one);
        self.end_for_room(guest, oldest, actions)
    }

    fn end_for_room(
        &mut self,
        guest: Guest,
        oldest: Option<FlowId>,
        actions: &mut Actions,
    ) -> bool {
        if let Some(id) = oldest {
            self.end(id, Close::Gracefully, actions);
        }
        oldest.is_some() && self.table.has_room(guest)
    }

    fn oldest(&self, guest: Guest, is_one: impl Fn(&Entry<State>) -> bool) -> Option<FlowId> {
        let those = self.table.of_guest(guest).filter(|(_, entry)| is_one(entry));
        those.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id)
    }

    /// The flow that gives its port of the host up for that one: the oldest of the guest that has
    /// most flows like it. `None`: none does.
    pub(super) fn giver_of_port(&self, flow: FlowId, key: &FlowKey) -> Option<FlowId> {
        let of_guests = (0..self.limits.guests).map(Guest);
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
        let all = self.table.of_guest(guest).filter(|(id, entry)| {
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
