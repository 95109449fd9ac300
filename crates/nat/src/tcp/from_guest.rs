//! The effect of a guest's segment on a connection.

use ringway_net::Nanos;

use super::{ACK, ACKS_MAX, FIN, RST, SYN, WINDOW_MAX};
use super::{Phase, Segment, Tcp, Todo};
use crate::socket::Close;

/// Acknowledgements alike that say that something was lost (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;

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
            Phase::Answered if segment.ack == self.isn.plus(1) => {
                self.open(now);
                self.established(segment, &mut todo, now);
            }
            Phase::Answered => todo.refuse = true,
            Phase::Open => self.established(segment, &mut todo, now),
            Phase::Closed if segment.len() > 0 => self.owe_ack(),
            Phase::Closed => {}
        }
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }

    /// The socket took so many of all bytes that it was given since it last answered.
    pub fn sent(&mut self, len: u32, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        let len = len.min(self.pending);
        let is_all = len == self.pending;
        self.expected = self.expected.plus(len);
        self.room = self.room.saturating_sub(len);
        self.pending = 0;
        self.owe_ack();
        if is_all && self.is_fin_pending {
            self.end(&mut todo);
        }
        if !is_all {
            // The bytes behind those that the socket did not take are lost with them: a FIN too.
            (self.is_blocked, self.is_fin_pending, self.room) = (true, false, 0);
        }
        todo.asks_room = is_all && !self.has_ended && self.room < self.room_told / 2;
        self.close_if_over(&mut todo, now);
        self.rearm(now);
        todo
    }

    /// The guest answers the SYN that was sent to it.
    fn answered(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let is_answer = segment.has(ACK) && segment.ack == self.isn.plus(1);
        match segment.flags & (SYN | RST) {
            RST if is_answer => todo.close = self.close(Close::Reset, Phase::Gone, now),
            SYN if is_answer => {
                let offered = self.edge.bytes_after(self.expected);
                self.irs = segment.seq;
                self.expected = segment.seq.plus(1);
                self.edge = self.expected.plus(offered);
                self.window = u32::from(segment.window);
                self.window_by = (segment.seq, segment.ack);
                self.open(now);
                self.owe_ack();
            }
            _ => {}
        }
    }

    fn open(&mut self, now: Nanos) {
        self.phase = Phase::Open;
        (self.una, self.next) = (self.isn.plus(1), self.isn.plus(1));
        (self.tries, self.retransmit_at, self.is_syn_due) = (0, None, false);
        self.may_read = true;
        self.progress = now;
    }

    /// Believed where it can be meant (RFC 9293 §3.10.7.4).
    fn reset_by_guest(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let offset = segment.seq.offset_from(self.expected);
        let is_inside = offset == 0 || offset > 0 && self.edge.is_after(segment.seq);
        if is_inside || self.phase == Phase::Closed {
            let has_socket = self.phase != Phase::Closed;
            let close = self.close(Close::Reset, Phase::Gone, now);
            todo.close = close.filter(|_| has_socket);
        }
    }

    /// The guest repeats its SYN, or begins anew where it has forgotten this connection.
    fn syn_again(&mut self, segment: &Segment, todo: &mut Todo) {
        if segment.has(ACK) {
            self.owe_ack();
        } else if segment.seq != self.irs {
            todo.restart = true;
            todo.close = (self.phase != Phase::Closed).then_some(Close::Reset);
            self.phase = Phase::Gone;
        } else if self.phase == Phase::Answered {
            self.is_syn_due = true;
        } else if self.phase == Phase::Open {
            self.owe_ack();
        }
    }

    fn established(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        self.heard = now;
        let offset = segment.seq.offset_from(self.expected);
        let is_near = offset.unsigned_abs() <= WINDOW_MAX;
        // A byte that was never sent cannot be acknowledged.
        if !is_near || segment.ack.is_after(self.max) {
            self.owe_ack();
            return;
        }
        let is_keep_alive = offset == -1 && segment.data_len <= 1 && !segment.has(FIN);
        self.acknowledge(segment, todo, now);
        if is_keep_alive {
            self.owe_ack();
        } else {
            self.take(segment, todo);
        }
    }

    fn acknowledge(&mut self, segment: &Segment, todo: &mut Todo, now: Nanos) {
        let window = u32::from(segment.window) << self.guest_scale;
        let len = segment.ack.bytes_after(self.una);
        if len > 0 {
            let is_fin = self.fin_at.is_some_and(|fin| segment.ack.is_after(fin));
            todo.consume = len - u32::from(is_fin);
            self.is_fin_acked |= is_fin;
            self.una = segment.ack;
            self.next = self.next.later(segment.ack);
            (self.duplicates, self.tries, self.retransmit_at) = (0, 0, None);
            self.progress = now;
            self.recover = self.recover.filter(|end| end.is_after(segment.ack));
        } else if self.is_duplicate(segment, window) {
            self.duplicates = self.duplicates.saturating_add(1);
            if self.duplicates == DUPLICATES && self.recover.is_none() {
                self.recover = Some(self.max);
                self.rewind();
            }
        }
        self.take_window(segment, window);
    }

    fn is_duplicate(&self, segment: &Segment, window: u32) -> bool {
        let is_same = segment.ack == self.una && segment.seq == self.expected;
        is_same && segment.len() == 0 && window == self.window && self.next != self.una
    }

    /// An older segment must not take back what a later one said.
    fn take_window(&mut self, segment: &Segment, window: u32) {
        let (seq, ack) = self.window_by;
        let is_older = seq.is_after(segment.seq) || seq == segment.seq && ack.is_after(segment.ack);
        if is_older {
            return;
        }
        self.window_by = (segment.seq, segment.ack);
        if window == 0 && self.in_flight() > 0 {
            // It has no memory for what is on the way.
            self.rewind();
            self.retransmit_at = None;
        } else if window > 0 && self.window == 0 {
            (self.retransmit_at, self.tries) = (None, 0);
        }
        if window == 0 {
            // Answered, so it lives: this may go on.
            self.tries = self.tries.min(5);
        }
        self.window = window;
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
