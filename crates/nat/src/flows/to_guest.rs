//! The frames of flows that go to a guest next.

use std::net::SocketAddr;

use ringway_net::Nanos;

use super::{Flows, State};
use crate::actions::Actions;
use crate::datagrams::is_question;
use crate::emit::{Content, Emit, Ends, Mss};
use crate::frame::{Stations, TCP_HEADER_LEN, ip_header_len, low_word};
use crate::socket::Read;
use crate::table::{FlowId, FlowKey, Guest, Protocol};

/// Most bytes of data in a segment that the guest has cut: with the longest headers, and a bit to
/// spare, a packet is below 64 KiB.
const LONG_LEN_MAX: u32 = 65_480;

/// The contents that the guest takes in one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepts {
    /// TCP over IPv4 that is not cut into segments.
    pub tso4: bool,
    /// The same over IPv6.
    pub tso6: bool,
    /// Several UDP datagrams over IPv4 together.
    pub uso4: bool,
    /// The same over IPv6.
    pub uso6: bool,
    /// Most bytes of a frame; what its buffers hold.
    pub len_max: u32,
}

impl Flows {
    /// The next frame of the guest's flows. Each flow is looked at once at most: those that have
    /// nothing leave the queue.
    pub fn due(&mut self, guest: Guest, accepts: Accepts) -> Option<Emit> {
        while let Some(id) = self.table.first_ready(guest) {
            let emit = self.emit(id, accepts);
            if emit.is_some() {
                return emit;
            }
            self.table.unset_ready(guest);
        }
        None
    }

    /// Whether [`Self::due`] may have something.
    pub fn is_due(&self, guest: Guest) -> bool {
        self.table.first_ready(guest).is_some()
    }

    /// The flow's frame is in the guest's memory, or there is none, as `read` tells.
    pub fn emitted(&mut self, emit: &Emit, read: Read, now: Nanos, actions: &mut Actions) {
        self.note_emitted(emit, read, now, actions);
        if self.table.first_ready(emit.guest()) == Some(emit.turn) {
            self.table.rotate_ready(emit.guest());
        }
    }

    fn note_emitted(&mut self, emit: &Emit, read: Read, now: Nanos, actions: &mut Actions) {
        let Some(entry) = self.table.entry_mut(emit.flow) else { return };
        match (&mut entry.state, emit.content) {
            (State::Tcp(tcp), Content::Segment(outgoing)) => {
                let todo = tcp.emitted(outgoing, read, now);
                self.apply(emit.flow, todo, 0, actions);
            }
            (State::Datagrams(datagrams), Content::Datagram) => match read {
                Read::Bytes(len) => {
                    datagrams.receive(emit.segment_len().is_some());
                    entry.to_guest += u64::from(len);
                    entry.used = now;
                }
                Read::Stranger => {}
                Read::TooLong => datagrams.is_readable &= datagrams.client.is_none(),
                Read::Empty | Read::End => datagrams.is_readable = false,
            },
            _ => {}
        }
    }

    /// See [`Nat::came_from`](crate::Nat::came_from).
    pub fn came_from(&self, flow: FlowId, from: SocketAddr) -> Option<FlowId> {
        let key = self.table.entry(flow)?.key;
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        if key.protocol == Protocol::Echo {
            return (from.ip() == key.to.ip()).then_some(flow);
        }
        if from == key.to || is_question(&key) {
            return (from == key.to).then_some(flow);
        }
        let exact = self.table.find(&FlowKey { to: from, ..key });
        let is_alike = |it: &FlowKey| {
            (it.protocol, it.from, it.to.ip()) == (key.protocol, key.from, from.ip())
        };
        let mut flows = self.table.of_guest(key.guest);
        exact.or_else(|| flows.find(|(_, entry)| is_alike(&entry.key)).map(|(id, _)| id))
    }

    fn emit(&self, id: FlowId, accepts: Accepts) -> Option<Emit> {
        let entry = self.table.entry(id)?;
        let stations = Stations { from: self.plan.mac(), to: entry.mac };
        let ends = Ends { flow: id, key: entry.key, stations };
        let is_ipv4 = entry.key.from.is_ipv4();
        let ip_len = u32::from(low_word(ip_header_len(is_ipv4)));
        let room = accepts.len_max.saturating_sub(14 + ip_len);
        match &entry.state {
            State::Tcp(tcp) => {
                let mss = u32::from(tcp.mss());
                let has_tso = if is_ipv4 { accepts.tso4 } else { accepts.tso6 };
                let room = room.saturating_sub(low_word(TCP_HEADER_LEN).into());
                let long = LONG_LEN_MAX.min(room) / mss * mss;
                let len_max = if has_tso { long.max(mss) } else { mss };
                let outgoing = tcp.next(len_max.min(room))?;
                let mss = Mss { guest: tcp.mss(), ours: self.plan.mss(is_ipv4) };
                Some(Emit::segment(&ends, outgoing, &tcp.head(outgoing), mss))
            }
            State::Datagrams(datagrams) if datagrams.is_readable => {
                let one = room.min(u32::from(self.plan.mtu) - ip_len);
                let most = if datagrams.come_together { room } else { one };
                let has_uso = if is_ipv4 { accepts.uso4 } else { accepts.uso6 };
                (one >= 8).then(|| Emit::datagram(&ends, one, most, has_uso))
            }
            State::Datagrams(_) => None,
        }
    }
}
