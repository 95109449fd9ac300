//! The effect of a guest's packet on its flow, which may begin with it.

use super::errors::GuestError;
use super::way::{port_of, target};
use super::{Flows, State};
use crate::actions::{Action, Actions};
use crate::datagrams::Datagrams;
use crate::frame::UDP_HEADER_LEN;
use crate::packet::{Incoming, word};
use crate::refusal::{Refusal, Refused};
use crate::socket::Close;
use crate::table::{Entry, FlowId, FlowKey, Protocol};
use crate::tcp::{Phase, SYN, Segment, SynOptions, Tcp, Todo};

impl Flows {
    pub fn tcp(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refused> {
        let ip = &incoming.ip;
        let segment = Segment::parse(ip.payload, ip.payload_len).ok_or(Refusal::Malformed)?;
        let from = word(ip.payload, 0).ok_or(Refusal::Malformed)?;
        let to = word(ip.payload, 2).ok_or(Refusal::Malformed)?;
        let key = incoming.key(Protocol::Tcp, from, to);
        if let Some(id) = self.table.find(&key)
            && !self.segment(id, incoming, &segment, actions)
        {
            return Ok(());
        }
        if segment.begins() {
            return self.open_tcp(incoming, key, &segment, actions);
        }
        Err(Refused::with_reset(Refusal::NoFlow))
    }

    /// Whether the connection has nothing to do with the segment.
    fn segment(
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

    pub fn udp(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refused> {
        let ip = &incoming.ip;
        let field = |at| word(ip.payload, at).ok_or(Refusal::Malformed);
        let (from, to, len) = (field(0)?, field(2)?, usize::from(field(4)?));
        if len < UDP_HEADER_LEN || len > ip.payload_len {
            return Err(Refusal::Malformed.into());
        }
        let key = incoming.key(Protocol::Udp, from, to);
        self.datagram(incoming, key, UDP_HEADER_LEN..len, actions)
    }

    pub fn echo(&mut self, incoming: &Incoming<'_>, actions: &mut Actions) -> Result<(), Refused> {
        let identifier = word(incoming.ip.payload, 4).ok_or(Refusal::Malformed)?;
        let key = incoming.key(Protocol::Echo, identifier, 0);
        self.datagram(incoming, key, 0..incoming.ip.payload_len, actions)
    }

    /// Sends those bytes of an IP packet's payload in their flow, which begins if there is none.
    fn datagram(
        &mut self,
        incoming: &Incoming<'_>,
        key: FlowKey,
        bytes: std::ops::Range<usize>,
        actions: &mut Actions,
    ) -> Result<(), Refused> {
        let ip = &incoming.ip;
        let flow = match self.table.find(&key) {
            Some(flow) => flow,
            None => self.open_datagrams(incoming, key, actions)?,
        };
        let (skip, len) = (low(ip.payload_at + bytes.start), low(bytes.len()));
        if let Some(entry) = self.table.entry_mut(flow) {
            (entry.used, entry.mac) = (incoming.now, incoming.mac);
            entry.from_guest += u64::from(len);
            if let State::Datagrams(datagrams) = &mut entry.state {
                datagrams.send();
            }
        }
        let (hops, is_whole_only) = (ip.hops - 1, ip.is_whole_only);
        actions.push(Action::SendDatagram { flow, skip, len, hops, is_whole_only });
        Ok(())
    }

    fn open_tcp(
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
        let has_room = self.has_its_share(guest, actions) || self.table.forget_closed(guest);
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

    fn open_datagrams(
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

    /// Room for one more flow of datagrams, perhaps in the place of the guest's oldest like it.
    fn makes_room(&mut self, key: &FlowKey, actions: &mut Actions) -> bool {
        let kind = |key: &FlowKey| (key.protocol, self.plan.is_name_server(key.to));
        let max = match kind(key) {
            (Protocol::Echo, _) => self.limits.echoes_per_guest,
            (_, true) => self.limits.questions_per_guest,
            (_, false) => u32::MAX,
        };
        let is_alike = |it: &Entry<State>| kind(&it.key) == kind(key);
        let count = self.table.of_guest(key.guest).filter(|(_, entry)| is_alike(entry)).count();
        if count >= max as usize {
            let oldest = self.table.oldest(key.guest, is_alike);
            return self.end_for_room(key.guest, oldest, actions);
        }
        self.has_its_share(key.guest, actions)
            || self.evict(key.guest, |it| it.key.protocol == key.protocol, actions)
    }

    /// The guest says what became of something that was sent to it.
    pub fn error_from_guest(
        &mut self,
        incoming: &Incoming<'_>,
        actions: &mut Actions,
    ) -> Result<(), Refused> {
        let find = |key| self.table.find(&key).ok_or(Refusal::NoFlow);
        match GuestError::parse(incoming)? {
            // The host has no socket for the other end then, which its next datagram tells it.
            GuestError::PortClosed(key) => self.end(find(key)?, Close::Gracefully, actions),
            GuestError::CarriesLess { key, mss, seq } => {
                let flow = find(key)?;
                let entry = self.table.entry_mut(flow).ok_or(Refusal::NoFlow)?;
                if let State::Tcp(tcp) = &mut entry.state {
                    tcp.carries_at_most(mss, seq, incoming.now);
                }
                self.apply(flow, Todo::default(), 0, actions);
            }
        }
        Ok(())
    }
}

/// A place in a packet, which is shorter than 4 GiB.
fn low(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}
