//! Where a flow goes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::actions::{GuestPort, Target};
use crate::addresses::Plan;
use crate::datagrams::is_question;
use crate::reach::{Reach, reach};
use crate::refusal::{Refusal, Refused};
use crate::socket::Problem;
use crate::table::{FlowKey, Protocol};

/// Where a new flow goes; guests are told where they must not go.
pub(super) fn target(plan: &Plan, key: &FlowKey) -> Result<Target, Refused> {
    way(plan, key).ok_or_else(|| match reach(plan, key.to.ip()) {
        Reach::Denied => Refused::with(Refusal::Denied, Problem::Prohibited),
        _ => Refusal::Denied.into(),
    })
}

/// Where a flow goes; `None`: it must not go there.
pub(super) fn way(plan: &Plan, key: &FlowKey) -> Option<Target> {
    let is_echo = key.protocol == Protocol::Echo;
    if plan.is_name_server(key.to) && !is_echo {
        return Some(Target::Resolver(key.guest));
    }
    if plan.host == Some(key.to.ip()) && !is_echo {
        let loopback = match key.to {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        };
        return Some(Target::Loopback(SocketAddr::new(loopback, key.to.port())));
    }
    (reach(plan, key.to.ip()) == Reach::Allowed).then_some(Target::Address(key.to))
}

/// One port of a guest is one port outside for all other ends (RFC 4787 REQ-1). A question
/// and its answer have a port of their own: so it cannot be guessed.
pub(super) fn port_of(key: &FlowKey, to: Target) -> Option<GuestPort> {
    let is_shared = key.protocol == Protocol::Udp && !is_question(key);
    let goes_out = matches!(to, Target::Address(_));
    (is_shared && goes_out).then_some((key.guest, key.from))
}
