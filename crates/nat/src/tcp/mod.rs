//! A guest's connection, whose other end is a stream socket of the host.
//!
//! The machine is a peer of the guest's TCP without memory of its own. What the guest has not
//! acknowledged stays in the socket, from which it is peeked, again when it was lost; what the
//! guest sends goes into the socket at once, and only what the socket took is acknowledged.
//!
//! Limits: no selective acknowledgements, no timestamps, no congestion control: between a guest
//! and its router is memory. What comes out of order is dropped and sent again by the guest.

mod counts;
mod from_guest;
mod segment;
mod seq;
mod timers;
mod to_guest;

use ringway_net::Nanos;

use crate::socket::Close;
use from_guest::ReceiveHalf;
use timers::Clock;
use to_guest::SendHalf;

pub use counts::SocketCounts;
pub(crate) use segment::{ACK, FIN, PSH, RST, SYN, Segment, SynOptions};
pub(crate) use seq::Seq;
pub(crate) use to_guest::{Head, Outgoing};

/// Largest window that is offered, in bytes.
const WINDOW_MAX: u32 = 4 << 20;

/// By what the windows offered are shifted, when the guest can do so.
const SCALE: u8 = 7;

/// Most acknowledgements that are due at a time.
const ACKS_MAX: u8 = 8;

const SECOND_NS: u64 = 1_000_000_000;
/// How long the other end may take to answer; the kernel's own limit comes first.
const CONNECT_NS: u64 = 130 * SECOND_NS;
/// How long a closed flow answers a repeated FIN, and a reset waits for room.
const CLOSED_NS: u64 = 5 * SECOND_NS;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The guest's SYN came; the socket is connecting.
    Connecting,
    /// The socket is connected, and the guest is told so.
    Answered,
    /// The socket was connected from outside, and the guest is asked.
    Accepted,
    /// Data flows; each half ends on its own.
    Open,
    /// Both halves have ended and the socket is closed; a FIN may be repeated.
    Closed,
    /// The socket is closed; the guest has to be told.
    Resetting,
    /// Nothing is left.
    Gone,
}

/// The work to do about the socket, in the order of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Todo {
    /// Bytes to be taken off the socket's receive queue.
    pub consume: u32,
    /// Bytes of the segment to be sent: where they begin, counted from the TCP header, and how
    /// many.
    pub send: Option<(u32, u32)>,
    pub shutdown: bool,
    pub asks_room: bool,
    pub close: Option<Close>,
    /// The segment begins a new connection with the same addresses and ports.
    pub restart: bool,
    /// The segment belongs to no connection.
    pub refuse: bool,
}

/// A connection.
#[derive(Debug, Clone)]
pub(crate) struct Tcp {
    phase: Phase,
    /// It began with a socket's connection.
    is_from_outside: bool,
    /// Its client has gone before the guest has answered.
    is_abandoned: bool,
    send: SendHalf,
    receive: ReceiveHalf,
    clock: Clock,
}

impl Tcp {
    /// A connection that begins with a guest's SYN.
    pub fn new(syn: &Segment, options: SynOptions, isn: Seq, now: Nanos) -> Self {
        Self {
            phase: Phase::Connecting,
            is_from_outside: false,
            is_abandoned: false,
            send: SendHalf::new(syn, options, isn),
            receive: ReceiveHalf::new(syn.seq, options),
            clock: Clock::new(now),
        }
    }

    /// A connection that begins with a socket's, which takes so many bytes.
    pub fn accepted(mss: u16, isn: Seq, room: u32, now: Nanos) -> Self {
        let segment =
            Segment { seq: Seq(0), ack: isn, flags: SYN, window: 0, data_at: 0, data_len: 0 };
        let options = SynOptions { mss, scale: Some(0) };
        let mut tcp = Self::new(&segment, options, isn, now);
        (tcp.phase, tcp.is_from_outside) = (Phase::Accepted, true);
        tcp.send.is_syn_due = true;
        (tcp.receive.expected, tcp.receive.window_end) = (Seq(0), Seq(0));
        tcp.receive.set_room(room);
        tcp.rearm(now);
        tcp
    }

    /// Notes the options of the guest's answer.
    pub fn note_options(&mut self, options: SynOptions) {
        self.send.mss = self.send.mss.min(options.mss);
        self.send.window.scale = options.scale.unwrap_or(0);
        self.receive.scale = options.scale.map_or(0, |_| SCALE);
    }

    /// No more bytes are on the way to the guest than that.
    pub fn limit_in_flight(&mut self, len: u32) {
        self.send.in_flight_max = len;
    }

    /// A link on the way to the guest has dropped the segment with that number: it carries only
    /// segments with so much data (RFC 1191 §4, RFC 8201 §4).
    pub fn carries_at_most(&mut self, mss: u16, seq: Seq, now: Nanos) {
        let mss = mss.max(segment::MSS_DEFAULT);
        let is_on_its_way = !self.send.una.is_after(seq) && self.send.max.is_after(seq);
        if self.phase == Phase::Open && is_on_its_way && mss < self.send.mss {
            self.send.mss = mss;
            self.send.rewind();
            self.rearm(now);
        }
    }

    /// Whether its client has gone before the guest has answered.
    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned && self.phase == Phase::Accepted
    }

    /// Whether a client of the host began it.
    pub fn is_from_outside(&self) -> bool {
        self.is_from_outside
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Where it stands, as it is shown.
    pub fn name(&self) -> &'static str {
        match (self.phase, self.receive.has_ended, self.send.fin_at.is_some()) {
            (Phase::Connecting, ..) => "connecting",
            (Phase::Answered, ..) => "answered",
            (Phase::Accepted, ..) => "accepted",
            (Phase::Open, false, false) => "open",
            (Phase::Open, true, false) => "guest ended",
            (Phase::Open, false, true) => "remote ended",
            (Phase::Open, true, true) => "ending",
            (Phase::Closed, ..) => "closed",
            (Phase::Resetting | Phase::Gone, ..) => "resetting",
        }
    }

    /// The most that one segment may carry to the guest.
    pub fn mss(&self) -> u16 {
        self.send.mss
    }

    /// The sequence number of the guest's SYN.
    pub fn first_seq(&self) -> u32 {
        self.receive.irs.0
    }

    pub fn has_socket(&self) -> bool {
        !matches!(self.phase, Phase::Closed | Phase::Resetting | Phase::Gone)
    }

    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Gone
    }

    /// Whether nothing more may go to the guest before it acknowledges what is on the way.
    pub fn waits_for_guest(&self) -> bool {
        self.send.in_flight() > 0 && self.send.room() < u32::from(self.send.mss)
    }

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

    /// The next sequence number of the guest that is not acknowledged.
    pub fn expected(&self) -> Seq {
        self.receive.expected
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

    fn close(&mut self, how: Close, phase: Phase, now: Nanos) -> Option<Close> {
        (self.phase, self.clock.until) = (phase, now.plus(CLOSED_NS));
        (self.clock.retransmit_at, self.clock.ask_at) = (None, None);
        Some(how)
    }

    /// Both halves have ended: the socket is not needed any more.
    fn close_if_over(&mut self, todo: &mut Todo, now: Nanos) {
        if self.phase == Phase::Open && self.receive.has_ended && self.send.is_fin_acked {
            todo.close = self.close(Close::Gracefully, Phase::Closed, now);
        }
    }
}
