//! Packets of guests that did not arrive, as their sockets tell.

use std::net::IpAddr;

use ringway_net::MacAddress;

use super::State;
use crate::addresses::Plan;
use crate::errors::quote;
use crate::frame::{ICMP, ICMPV6, TCP, UDP};
use crate::reach::{Reach, reach};
use crate::refusal::Refusal;
use crate::socket::{Event, Failure, Problem};
use crate::table::{Entry, FlowKey, Protocol};
use crate::tcp::Phase;

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
    /// Something that the guest sent and that did not arrive, as the event says.
    pub(super) fn of(entry: &Entry<State>, event: Event) -> Option<Self> {
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
        Some(Self { key: entry.key, mac: entry.mac, seq, from, problem })
    }

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
