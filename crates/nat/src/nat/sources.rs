//! Which source addresses are a guest's own: the first guest that has an address keeps it. It has
//! those of its leases, of both families, and those of IPv6 that it uses, as long as a lease holds
//! after the last packet from there.

use std::net::{IpAddr, Ipv6Addr};

use ringway_net::{MacAddress, Nanos};

use super::Nat;
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
        let IpAddr::V6(address) = address else {
            return self.is_leased_to_another(guest, address);
        };
        let twin = self.plan().twin4(address);
        if twin.is_some_and(|twin| self.is_leased_to_another(guest, twin.into())) {
            return true;
        }
        let own = self.guests.get(usize::from(guest.0)).and_then(Option::as_ref);
        // Each address is one guest's at most.
        if own.is_some_and(|own| own.used(address).is_some()) {
            return false;
        }
        let held_ns = u64::from(self.plan().lease_s) * NS_PER_S;
        let mut used = self.guests.iter().flatten().filter_map(|other| other.used(address));
        used.any(|used| now.since(used) < held_ns)
    }

    fn is_leased_to_another(&self, guest: Guest, address: IpAddr) -> bool {
        let IpAddr::V4(address) = address else { return false };
        let name = self.name_of(guest).unwrap_or_default();
        let holder = self.services.leases().other_holder(name, address);
        // That of a port that is gone is only kept for it.
        holder.is_some_and(|holder| self.guests.iter().flatten().any(|it| it.name == holder))
    }

    /// The guest has used that address, which is no other guest's any more.
    pub(super) fn learn(
        &mut self,
        guest: Guest,
        (address, mac): (Ipv6Addr, MacAddress),
        now: Nanos,
    ) {
        let Some(own) = self.guest_mut(guest) else { return };
        if own.used(address).is_none() {
            self.guests.iter_mut().flatten().for_each(|other| other.forget(address));
        }
        if let Some(own) = self.guest_mut(guest) {
            own.learn(address, mac, now);
        }
    }
}
