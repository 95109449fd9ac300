//! Mirrors: packets of a port that another port gets as well. Ports name each other, so what
//! follows from that is found anew whenever one comes, goes or changes.

use ringway_switch::PortId;
use tracing::warn;

use super::DataPlane;

impl DataPlane {
    /// Tells the workers which ports have mirrors now, if that has changed.
    pub(super) fn refresh_mirrors(&mut self) {
        let mirrors: Vec<(PortId, PortId)> =
            self.ports.iter().filter_map(|(id, port)| self.mirror_of(*id, port)).collect();
        if mirrors == self.mirrors {
            return;
        }
        self.mirrors = mirrors.clone();
        self.worker.ask_all(move |worker| worker.set_mirrors(mirrors));
    }

    fn mirror_of(&self, id: PortId, port: &super::Port) -> Option<(PortId, PortId)> {
        let mirror = port.spec.mirror.as_deref().filter(|_| !port.is_leaving())?;
        match self.port_called(mirror) {
            Ok(to) => Some((id, to)),
            Err(_) => {
                warn!(port = port.spec.name, "mirror={mirror}: there is no such port (yet)");
                None
            }
        }
    }
}
