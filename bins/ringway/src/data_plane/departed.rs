//! Stations that are behind no port any more: the supervisor hears of them, where a tap asks for
//! that, and sees to what a bridge there has learned.

use ringway_supervisor::wire::{List, STATIONS_MAX, Station, ToSupervisor};
use ringway_switch::{KnownAddress, PortId, VlanId};

use super::DataPlane;

/// The stations of a port, before it loses them.
#[must_use]
pub(super) struct Leaving(List<Station, STATIONS_MAX>);

impl DataPlane {
    /// Stations behind a port that is about to carry nothing any more; none where no tap asks.
    pub(super) fn leaving(&self, id: PortId) -> Leaving {
        let is_guest = self.ports.get(&id).is_some_and(|port| port.spec.kind.is_guest());
        if !is_guest || !self.ports.values().any(|port| port.spec.syncs_fdb) {
            return Leaving(List::default());
        }
        // More stations than that are forgotten after a while, as anywhere.
        let now_ms = super::uplinks::now_ms();
        let known = self.worker.shared().addresses_at(id, STATIONS_MAX, now_ms, |_| true);
        let station = |known: KnownAddress| Station {
            vlan: known.vlan.map_or(0, VlanId::raw),
            address: known.address.0,
        };
        Leaving(List::new(known.into_iter().map(station).collect()).unwrap_or_default())
    }

    /// No packet of theirs goes anywhere any more.
    pub(super) fn have_left(&mut self, Leaving(stations): Leaving) {
        self.told_ips.is_changed();
        if !stations.as_slice().is_empty() {
            self.supervisor.tell(&ToSupervisor::Departed { stations });
        }
    }
}
