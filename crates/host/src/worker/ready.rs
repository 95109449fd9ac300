//! Which ports have something to do. They are visited once per turn, in the order in which they
//! became ready.

use ringway_switch::PortId;

use crate::worker::Worker;

impl Worker {
    /// There is something to do at a port, when its turn comes.
    pub(crate) fn make_ready(&mut self, id: PortId) {
        let Some(port) = self.ports.get_mut(usize::from(id.0)) else { return };
        if !std::mem::replace(&mut port.is_ready, true) {
            self.ready.push_back(id);
        }
    }

    /// One turn: each port that is ready now is visited once. A port that becomes ready meanwhile
    /// is visited in the next turn.
    pub(crate) fn visit_ready(&mut self) {
        for _ in 0..self.ready.len() {
            let Some(port) = self.ready.pop_front() else { break };
            self.visit(port);
        }
    }
}
