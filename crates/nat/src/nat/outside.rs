//! Forwards: connections and datagrams from outside, which lead into guests.

use std::net::{IpAddr, SocketAddr};

use ringway_net::{MacAddress, Nanos};

use super::{Nat, State};
use crate::actions::Actions;
use crate::datagrams::{Client, Datagrams};
use crate::reach::{Reach, reach};
use crate::socket::Close;
use crate::table::{FlowId, FlowKey, Guest, Protocol};
use crate::tcp::Tcp;

/// How many ports are tried for a client that has the same address and port as another one, in
/// the guest's eyes.
const PORTS_TRIED: u16 = 16;

impl Nat {
    /// A connection from outside into the guest behind that port; `room`: what its socket takes.
    ///
    /// The actions are to be carried out before the flow gets its socket: it may have the place of
    /// another flow. `None`: the guest has no address, or no room for one more flow.
    pub fn accept(
        &mut self,
        guest: Guest,
        (port, from, room): (u16, SocketAddr, u32),
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let (key, mac) = self.key_from_outside((guest, Protocol::Tcp), port, from, now)?;
        let key = ports_of(key).find(|key| self.table.find(key).is_none())?;
        let mut tcp = Tcp::accepted(self.mss(true), self.isn(&key, now), room, now);
        tcp.limit_in_flight(self.limits.in_flight);
        let deadline = tcp.deadline();
        if !self.has_its_share(guest, actions) && !self.forget_closed(guest) {
            self.forget_abandoned(guest, actions);
        }
        let flow = self.table.insert(key, mac, State::Tcp(tcp), now)?;
        self.table.set_deadline(flow, deadline);
        self.table.set_ready(flow);
        Some(flow)
    }

    /// A datagram from outside waits for the guest's port: its flow, which is new if its client
    /// has none.
    ///
    /// `None`: the guest has no address, or no room for one more flow.
    pub fn accept_datagram(
        &mut self,
        guest: Guest,
        (port, client): (u16, Client),
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let (key, mac) = self.key_from_outside((guest, Protocol::Udp), port, client.from, now)?;
        let is_its = |flow: &FlowId| self.client_of(*flow) == Some(client);
        let known = ports_of(key).filter_map(|key| self.table.find(&key)).find(is_its);
        let flow = match known {
            Some(flow) => flow,
            None => {
                let key = ports_of(key).find(|key| self.table.find(key).is_none())?;
                // A flow from outside takes the place of nothing that the guest began.
                if !self.has_its_share(guest, actions) && !self.evict_client(guest, actions) {
                    return None;
                }
                let datagrams = Datagrams::from_outside(client);
                let end = datagrams.end(&key, now);
                let flow = self.table.insert(key, mac, State::Datagrams(datagrams), now)?;
                self.table.set_deadline(flow, Some(end));
                flow
            }
        };
        if let Some(entry) = self.table.entry_mut(flow) {
            (entry.used, entry.mac) = (now, mac);
        }
        self.datagram_readable(flow);
        Some(flow)
    }

    /// Ends the guest's oldest connection whose client has gone before the guest has answered.
    fn forget_abandoned(&mut self, guest: Guest, actions: &mut Actions) {
        let is_it = |state: &State| matches!(state, State::Tcp(tcp) if tcp.is_abandoned());
        let those = self.table.of_guest(guest).filter(|(_, entry)| is_it(&entry.state));
        if let Some((oldest, _)) = those.min_by_key(|(_, entry)| entry.used) {
            self.end(oldest, Close::Reset, actions);
        }
    }

    fn client_of(&self, flow: FlowId) -> Option<Client> {
        match &self.table.entry(flow)?.state {
            State::Datagrams(datagrams) => datagrams.client,
            State::Tcp(_) => None,
        }
    }

    fn evict_client(&mut self, guest: Guest, actions: &mut Actions) -> bool {
        let of_guest = self.table.of_guest(guest);
        let theirs = of_guest.filter(|(id, _)| self.client_of(*id).is_some());
        let oldest = theirs.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id);
        if let Some(id) = oldest {
            self.end(id, Close::Gracefully, actions);
        }
        oldest.is_some() && self.table.has_room(guest)
    }

    /// How the guest sees who comes, and its station.
    fn key_from_outside(
        &self,
        (guest, protocol): (Guest, Protocol),
        port: u16,
        from: SocketAddr,
        now: Nanos,
    ) -> Option<(FlowKey, MacAddress)> {
        let lease = self.services.leases().behind(self.name_of(guest)?, now).next()?;
        // A client whose answers would not come back through the router is shown as the router
        // itself.
        let shown = match from.ip().to_canonical() {
            IpAddr::V4(from) if reach(self.plan(), from.into()) == Reach::Allowed => from,
            _ => self.plan().gateway4(),
        };
        let to = SocketAddr::from((shown, from.port()));
        Some((FlowKey { guest, protocol, from: (lease.address, port).into(), to }, lease.mac))
    }
}

/// The same with other ports of the other end.
fn ports_of(key: FlowKey) -> impl Iterator<Item = FlowKey> {
    (0..PORTS_TRIED).map(move |more| {
        let mut key = key;
        // Never 0, which is no port.
        key.to.set_port(key.to.port().wrapping_add(more).max(1));
        key
    })
}
