//! New flows: whether there may be one, and where it goes.

use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_net::Nanos;

use super::from_guest::{Incoming, Refusal};
use super::{Nat, State};
use crate::actions::{Action, Actions, GuestPort, Target};
use crate::datagrams::{Datagrams, is_question};
use crate::reach::{Reach, reach};
use crate::socket::{Close, Problem};
use crate::table::{FlowId, FlowKey, Guest, Protocol};
use crate::tcp::{Phase, Segment, Seq, SynOptions, Tcp};

const DNS_PORT: u16 = 53;

/// By how much a nanosecond's count is shifted for sequence numbers: one each 32 ns.
const ISN_SHIFT: u32 = 5;

impl Nat {
    pub(super) fn open_tcp(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        syn: &Segment,
        actions: &mut Actions,
    ) -> Result<(), Refusal> {
        let to = self.target(incoming, &key)?;
        let connecting_max = self.limits.connecting_per_guest;
        let guest = self.guest_mut(key.guest).ok_or(Refusal::NotForUs)?;
        if !guest.may_open(incoming.now) {
            return Err(Refusal::FlowRate);
        }
        if guest.connecting >= connecting_max {
            return Err(self.refuse_syn(incoming, &key, syn));
        }
        let has_room = self.has_its_share(key.guest, actions) || self.forget_closed(key.guest);
        let is_udp = |it: &FlowKey| it.protocol == Protocol::Udp;
        if !has_room && !self.evict(key.guest, is_udp, actions) {
            return Err(self.refuse_syn(incoming, &key, syn));
        }
        let options = SynOptions::parse(incoming.ip.payload);
        let mss = options.mss.min(self.mss(key.from.is_ipv4()));
        let options = SynOptions { mss, ..options };
        let mut tcp = Tcp::new(syn, options, self.isn(&key, incoming.now), incoming.now);
        tcp.limit_in_flight(self.limits.in_flight);
        let deadline = tcp.deadline();
        let flow = self.table.insert(key, incoming.mac, State::Tcp(tcp), incoming.now);
        let flow = flow.ok_or(Refusal::FlowLimit)?;
        self.table.set_deadline(flow, deadline);
        self.count_connecting(key.guest, false, true);
        actions.push(Action::Open { flow, protocol: Protocol::Tcp, to, port: None });
        Ok(())
    }

    /// The flow of a datagram, which begins one if it has none.
    pub(super) fn datagram_flow(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        actions: &mut Actions,
    ) -> Result<FlowId, Refusal> {
        let known = self.table.find(&key);
        let flow = match known {
            Some(flow) => flow,
            None => self.open_datagrams(incoming, key, actions)?,
        };
        if let Some(entry) = self.table.entry_mut(flow) {
            (entry.used, entry.mac) = (incoming.now, incoming.mac);
            if let State::Datagrams(datagrams) = &mut entry.state {
                datagrams.send();
            }
        }
        Ok(flow)
    }

    fn open_datagrams(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        actions: &mut Actions,
    ) -> Result<FlowId, Refusal> {
        let to = self.target(incoming, &key)?;
        let guest = self.guest_mut(key.guest).ok_or(Refusal::NotForUs)?;
        if !guest.may_open(incoming.now) {
            return Err(Refusal::FlowRate);
        }
        if !self.makes_room(&key, actions) {
            return Err(Refusal::FlowLimit);
        }
        let datagrams = Datagrams::default();
        let end = datagrams.end(&key, incoming.now);
        let state = State::Datagrams(datagrams);
        let flow = self.table.insert(key, incoming.mac, state, incoming.now);
        let flow = flow.ok_or(Refusal::FlowLimit)?;
        self.table.set_deadline(flow, Some(end));
        let port = port_of(&key, to);
        actions.push(Action::Open { flow, protocol: key.protocol, to, port });
        Ok(flow)
    }

    /// Room for one more flow of datagrams, perhaps in the place of the guest's oldest like it.
    fn makes_room(&mut self, key: &FlowKey, actions: &mut Actions) -> bool {
        let resolver = self.resolver();
        let kind = |key: &FlowKey| (key.protocol, is_at(&resolver, key.to));
        let max = match kind(key) {
            (Protocol::Echo, _) => self.limits.echoes_per_guest,
            (_, true) => self.limits.questions_per_guest,
            (_, false) => u32::MAX,
        };
        let is_alike = |it: &FlowKey| kind(it) == kind(key);
        let of_guest = self.table.of_guest(key.guest);
        let count = of_guest.filter(|(_, entry)| is_alike(&entry.key)).count();
        if count >= max as usize {
            return self.evict(key.guest, is_alike, actions);
        }
        let protocol = key.protocol;
        self.has_its_share(key.guest, actions)
            || self.evict(key.guest, |it| it.protocol == protocol, actions)
    }

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

    /// The addresses at which the host's resolver is asked.
    fn resolver(&self) -> [Option<IpAddr>; 2] {
        let plan = self.plan();
        match plan.has_dns {
            true => [Some(plan.dns4().into()), plan.dns6().map(IpAddr::V6)],
            false => [None; 2],
        }
    }

    /// Forgets the guest's oldest connection that is over and only waits for a FIN that is
    /// repeated.
    pub(super) fn forget_closed(&mut self, guest: Guest) -> bool {
        let is_closed =
            |state: &State| matches!(state, State::Tcp(tcp) if tcp.phase() == Phase::Closed);
        let closed = self.table.of_guest(guest).filter(|(_, entry)| is_closed(&entry.state));
        let oldest = closed.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id);
        oldest.and_then(|id| self.table.remove(id)).is_some()
    }

    /// Ends the guest's flow of those that was not used for longest.
    fn evict(
        &mut self,
        guest: Guest,
        is_one: impl Fn(&FlowKey) -> bool,
        actions: &mut Actions,
    ) -> bool {
        let of_guest = self.table.of_guest(guest);
        let those = of_guest.filter(|(_, entry)| is_one(&entry.key));
        let oldest = those.min_by_key(|(_, entry)| entry.used).map(|(id, _)| id);
        if let Some(id) = oldest {
            self.end(id, Close::Gracefully, actions);
        }
        oldest.is_some() && self.table.has_room(guest)
    }

    /// Where a flow to that address goes; guests are told where they must not go.
    fn target(&mut self, incoming: &Incoming<'_>, key: &FlowKey) -> Result<Target, Refusal> {
        if let Some(to) = self.way(key) {
            return Ok(to);
        }
        if reach(self.plan(), key.to.ip()) == Reach::Denied {
            self.refuse(incoming, Problem::Prohibited);
        }
        Err(Refusal::Denied)
    }

    /// Where a flow goes; `None`: it must not go there.
    pub(super) fn way(&self, key: &FlowKey) -> Option<Target> {
        let plan = self.plan();
        if is_at(&self.resolver(), key.to) && key.protocol != Protocol::Echo {
            return Some(Target::Resolver(key.guest));
        }
        if plan.host == Some(key.to.ip()) && key.protocol != Protocol::Echo {
            let loopback = match key.to {
                SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
                SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            };
            return Some(Target::Loopback(SocketAddr::new(loopback, key.to.port())));
        }
        (reach(plan, key.to.ip()) == Reach::Allowed).then_some(Target::Address(key.to))
    }

    /// A first sequence number that other guests cannot guess (RFC 6528).
    #[expect(clippy::cast_possible_truncation, reason = "as many bits as there are")]
    pub(super) fn isn(&self, key: &FlowKey, now: Nanos) -> Seq {
        let clock = (now.0 >> ISN_SHIFT) as u32;
        Seq(clock.wrapping_add(self.keys.hash_one(key) as u32))
    }
}

/// One port of a guest is one port outside for all other ends (RFC 4787 REQ-1). A question
/// and its answer have a port of their own: so it cannot be guessed.
pub(super) fn port_of(key: &FlowKey, to: Target) -> Option<GuestPort> {
    let is_shared = key.protocol == Protocol::Udp && !is_question(key);
    let goes_out = matches!(to, Target::Address(_));
    (is_shared && goes_out).then_some((key.guest, key.from))
}

fn is_at(resolver: &[Option<IpAddr>; 2], to: SocketAddr) -> bool {
    to.port() == DNS_PORT && resolver.contains(&Some(to.ip()))
}
