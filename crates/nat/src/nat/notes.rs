//! The stations that a router knows, for the one that goes on in its place.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::Nat;
use crate::table::Guest;

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

impl Nat {
    /// Whether there is another answer to [`Self::notes`] than when this was asked last.
    pub fn takes_news(&mut self, now: Nanos) -> bool {
        let has_leased = self.services.take_news(now);
        std::mem::take(&mut self.has_news) || has_leased
    }

    /// The addresses of all stations, the oldest leases first. A lease that is over is none of
    /// them: it would hold again.
    pub fn notes(&self, now: Nanos) -> Vec<Note> {
        let named = |name: &str| {
            let is_it = |guest: &Guest| self.name_of(*guest) == Some(name);
            (0..self.limits.guests).map(Guest).find(is_it)
        };
        let leases = self.services.leases().owned().filter(|lease| lease.until > now);
        let leased = leases.filter_map(|lease| {
            let (guest, address) = (named(lease.port)?, lease.address.into());
            Some(Note { guest, mac: lease.mac, address, is_leased: true })
        });
        let mut all: Vec<Note> = leased.collect();
        let guests = (0..).map(Guest).zip(&self.guests);
        for (guest, state) in guests.filter_map(|(it, state)| Some((it, state.as_ref()?))) {
            // The one that was used last is remembered as the last one.
            let seen = state.seen().iter().rev();
            all.extend(seen.map(|seen| Note {
                guest,
                mac: seen.mac,
                address: seen.address,
                is_leased: false,
            }));
        }
        all
    }

    /// Knows what another router has [noted](Self::notes), as far as it fits to this one: each
    /// lease holds as long as one that begins now.
    pub fn remember(&mut self, notes: &[Note], now: Nanos) {
        for Note { guest, mac, address, is_leased } in notes.iter().copied() {
            let is_here = self.is_for_guests(address) && mac.is_station();
            let Some(name) = self.name_of(guest).filter(|_| is_here).map(str::to_owned) else {
                continue;
            };
            match address {
                IpAddr::V4(address) if is_leased => {
                    self.services.remember_lease((&name, mac), address, now);
                }
                _ if self.is_of_another(guest, address, now) => {}
                _ => self.learn(guest, (address, mac), now),
            }
        }
    }
}
