//! Events of sockets outside, and flows into guests that begin there.

use ringway_net::{MacAddress, Nanos};

use super::lost::{Lost, News};
use super::way::{port_of, way};
use super::{Flows, State};
use crate::actions::{Action, Actions};
use crate::datagrams::{Client, Datagrams};
use crate::refusal::Refusal;
use crate::socket::{Close, Event, Failure};
use crate::table::{Entry, FlowId, FlowKey, Guest};
use crate::tcp::{Phase, Tcp, Todo};

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
    /// A socket has an event; one of a flow that is over is ignored.
    pub fn on_socket(
        &mut self,
        flow: FlowId,
        event: Event,
        now: Nanos,
        actions: &mut Actions,
    ) -> News {
        let Some(entry) = self.table.entry(flow) else { return News::default() };
        let phase = entry.state.phase();
        let is_opening = matches!(phase, None | Some(Phase::Connecting));
        let has_no_port = event == Event::Failed(Failure::NoPort);
        if has_no_port && is_opening && self.tries_again(flow, actions) {
            return News::default();
        }
        let lost = self.table.entry(flow).and_then(|entry| Lost::of(entry, event));
        match (phase, event) {
            (_, Event::Report { .. }) => {}
            // The guest tries again where there was no room.
            (Some(Phase::Connecting), Event::Failed(Failure::Unreachable(_) | Failure::NoRoom)) => {
                self.end(flow, Close::Reset, actions)
            }
            (Some(phase), event) => {
                if event == Event::Readable && phase == Phase::Accepted {
                    actions.push(Action::AskEnd { flow });
                }
                let todo = self.tcp_event(flow, event, now);
                self.note_connecting(flow, phase == Phase::Connecting);
                self.apply(flow, todo, 0, actions);
            }
            (None, Event::Readable) => self.datagram_readable(flow),
            (None, Event::Failed(_)) => self.end(flow, Close::Gracefully, actions),
            (None, _) => {}
        }
        News { lost, refusal: has_no_port.then_some(Refusal::NoPort) }
    }

    /// The host has no port left for that flow: the guest that has most flows like it gives one up
    /// for it. `false`: not this time.
    fn tries_again(&mut self, flow: FlowId, actions: &mut Actions) -> bool {
        let Some(entry) = self.table.entry_mut(flow) else { return false };
        let key = entry.key;
        if std::mem::replace(&mut entry.is_second_try, true) {
            return false;
        }
        let giver = self.table.giver_of_port(flow, &key, &self.limits);
        let (Some(giver), Some(to)) = (giver, way(&self.plan, &key)) else { return false };
        // A port is free at once only where no end is waited for.
        self.end(giver, Close::Reset, actions);
        let port = port_of(&key, to);
        actions.push(Action::Open { flow, protocol: key.protocol, to, port });
        true
    }

    fn tcp_event(&mut self, flow: FlowId, event: Event, now: Nanos) -> Todo {
        let none = Todo::default();
        let Some(entry) = self.table.entry_mut(flow) else { return none };
        let State::Tcp(tcp) = &mut entry.state else { return none };
        if let Event::Sent(len) = event {
            entry.from_guest += u64::from(len);
        }
        match event {
            Event::Connected { room } => tcp.connected(room, now),
            Event::Failed(_) => return tcp.failed(now),
            Event::Readable => tcp.readable(now),
            Event::HungUp => tcp.hung_up(),
            Event::Writable => return tcp.writable(now),
            Event::Sent(len) => return tcp.sent(len, now),
            Event::Room(room) => tcp.has_room(room, now),
            Event::Report { .. } => {}
        }
        none
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
        if !self.has_its_share(key.guest, actions) && !self.table.forget_closed(key.guest) {
            self.forget_abandoned(key.guest, actions);
        }
        let flow = self.insert(key, seen.mac, State::Tcp(tcp), now)?;
        self.table.set_ready(flow);
        Some(flow)
    }

    /// Ends the guest's oldest connection whose client has gone before the guest has answered.
    fn forget_abandoned(&mut self, guest: Guest, actions: &mut Actions) {
        let is_it = |state: &State| matches!(state, State::Tcp(tcp) if tcp.is_abandoned());
        if let Some(oldest) = self.table.oldest(guest, |entry| is_it(&entry.state)) {
            self.end(oldest, Close::Reset, actions);
        }
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
