//! What there is to know about a router at one moment.

use std::net::IpAddr;

use ringway_nat::Refusal;
use ringway_switch::PortId;

use crate::nat::NatPort;
use crate::nat::listeners::Forward;

/// A router's counters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatSnapshot {
    /// Its flows, for each port that guests are behind.
    pub flows: Vec<(PortId, usize)>,
    /// Addresses that were leased: behind which port, and which.
    pub leases: Vec<(String, IpAddr)>,
    /// Where the machine listens for guests.
    pub forwards: Vec<Forward>,
    /// Open sockets.
    pub sockets: usize,
    /// Packets of guests that were dropped, by reason.
    pub refused: Vec<(&'static str, u64)>,
}

impl NatPort {
    pub(crate) fn snapshot(&self) -> NatSnapshot {
        let flows = self.guests.iter().map(|guest| (PortId(guest.0), self.nat.flows_of(*guest)));
        let refused = Refusal::ALL.iter().map(|why| (why.name(), self.refused[*why as usize]));
        let leases = self.nat.services().leases().all();
        NatSnapshot {
            flows: flows.collect(),
            leases: leases.map(|(port, address)| (port.to_owned(), address.into())).collect(),
            forwards: self.sockets.listeners.forwards().cloned().collect(),
            sockets: self.sockets.count(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
