//! A router's counters, stations and flows at one moment: as they are shown, and for the router
//! that goes on in this one's place.

use std::net::IpAddr;

use ringway_nat::{FlowLook, Forward, Guest, Note, Refusal, Station, StationState};
use ringway_net::Nanos;
use ringway_switch::PortId;

use crate::journal::counts::Counts;
use crate::nat::NatPort;

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
    /// The last port whose guest sent from an address that is not its own, and that address, if
    /// that was in the last minutes.
    pub spoofed: Option<(PortId, IpAddr)>,
}

/// As long as a guest that was refused may be told of, in nanoseconds.
const RECENTLY_NS: u64 = 5 * 60 * 1_000_000_000;

/// Most flows that are shown at once.
pub const FLOWS_SHOWN_MAX: usize = 256;

/// A router's stations and flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NatLook {
    /// The stations behind its ports.
    pub stations: Vec<Station>,
    /// At most [`FLOWS_SHOWN_MAX`].
    pub flows: Vec<FlowLook>,
    /// How many there are.
    pub flows_count: usize,
}

impl NatPort {
    /// All that was counted; flows end with their data plane.
    pub(crate) fn counts(&self) -> Counts {
        let ways = [self.to_nat, self.from_nat];
        Counts { ways, nat_refused: self.refused, ..Counts::default() }
    }

    /// Goes on from what a data plane before has counted.
    pub(crate) fn add_counts(&mut self, past: &Counts) {
        let Counts { ways: [to, from], nat_refused, .. } = past;
        (self.to_nat, self.from_nat) = (self.to_nat.plus(to), self.from_nat.plus(from));
        for (refused, past) in self.refused.iter_mut().zip(nat_refused) {
            *refused += past;
        }
    }

    /// Its stations and flows: all, or only those behind the port of that name.
    pub fn look(&self, name: Option<&str>, now: Nanos) -> NatLook {
        let is_asked = |guest: &&Guest| name.is_none() || self.nat.name_of(**guest) == name;
        let guests = || self.guests.iter().filter(is_asked);
        let flows = guests().flat_map(|guest| self.nat.flows(*guest, now));
        let mut stations = self.nat.stations(now);
        stations.retain(|station| name.is_none_or(|name| station.port == name));
        NatLook {
            stations,
            flows: flows.take(FLOWS_SHOWN_MAX).collect(),
            flows_count: guests().map(|guest| self.nat.flows_of(*guest)).sum(),
        }
    }

    /// Whether it is to be told that there are news of stations.
    pub(crate) fn takes_news(&mut self) -> bool {
        let tells = !self.has_told && self.nat.takes_news(self.now);
        self.has_told |= tells;
        tells
    }

    /// The stations that are known; news of them are told again.
    pub fn take_notes(&mut self, now: Nanos) -> Vec<Note> {
        self.has_told = false;
        self.nat.takes_news(now);
        self.nat.notes(now)
    }

    /// Goes on with what another router has known of stations.
    pub fn remember(&mut self, notes: &[Note], now: Nanos) {
        self.nat.remember(notes, now);
    }

    /// The stations behind a port, as the router is to know them that its guest moves to.
    pub fn guest_state(&self, port: PortId, now: Nanos) -> Vec<StationState> {
        self.nat.guest_state(Guest(port.0), now)
    }

    pub(crate) fn snapshot(&self) -> NatSnapshot {
        let flows = self.guests.iter().map(|guest| (PortId(guest.0), self.nat.flows_of(*guest)));
        let refused = Refusal::ALL.iter().map(|why| (why.name(), self.refused[*why as usize]));
        let leases = self.nat.services().leases().all();
        let now = crate::os::clock::now();
        let spoofed = self.spoofed.filter(|(_, _, at)| now.0.saturating_sub(at.0) < RECENTLY_NS);
        NatSnapshot {
            flows: flows.collect(),
            leases: leases.map(|(port, address)| (port.to_owned(), address.into())).collect(),
            forwards: self.sockets.listeners.forwards().cloned().collect(),
            sockets: self.sockets.table.count(),
            refused: refused.filter(|(_, count)| *count > 0).collect(),
            spoofed: spoofed.map(|(guest, ip, _)| (PortId(guest.0), ip)),
        }
    }
}
