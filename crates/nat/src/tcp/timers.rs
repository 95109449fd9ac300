//! The timers of a connection: when it sends again, probes its guest, or gives up.

use ringway_net::Nanos;

use super::{CONNECT_NS, Phase, SECOND_NS, Tcp, Todo};
use crate::socket::Close;

/// Times between two tries: the first, and the most.
const RETRANSMIT_NS: u64 = SECOND_NS;
const RETRANSMIT_NS_MAX: u64 = 64 * SECOND_NS;
/// Tries before a guest counts as gone; of a SYN-ACK.
const TRIES_MAX: u8 = 15;
const SYN_TRIES_MAX: u8 = 4;
/// The same for a guest that answers, and takes nothing.
const PROGRESS_NS: u64 = 15 * 60 * SECOND_NS;

/// Times between two looks at a socket that took nothing.
const ASK_NS: u64 = 1_000_000;
const ASK_NS_MAX: u64 = SECOND_NS;

/// When a silent guest is asked, and when it counts as gone (RFC 5382 §5).
const KEEP_ALIVE_NS: u64 = 5 * 60 * SECOND_NS;
const IDLE_NS: u64 = (2 * 60 + 4) * 60 * SECOND_NS;

/// The times of a connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock {
    /// When the phase ends by itself, if it is not `Answered` or `Open`.
    pub until: Nanos,
    pub retransmit_at: Option<Nanos>,
    /// How often was sent again without an answer.
    pub tries: u8,
    /// When the socket is asked how much it takes, and how long that is after the last time.
    pub ask_at: Option<Nanos>,
    ask_ns: u64,
    /// When the guest was heard, and asked for an answer.
    pub heard: Nanos,
    pub probed: Nanos,
    pub is_probe_due: bool,
    /// When the guest has acknowledged something, or nothing was on the way.
    pub progress: Nanos,
}

impl Clock {
    /// The clock of a connection that begins.
    pub fn new(now: Nanos) -> Self {
        let until = now.plus(CONNECT_NS);
        Self { until, heard: now, probed: now, progress: now, ..Self::default() }
    }

    /// The guest has acknowledged something.
    pub fn advance(&mut self, now: Nanos) {
        (self.tries, self.retransmit_at, self.progress) = (0, None, now);
    }

    fn keep_alive_at(&self) -> Nanos {
        self.heard.max(self.probed).plus(KEEP_ALIVE_NS)
    }

    /// The guest is waited for, or not.
    fn set_retransmit(&mut self, is_waiting: bool, now: Nanos) {
        if is_waiting {
            let after = (RETRANSMIT_NS << self.tries).min(RETRANSMIT_NS_MAX);
            self.retransmit_at.get_or_insert(now.plus(after));
        } else {
            (self.retransmit_at, self.tries, self.progress) = (None, 0, now);
        }
    }

    /// The socket takes too little, or not.
    fn set_ask(&mut self, needs_room: bool, now: Nanos) {
        if needs_room {
            self.ask_ns = self.ask_ns.max(ASK_NS);
            self.ask_at.get_or_insert(now.plus(self.ask_ns));
        } else {
            (self.ask_at, self.ask_ns) = (None, 0);
        }
    }
}

impl Tcp {
    /// When [`Self::timer`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Gone => None,
            Phase::Connecting | Phase::Closed | Phase::Resetting => Some(self.clock.until),
            Phase::Answered | Phase::Accepted => self.clock.retransmit_at,
            Phase::Open => {
                let all =
                    [self.clock.retransmit_at, self.clock.ask_at, Some(self.clock.keep_alive_at())];
                all.into_iter().flatten().min()
            }
        }
    }

    /// Time has passed.
    pub fn timer(&mut self, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        match self.phase {
            Phase::Gone => {}
            Phase::Closed | Phase::Resetting if self.clock.until <= now => self.phase = Phase::Gone,
            Phase::Connecting if self.clock.until <= now => {
                todo.close = self.close(Close::Reset, Phase::Resetting, now);
            }
            Phase::Answered | Phase::Accepted if is_due(self.clock.retransmit_at) => {
                self.syn_timer(&mut todo, now);
            }
            Phase::Open => {
                if is_due(self.clock.ask_at) {
                    self.clock.ask_at = None;
                    self.clock.ask_ns = (self.clock.ask_ns * 2).min(ASK_NS_MAX);
                    todo.asks_room = true;
                }
                if is_due(self.clock.retransmit_at) {
                    self.retransmit_timer(&mut todo, now);
                }
                if self.phase == Phase::Open && self.clock.keep_alive_at() <= now {
                    self.keep_alive_timer(&mut todo, now);
                }
            }
            Phase::Connecting | Phase::Answered | Phase::Accepted => {}
            Phase::Closed | Phase::Resetting => {}
        }
        self.rearm(now);
        todo
    }

    fn syn_timer(&mut self, todo: &mut Todo, now: Nanos) {
        self.clock.retransmit_at = None;
        self.clock.tries += 1;
        self.send.is_syn_due = true;
        if self.clock.tries > SYN_TRIES_MAX || self.is_abandoned() {
            todo.close = self.close(Close::Reset, Phase::Gone, now);
        }
    }

    fn retransmit_timer(&mut self, todo: &mut Todo, now: Nanos) {
        self.clock.retransmit_at = None;
        self.clock.tries += 1;
        if self.clock.tries > TRIES_MAX || now.since(self.clock.progress) > PROGRESS_NS {
            todo.close = self.close(Close::Reset, Phase::Resetting, now);
            return;
        }
        self.send.rewind();
        (self.send.recover, self.send.duplicates) = (None, 0);
        self.clock.is_probe_due = self.send.window.len == 0;
    }

    fn keep_alive_timer(&mut self, todo: &mut Todo, now: Nanos) {
        if now.since(self.clock.heard) >= IDLE_NS {
            todo.close = self.close(Close::Reset, Phase::Resetting, now);
        } else {
            (self.clock.is_probe_due, self.clock.probed) = (true, now);
        }
    }

    /// Sets the times by what is now to be waited for.
    pub(super) fn rearm(&mut self, now: Nanos) {
        let is_waiting = match self.phase {
            Phase::Answered | Phase::Accepted => true,
            // A segment that was sent once is waited for, also while it is to be sent again.
            Phase::Open => {
                self.send.max.is_after(self.send.una)
                    || self.send.window.len == 0 && self.send.may_read
            }
            _ => false,
        };
        let (receive, mss) = (&self.receive, self.send.mss);
        let is_open = self.phase == Phase::Open && !receive.has_ended;
        let needs_room = is_open && receive.socket_room < receive.least_room(mss);
        self.clock.set_retransmit(is_waiting, now);
        self.clock.set_ask(needs_room, now);
    }
}
