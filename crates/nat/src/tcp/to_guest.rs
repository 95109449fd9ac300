//! The segments that go to the guest next.

use ringway_net::Nanos;

use super::{ACK, FIN, PSH, RST, SYN};
use super::{Phase, Segment, Seq, SynOptions, Tcp, Todo};
use crate::socket::Read;

/// Acknowledgements alike that say that something was lost (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;

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

/// The half of a connection whose data goes to the guest: it is in the socket until the guest has
/// acknowledged it.
#[derive(Debug, Clone, Default)]
pub(super) struct SendHalf {
    pub isn: Seq,
    /// The first that the guest has not acknowledged.
    pub una: Seq,
    pub next: Seq,
    /// Behind the last that was ever sent.
    pub max: Seq,
    pub window: GuestWindow,
    pub mss: u16,
    /// Most bytes on the way, however large the window is.
    pub in_flight_max: u32,
    pub is_syn_due: bool,
    /// The socket may have something behind `next`.
    pub may_read: bool,
    /// The FIN's sequence number, once the socket's end was seen.
    pub fin_at: Option<Seq>,
    pub is_fin_acked: bool,
    pub duplicates: u8,
    /// Up to where was sent when the last loss was noticed.
    pub recover: Option<Seq>,
}

/// The window of the guest.
#[derive(Debug, Clone, Default)]
pub(super) struct GuestWindow {
    pub len: u32,
    /// By what the windows in segments are shifted.
    pub scale: u8,
    /// The segment by which it was told.
    seq: Seq,
    ack: Seq,
}

impl GuestWindow {
    /// Whether the segment was sent before the one by which the window was told.
    pub fn is_newer_than(&self, segment: &Segment) -> bool {
        self.seq.is_after(segment.seq) || self.seq == segment.seq && self.ack.is_after(segment.ack)
    }

    pub fn set(&mut self, segment: &Segment, len: u32) {
        (self.seq, self.ack, self.len) = (segment.seq, segment.ack, len);
    }
}

impl SendHalf {
    pub fn new(syn: &Segment, options: SynOptions, isn: Seq) -> Self {
        let scale = options.scale.unwrap_or(0);
        Self {
            isn,
            una: isn,
            next: isn,
            max: isn,
            window: GuestWindow { len: syn.window.into(), scale, seq: syn.seq, ack: isn },
            mss: options.mss,
            in_flight_max: u32::MAX,
            ..Self::default()
        }
    }

    /// The guest has acknowledged the SYN.
    pub fn open(&mut self) {
        (self.una, self.next) = (self.isn.plus(1), self.isn.plus(1));
        (self.is_syn_due, self.may_read) = (false, true);
    }

    /// Bytes to the guest that it has not acknowledged.
    pub fn in_flight(&self) -> u32 {
        self.next.bytes_after(self.una)
    }

    /// Bytes that may go before the guest acknowledges any.
    pub fn room(&self) -> u32 {
        self.window.len.min(self.in_flight_max).saturating_sub(self.in_flight())
    }

    /// Sends again from where the guest has acknowledged.
    pub fn rewind(&mut self) {
        self.next = self.una;
        self.may_read = true;
    }

    /// The guest has all in front of that number; returns how many bytes of it are new.
    pub fn acknowledge(&mut self, ack: Seq) -> u32 {
        let len = ack.bytes_after(self.una);
        let is_fin = self.fin_at.is_some_and(|fin| ack.is_after(fin));
        self.is_fin_acked |= is_fin;
        self.una = ack;
        self.next = self.next.later(ack);
        self.duplicates = 0;
        self.recover = self.recover.filter(|end| end.is_after(ack));
        len - u32::from(is_fin)
    }

    /// The guest acknowledges the same once more, without data, if the window is the same too.
    pub fn count_duplicate(&mut self, ack: Seq, window: u32) {
        if ack == self.una && window == self.window.len && self.next != self.una {
            self.duplicates = self.duplicates.saturating_add(1);
            if self.duplicates == DUPLICATES && self.recover.is_none() {
                self.recover = Some(self.max);
                self.rewind();
            }
        }
    }

    fn data(&self, len_max: u32) -> Option<Outgoing> {
        let mss = u32::from(self.mss);
        let (offset, room) = (self.in_flight(), self.room());
        let room = if room >= mss { room / mss * mss } else { room };
        let left = self.fin_at.map_or(u32::MAX, |fin| fin.bytes_after(self.next));
        // Small pieces only when nothing else makes the guest answer.
        let is_worth_it = room >= mss || offset == 0;
        let len_max = len_max.min(room).min(left);
        let is_due = self.may_read && is_worth_it && len_max > 0;
        is_due.then_some(Outgoing::Data { offset, len_max })
    }
}

impl Tcp {
    /// The segment that is due; `len_max`: most bytes of data that one frame may carry.
    pub fn next(&self, len_max: u32) -> Option<Outgoing> {
        match self.phase {
            Phase::Connecting | Phase::Gone => None,
            Phase::Answered => self.send.is_syn_due.then_some(Outgoing::SynAck),
            Phase::Accepted => self.send.is_syn_due.then_some(Outgoing::Syn),
            Phase::Open => self.next_open(len_max),
            Phase::Closed => (self.receive.acks > 0).then_some(Outgoing::Ack),
            Phase::Resetting => Some(Outgoing::Reset),
        }
    }

    fn next_open(&self, len_max: u32) -> Option<Outgoing> {
        let data = self.send.data(len_max);
        match () {
            // Alike, so that the guest sends again.
            () if self.receive.acks > 1 => Some(Outgoing::Ack),
            () if data.is_some() => data,
            () if self.send.fin_at == Some(self.send.next) => Some(Outgoing::Fin),
            () if self.clock.is_probe_due => Some(Outgoing::Probe),
            () => (self.receive.acks > 0).then_some(Outgoing::Ack),
        }
    }

    /// The header of a segment that is due.
    pub fn head(&self, outgoing: Outgoing) -> Head {
        let (seq, flags) = match outgoing {
            Outgoing::SynAck => (self.send.isn, SYN | ACK),
            Outgoing::Syn => (self.send.isn, SYN),
            Outgoing::Data { .. } => (self.send.next, PSH | ACK),
            Outgoing::Fin => (self.send.next, FIN | ACK),
            Outgoing::Probe => (self.send.una.minus(1), ACK),
            Outgoing::Ack => (self.send.next, ACK),
            Outgoing::Reset => (self.send.next, RST | ACK),
        };
        let scale = outgoing.is_syn().then_some(self.receive.scale);
        let (window, _) = self.offer(outgoing);
        let (ack, scale) = (self.receive.expected, scale.filter(|scale| *scale > 0));
        Head { seq, ack, flags, window, scale }
    }

    /// The header's window, and its end. Windows of SYNs are not scaled.
    fn offer(&self, outgoing: Outgoing) -> (u16, Seq) {
        let scale = if outgoing.is_syn() { 0 } else { self.receive.scale };
        self.receive.offer(scale, self.send.mss)
    }

    /// The segment is in the guest's memory, or could not be made, as `read` tells.
    pub fn emitted(&mut self, outgoing: Outgoing, read: Read, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        if let (Outgoing::Data { .. }, Read::End | Read::Empty | Read::TooLong) = (outgoing, read) {
            self.send.may_read = false;
            self.send.fin_at = (read == Read::End).then_some(self.send.next).or(self.send.fin_at);
            self.rearm(now);
            return todo;
        }
        (_, self.receive.window_end) = self.offer(outgoing);
        match outgoing {
            Outgoing::SynAck | Outgoing::Syn => {
                self.send.is_syn_due = false;
                self.send.next = self.send.isn.plus(1);
            }
            Outgoing::Data { len_max, .. } => {
                let Read::Bytes(len) = read else { return todo };
                self.send.next = self.send.next.plus(len.min(len_max));
            }
            Outgoing::Fin => self.send.next = self.send.next.plus(1),
            Outgoing::Probe => (self.clock.is_probe_due, self.clock.probed) = (false, now),
            Outgoing::Ack => {}
            Outgoing::Reset => self.phase = Phase::Gone,
        }
        self.send.max = self.send.max.later(self.send.next);
        self.receive.acks = self.receive.acks.saturating_sub(1);
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }
}
