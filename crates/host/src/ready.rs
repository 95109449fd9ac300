//! Which ports have something to do, and who goes first.
//!
//! Ports that are ready are visited once per turn, in the order in which they became so. One whose visit ended
//! before it had nothing more is ready again at once, before the worker looks who has woken up meanwhile: what
//! comes through another port waits for a whole visit more, a tenth of a millisecond or two with long packets.
//! Who only sends does not notice. Who asks a guest that sends long packets does: so for a while behind each
//! question, who wakes up goes first. It may bring the next one.
//!
//! Limits: it is known where somebody listens for questions, which is the policy `adaptive` (ADR 18), and counts
//! for all ports of the worker; one that finds its guest without buffers does not count. Who goes first is an order
//! within one turn: nobody misses it.

use ringway_net::notify::ASKED_NS;
use ringway_switch::PortId;

use crate::worker::Worker;

impl Worker {
    /// There is something to do at a port, when its turn comes.
    pub(crate) fn make_ready(&mut self, id: PortId) {
        if self.is_ready_now(id) {
            self.ready.push_back(id);
        }
    }

    /// A port has woken up: something has come.
    pub(crate) fn woke_up(&mut self, id: PortId) {
        if !self.is_ready_now(id) {
            return;
        }
        let is_asked = self.asked_at.is_some_and(|at| self.turn_at.since(at) < ASKED_NS);
        match is_asked {
            true => self.ready.push_front(id),
            false => self.ready.push_back(id),
        }
    }

    /// One turn: each port that is ready now is visited once; those that become so meanwhile, in the next one.
    pub(crate) fn visit_ready(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(port) = self.ready.pop_front() else { break };
            self.visit(port);
        }
    }

    /// `true`: it was not before, and is in no place yet.
    fn is_ready_now(&mut self, id: PortId) -> bool {
        let port = self.ports.get_mut(usize::from(id.0));
        port.is_some_and(|port| !std::mem::replace(&mut port.is_ready, true))
    }
}
