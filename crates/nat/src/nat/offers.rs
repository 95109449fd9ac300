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

    /// Asks all others whether one has the address that was just offered to that guest, if there
    /// is one that does not ask for addresses by DHCP itself. The question goes to all ports,
    /// whichever guest it waits for.
    pub(super) fn ask_for_offered(&mut self, guest: Guest, now: Nanos) {
        let Some(question) = self.services.take_question() else { return };
        let Some(own) = self.guest_mut(guest) else { return };
        own.asks_by_dhcp = true;
        if own.may_ask(now)
            && let Some(other) = self.guests.iter_mut().flatten().find(|it| !it.asks_by_dhcp)
        {
            other.reply(question);
        }
    }
}
