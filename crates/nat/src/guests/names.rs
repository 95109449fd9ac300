//! The names of guests, and the addresses that each has.

use std::net::IpAddr;

use ringway_net::Nanos;

use super::{GuestState, Guests};
use crate::dhcp::is_host_name;
use crate::leases::Leases;
use crate::names::Addresses;

/// The knowledge about the guests' addresses.
pub(crate) struct GuestNames<'a> {
    pub leases: &'a Leases,
    pub guests: &'a Guests,
    pub now: Nanos,
}

impl GuestNames<'_> {
    fn addresses_of(&self, guest: &GuestState) -> impl Iterator<Item = IpAddr> {
        let leases = self.leases.behind(&guest.name, self.now);
        let leased = leases.map(|lease| IpAddr::V4(lease.address));
        let seen = guest.uses.iter().map(|seen| seen.address);
        leased.chain(seen.filter(IpAddr::is_ipv6))
    }

    fn guests(&self) -> impl Iterator<Item = &GuestState> {
        self.guests.all.iter().flatten()
    }
}

impl Addresses for GuestNames<'_> {
    fn of_guest(&self, name: &str) -> Vec<IpAddr> {
        let all = self.guests.numbered();
        let called = all.filter(|(_, guest)| guest.name.eq_ignore_ascii_case(name));
        let guests = called.filter_map(|(it, _)| self.guests.one(self.guests.whereabouts(it)));
        guests.flat_map(|guest| self.addresses_of(guest)).collect()
    }

    fn name_of(&self, address: IpAddr) -> Option<String> {
        let is_here = |port: &str| self.guests().any(|guest| guest.name == port);
        let mut leases = self.leases.all().filter(|(port, _)| is_here(port));
        let leased = leases.find(|(_, leased)| IpAddr::V4(*leased) == address);
        let has = |guest: &&GuestState| address.is_ipv6() && guest.used(address).is_some();
        let learned = || self.guests().find(has).map(|guest| guest.name.as_str());
        let name = leased.map(|(port, _)| port).or_else(learned)?;
        is_host_name(name).then(|| name.to_ascii_lowercase())
    }
}
