//! Guests that move: to another port of this router, or to another router, which has to know what
//! they had here.
//!
//! A station moves when it is heard behind another port, or when the rings of that port start, and
//! all rings of the port have stopped where it was. As long as any of them runs, what it has stays
//! there, and the other one is refused.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::Nat;
use crate::actions::{Action, Actions};
use crate::arrival::{ArrivalError, StationState, check_bounds};
use crate::table::{FlowId, Guest};

/// How long the flows of a guest wait for it after its front-end has gone: VM monitors connect
/// again after a second, and one that has moved to another port is heard there by then.
const BACK_WITHIN_NS: u64 = 2_000_000_000;

/// The state of the rings of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rings {
    /// At least one runs, of a guest that was there before.
    Run,
    /// The first one starts, of the guest with that address.
    Start(MacAddress),
    /// All have stopped; the guest may go on.
    Stop,
    /// The front-end is gone. If it does not come back soon, other ends hear that the flows of its
    /// guest are over.
    End,
}

/// A station, as it is heard behind a port.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heard {
    pub guest: Guest,
    pub mac: MacAddress,
    /// The address that it uses; `None`: it does not say.
    pub address: Option<IpAddr>,
}

impl Nat {
    /// Says what the rings of a port do. As long as it is not said, they run.
    pub fn note_rings(&mut self, guest: Guest, rings: Rings, now: Nanos, actions: &mut Actions) {
        self.guests.note_rings(guest, matches!(rings, Rings::Run | Rings::Start(_)));
        match rings {
            Rings::Run | Rings::Stop => {}
            Rings::Start(mac) => {
                self.follow(Heard { guest, mac, address: None }, now, actions);
                self.guests.note_arrival(guest, now);
            }
            Rings::End => self.guests.note_end(guest, now.plus(BACK_WITHIN_NS)),
        }
    }

    /// Ends one flow of a guest that is gone for good; `false`: there is no such guest.
    pub(super) fn end_one_of_gone(&mut self, now: Nanos, actions: &mut Actions) -> bool {
        let Some(guest) = self.guests.gone(now) else { return false };
        if !self.flows.end_one(guest, actions) {
            self.guests.note_gone(guest);
        }
        true
    }

    /// Whether rings of the port run, as far as is known.
    pub fn runs(&self, guest: Guest) -> bool {
        self.guests.runs(guest)
    }

    /// Where forwards into the guest of that port lead now.
    pub fn whereabouts(&self, guest: Guest) -> Guest {
        self.guests.whereabouts(guest)
    }

    /// If the station has moved here, all that it had goes along. `true`: it has.
    pub(super) fn follow(&mut self, heard: Heard, now: Nanos, actions: &mut Actions) -> bool {
        let Some(from) = self.left(heard) else { return false };
        let Heard { guest: to, mac, .. } = heard;
        let names = [from, to].map(|guest| self.guests.name_of(guest).unwrap_or_default());
        if !self.services.follow(mac, names[0], names[1]) {
            return false;
        }
        self.guests.follow(mac, from, to);
        let flows = self.flows.of_station(from, mac);
        // Another station behind the same port may have used its address.
        let its = flows.filter(|(_, address)| !self.is_of_another(to, *address, now));
        let its: Vec<FlowId> = its.map(|(flow, _)| flow).collect();
        its.into_iter().for_each(|flow| self.flows.hand_over(flow, to));
        actions.push_once(Action::FollowGuests);
        true
    }

    /// The port that the station has left for the one at which it is heard: the one where it had
    /// the address that it uses; or any, unless it has a lease where it is.
    fn left(&self, heard: Heard) -> Option<Guest> {
        let Heard { guest, mac, address } = heard;
        let leases = || self.services.leases().owned().filter(|lease| lease.mac == mac);
        let used = |address| self.guests.stopped_with(mac, address).find(|it| *it != guest);
        if let Some(address) = address {
            let twin = |leased| self.plan().twin6(leased).map(IpAddr::V6);
            let is_it = |leased| address == IpAddr::V4(leased) || Some(address) == twin(leased);
            let had = leases().find(|lease| is_it(lease.address));
            let had = had.and_then(|lease| self.guests.stopped_called(lease.port));
            let had = had.filter(|it| *it != guest).or_else(|| used(Some(address)));
            if had.is_some() {
                return had;
            }
        }
        let name = self.guests.name_of(guest)?;
        if leases().any(|lease| lease.port == name) {
            return None;
        }
        let leased = leases().find_map(|lease| self.guests.stopped_called(lease.port));
        leased.or_else(|| used(None))
    }

    /// Whether it sends from an address that another guest has, and has not moved here with it.
    pub(super) fn is_spoofed(&mut self, heard: Heard, now: Nanos, actions: &mut Actions) -> bool {
        let Heard { guest, address, .. } = heard;
        let Some(address) = address else { return false };
        if !self.is_of_another(guest, address, now) {
            return false;
        }
        !self.follow(heard, now, actions) || self.is_of_another(guest, address, now)
    }

    /// The station uses an address, which no other guest has.
    pub(super) fn learn(&mut self, heard: Heard, now: Nanos, actions: &mut Actions) {
        let Heard { guest, mac, address } = heard;
        if let Some(address) = address
            && self.guests.learn(guest, address, mac, now)
        {
            // It may have had others elsewhere.
            self.follow(heard, now, actions);
        }
    }

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
                let heard = Heard { guest, mac: station.mac, address: Some(address) };
                self.check_address(heard, address, now)?;
            }
        }
        Ok(())
    }

    fn check_address(&self, heard: Heard, address: IpAddr, now: Nanos) -> Result<(), ArrivalError> {
        if !self.plan().is_for_guests(address) {
            return Err(ArrivalError::Outside(address));
        }
        let Some(port) = self.other_with(heard.guest, address, now) else { return Ok(()) };
        // It comes from another port of this router.
        if self.left(heard).and_then(|from| self.guests.name_of(from)) == Some(port) {
            return Ok(());
        }
        Err(ArrivalError::OfAnother { address, port: port.to_owned() })
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
        actions: &mut Actions,
    ) -> Result<(), ArrivalError> {
        self.check_guest(guest, state, now)?;
        for station in state {
            let addresses: Vec<IpAddr> = self.addresses_here(station).collect();
            for address in addresses {
                let heard = Heard { guest, mac: station.mac, address: Some(address) };
                self.is_spoofed(heard, now, actions);
            }
        }
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
            for address in seen {
                self.guests.learn(guest, address, station.mac, now);
            }
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
