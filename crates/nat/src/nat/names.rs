//! Questions for names of guests.

use std::net::{IpAddr, SocketAddr};

use ringway_net::Nanos;

use super::Nat;
use super::guests::GuestState;
use crate::dhcp::is_host_name;
use crate::frame::{self, Stations, UDP};
use crate::leases::Leases;
use crate::names::{Addresses, Question, message};
use crate::packet::{Frame, Ip, word};
use crate::table::Guest;

const DNS_PORT: u16 = 53;

/// The knowledge about the guests' addresses.
struct Known<'a> {
    leases: &'a Leases,
    guests: &'a [Option<GuestState>],
    now: Nanos,
}

impl Known<'_> {
    fn addresses_of(&self, guest: &GuestState) -> impl Iterator<Item = IpAddr> {
        let leases = self.leases.behind(&guest.name, self.now);
        let leased = leases.map(|lease| IpAddr::V4(lease.address));
        let seen = guest.seen().iter().map(|seen| seen.address);
        leased.chain(seen.filter(IpAddr::is_ipv6))
    }
}

impl Nat {
    /// Answers a question for the name or the address of a guest; `false`: it is something else.
    pub(super) fn answers_name(
        &mut self,
        guest: Guest,
        frame: &Frame<'_>,
        ip: &Ip<'_>,
        now: Nanos,
    ) -> bool {
        let Some(answer) = self.named(ip, now) else { return false };
        if self.is_of_another(guest, ip.from, now) {
            return false;
        }
        let ports = [word(ip.payload, 0), Some(DNS_PORT)].map(|port| port.unwrap_or(0));
        let stations = Stations { from: self.plan().mac(), to: frame.source };
        let from = SocketAddr::new(ip.to, ports[1]);
        let to = SocketAddr::new(ip.from, ports[0]);
        if let Some(guest) = self.guest_mut(guest) {
            guest.reply(frame::udp(stations, from, to, &answer));
        }
        true
    }

    fn named(&self, ip: &Ip<'_>, now: Nanos) -> Option<Vec<u8>> {
        let plan = self.plan();
        let is_asked = match ip.to {
            IpAddr::V4(to) => to == plan.dns4(),
            IpAddr::V6(to) => Some(to) == plan.dns6(),
        };
        let is_question = ip.protocol == UDP && word(ip.payload, 2) == Some(DNS_PORT);
        if !(is_asked && is_question && plan.has_dns && plan.is_inside(ip.from)) {
            return None;
        }
        let known = Known { leases: self.services.leases(), guests: &self.guests, now };
        Question::parse(message(ip.payload)?)?.answer(plan, &known)
    }
}

impl Addresses for Known<'_> {
    fn of_guest(&self, name: &str) -> Vec<IpAddr> {
        let is_it = |guest: &&GuestState| guest.name.eq_ignore_ascii_case(name);
        let guests = self.guests.iter().flatten().filter(is_it);
        guests.flat_map(|guest| self.addresses_of(guest)).collect()
    }

    fn name_of(&self, address: IpAddr) -> Option<String> {
        let is_here = |port: &str| self.guests.iter().flatten().any(|guest| guest.name == port);
        let mut leases = self.leases.all().filter(|(port, _)| is_here(port));
        let leased = leases.find(|(_, leased)| IpAddr::V4(*leased) == address);
        let has = |guest: &&GuestState| match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(_) => guest.used(address).is_some(),
        };
        let learned = || self.guests.iter().flatten().find(has).map(|guest| guest.name.as_str());
        let name = leased.map(|(port, _)| port).or_else(learned)?;
        is_host_name(name).then(|| name.to_ascii_lowercase())
    }
}
