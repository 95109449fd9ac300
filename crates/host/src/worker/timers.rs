//! What the worker does at a later moment than the one that asks for it, and how long it may sleep.
//!
//! Three things wait: packets that are held for room, second calls, and what pacing puts off.

use std::time::{Duration, Instant};

use ringway_switch::PortId;

use crate::forward::VisitEnd;
use crate::os::clock::now;
use crate::pace::Flush;
use crate::port::{End, Port, RoomAt};
use crate::worker::Worker;

impl Worker {
    /// Something to do now: not at all. Otherwise until the next hold ends, or the next second call
    /// is due, or a port's pace asks for it; `None`: until something wakes the worker.
    pub(crate) fn sleep_at_most(&self) -> Option<Duration> {
        if !self.ready.is_empty() || !self.may_sleep() {
            return Some(Duration::ZERO);
        }
        let now = now();
        let paced = self.ports.iter().filter_map(Port::wake_at).chain(self.uml_retries.due()).min();
        let paced = paced.map(|at| Duration::from_nanos(at.since(now)));
        let backlogs = self.ports.iter().filter(|_| self.backlogs > 0);
        let backlogs = backlogs.filter_map(|port| Some(port.backlog?.until));
        let others = self.holds.first_end().into_iter().chain(backlogs).min();
        let others = others.map(|at| at.saturating_duration_since(Instant::now()));
        paced.into_iter().chain(others).min()
    }

    /// Calls those again who may have slept through the last call.
    pub(crate) fn call_again(&mut self) {
        if !self.uml_retries.take(self.turn_at) {
            return;
        }
        let mut is_needed = false;
        for port in &mut self.ports {
            if let End::Guest(guest) = &mut port.end {
                is_needed |= guest.call_again(self.turn_at);
            }
        }
        if is_needed {
            self.uml_retries.expect(self.turn_at);
        }
    }

    /// Publishes once for the whole visit, and notifies whom it is time to notify.
    pub(crate) fn flush(&mut self, from: PortId, visit: VisitEnd) {
        let flush = Flush { more: visit == VisitEnd::More, ..Flush::at_end() };
        // What was only staged for a tap lies in the sender's memory until it is written.
        let mut call_again = self.flush_dirty(visit, flush);
        call_again |= self.ports[usize::from(from.0)].flush_from(flush).call_again;
        if call_again {
            self.uml_retries.expect(self.turn_at);
        }
    }

    /// Publishes what was put into ports; `true`: see
    /// [`FlushOutcome::call_again`](crate::pace::FlushOutcome).
    pub(crate) fn flush_dirty(&mut self, visit: VisitEnd, flush: Flush) -> bool {
        let mut call_again = false;
        while let Some(to) = self.dirty.pop() {
            let port = &mut self.ports[usize::from(to.0)];
            port.is_dirty = false;
            let flush = Flush { short: visit == VisitEnd::Hold(RoomAt::Port(to)), ..flush };
            let flushed = port.flush_to(flush);
            call_again |= flushed.call_again;
            if flushed.visit {
                self.make_ready(to);
            }
        }
        call_again
    }

    /// Does what the ports have put off until now.
    pub(crate) fn end_timers(&mut self) {
        let now = now();
        for at in 0..self.ports.len() {
            let ended = self.ports[at].end_timers(now);
            if ended.call_again {
                self.uml_retries.expect(self.turn_at);
            }
            if ended.visit {
                self.make_ready(self.ports[at].id);
            }
            if ended.look {
                self.poll_without_kick(self.ports[at].id);
            }
        }
    }
}
