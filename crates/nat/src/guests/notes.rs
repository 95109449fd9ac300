//! The stations behind ports: as they are shown, and for the router that goes on in this one's
//! place.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::Guests;
use crate::arrival::{LeaseState, StationState};
use crate::leases::Leases;
use crate::table::Guest;

/// A station behind a port, with what it is known to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// The name of the port.
    pub port: String,
    /// Its MAC address.
    pub mac: MacAddress,
    /// The address leased to it, and those that it was seen to use.
    pub addresses: Vec<IpAddr>,
    /// How long it has had its lease; `None`: it has none.
    pub leased_ns: Option<u64>,
}

/// An address of a station.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// The port that the station is behind.
    pub guest: Guest,
    /// Its MAC address.
    pub mac: MacAddress,
    /// One of its addresses.
    pub address: IpAddr,
    /// It has a lease; otherwise it was seen to use the address.
    pub is_leased: bool,
}

impl Guests {
    /// All stations, first those with the oldest leases. Behind a port that is gone there are
    /// leases too.
    pub fn stations(&self, leases: &Leases, now: Nanos) -> Vec<Station> {
        let leases = leases.owned().map(|lease| Station {
            port: lease.port.to_owned(),
            mac: lease.mac,
            addresses: vec![lease.address.into()],
            leased_ns: Some(now.since(lease.since)),
        });
        let mut all: Vec<Station> = leases.collect();
        for guest in self.all.iter().flatten() {
            for seen in &guest.uses {
                let (mac, address) = (seen.mac, seen.address);
                let is_it = |it: &&mut Station| it.port == guest.name && it.mac == mac;
                let port = guest.name.clone();
                match all.iter_mut().find(is_it) {
                    Some(station) if station.addresses.contains(&address) => {}
                    Some(station) => station.addresses.push(address),
                    None => {
                        all.push(Station { port, mac, addresses: vec![address], leased_ns: None })
                    }
                }
            }
        }
        all
    }

    /// The addresses of all stations, the oldest leases first. A lease that is over is none of
    /// them: it would hold again.
    pub fn notes(&self, leases: &Leases, now: Nanos) -> Vec<Note> {
        let leases = leases.owned().filter(|lease| lease.until > now);
        let leased = leases.filter_map(|lease| {
            let (guest, _) = self.numbered().find(|(_, guest)| guest.name == lease.port)?;
            let address = lease.address.into();
            Some(Note { guest, mac: lease.mac, address, is_leased: true })
        });
        // The one that was used last is remembered as the last one.
        let all = self.numbered().flat_map(|(guest, state)| {
            let seen = state.uses.iter().rev();
            seen.map(move |it| Note { guest, mac: it.mac, address: it.address, is_leased: false })
        });
        leased.chain(all).collect()
    }

    /// The stations behind a port, for the router that it moves to: with leases that hold, and
    /// other addresses that were used not longer ago than that.
    pub fn state_of(
        &self,
        guest: Guest,
        leases: &Leases,
        held_ns: u64,
        now: Nanos,
    ) -> Vec<StationState> {
        let Some(own) = self.one(guest) else { return Vec::new() };
        let empty = |mac, lease| {
            let (name, addresses) = (own.name.clone(), Vec::new());
            StationState { name, mac, lease, addresses }
        };
        let held = leases.owned().filter(|lease| lease.port == own.name && lease.until > now);
        let leased = held.map(|lease| empty(lease.mac, Some(LeaseState::of(&lease, now))));
        let mut all: Vec<StationState> = leased.collect();
        for seen in own.uses.iter().filter(|it| now.since(it.used) < held_ns) {
            let place = all.iter().position(|it| it.mac == seen.mac).unwrap_or_else(|| {
                all.push(empty(seen.mac, None));
                all.len() - 1
            });
            let station = &mut all[place];
            if station.lease.is_none_or(|lease| IpAddr::V4(lease.address) != seen.address) {
                station.addresses.push(seen.address);
            }
        }
        all
    }
}
