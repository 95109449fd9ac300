//! New flows: those that a guest begins, and those from outside, which lead into guests.

use ringway_net::{MacAddress, Nanos};

use super::way::{port_of, target};
use super::{Flows, State};
use crate::actions::{Action, Actions};
use crate::datagrams::{Client, Datagrams};
use crate::packet::Incoming;
use crate::refusal::{Refusal, Refused};
use crate::table::{Entry, FlowId, FlowKey, Protocol};
use crate::tcp::{Segment, SynOptions, Tcp};

/// How many ports are tried for a client that has the same address and port as another one, in
/// the guest's eyes.
const PORTS_TRIED: u16 = 16;

/// A flow from outside, as its guest sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromOutside {
    pub key: FlowKey,
    /// The guest's station.
    pub mac: MacAddress,
}

impl Flows {
    pub(super) fn open_tcp(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        syn: &Segment,
        actions: &mut Actions,
    ) -> Result<(), Refused> {
        let (to, guest) = (target(&self.plan, &key)?, key.guest);
        let new = self.new.get_mut(usize::from(guest.0)).ok_or(Refusal::NotForUs)?;
        if !new.rate.take(incoming.now) {
            return Err(Refusal::FlowRate.into());
        }
        if new.connecting >= self.limits.connecting_per_guest {
            return Err(Refused::with_reset(Refusal::FlowLimit));
        }
        let has_room = self.has_its_share(guest, actions) || self.forget_closed(guest);
        if !has_room && !self.evict(guest, |it| it.key.protocol == Protocol::Udp, actions) {
            return Err(Refused::with_reset(Refusal::FlowLimit));
        }
        let options = SynOptions::parse(incoming.ip.payload);
        let mss = options.mss.min(self.plan.mss(key.from.is_ipv4()));
        let options = SynOptions { mss, ..options };
        let mut tcp = Tcp::new(syn, options, self.isn(&key, incoming.now), incoming.now);
        tcp.limit_in_flight(self.limits.in_flight);
        let flow = self.insert(key, incoming.mac, State::Tcp(tcp), incoming.now);
        let flow = flow.ok_or(Refusal::FlowLimit)?;
        self.count_connecting(guest, false, true);
        actions.push(Action::Open { flow, protocol: Protocol::Tcp, to, port: None });
        Ok(())
    }

    pub(super) fn open_datagrams(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        actions: &mut Actions,
    ) -> Result<FlowId, Refused> {
        let to = target(&self.plan, &key)?;
        let new = self.new.get_mut(usize::from(key.guest.0)).ok_or(Refusal::NotForUs)?;
        if !new.rate.take(incoming.now) {
            return Err(Refusal::FlowRate.into());
        }
        if !self.makes_room(&key, actions) {
            return Err(Refusal::FlowLimit.into());
        }
        let state = State::Datagrams(Datagrams::default());
        let flow = self.insert(key, incoming.mac, state, incoming.now);
        let flow = flow.ok_or(Refusal::FlowLimit)?;
        let port = port_of(&key, to);
        actions.push(Action::Open { flow, protocol: key.protocol, to, port });
        Ok(flow)
    }

    /// A connection from outside, whose socket takes `room` bytes. `None`: there is no room for one
    /// more flow.
    pub fn accept(
        &mut self,
        seen: FromOutside,
        room: u32,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let key = ports_of(seen.key).find(|key| self.table.find(key).is_none())?;
        let mut tcp = Tcp::accepted(self.plan.mss(true), self.isn(&key, now), room, now);
        tcp.limit_in_flight(self.limits.in_flight);
        if !self.has_its_share(key.guest, actions) && !self.forget_closed(key.guest) {
            self.forget_abandoned(key.guest, actions);
        }
        let flow = self.insert(key, seen.mac, State::Tcp(tcp), now)?;
        self.table.set_ready(flow);
        Some(flow)
    }

    /// A client's datagram. `None`: there is no room for one more flow.
    pub fn accept_datagram(
        &mut self,
        seen: FromOutside,
        client: Client,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let client_of = |flow: FlowId| self.table.entry(flow)?.state.client();
        let mut known = ports_of(seen.key).filter_map(|key| self.table.find(&key));
        let flow = match known.find(|it| client_of(*it) == Some(client)) {
            Some(flow) => flow,
            None => {
                let key = ports_of(seen.key).find(|key| self.table.find(key).is_none())?;
                // A flow from outside takes the place of nothing that the guest began.
                let is_one = |it: &Entry<State>| it.state.client().is_some();
                if !self.has_its_share(key.guest, actions)
                    && !self.evict(key.guest, is_one, actions)
                {
                    return None;
                }
                self.insert(key, seen.mac, State::Datagrams(Datagrams::from_outside(client)), now)?
            }
        };
        if let Some(entry) = self.table.entry_mut(flow) {
            (entry.used, entry.mac) = (now, seen.mac);
        }
        self.datagram_readable(flow);
        Some(flow)
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
