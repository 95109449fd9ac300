//! The consequences of a guest's packet.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use ringway_net::{MacAddress, Nanos};

use super::sources::used_by_others;
use super::{Nat, State};
use crate::actions::{Action, Actions};
use crate::emit::lone_segment;
use crate::errors::error;
use crate::frame::{ICMP, ICMPV6, Stations, TCP, UDP, UDP_HEADER_LEN};
use crate::neighbours;
use crate::packet::{Carried, Frame, Ip, array, word};
use crate::socket::Problem;
use crate::table::{FlowId, FlowKey, Guest, Protocol};
use crate::tcp::{ACK, Head, Phase, RST, SYN, Segment, Seq, SynOptions};

/// Longest frame that the router answers itself, or that carries a part of a datagram, in bytes.
pub const WHOLE_LEN_MAX: usize = 9216;

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

/// The work that is left with a packet, besides the actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing more.
    Done,
    /// All of it has to be looked at: to be given again with all of its bytes, which are
    /// [`WHOLE_LEN_MAX`] at most.
    Whole,
    /// It was the last part of a datagram. [`Nat::take_assembled`] has the whole, which is to be
    /// given to [`Nat::from_guest`] next.
    Assembled,
    /// Dropped; the guest may have been told.
    Refused(Refusal),
}

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its headers do not fit together, or are of no protocol that is carried.
    Malformed,
    /// It is for another station.
    NotForUs,
    /// Its source address is not the guest's.
    SpoofedSource,
    /// A part of a datagram that contradicts other parts, or of a protocol whose parts are not
    /// carried.
    Fragment,
    /// Guests must not go there.
    Denied,
    /// Its TTL or hop limit is used up.
    Hops,
    /// The guest opens flows too fast.
    FlowRate,
    /// The guest, or all of them, have as many flows as they may.
    FlowLimit,
    /// It belongs to no flow.
    NoFlow,
    /// The host has no port left for a new flow.
    NoPort,
}

impl Refusal {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::Malformed,
        Self::NotForUs,
        Self::SpoofedSource,
        Self::Fragment,
        Self::Denied,
        Self::Hops,
        Self::FlowRate,
        Self::FlowLimit,
        Self::NoFlow,
        Self::NoPort,
    ];

    /// The name used in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NotForUs => "not_for_us",
            Self::SpoofedSource => "spoofed_source",
            Self::Fragment => "fragment",
            Self::Denied => "denied",
            Self::Hops => "hops",
            Self::FlowRate => "flow_rate",
            Self::FlowLimit => "flow_limit",
            Self::NoFlow => "no_flow",
            Self::NoPort => "no_port",
        }
    }
}

/// A packet that was taken apart.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub guest: Guest,
    pub mac: MacAddress,
    pub ip: Ip<'a>,
    pub now: Nanos,
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
            Carried::Ip(ip) => ip.part.is_none() && self.services.is_for_us(ip),
        };
        if is_ours {
            return self.for_us(packet, &frame, now);
        }
        let Carried::Ip(ip) = frame.carried else { return Verdict::Done };
        if ip.part.is_none() && self.answers_name(packet.guest, &frame, &ip, now) {
            return Verdict::Done;
        }
        let incoming = Incoming { guest: packet.guest, mac: frame.source, ip, now };
        if let Some(part) = ip.part {
            return self.part(&packet, &incoming, (part, frame.destination));
        }
        match self.incoming(&incoming, frame.destination, actions) {
            Ok(()) => Verdict::Done,
            Err(why) => Verdict::Refused(why),
        }
    }

    /// The router answers it itself. A guest that asks for a lease may name an address that
    /// another one has by now: it is told so.
    fn for_us(&mut self, packet: FromGuest<'_>, frame: &Frame<'_>, now: Nanos) -> Verdict {
        if let Carried::Arp(bytes) = &frame.carried
            && let Some(address) = neighbours::sender(bytes)
            && self.is_for_guests(address.into())
        {
            self.hear_owner(packet.guest, (address, frame.source), now);
        }
        if let Carried::Ip(ip) = &frame.carried {
            if ip.protocol != UDP && self.is_of_another(packet.guest, ip.from, now) {
                return Verdict::Refused(Refusal::SpoofedSource);
            }
            self.learn_neighbour(packet.guest, frame.source, ip, now);
        }
        self.answer(packet, now)
    }

    fn answer(&mut self, packet: FromGuest<'_>, now: Nanos) -> Verdict {
        let len = packet.len as usize;
        if len > WHOLE_LEN_MAX {
            return Verdict::Refused(Refusal::Malformed);
        }
        let Some(bytes) = packet.head.get(..len) else { return Verdict::Whole };
        let (guests, held_ns) = (&self.guests, self.held_ns());
        let used = || used_by_others(guests, packet.guest, held_ns, now);
        if let Some(guest) = guests.get(usize::from(packet.guest.0)).and_then(Option::as_ref)
            && let Some(frame) = self.services.answer(&guest.name, bytes, now, used)
        {
            self.reply_in_parts(packet.guest, frame);
            self.ask_for_offered(packet.guest, now);
        }
        Verdict::Done
    }

    /// A guest that asks for its neighbours has the address that it asks from; one that asks
    /// whether an address is free will have that one (RFC 4862 §5.4).
    fn learn_neighbour(&mut self, guest: Guest, mac: MacAddress, ip: &Ip<'_>, now: Nanos) {
        const SOLICITATION: u8 = 135;
        const TARGET_AT: usize = 8;
        let IpAddr::V6(from) = ip.from else { return };
        let is_trial = from.is_unspecified() && ip.payload.first() == Some(&SOLICITATION);
        let target = array::<16>(ip.payload, TARGET_AT).filter(|_| is_trial);
        let address = target.map_or(from, Ipv6Addr::from);
        if self.is_for_guests(address.into()) && !self.is_of_another(guest, address.into(), now) {
            self.learn(guest, (address.into(), mac), now);
        }
    }

    fn incoming(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
        actions: &mut Actions,
    ) -> Result<(), Refusal> {
        self.check_source(incoming, destination)?;
        let ip = &incoming.ip;
        if ip.hops <= 1 {
            self.refuse(incoming, Problem::HopsExceeded);
            return Err(Refusal::Hops);
        }
        match ip.protocol {
            TCP => self.tcp(incoming, actions),
            UDP => self.udp(incoming, actions),
            ICMP if ip.from.is_ipv4() && ip.payload.starts_with(&[8, 0]) => {
                self.echo(incoming, actions)
            }
            ICMPV6 if ip.from.is_ipv6() && ip.payload.starts_with(&[128, 0]) => {
                self.echo(incoming, actions)
            }
            ICMP | ICMPV6 => self.error_from_guest(incoming, actions),
            _ => Err(Refusal::Malformed),
        }
    }

    /// It is for the router, and from the guest.
    pub(super) fn check_source(
        &mut self,
        incoming: &Incoming<'_>,
        destination: MacAddress,
    ) -> Result<(), Refusal> {
        let from = incoming.ip.from;
        if destination != self.plan().mac() {
            return Err(Refusal::NotForUs);
        }
        let is_right = self.is_for_guests(from)
            && !self.is_of_another(incoming.guest, from, incoming.now)
            && self.guest_mut(incoming.guest).is_some();
        if !is_right {
            // It may be an address of a network that the router had before.
            self.refuse(incoming, Problem::WrongSource);
            return Err(Refusal::SpoofedSource);
        }
        self.learn(incoming.guest, (from, incoming.mac), incoming.now);
        Ok(())
    }

    fn tcp(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        let ip = &incoming.ip;
        let segment = Segment::parse(ip.payload, ip.payload_len).ok_or(Refusal::Malformed)?;
        let from = word(ip.payload, 0).ok_or(Refusal::Malformed)?;
        let to = word(ip.payload, 2).ok_or(Refusal::Malformed)?;
        let key = key_of(incoming, Protocol::Tcp, from, to);
        let known = self.table.find(&key);
        if let Some(id) = known
            && !self.tcp_segment(id, incoming, &segment, actions)
        {
            return Ok(());
        }
        if segment.flags & (SYN | ACK | RST) == SYN {
            return self.open_tcp(incoming, key, &segment, actions);
        }
        self.refuse_segment(incoming, &key, &segment);
        Err(Refusal::NoFlow)
    }

    /// Whether the connection has nothing to do with the segment.
    fn tcp_segment(
        &mut self,
        id: FlowId,
        incoming: &Incoming<'_>,
        segment: &Segment,
        actions: &mut Actions,
    ) -> bool {
        let Some(entry) = self.table.entry_mut(id) else { return true };
        (entry.used, entry.mac) = (incoming.now, incoming.mac);
        let State::Tcp(tcp) = &mut entry.state else { return true };
        let was_connecting = tcp.phase() == Phase::Connecting;
        if tcp.phase() == Phase::Accepted && segment.has(SYN) {
            tcp.note_options(SynOptions::parse(incoming.ip.payload));
        }
        let todo = tcp.segment(segment, incoming.now);
        self.note_connecting(id, was_connecting);
        self.apply(id, todo, low(incoming.ip.payload_at), actions);
        todo.restart || todo.refuse
    }

    /// RFC 9293 §3.10.7.1.
    fn refuse_segment(&mut self, incoming: &Incoming<'_>, key: &FlowKey, segment: &Segment) {
        let is_free = !segment.has(SYN) && incoming.now < self.reset_freely_until;
        let most = self.limits.flows_per_guest as usize;
        let gateway = self.plan().mac();
        let head = if segment.has(ACK) {
            Head { seq: segment.ack, ack: Seq(0), flags: RST, window: 0, scale: None }
        } else {
            let ack = segment.seq.plus(segment.len());
            Head { seq: Seq(0), ack, flags: RST | ACK, window: 0, scale: None }
        };
        let Some(guest) = self.guest_mut(incoming.guest).filter(|_| !segment.has(RST)) else {
            return;
        };
        let (ends, macs) = ((key.to, key.from), (gateway, incoming.mac));
        let reset = || lone_segment(ends, macs, &head);
        if is_free {
            return guest.reply_up_to(most, reset());
        }
        guest.refuse(incoming.now, || Some(reset()));
    }

    pub(super) fn refuse_syn(
        &mut self,
        incoming: &Incoming<'_>,
        key: &FlowKey,
        segment: &Segment,
    ) -> Refusal {
        self.refuse_segment(incoming, key, segment);
        Refusal::FlowLimit
    }

    /// Tells the guest what its packet met.
    pub(super) fn refuse(&mut self, incoming: &Incoming<'_>, problem: Problem) {
        let ip = &incoming.ip;
        let stations = Stations { from: self.plan().mac(), to: incoming.mac };
        let gateway = match ip.from {
            IpAddr::V4(_) => Some(IpAddr::V4(self.plan().gateway4())),
            IpAddr::V6(_) => self.plan().gateway6().map(IpAddr::V6),
        };
        if let (Some(gateway), Some(guest)) = (gateway, self.guest_mut(incoming.guest)) {
            let addresses = (gateway, ip.from);
            guest.refuse(incoming.now, || error(stations, addresses, problem, ip.bytes));
        }
    }

    fn udp(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        let ip = &incoming.ip;
        let field = |at| word(ip.payload, at).ok_or(Refusal::Malformed);
        let (from, to, len) = (field(0)?, field(2)?, usize::from(field(4)?));
        if len < UDP_HEADER_LEN || len > ip.payload_len {
            return Err(Refusal::Malformed);
        }
        let key = key_of(incoming, Protocol::Udp, from, to);
        let flow = self.datagram_flow(incoming, key, actions)?;
        self.count_from_guest(flow, low(len - UDP_HEADER_LEN));
        actions.push(Action::SendDatagram {
            flow,
            skip: low(ip.payload_at + UDP_HEADER_LEN),
            len: low(len - UDP_HEADER_LEN),
            hops: ip.hops - 1,
            is_whole_only: ip.is_whole_only,
        });
        Ok(())
    }

    fn echo(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refusal> {
        let ip = &incoming.ip;
        let identifier = word(ip.payload, 4).ok_or(Refusal::Malformed)?;
        let key = key_of(incoming, Protocol::Echo, identifier, 0);
        let flow = self.datagram_flow(incoming, key, actions)?;
        self.count_from_guest(flow, low(ip.payload_len));
        actions.push(Action::SendDatagram {
            flow,
            skip: low(ip.payload_at),
            len: low(ip.payload_len),
            hops: ip.hops - 1,
            is_whole_only: ip.is_whole_only,
        });
        Ok(())
    }
}

fn key_of(incoming: &Incoming<'_>, protocol: Protocol, from: u16, to: u16) -> FlowKey {
    let from = SocketAddr::new(incoming.ip.from, from);
    let to = SocketAddr::new(incoming.ip.to, to);
    FlowKey { guest: incoming.guest, protocol, from, to }
}

/// A place in a packet, which is shorter than 4 GiB.
fn low(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
