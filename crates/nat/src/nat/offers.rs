//! Whether a station has the address already that another one is offered.

use std::net::Ipv4Addr;

use ringway_net::{MacAddress, Nanos};

use super::Nat;
use crate::table::Guest;

impl Nat {
    /// A station says that it has an address, which is void where it was offered to another one.
    pub(super) fn hear_owner(
        &mut self,
        guest: Guest,
        (address, mac): (Ipv4Addr, MacAddress),
        now: Nanos,
    ) {
        let own = self.guests.get(usize::from(guest.0)).and_then(Option::as_ref);
        if let Some(own) = own {
            self.services.is_used(&own.name, address);
        }
        if !self.is_of_another(guest, address.into(), now) {
            self.learn(guest, (address.into(), mac), now);
        }
    }

    /// Asks all others whether one has the address that was just offered to that guest.
    pub(super) fn ask_for_offered(&mut self, guest: Guest, now: Nanos) {
        let Some(question) = self.services.take_question() else { return };
        if !self.guest_mut(guest).is_some_and(|guest| guest.may_ask(now)) {
            return;
        }
        let others = (0..).map(Guest).zip(&mut self.guests).filter(|(other, _)| *other != guest);
        for other in others.filter_map(|(_, other)| other.as_mut()) {
            other.reply(question.clone());
        }
    }
}
