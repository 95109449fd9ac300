//! The segments that go to the guest next.

use ringway_net::Nanos;

use super::{ACK, FIN, PSH, RST, SYN, WINDOW_MAX};
use super::{Phase, Seq, Tcp, Todo};
use crate::socket::Read;

/// A segment that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outgoing {
    SynAck,
    Syn,
    /// Up to so many bytes of the socket's receive queue from that offset on.
    Data {
        offset: u32,
        len_max: u32,
    },
    Fin,
    /// Asks for an answer: the number in front of what the guest expects, without data.
    Probe,
    Ack,
    Reset,
}

/// The TCP header of a segment that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub seq: Seq,
    pub ack: Seq,
    pub flags: u8,
    pub window: u16,
    /// The shift to be announced; `None`: no scaling, or not a SYN.
    pub scale: Option<u8>,
}

impl Outgoing {
    /// With the options of a SYN, and a window that is not scaled.
    pub fn is_syn(self) -> bool {
        matches!(self, Self::SynAck | Self::Syn)
    }
}

impl Tcp {
    /// The segment that is due; `len_max`: most bytes of data that one frame may carry.
    pub fn next(&self, len_max: u32) -> Option<Outgoing> {
        match self.phase {
            Phase::Connecting | Phase::Gone => None,
            Phase::Answered => self.is_syn_due.then_some(Outgoing::SynAck),
            Phase::Accepted => self.is_syn_due.then_some(Outgoing::Syn),
            Phase::Open => self.next_open(len_max),
            Phase::Closed => (self.acks > 0).then_some(Outgoing::Ack),
            Phase::Resetting => Some(Outgoing::Reset),
        }
    }

    fn next_open(&self, len_max: u32) -> Option<Outgoing> {
        let data = self.data(len_max);
        match () {
            // Alike, so that the guest sends again.
            () if self.acks > 1 => Some(Outgoing::Ack),
            () if data.is_some() => data,
            () if self.fin_at == Some(self.next) => Some(Outgoing::Fin),
            () if self.is_probe_due => Some(Outgoing::Probe),
            () => (self.acks > 0).then_some(Outgoing::Ack),
        }
    }

    fn data(&self, len_max: u32) -> Option<Outgoing> {
        let mss = u32::from(self.mss);
        let offset = self.in_flight();
        let room = self.window.min(self.in_flight_max).saturating_sub(offset);
        let room = if room >= mss { room / mss * mss } else { room };
        let left = self.fin_at.map_or(u32::MAX, |fin| fin.bytes_after(self.next));
        // Small pieces only when nothing else makes the guest answer.
        let is_worth_it = room >= mss || offset == 0;
        let len_max = len_max.min(room).min(left);
        let is_due = self.may_read && is_worth_it && len_max > 0;
        is_due.then_some(Outgoing::Data { offset, len_max })
    }

    /// The header of a segment that is due.
    pub fn head(&self, outgoing: Outgoing) -> Head {
        let (seq, flags) = match outgoing {
            Outgoing::SynAck => (self.isn, SYN | ACK),
            Outgoing::Syn => (self.isn, SYN),
            Outgoing::Data { .. } => (self.next, PSH | ACK),
            Outgoing::Fin => (self.next, FIN | ACK),
            Outgoing::Probe => (self.una.minus(1), ACK),
            Outgoing::Ack => (self.next, ACK),
            Outgoing::Reset => (self.next, RST | ACK),
        };
        let scale = outgoing.is_syn().then_some(self.scale);
        let (window, _) = self.offer(outgoing);
        Head { seq, ack: self.expected, flags, window, scale: scale.filter(|scale| *scale > 0) }
    }

    /// The header's window, and its right edge, which never moves to the left.
    fn offer(&self, outgoing: Outgoing) -> (u16, Seq) {
        // Windows of SYNs are not scaled.
        let scale = if outgoing.is_syn() { 0 } else { self.scale };
        let most = WINDOW_MAX.min(u32::from(u16::MAX) << scale);
        let room = if self.room < self.least_room() { 0 } else { self.room.min(most) };
        let edge = self.edge.later(self.expected.plus(room));
        let window = edge.bytes_after(self.expected).div_ceil(1 << scale);
        (u16::try_from(window).unwrap_or(u16::MAX), edge)
    }

    /// The segment is in the guest's memory, or could not be made, as `read` tells.
    pub fn emitted(&mut self, outgoing: Outgoing, read: Read, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        if let (Outgoing::Data { .. }, Read::End | Read::Empty | Read::TooLong) = (outgoing, read) {
            self.may_read = false;
            self.fin_at = (read == Read::End).then_some(self.next).or(self.fin_at);
            self.rearm(now);
            return todo;
        }
        (_, self.edge) = self.offer(outgoing);
        match outgoing {
            Outgoing::SynAck | Outgoing::Syn => {
                self.is_syn_due = false;
                self.next = self.isn.plus(1);
            }
            Outgoing::Data { len_max, .. } => {
                let Read::Bytes(len) = read else { return todo };
                self.next = self.next.plus(len.min(len_max));
            }
            Outgoing::Fin => self.next = self.next.plus(1),
            Outgoing::Probe => (self.is_probe_due, self.probed) = (false, now),
            Outgoing::Ack => {}
            Outgoing::Reset => self.phase = Phase::Gone,
        }
        self.max = self.max.later(self.next);
        self.acks = self.acks.saturating_sub(1);
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }
}
