//! Guests that move between routers: what the next one has to know, and whether it may.

use std::net::IpAddr;

use ringway_net::Nanos;

use super::Nat;
use crate::arrival::{ArrivalError, StationState, check_bounds};
use crate::table::Guest;

impl Nat {
    /// The stations behind a port, as another router is to know them. Leases that are over are none
    /// of it, and neither are addresses that were used as long ago.
    pub fn guest_state(&self, guest: Guest, now: Nanos) -> Vec<StationState> {
        let held_ns = self.plan().held_ns();
        let mut all = self.guests.state_of(guest, self.services.leases(), held_ns, now);
        for station in &mut all {
            // Another one may have leased an address that this one uses beside many others.
            station.addresses.retain(|address| !self.is_of_another(guest, *address, now));
        }
        all.retain(|station| station.lease.is_some() || !station.addresses.is_empty());
        all
    }

    /// Whether [`Self::accept_guest`] accepts that.
    ///
    /// Addresses of IPv6 that lie outside of this router's network are not looked at: each ringway
    /// has another one, unless `range` names it.
    ///
    /// # Errors
    /// [`ArrivalError`], which says which address it is and whose.
    pub fn check_guest(
        &self,
        guest: Guest,
        state: &[StationState],
        now: Nanos,
    ) -> Result<(), ArrivalError> {
        let port = self.guests.name_of(guest).ok_or(ArrivalError::NoPort)?;
        check_bounds(state)?;
        let leased = || state.iter().filter_map(|station| station.lease);
        if !self.services.leases().has_room_for(port, leased().count(), now) {
            return Err(ArrivalError::NoRoom);
        }
        let mut addresses = leased().map(|lease| IpAddr::V4(lease.address));
        if let Some(address) = addresses.find(|it| !self.plan().may_be_of_a_guest(*it)) {
            return Err(ArrivalError::Outside(address));
        }
        for station in state {
            if !station.mac.is_station() {
                return Err(ArrivalError::NoStation(station.mac));
            }
            for address in self.addresses_here(station) {
                self.check_address(guest, address, now)?;
            }
        }
        Ok(())
    }

    fn check_address(&self, guest: Guest, address: IpAddr, now: Nanos) -> Result<(), ArrivalError> {
        if !self.plan().is_for_guests(address) {
            return Err(ArrivalError::Outside(address));
        }
        match self.other_with(guest, address, now) {
            Some(port) => Err(ArrivalError::OfAnother { address, port: port.to_owned() }),
            None => Ok(()),
        }
    }

    /// The guest behind that port has come from another router and goes on with its lease and its
    /// addresses. All of it is accepted, or nothing.
    ///
    /// # Errors
    /// See [`Self::check_guest`].
    pub fn accept_guest(
        &mut self,
        guest: Guest,
        state: &[StationState],
        now: Nanos,
    ) -> Result<(), ArrivalError> {
        self.check_guest(guest, state, now)?;
        let leases = state.iter().filter_map(|station| {
            let lease = station.lease?;
            Some((station.mac, lease.address, lease.times(self.plan(), now)))
        });
        let leases: Vec<_> = leases.collect();
        let port = self.guests.name_of(guest).unwrap_or_default();
        self.services.adopt_leases(port, &leases);
        for station in state {
            // The one that was used last is to be the last one.
            let addresses: Vec<IpAddr> = self.addresses_here(station).collect();
            let seen = addresses.into_iter().rev();
            seen.for_each(|address| self.guests.learn(guest, address, station.mac, now));
        }
        Ok(())
    }

    /// The addresses of a station that may be of use here: not those of another network of IPv6.
    fn addresses_here(&self, station: &StationState) -> impl Iterator<Item = IpAddr> {
        let leased = station.lease.map(|lease| IpAddr::V4(lease.address));
        let all = leased.into_iter().chain(station.addresses.iter().copied());
        all.filter(|address| address.is_ipv4() || self.plan().is_inside(*address))
    }
}
