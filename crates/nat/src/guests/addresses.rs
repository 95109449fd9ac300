//! The source addresses that are a guest's own: the first guest that has an address keeps it. It
//! has those of its leases, of both families, and those that it uses, as long as a lease holds
//! after the last packet from there.

use std::net::{IpAddr, Ipv4Addr};

use ringway_net::{MacAddress, Nanos};

use super::{GuestState, Guests, REPLIES_MAX};
use crate::leases::LEASES_PER_PORT_MAX;
use crate::table::Guest;

impl Guests {
    /// The name of another guest that has used that address not longer ago than that, if this one
    /// has not.
    pub fn other_that_uses(
        &self,
        guest: Guest,
        address: IpAddr,
        held_ns: u64,
        now: Nanos,
    ) -> Option<&str> {
        // Each address is one guest's at most.
        if self.one(guest).is_some_and(|own| own.used(address).is_some()) {
            return None;
        }
        let is_used =
            |other: &&GuestState| other.used(address).is_some_and(|used| now.since(used) < held_ns);
        self.all.iter().flatten().find(is_used).map(|other| other.name.as_str())
    }

    /// The guest has used that address, which is no other guest's any more; `true`: for the first
    /// time.
    pub fn learn(&mut self, guest: Guest, address: IpAddr, mac: MacAddress, now: Nanos) -> bool {
        let Some(own) = self.one(guest) else { return false };
        let is_new = own.used(address).is_none();
        if is_new {
            self.has_news = true;
            self.all.iter_mut().flatten().for_each(|other| other.forget(address));
        }
        if let Some(own) = self.one_mut(guest) {
            own.learn(address, mac, now);
        }
        is_new
    }

    /// IPv4 addresses that others than this guest have used not longer ago than that: none of them
    /// is leased. Each has [`LEASES_PER_PORT_MAX`] at most, those that it has used last.
    pub fn used_by_others(&self, guest: Guest, held_ns: u64, now: Nanos) -> Vec<Ipv4Addr> {
        let others = self.numbered().filter(|(number, _)| *number != guest);
        let used = others.flat_map(|(_, other)| {
            let held = other.uses.iter().filter(|it| now.since(it.used) < held_ns);
            held.filter_map(|it| match it.address {
                IpAddr::V4(address) => Some(address),
                IpAddr::V6(_) => None,
            })
            .take(LEASES_PER_PORT_MAX)
        });
        used.collect()
    }

    /// Asks all others whether one has the address that was just offered to that guest, if there
    /// is one that does not ask for addresses by DHCP itself. The question goes to all ports,
    /// whichever guest it waits for.
    pub fn ask_for_offered(&mut self, guest: Guest, question: Vec<u8>, now: Nanos) {
        let Some(own) = self.one_mut(guest) else { return };
        own.asks_by_dhcp = true;
        if own.questions.take(now)
            && let Some(other) = self.all.iter_mut().flatten().find(|it| !it.asks_by_dhcp)
        {
            other.reply_up_to(REPLIES_MAX, question);
        }
    }
}
