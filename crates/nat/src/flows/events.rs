//! The consequences of events of sockets.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::way::{port_of, way};
use super::{Flows, State};
use crate::actions::{Action, Actions};
use crate::addresses::Plan;
use crate::errors::quote;
use crate::frame::{ICMP, ICMPV6, TCP, UDP};
use crate::reach::{Reach, reach};
use crate::refusal::Refusal;
use crate::socket::{Close, Event, Failure, Problem};
use crate::table::{FlowId, FlowKey, Protocol};
use crate::tcp::{Phase, Todo};

/// The news of an event, besides the actions.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// The guest is told of that.
    pub lost: Option<Lost>,
    /// Why the flow is given up.
    pub refusal: Option<Refusal>,
}

/// Something that a guest sent, and that did not arrive.
#[derive(Debug)]
pub(crate) struct Lost {
    pub key: FlowKey,
    /// The guest's station.
    pub mac: MacAddress,
    /// The sequence number of a segment.
    seq: u32,
    /// The router or host that says so; `None`: this host itself.
    from: Option<IpAddr>,
    pub problem: Problem,
}

impl Lost {
    /// Where the guest hears of it from.
    pub fn shown_from(&self, plan: &Plan) -> Option<IpAddr> {
        let is_ipv4 = self.key.from.is_ipv4();
        // Only addresses that the guest may see: loopback and its own networks are none of it.
        let from = self.from.filter(|from| from.is_ipv4() == is_ipv4);
        let is_shown = |from: &IpAddr| reach(plan, *from) == Reach::Allowed;
        from.filter(is_shown).or(plan.gateway(is_ipv4))
    }

    /// Its first bytes, as far as its sender needs them.
    pub fn quote(&self) -> Vec<u8> {
        let key = &self.key;
        let protocol = match key.protocol {
            Protocol::Tcp => TCP,
            Protocol::Udp => UDP,
            Protocol::Echo if key.from.is_ipv4() => ICMP,
            Protocol::Echo => ICMPV6,
        };
        quote(key.from, key.to, protocol, self.seq)
    }
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
        let lost = self.lost(flow, event);
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

    /// Something that the guest sent and that did not arrive, as the event says.
    fn lost(&self, flow: FlowId, event: Event) -> Option<Lost> {
        let entry = self.table.entry(flow)?;
        let (from, problem) = match (event, entry.state.phase()) {
            (Event::Report { from, problem }, _) => (from, problem),
            (Event::Failed(Failure::Unreachable(problem)), Some(Phase::Connecting)) => {
                (None, problem)
            }
            (Event::Failed(Failure::NoPort), None) => (None, Problem::PortUnreachable),
            _ => return None,
        };
        let seq = match &entry.state {
            State::Tcp(tcp) => tcp.first_seq(),
            State::Datagrams(_) => 0,
        };
        Some(Lost { key: entry.key, mac: entry.mac, seq, from, problem })
    }

    /// The host has no port left for that flow: the guest that has most flows like it gives one up
    /// for it. `false`: not this time.
    fn tries_again(&mut self, flow: FlowId, actions: &mut Actions) -> bool {
        let Some(entry) = self.table.entry_mut(flow) else { return false };
        let key = entry.key;
        if std::mem::replace(&mut entry.is_second_try, true) {
            return false;
        }
        let giver = self.giver_of_port(flow, &key);
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
}
