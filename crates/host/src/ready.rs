//! Which ports have something to do, and which goes first.
//!
//! Ports that are ready are visited once per turn, in the order in which they became so.

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
        if self.is_ready_now(id) {
            self.ready.push_back(id);
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
