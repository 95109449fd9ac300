//! The source addresses that are a guest's own: the first guest that has an address keeps it. It
//! has those of its leases, of both families, and those that it uses, as long as a lease holds
//! after the last packet from there.

use std::net::{IpAddr, Ipv4Addr};

use ringway_net::{MacAddress, Nanos};

use super::Nat;
use super::guests::GuestState;
use crate::leases::{Holder, LEASES_PER_PORT_MAX};
use crate::table::Guest;

const NS_PER_S: u64 = 1_000_000_000;

impl Nat {
    /// Whether some guest may have that address.
    pub(super) fn is_for_guests(&self, address: IpAddr) -> bool {
        let plan = self.plan();
        let is_for_all = address == IpAddr::V4(plan.prefix4.broadcast());
        plan.is_inside(address) && !plan.is_ours(address) && !is_for_all
    }

    /// Whether another guest has that address.
    pub(super) fn is_of_another(&self, guest: Guest, address: IpAddr, now: Nanos) -> bool {
        let leased = match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => self.plan().twin4(address),
        };
        let own = self.guests.get(usize::from(guest.0)).and_then(Option::as_ref);
        let name = own.map_or("", |own| &own.name);
        let leases = self.services.leases();
        match leased.map_or(Holder::None, |leased| leases.holder(name, leased)) {
            Holder::This if address.is_ipv4() => return false,
            // That of a port that is gone is only kept for it.
            Holder::Other(name) if self.guests.iter().flatten().any(|it| it.name == name) => {
                return true;
            }
            Holder::Other(_) | Holder::This | Holder::None => {}
        }
        // Each address is one guest's at most.
        if own.is_some_and(|own| own.used(address).is_some()) {
            return false;
        }
        let mut used = self.guests.iter().flatten().filter_map(|other| other.used(address));
        used.any(|used| now.since(used) < self.held_ns())
    }

    /// How long an address is a guest's that was seen to use it.
    pub(super) fn held_ns(&self) -> u64 {
        u64::from(self.plan().lease_s) * NS_PER_S
    }

    /// The guest has used that address, which is no other guest's any more.
    pub(super) fn learn(&mut self, guest: Guest, (address, mac): (IpAddr, MacAddress), now: Nanos) {
        let Some(own) = self.guest_mut(guest) else { return };
        if own.used(address).is_none() {
            self.has_news = true;
            self.guests.iter_mut().flatten().for_each(|other| other.forget(address));
        }
        if let Some(own) = self.guest_mut(guest) {
            own.learn(address, mac, now);
        }
    }
}

/// IPv4 addresses that others than this guest have used not longer ago than that: none of them is
/// leased. Each has [`LEASES_PER_PORT_MAX`] at most, those that it has used last.
pub(super) fn used_by_others(
    guests: &[Option<GuestState>],
    guest: Guest,
    held_ns: u64,
    now: Nanos,
) -> Vec<Ipv4Addr> {
    let others = (0..).map(Guest).zip(guests).filter(|(number, _)| *number != guest);
    let used = others.filter_map(|(_, other)| other.as_ref()).flat_map(|other| {
        let held = other.seen().iter().filter(|it| now.since(it.used) < held_ns);
        held.filter_map(|it| match it.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .take(LEASES_PER_PORT_MAX)
    });
    used.collect()
}
