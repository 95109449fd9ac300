//! Stations that are behind no port any more: the supervisor hears of them, where a tap asks for
//! that, and sees to what a bridge there has learned.

use ringway_supervisor::wire::{List, STATIONS_MAX, Station, ToSupervisor};
use ringway_switch::{KnownAddress, PortId, Shared, VlanId};

use super::ports::Ports;
use super::ports::uplinks::now_ms;

/// The stations of a port, before it loses them.
#[must_use]
pub(super) struct Leaving(List<Station, STATIONS_MAX>);

impl Leaving {
    /// Stations behind a port that is about to carry nothing any more; none where no tap asks.
    pub(super) fn of(id: PortId, ports: &Ports, shared: &Shared) -> Self {
        let is_guest = ports.port(id).is_some_and(|port| port.spec.kind.is_guest());
        if !is_guest || !ports.iter().any(|port| port.spec.syncs_fdb) {
            return Self(List::default());
        }
        // More stations than that are forgotten after a while, as anywhere.
        let known = shared.addresses_at(id, STATIONS_MAX, now_ms(), |_| true);
        let station = |known: KnownAddress| Station {
            vlan: known.vlan.map_or(0, VlanId::raw),
            address: known.address.0,
        };
        Self(List::new(known.into_iter().map(station).collect()).unwrap_or_default())
    }

    /// No packet of theirs goes anywhere any more; the supervisor is told.
    pub(super) fn left(self) -> Option<ToSupervisor> {
        let Self(stations) = self;
        (!stations.as_slice().is_empty()).then_some(ToSupervisor::Departed { stations })
    }
}
