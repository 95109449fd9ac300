//! Stations that are behind no port any more: the supervisor hears of them, where a tap asks for
//! that, and sees to what a bridge there has learned.

use ringway_supervisor::wire::{List, STATIONS_MAX, Station, ToSupervisor};
use ringway_switch::{KnownAddress, PortId, Shared, VlanId};

use super::ports::Ports;
use super::ports::uplinks::now_ms;

/// Stations behind a port that is about to carry nothing any more, for when no packet of theirs
/// goes anywhere; none where no tap asks.
#[must_use]
pub(super) fn departed(id: PortId, ports: &Ports, shared: &Shared) -> Option<ToSupervisor> {
    let is_asked = ports.iter().any(|port| port.spec.syncs_fdb);
    ports.port(id).filter(|port| is_asked && port.spec.kind.is_guest())?;
    // More stations than that are forgotten after a while, as anywhere.
    let known = shared.addresses_at(id, STATIONS_MAX, now_ms(), |_| true);
    let station = |known: KnownAddress| Station {
        vlan: known.vlan.map_or(0, VlanId::raw),
        address: known.address.0,
    };
    let stations = List::new(known.into_iter().map(station).collect())?;
    (!stations.as_slice().is_empty()).then_some(ToSupervisor::Departed { stations })
}
