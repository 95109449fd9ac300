//! Stations that move from a port whose rings have stopped to another one.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::state::AddressUse;
use super::{GuestState, Guests};
use crate::table::Guest;

impl Guests {
    /// Rings of the port run, or all have stopped.
    pub fn note_rings(&mut self, guest: Guest, runs: bool) {
        if let Some(guest) = self.one_mut(guest) {
            guest.runs = runs;
            guest.ends_at = guest.ends_at.filter(|_| !runs);
        }
    }

    /// The guest is gone for good then, if no ring of its port runs before.
    pub fn note_end(&mut self, guest: Guest, at: Nanos) {
        if let Some(guest) = self.one_mut(guest) {
            guest.ends_at = Some(at);
            self.ends_at = self.ends_at.into_iter().chain([at]).min();
        }
    }

    /// When [`Self::gone`] may have one. One that is too early does no harm.
    pub fn end_at(&self) -> Option<Nanos> {
        self.ends_at
    }

    /// A guest that is gone for good now.
    pub fn gone(&mut self, now: Nanos) -> Option<Guest> {
        let is_it = |(_, state): &(Guest, &GuestState)| state.ends_at.is_some_and(|at| at <= now);
        let gone = self.numbered().find(is_it).map(|(guest, _)| guest);
        if gone.is_none() {
            self.ends_at = self.all.iter().flatten().filter_map(|state| state.ends_at).min();
        }
        gone
    }

    /// All that ends with a guest that is gone has ended: nothing that led to other ports leads to
    /// it any more.
    pub fn note_gone(&mut self, guest: Guest) {
        self.forget_moves(guest);
        if let Some(guest) = self.one_mut(guest) {
            guest.ends_at = None;
        }
    }

    /// A guest has come to the port, and it is not the one that has moved away.
    pub fn note_arrival(&mut self, guest: Guest, now: Nanos) {
        if let Some(guest) = self.one_mut(guest) {
            guest.moved_to = None;
            guest.arrives(now);
        }
    }

    /// Whether the guest has just come, and one more of its old connections is to be reset at once.
    pub fn takes_arrival(&mut self, guest: Guest, now: Nanos) -> bool {
        self.one_mut(guest).is_some_and(|guest| guest.takes_arrival(now))
    }

    /// Whether rings of the port run.
    pub fn runs(&self, guest: Guest) -> bool {
        self.one(guest).is_some_and(|guest| guest.runs)
    }

    /// The port of that name, if all its rings have stopped.
    pub fn stopped_called(&self, name: &str) -> Option<Guest> {
        let mut stopped = self.numbered().filter(|(_, state)| !state.runs);
        stopped.find(|(_, state)| state.name == name).map(|(guest, _)| guest)
    }

    /// The ports whose rings have all stopped, and behind which the station has used that address,
    /// or any.
    pub fn stopped_with(
        &self,
        mac: MacAddress,
        address: Option<IpAddr>,
    ) -> impl Iterator<Item = Guest> {
        let is_it = move |it: &AddressUse| {
            it.mac == mac && address.is_none_or(|address| it.address == address)
        };
        let stopped = self.numbered().filter(|(_, state)| !state.runs);
        stopped.filter(move |(_, state)| state.uses.iter().any(is_it)).map(|(guest, _)| guest)
    }

    /// The station has moved from one port to another, with all addresses that it uses. What leads
    /// to the port where it was first leads to it, until another guest runs there.
    pub fn follow(&mut self, mac: MacAddress, from: Guest, to: Guest) {
        let Some(state) = self.one_mut(from) else { return };
        let (moved, stay): (Vec<AddressUse>, Vec<AddressUse>) =
            state.uses.iter().copied().partition(|it| it.mac == mac);
        state.uses.clear();
        state.uses.extend(stay);
        if let Some(state) = self.one_mut(to) {
            // The one that was used last is to be the last one.
            moved.iter().rev().for_each(|it| state.learn(it.address, it.mac, it.used));
        }
        let mut is_first = true;
        for (home, state) in (0..).map(Guest).zip(&mut self.all) {
            if let Some(state) = state.as_mut().filter(|it| it.moved_to == Some(from)) {
                state.moved_to = Some(to).filter(|to| *to != home);
                is_first = false;
            }
        }
        if let Some(state) = self.one_mut(from).filter(|_| is_first) {
            state.moved_to = Some(to);
        }
        self.has_news = true;
    }

    /// Nothing that led to other ports leads to that one any more.
    pub fn forget_moves(&mut self, guest: Guest) {
        let led_here = self.all.iter_mut().flatten().filter(|it| it.moved_to == Some(guest));
        led_here.for_each(|state| state.moved_to = None);
    }

    /// The port behind which the guest of that one is now.
    pub fn whereabouts(&self, guest: Guest) -> Guest {
        let moved = self.one(guest).filter(|state| !state.runs).and_then(|state| state.moved_to);
        moved.unwrap_or(guest)
    }
}
