//! Mirrors: packets of a port that another port gets as well. Ports name each other, so what
//! follows from that is found anew whenever one comes, goes or changes.

use ringway_switch::PortId;
use tracing::warn;

use super::ports::{Port, Ports};

/// The source port, and the port that gets the copies, of each.
#[derive(Default)]
pub(super) struct Mirrors(Vec<(PortId, PortId)>);

impl Mirrors {
    pub(super) fn iter(&self) -> impl Iterator<Item = (PortId, PortId)> {
        self.0.iter().copied()
    }

    /// All of them, if they are not the same as before.
    pub(super) fn follow(&mut self, ports: &Ports) -> Option<Vec<(PortId, PortId)>> {
        let now: Vec<_> = ports.iter().filter_map(|port| mirror_of(port, ports)).collect();
        if now == self.0 {
            return None;
        }
        self.0.clone_from(&now);
        Some(now)
    }
}

fn mirror_of(port: &Port, ports: &Ports) -> Option<(PortId, PortId)> {
    let mirror = port.spec.mirror.as_deref().filter(|_| !port.is_leaving)?;
    match ports.called(mirror) {
        Ok(to) => Some((port.id, to)),
        Err(_) => {
            warn!(port = port.spec.name, "mirror={mirror}: there is no such port (yet)");
            None
        }
    }
}
