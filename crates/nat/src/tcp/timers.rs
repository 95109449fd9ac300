//! The timers of a connection: when it sends again, probes its guest, or gives up.

use ringway_net::Nanos;

use super::{Phase, SECOND_NS, Tcp, Todo};
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

impl Tcp {
    /// When [`Self::timer`] has something to do.
    pub fn deadline(&self) -> Option<Nanos> {
        match self.phase {
            Phase::Gone => None,
            Phase::Connecting | Phase::Closed | Phase::Resetting => Some(self.until),
            Phase::Answered | Phase::Accepted => self.retransmit_at,
            Phase::Open => {
                let all = [self.retransmit_at, self.ask_at, Some(self.keep_alive_at())];
                all.into_iter().flatten().min()
            }
        }
    }

    fn keep_alive_at(&self) -> Nanos {
        self.heard.max(self.probed).plus(KEEP_ALIVE_NS)
    }

    /// Time has passed.
    pub fn timer(&mut self, now: Nanos) -> Todo {
        let mut todo = Todo::default();
        let is_due = |at: Option<Nanos>| at.is_some_and(|at| at <= now);
        match self.phase {
            Phase::Gone => {}
            Phase::Closed | Phase::Resetting if self.until <= now => self.phase = Phase::Gone,
            Phase::Connecting if self.until <= now => {
                todo.close = self.close(Close::Reset, Phase::Resetting, now);
            }
            Phase::Answered | Phase::Accepted if is_due(self.retransmit_at) => {
                self.syn_timer(&mut todo, now);
            }
            Phase::Open => {
                if is_due(self.ask_at) {
                    self.ask_at = None;
                    self.ask_ns = (self.ask_ns * 2).min(ASK_NS_MAX);
                    todo.asks_room = true;
                }
                if is_due(self.retransmit_at) {
                    self.retransmit_timer(&mut todo, now);
                }
                if self.phase == Phase::Open && self.keep_alive_at() <= now {
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
        self.retransmit_at = None;
        self.tries += 1;
        self.is_syn_due = true;
        if self.tries > SYN_TRIES_MAX || self.is_abandoned() {
            todo.close = self.close(Close::Reset, Phase::Gone, now);
        }
    }

    fn retransmit_timer(&mut self, todo: &mut Todo, now: Nanos) {
        self.retransmit_at = None;
        self.tries += 1;
        if self.tries > TRIES_MAX || now.since(self.progress) > PROGRESS_NS {
            todo.close = self.close(Close::Reset, Phase::Resetting, now);
            return;
        }
        self.rewind();
        (self.recover, self.duplicates) = (None, 0);
        self.is_probe_due = self.window == 0;
    }

    fn keep_alive_timer(&mut self, todo: &mut Todo, now: Nanos) {
        if now.since(self.heard) >= IDLE_NS {
            todo.close = self.close(Close::Reset, Phase::Resetting, now);
        } else {
            (self.is_probe_due, self.probed) = (true, now);
        }
    }

    /// Sets the times by what is now to be waited for.
    pub(super) fn rearm(&mut self, now: Nanos) {
        let is_waiting = match self.phase {
            Phase::Answered | Phase::Accepted => true,
            // A segment that was sent once is waited for, also while it is to be sent again.
            Phase::Open => self.max.is_after(self.una) || self.window == 0 && self.may_read,
            _ => false,
        };
        if is_waiting {
            let after = (RETRANSMIT_NS << self.tries).min(RETRANSMIT_NS_MAX);
            self.retransmit_at.get_or_insert(now.plus(after));
        } else {
            (self.retransmit_at, self.tries, self.progress) = (None, 0, now);
        }
        let needs_room = self.phase == Phase::Open && !self.has_ended;
        if needs_room && self.room < self.least_room() {
            self.ask_ns = self.ask_ns.max(ASK_NS);
            self.ask_at.get_or_insert(now.plus(self.ask_ns));
        } else {
            (self.ask_at, self.ask_ns) = (None, 0);
        }
    }
}
