//! The effect of events of its socket on a connection.

use ringway_net::Nanos;

use super::{Phase, Tcp, Todo};
use crate::socket::Close;

impl Tcp {
    /// The socket is connected, and takes so many bytes.
    pub fn connected(&mut self, room: u32, now: Nanos) {
        if self.phase == Phase::Connecting {
            self.phase = Phase::Answered;
            self.receive.set_room(room);
            self.send.is_syn_due = true;
            self.rearm(now);
        }
    }

    /// The socket failed: the guest sees a reset.
    pub fn failed(&mut self, now: Nanos) -> Todo {
        let has_socket = self.has_socket();
        let close = has_socket.then(|| self.close(Close::Reset, Phase::Resetting, now));
        Todo { close: close.flatten(), ..Todo::default() }
    }

    /// The socket has more to read, or its end.
    pub fn readable(&mut self, now: Nanos) {
        self.send.may_read = true;
        self.rearm(now);
    }

    /// The other end has hung up without a byte: while the guest has not answered there is little
    /// reason to go on.
    pub fn hung_up(&mut self) {
        self.is_abandoned = self.phase == Phase::Accepted;
    }

    /// The socket takes data again.
    pub fn writable(&mut self, now: Nanos) -> Todo {
        // The guest learns from acknowledgements alike what was not taken.
        if self.receive.is_blocked {
            self.receive.is_blocked = false;
            self.receive.acks = 4;
        }
        self.rearm(now);
        Todo { asks_room: self.phase == Phase::Open && !self.receive.has_ended, ..Todo::default() }
    }

    /// The socket takes so many bytes.
    pub fn has_room(&mut self, room: u32, now: Nanos) {
        let least = self.receive.least_room(self.send.mss);
        let was_closed = self.receive.window_end.bytes_after(self.receive.expected) < least;
        self.receive.set_room(room);
        if was_closed && room >= least && self.phase == Phase::Open {
            self.receive.owe_ack();
        }
        self.rearm(now);
    }
}
