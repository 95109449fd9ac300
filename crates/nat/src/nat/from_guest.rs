//! The consequences of a guest's packet.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_net::{MacAddress, Nanos};

use super::Nat;
use super::arrivals::Heard;
use super::gates::{GateStep, Gates};
use super::verdict::{Verdict, WHOLE_LEN_MAX};
use crate::actions::Actions;
use crate::emit::{Lone, lone_segment};
use crate::errors::error;
use crate::fragments::Assembly;
use crate::frame::{ICMP, ICMPV6, Stations, TCP, TYPE_IPV4, TYPE_IPV6, UDP};
use crate::guests::{GuestNames, REPLIES_MAX};
use crate::names;
use crate::neighbours;
use crate::packet::{Carried, Fragment, Frame, Incoming, Ip, array, word};
use crate::refusal::{Notice, Refusal, Refused};
use crate::socket::Problem;
use crate::table::Guest;
use crate::tcp::{ACK, Head, RST, SYN, Segment, Seq};

/// A guest's packet: a copy of its first bytes, and its length.
#[derive(Debug, Clone, Copy)]
pub struct FromGuest<'a> {
    /// The port that it came from.
    pub guest: Guest,
    /// At least the first [`crate::HEAD_LEN`] bytes, or all.
    pub head: &'a [u8],
    /// Bytes of the packet.
    pub len: u32,
}

impl Nat {
    /// A guest sent a packet to the router or to all.
    pub fn from_guest(
        &mut self,
        packet: FromGuest<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) -> Verdict {
        let len = packet.len as usize;
        let frame = Frame::parse(packet.head, len).filter(|frame| frame.source.is_station());
        let Some(frame) = frame else { return Verdict::Refused(Refusal::Malformed) };
        if frame.destination != self.plan().mac() && !frame.destination.is_multicast() {
            return Verdict::Refused(Refusal::NotForUs);
        }
        let is_ours = match &frame.carried {
            Carried::Arp(_) => true,
            Carried::Ip(ip) => ip.fragment.is_none() && self.services.is_for_us(ip),
        };
        if is_ours {
            return self.for_us(packet, &frame, now, actions);
        }
        let Carried::Ip(ip) = frame.carried else { return Verdict::Done };
        let incoming = Incoming { guest: packet.guest, mac: frame.source, ip, now };
        if ip.fragment.is_none() && self.answers_name(&incoming, actions) {
            return Verdict::Done;
        }
        let verdict = match ip.fragment {
            Some(fragment) => {
                let to = frame.destination;
                self.check_source(&incoming, to, actions)
                    .and_then(|()| self.fragment(&incoming, fragment, to, len))
            }
            None => self.judged(&incoming, frame.destination, actions),
        };
        verdict.unwrap_or_else(|refused| {
            self.tell(&incoming, refused.notice);
            Verdict::Refused(refused.why)
        })
    }

    /// The router answers it itself. A guest that asks for a lease may name an address that
    /// another one has by now: it is told so.
    fn for_us(
        &mut self,
        packet: FromGuest<'_>,
        frame: &Frame<'_>,
        now: Nanos,
        actions: &mut Actions,
    ) -> Verdict {
        let (guest, mac) = (packet.guest, frame.source);
        let said = match &frame.carried {
            Carried::Arp(bytes) => {
                // A station says that it has an address, which is void where it was offered to
                // another one.
                let address = neighbours::sender(bytes);
                let address = address.filter(|it| self.plan().is_for_guests((*it).into()));
                if let (Some(address), Some(name)) = (address, self.guests.name_of(guest)) {
                    self.services.is_used(name, address);
                }
                address.map(IpAddr::V4)
            }
            Carried::Ip(ip) if ip.protocol == UDP => {
                // It asks for an address, and is to have the one that it had elsewhere.
                self.follow(Heard { guest, mac, address: None }, now, actions);
                None
            }
            Carried::Ip(ip) => {
                let heard = Heard { guest, mac, address: Some(ip.from) };
                if self.is_spoofed(heard, now, actions) {
                    return Verdict::Refused(Refusal::SpoofedSource);
                }
                neighbour(ip).filter(|address| self.plan().is_for_guests(*address))
            }
        };
        let heard = Heard { guest, mac, address: said };
        if !self.is_spoofed(heard, now, actions) {
            self.learn(heard, now, actions);
        }
        self.answer(packet, now)
    }

    fn answer(&mut self, packet: FromGuest<'_>, now: Nanos) -> Verdict {
        let (guest, len) = (packet.guest, packet.len as usize);
        if len > WHOLE_LEN_MAX {
            return Verdict::Refused(Refusal::Malformed);
        }
        let Some(bytes) = packet.head.get(..len) else { return Verdict::Whole };
        let (mtu, held_ns) = (self.plan().mtu, self.plan().held_ns());
        let used = || self.guests.used_by_others(guest, held_ns, now);
        if let Some(name) = self.guests.name_of(guest)
            && let Some(frame) = self.services.answer(name, bytes, now, used)
        {
            self.guests.reply(guest, frame, mtu);
            let question = self.services.take_question();
            question.into_iter().for_each(|it| self.guests.ask_for_offered(guest, it, now));
        }
        Verdict::Done
    }

    /// Answers a question for the name or the address of a guest; `false`: it is something else.
    fn answers_name(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> bool {
        let &Incoming { guest, mac, ip, now } = incoming;
        let names = GuestNames { leases: self.services.leases(), guests: &self.guests, now };
        let answer = names::answer(self.plan(), mac, &ip, &names);
        let heard = Heard { guest, mac, address: Some(ip.from) };
        let answer = answer.filter(|_| !self.is_spoofed(heard, now, actions));
        let is_answered = answer.is_some();
        answer.into_iter().for_each(|it| self.guests.reply_up_to(REPLIES_MAX, guest, it));
        is_answered
    }

    /// A part of a datagram came, in a frame of so many bytes.
    fn fragment(
        &mut self,
        incoming: &Incoming<'_>,
        fragment: Fragment,
        destination: MacAddress,
        len: usize,
    ) -> Result<Verdict, Refused> {
        let ip = &incoming.ip;
        let (ethertype, icmp) = match ip.from {
            IpAddr::V4(_) => (TYPE_IPV4, ICMP),
            IpAddr::V6(_) => (TYPE_IPV6, ICMPV6),
        };
        if ![UDP, icmp].contains(&fragment.protocol) || len > WHOLE_LEN_MAX {
            return Err(Refusal::Fragment.into());
        }
        if !ip.is_all_here() {
            return Ok(Verdict::Whole);
        }
        match self.guests.put_fragment(incoming.guest, ip, fragment, incoming.now) {
            Assembly::Waits => Ok(Verdict::Done),
            Assembly::Refused => Err(Refusal::Fragment.into()),
            Assembly::Done(packet) => {
                let mut frame = [destination.0, incoming.mac.0].concat();
                frame.extend(ethertype.to_be_bytes());
                frame.extend(packet);
                self.assembled = Some(frame);
                Ok(Verdict::Assembled)
            }
        }
    }

    /// The frame whose last part came, to be given to [`Self::from_guest`] next, once.
    pub fn take_assembled(&mut self) -> Option<Vec<u8>> {
        self.assembled.take()
    }

    /// The packets of a guest with a policy are judged first.
    fn judged(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
        actions: &mut Actions,
    ) -> Result<Verdict, Refused> {
        if !self.policies.has(incoming.guest) {
            return self.incoming(incoming, destination, actions);
        }
        self.check_source(incoming, destination, actions)?;
        let mut gates = Gates {
            policies: &mut self.policies,
            flows: &mut self.flows,
            guests: &mut self.guests,
            plan: self.services.plan(),
            keys: &self.keys,
        };
        let next = gates.judge(incoming, destination, actions)?;
        if let Some(GateStep::Instead(frame)) = next {
            self.assembled = Some(frame);
            return Ok(Verdict::Assembled);
        }
        if let Some(GateStep::Over(verdict)) = next {
            return Ok(verdict);
        }
        let verdict = self.incoming(incoming, destination, actions)?;
        if let Some(GateStep::AwaitsHello(key)) = next
            && let Some(flow) = self.flows.find(&key)
            && let Some(policy) = self.policies.of(incoming.guest)
        {
            policy.await_hello(flow, incoming.now);
        }
        Ok(verdict)
    }

    fn incoming(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
        actions: &mut Actions,
    ) -> Result<Verdict, Refused> {
        self.check_source(incoming, destination, actions)?;
        let ip = &incoming.ip;
        if ip.hops <= 1 {
            return Err(Refused::with(Refusal::Hops, Problem::HopsExceeded));
        }
        let is_echo = match ip.from {
            IpAddr::V4(_) => ip.protocol == ICMP && ip.payload.starts_with(&[8, 0]),
            IpAddr::V6(_) => ip.protocol == ICMPV6 && ip.payload.starts_with(&[128, 0]),
        };
        match ip.protocol {
            TCP => self.flows.tcp(incoming, actions)?,
            UDP => self.flows.udp(incoming, actions)?,
            _ if is_echo => self.flows.echo(incoming, actions)?,
            ICMP | ICMPV6 => self.flows.error_from_guest(incoming, actions)?,
            _ => return Err(Refusal::Malformed.into()),
        }
        Ok(Verdict::Done)
    }

    /// It is for the router, and from the guest.
    fn check_source(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
        actions: &mut Actions,
    ) -> Result<(), Refused> {
        let &Incoming { guest, mac, ip, now } = incoming;
        let heard = Heard { guest, mac, address: Some(ip.from) };
        if destination != self.plan().mac() {
            return Err(Refusal::NotForUs.into());
        }
        let is_right = self.plan().is_for_guests(ip.from)
            && !self.is_spoofed(heard, now, actions)
            && self.guests.name_of(guest).is_some();
        if !is_right {
            // It may be an address of a network that the router had before.
            return Err(Refused::with(Refusal::SpoofedSource, Problem::WrongSource));
        }
        self.learn(heard, now, actions);
        Ok(())
    }

    /// Whether a connection that is not known is reset without a limit: this router's or the
    /// guest's time here has just begun.
    fn resets_freely(&mut self, guest: Guest, now: Nanos) -> bool {
        now < self.reset_freely_until || self.guests.takes_arrival(guest, now)
    }

    /// Tells the guest what its packet met.
    fn tell(&mut self, incoming: &Incoming<'_>, notice: Notice) {
        let &Incoming { guest, mac, ip, now } = incoming;
        let plan = self.services.plan();
        let stations = Stations { from: plan.mac(), to: mac };
        match notice {
            Notice::Nothing => {}
            Notice::Problem(problem) => {
                if let Some(gateway) = plan.gateway(ip.from.is_ipv4()) {
                    let frame = || error(stations, gateway, ip.from, problem, ip.bytes);
                    self.guests.refuse(guest, now, frame);
                }
            }
            Notice::Reset => {
                let Some(segment) = Segment::parse(ip.payload, ip.payload_len) else { return };
                if segment.has(RST) {
                    return;
                }
                let reset = || reset(stations, &ip, &segment);
                if !segment.has(SYN) && self.resets_freely(guest, now) {
                    let most = self.flows.limits().flows_per_guest as usize;
                    reset().into_iter().for_each(|it| self.guests.reply_up_to(most, guest, it));
                } else {
                    self.guests.refuse(guest, now, reset);
                }
            }
        }
    }
}

/// The address that a guest has that asks for its neighbours: the one that it asks from, or the one
/// that it will have, if it asks whether it is free (RFC 4862 §5.4).
fn neighbour(ip: &Ip<'_>) -> Option<IpAddr> {
    const SOLICITATION: u8 = 135;
    const TARGET_AT: usize = 8;
    let IpAddr::V6(from) = ip.from else { return None };
    let is_trial = from.is_unspecified() && ip.payload.first() == Some(&SOLICITATION);
    let target = array::<16>(ip.payload, TARGET_AT).filter(|_| is_trial);
    Some(target.map_or(from, Ipv6Addr::from).into())
}

/// The answer to a segment that belongs to no connection (RFC 9293 §3.10.7.1).
fn reset(stations: Stations, ip: &Ip<'_>, segment: &Segment) -> Option<Vec<u8>> {
    let head = if segment.has(ACK) {
        Head { seq: segment.ack, ack: Seq(0), flags: RST, window: 0, scale: None }
    } else {
        let ack = segment.seq.plus(segment.len());
        Head { seq: Seq(0), ack, flags: RST | ACK, window: 0, scale: None }
    };
    let from = SocketAddr::new(ip.to, word(ip.payload, 2)?);
    let to = SocketAddr::new(ip.from, word(ip.payload, 0)?);
    Some(lone_segment(stations, from, to, Lone { head, data: &[] }))
}
