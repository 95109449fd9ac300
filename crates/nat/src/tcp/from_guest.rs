//! The effect of a guest's segment on a connection.

use ringway_net::Nanos;

use super::{ACK, ACKS_MAX, FIN, RST, SCALE, SYN, WINDOW_MAX};
use super::{Phase, Segment, Seq, SynOptions, Tcp, Todo};
use crate::socket::Close;

/// The half of a connection whose data comes from the guest: what the socket takes of it is
/// acknowledged.
#[derive(Debug, Clone, Default)]
pub(super) struct ReceiveHalf {
    /// The number of the guest's SYN.
    pub irs: Seq,
    pub expected: Seq,
    /// Bytes that the socket was given, and about which it has not answered.
    pending: u32,
    is_fin_pending: bool,
    /// Its FIN was taken.
    pub has_ended: bool,
    /// The socket took less than it was given.
    pub is_blocked: bool,
    /// Bytes that the socket takes, those that it took when it was last asked, and the most ever.
    pub socket_room: u32,
    reported_room: u32,
    largest_room: u32,
    /// Up to where the guest may send; never moves back.
    pub window_end: Seq,
    pub scale: u8,
    /// Acknowledgements that are due.
    pub acks: u8,
}

impl ReceiveHalf {
    /// That of a guest whose SYN has this number.
    pub fn new(irs: Seq, options: SynOptions) -> Self {
        Self {
            irs,
            expected: irs.plus(1),
            window_end: irs.plus(1),
            scale: options.scale.map_or(0, |_| SCALE),
            ..Self::default()
        }
    }

    pub fn set_room(&mut self, room: u32) {
        (self.socket_room, self.reported_room) = (room, room);
        self.largest_room = self.largest_room.max(room);
    }

    /// With less than that the window stays closed: small pieces are not worth it, unless the
    /// socket never takes more (RFC 9293 §3.8.6.2.2).
    pub fn least_room(&self, mss: u16) -> u32 {
        u32::from(mss).min(self.largest_room / 2).max(1)
    }

    pub fn owe_ack(&mut self) {
        self.acks = self.acks.max(1);
    }

    /// The window to be told, and its end.
    pub fn offer(&self, scale: u8, mss: u16) -> (u16, Seq) {
        let most = WINDOW_MAX.min(u32::from(u16::MAX) << scale);
        let is_closed = self.socket_room < self.least_room(mss);
        let room = if is_closed { 0 } else { self.socket_room.min(most) };
        let end = self.window_end.later(self.expected.plus(room));
        let window = end.bytes_after(self.expected).div_ceil(1 << scale);
        (u16::try_from(window).unwrap_or(u16::MAX), end)
    }

    /// The guest's SYN came, in answer to the one that has offered it a window.
    fn begin(&mut self, irs: Seq) {
        let offered = self.window_end.bytes_after(self.expected);
        (self.irs, self.expected) = (irs, irs.plus(1));
        self.window_end = self.expected.plus(offered);
        self.owe_ack();
    }

    /// The socket took so many of all bytes that it was given since it last answered.
    fn sent(&mut self, len: u32, todo: &mut Todo) {
        let len = len.min(self.pending);
        let is_all = len == self.pending;
        self.expected = self.expected.plus(len);
        self.socket_room = self.socket_room.saturating_sub(len);
        self.pending = 0;
        self.owe_ack();
        if is_all && self.is_fin_pending {
            self.end(todo);
        }
        if !is_all {
            // The bytes behind those that the socket did not take are lost with them: a FIN too.
            (self.is_blocked, self.is_fin_pending, self.socket_room) = (true, false, 0);
        }
        todo.asks_room = is_all && !self.has_ended && self.socket_room < self.reported_room / 2;
    }

    fn take(&mut self, segment: &Segment, todo: &mut Todo) {
        let start = segment.seq.offset_from(self.expected.plus(self.pending));
        let overlap = start.min(0).unsigned_abs();
        let is_old = overlap > segment.data_len || overlap == segment.len();
        if segment.len() == 0 && start == 0 {
            return;
        }
        if start > 0 {
            // One for each, so that the guest notices the loss.
            self.acks = (self.acks + 1).min(ACKS_MAX);
            return;
        }
        if is_old || self.has_ended || self.is_fin_pending || self.is_blocked {
            self.owe_ack();
            return;
        }
        let len = segment.data_len - overlap;
        if self.pending.saturating_add(len) > WINDOW_MAX {
            self.owe_ack();
            return;
        }
        if len > 0 {
            todo.send = Some((segment.data_at + overlap, len));
            self.pending += len;
        }
        self.is_fin_pending = segment.has(FIN);
        if self.is_fin_pending && self.pending == 0 {
            self.end(todo);
        }
    }

    /// The guest's half has ended, and all of it is in the socket.
    fn end(&mut self, todo: &mut Todo) {
        (self.is_fin_pending, self.has_ended) = (false, true);
        self.expected = self.expected.plus(1);
        self.owe_ack();
        todo.shutdown = true;
    }
}

impl Tcp {
    /// A segment came.
    pub fn segment(&mut self, segment: &Segment, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        match self.phase {
            Phase::Gone | Phase::Resetting => {}
            Phase::Accepted => self.answered(segment, &mut todo, now),
            _ if segment.has(RST) => self.reset_by_guest(segment, &mut todo, now),
            _ if segment.has(SYN) => self.syn_again(segment, &mut todo),
            Phase::Connecting => {}
            _ if !segment.has(ACK) => {}
            Phase::Answered if segment.ack == self.send.isn.plus(1) => {
                self.open(now);
                self.established(segment, &mut todo, now);
            }
            Phase::Answered => todo.refuse = true,
            Phase::Open => self.established(segment, &mut todo, now),
            Phase::Closed if segment.len() > 0 => self.receive.owe_ack(),
            Phase::Closed => {}
        }
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }

    /// The socket took so many of all bytes that it was given since it last answered.
    pub fn sent(&mut self, len: u32, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        self.receive.sent(len, &mut todo);
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }

    /// The guest answers the SYN that was sent to it.
    fn answered(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let is_answer = segment.has(ACK) && segment.ack == self.send.isn.plus(1);
        match segment.flags & (SYN | RST) {
            RST if is_answer => todo.close = self.close(Close::Reset, Phase::Gone, now),
            SYN if is_answer => {
                self.receive.begin(segment.seq);
                self.send.window.set(segment, segment.window.into());
                self.open(now);
            }
            _ => {}
        }
    }

    fn open(&mut self, now: Nanos) {
        self.phase = Phase::Open;
        self.send.open();
        self.clock.advance(now);
    }

    /// Believed where it can be meant (RFC 9293 §3.10.7.4).
    fn reset_by_guest(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let offset = segment.seq.offset_from(self.receive.expected);
        let is_inside = offset == 0 || offset > 0 && self.receive.window_end.is_after(segment.seq);
        if is_inside || self.phase == Phase::Closed {
            let has_socket = self.phase != Phase::Closed;
            let close = self.close(Close::Reset, Phase::Gone, now);
            todo.close = close.filter(|_| has_socket);
        }
    }

    /// The guest repeats its SYN, or begins anew where it has forgotten this connection.
    fn syn_again(&mut self, segment: &Segment, todo: &mut Todo) {
        if segment.has(ACK) {
            self.receive.owe_ack();
        } else if segment.seq != self.receive.irs {
            todo.restart = true;
            todo.close = (self.phase != Phase::Closed).then_some(Close::Reset);
            self.phase = Phase::Gone;
        } else if self.phase == Phase::Answered {
            self.send.is_syn_due = true;
        } else if self.phase == Phase::Open {
            self.receive.owe_ack();
        }
    }

    fn established(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        self.clock.heard = now;
        let offset = segment.seq.offset_from(self.receive.expected);
        let is_near = offset.unsigned_abs() <= WINDOW_MAX;
        // A byte that was never sent cannot be acknowledged.
        if !is_near || segment.ack.is_after(self.send.max) {
            self.receive.owe_ack();
            return;
        }
        let is_keep_alive = offset == -1 && segment.data_len <= 1 && !segment.has(FIN);
        self.acknowledge(segment, todo, now);
        if is_keep_alive {
            self.receive.owe_ack();
        } else {
            self.receive.take(segment, todo);
        }
    }

    fn acknowledge(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let window = u32::from(segment.window) << self.send.window.scale;
        if segment.ack.is_after(self.send.una) {
            todo.consume = self.send.acknowledge(segment.ack);
            self.clock.advance(now);
        } else if segment.seq == self.receive.expected && segment.len() == 0 {
            self.send.count_duplicate(segment.ack, window);
        }
        self.take_window(segment, window);
    }

    /// An older segment must not take back what a later one said.
    fn take_window(&mut self, segment: &Segment, len: u32) {
        let (send, clock) = (&mut self.send, &mut self.clock);
        if send.window.is_newer_than(segment) {
            return;
        }
        if len == 0 && send.in_flight() > 0 {
            // It has no memory for what is on the way.
            send.rewind();
            clock.retransmit_at = None;
        } else if len > 0 && send.window.len == 0 {
            (clock.retransmit_at, clock.tries) = (None, 0);
        }
        if len == 0 {
            // Answered, so it lives: this may go on.
            clock.tries = clock.tries.min(5);
        }
        send.window.set(segment, len);
    }
}
