//! The services of the router itself: address resolution, leases, advertisements, its own echo.

use std::net::{IpAddr, Ipv4Addr};

use ringway_net::{MacAddress, Nanos};

use crate::addresses::{Plan, Prefix6};
use crate::dhcp::Dhcp;
use crate::dhcp6::{ALL_SERVERS, Dhcp6};
use crate::frame::{self, ICMP, ICMPV6, Stations, UDP, UDP_HEADER_LEN};
use crate::leases::{Holder, Leases, Lessee, Times};
use crate::neighbours::{self, Sender};
use crate::packet::{Carried, Frame, Ip, word};

const DHCP_SERVER_PORT: u16 = 67;
const DHCP_CLIENT_PORT: u16 = 68;
const DHCP6_SERVER_PORT: u16 = 547;
const DHCP6_CLIENT_PORT: u16 = 546;

const ECHO_REQUEST: u8 = 8;
const ECHO_REPLY: u8 = 0;
const ECHO_REQUEST_6: u8 = 128;
const ECHO_REPLY_6: u8 = 129;
const ICMP_HEADER_LEN: usize = 8;

/// Router solicitation to redirect (RFC 4861 §4).
const DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// The services, and what they remember.
#[derive(Debug, Clone)]
pub struct Services {
    plan: Plan,
    /// The IPv6 network of a plan before.
    retired: Option<Prefix6>,
    leases: Leases,
}

impl Services {
    /// Services without leases.
    pub fn new(plan: Plan) -> Self {
        Self { leases: Leases::new(plan.prefix4), plan, retired: None }
    }

    /// The addresses, and what guests are told.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Follows another plan with the same addresses.
    pub(crate) fn set_plan(&mut self, plan: Plan) {
        self.plan = plan;
    }

    /// Guests had that network before, and are told that it is over.
    pub(crate) fn retire(&mut self, prefix6: Option<Prefix6>) {
        self.retired = prefix6.filter(|retired| Some(*retired) != self.plan.prefix6);
    }

    pub(crate) fn has_advertisement(&self) -> bool {
        self.plan.prefix6.or(self.retired).is_some()
    }

    /// Whether other leases hold than when this was asked last.
    pub(crate) fn take_news(&mut self, now: Nanos) -> bool {
        self.leases.take_news(now)
    }

    /// The question to all stations whether one has the address that was just offered.
    pub(crate) fn take_question(&mut self) -> Option<Vec<u8>> {
        let address = self.leases.take_asked()?;
        Some(neighbours::who_has(&self.plan, address))
    }

    /// A station behind that port says that it has the address.
    pub(crate) fn is_used(&mut self, port: &str, address: Ipv4Addr) {
        self.leases.is_used(port, address);
    }

    /// A station has that lease from another router.
    pub(crate) fn remember_lease(&mut self, lessee: Lessee<'_>, address: Ipv4Addr, now: Nanos) {
        let times = Times::from_now(&self.plan, now);
        self.leases.remember(lessee, address, times);
    }

    /// A guest has come from another router with those leases, whose addresses are free here.
    pub(crate) fn adopt_leases(&mut self, port: &str, all: &[(MacAddress, Ipv4Addr, Times)]) {
        self.leases.adopt(port, all);
    }

    /// A station has moved from one port to another. `false`: there is no room for its lease.
    pub(crate) fn follow(&mut self, mac: MacAddress, from: &str, to: &str) -> bool {
        self.leases.follow(mac, from, to)
    }

    /// A port is gone.
    pub(crate) fn forget_port(&mut self, port: &str) {
        self.leases.end(port);
    }

    /// The holder of an address by a lease, as seen from that port: of its own, or of the IPv4
    /// address with which it comes.
    pub(crate) fn holder(&self, port: &str, address: IpAddr) -> Holder<'_> {
        let leased = match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(address) => self.plan.twin4(address),
        };
        leased.map_or(Holder::None, |leased| self.leases.holder(port, leased))
    }

    /// The leases.
    pub fn leases(&self) -> &Leases {
        &self.leases
    }

    /// The frame that answers this one, which is whole and from a guest behind that port; `None`:
    /// there is no answer. `used`: IPv4 addresses that are not free, although none has leased them.
    pub fn answer(
        &mut self,
        port: &str,
        bytes: &[u8],
        now: Nanos,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<Vec<u8>> {
        let frame = Frame::parse(bytes, bytes.len())?;
        if !frame.source.is_station() {
            return None;
        }
        match frame.carried {
            Carried::Arp(packet) => neighbours::arp(&self.plan, packet),
            Carried::Ip(ip) if ip.fragment.is_some() || !ip.is_all_here() => None,
            Carried::Ip(ip) => match ip.protocol {
                UDP if ip.to.is_ipv4() => self.dhcp(port, &ip, now, used),
                UDP => self.dhcp6(Lessee { port, mac: frame.source }, &ip, now, used),
                ICMP if ip.from.is_ipv4() && ip.payload.starts_with(&[ECHO_REQUEST, 0]) => {
                    self.echo(frame.source, &ip, ECHO_REPLY)
                }
                ICMPV6 if ip.from.is_ipv6() && ip.payload.starts_with(&[ECHO_REQUEST_6, 0]) => {
                    self.echo(frame.source, &ip, ECHO_REPLY_6)
                }
                ICMPV6 => self.discovery(frame.source, &ip),
                _ => None,
            },
        }
    }

    /// The advertisement that all guests hear now and then; `None`: there is no IPv6.
    pub fn advertisement(&self) -> Option<Vec<u8>> {
        neighbours::advertisement(&self.plan, self.retired)
    }

    /// Whether [`Self::answer`] decides about that packet.
    pub(crate) fn is_for_us(&self, ip: &Ip<'_>) -> bool {
        let kind = ip.payload.first().copied();
        match ip.protocol {
            UDP if ip.to.is_ipv4() => word(ip.payload, 2) == Some(DHCP_SERVER_PORT),
            UDP => is_for_servers6(ip),
            ICMP => kind == Some(ECHO_REQUEST) && self.plan.is_ours(ip.to),
            ICMPV6 => {
                let is_echo = kind == Some(ECHO_REQUEST_6) && self.plan.is_ours(ip.to);
                is_echo || kind.is_some_and(|kind| DISCOVERY.contains(&kind))
            }
            _ => false,
        }
    }

    fn dhcp(
        &mut self,
        port: &str,
        ip: &Ip<'_>,
        now: Nanos,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<Vec<u8>> {
        let IpAddr::V4(to) = ip.to else { return None };
        let is_to_us = to.is_broadcast() || to == self.plan.gateway4();
        if !is_to_us || word(ip.payload, 2)? != DHCP_SERVER_PORT {
            return None;
        }
        let request = ip.payload.get(UDP_HEADER_LEN..usize::from(word(ip.payload, 4)?))?;
        let dhcp = Dhcp { plan: &self.plan, port, now };
        let answer = dhcp.answer(request, &mut self.leases, used)?;
        let stations = Stations { from: self.plan.mac(), to: answer.to_mac };
        let from = (self.plan.gateway4(), DHCP_SERVER_PORT).into();
        Some(frame::udp(stations, from, (answer.to, DHCP_CLIENT_PORT).into(), &answer.bytes))
    }

    fn dhcp6(
        &mut self,
        who: Lessee<'_>,
        ip: &Ip<'_>,
        now: Nanos,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<Vec<u8>> {
        let IpAddr::V6(from) = ip.from else { return None };
        let is_asked = self.plan.prefix6.is_some() && is_for_servers6(ip);
        if !is_asked || !from.is_unicast_link_local() {
            return None;
        }
        let request = ip.payload.get(UDP_HEADER_LEN..usize::from(word(ip.payload, 4)?))?;
        let dhcp = Dhcp6 { plan: &self.plan, who, now };
        let answer = dhcp.answer(request, &mut self.leases, used)?;
        let stations = Stations { from: self.plan.mac(), to: who.mac };
        let server = (Plan::GATEWAY_LINK_LOCAL, DHCP6_SERVER_PORT).into();
        Some(frame::udp(stations, server, (from, DHCP6_CLIENT_PORT).into(), &answer))
    }

    /// The router itself is asked for an echo.
    fn echo(&self, mac: MacAddress, ip: &Ip<'_>, reply: u8) -> Option<Vec<u8>> {
        let is_ours = self.plan.is_ours(ip.to) && self.is_neighbour(ip.from);
        (is_ours && ip.payload.len() >= ICMP_HEADER_LEN).then(|| {
            let mut message = ip.payload.to_vec();
            message[0] = reply;
            frame::icmp(Stations { from: self.plan.mac(), to: mac }, ip.to, ip.from, message)
        })
    }

    fn discovery(&self, mac: MacAddress, ip: &Ip<'_>) -> Option<Vec<u8>> {
        let IpAddr::V6(from) = ip.from else { return None };
        // No router sent it on (RFC 4861 §7.1.1).
        let is_near = ip.hops == 255 && (from.is_unspecified() || self.is_neighbour(ip.from));
        let sender = Sender { mac, address: from };
        is_near.then(|| neighbours::discovery(&self.plan, self.retired, sender, ip.payload))?
    }

    fn is_neighbour(&self, address: IpAddr) -> bool {
        let is_local = matches!(address, IpAddr::V6(it) if it.is_unicast_link_local());
        is_local || self.plan.is_inside(address)
    }
}

fn is_for_servers6(ip: &Ip<'_>) -> bool {
    ip.to == IpAddr::V6(ALL_SERVERS) && word(ip.payload, 2) == Some(DHCP6_SERVER_PORT)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GUEST: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    fn services() -> Services {
        Services::new(Plan { prefix6: Some(Prefix6::local(1)), ..Plan::default() })
    }

    fn echo(to: [u8; 4]) -> Vec<u8> {
        let message = [&[8, 0, 0, 0, 1, 2, 0, 3][..], &[7; 1000]].concat();
        let stations = Stations { from: GUEST, to: Plan::default().mac() };
        frame::icmp(stations, [10, 0, 2, 15].into(), to.into(), message)
    }

    #[test]
    fn the_gateway_answers_an_echo() {
        let reply = services().answer("vm0", &echo([10, 0, 2, 2]), Nanos(1), Vec::new).unwrap();
        let stations = Stations { from: Plan::default().mac(), to: GUEST };
        let message = [&[0, 0, 0, 0, 1, 2, 0, 3][..], &[7; 1000]].concat();
        let (from, to) = ([10, 0, 2, 2].into(), [10, 0, 2, 15].into());
        assert_eq!(reply, frame::icmp(stations, from, to, message));
        assert_eq!(services().answer("vm0", &echo([10, 0, 2, 4]), Nanos(1), Vec::new), None);
    }

    #[test]
    fn the_gateway_answers_an_echo_by_ipv6() {
        let mut services = services();
        let ours = services.plan.gateway6().unwrap();
        let guest = IpAddr::V6("fe80::9".parse().unwrap());
        let stations = Stations { from: GUEST, to: services.plan.mac() };
        let message = vec![128, 0, 0, 0, 1, 2, 0, 3, 9];
        let request = frame::icmp(stations, guest, ours.into(), message);
        let reply = services.answer("vm0", &request, Nanos(1), Vec::new).unwrap();
        let back = Stations { from: services.plan.mac(), to: GUEST };
        let message = vec![129, 0, 0, 0, 1, 2, 0, 3, 9];
        assert_eq!(reply, frame::icmp(back, ours.into(), guest, message));
    }

    #[test]
    fn a_lease_comes_in_a_frame() {
        let mut dhcp = vec![0; 244];
        (dhcp[0], dhcp[1], dhcp[2]) = (1, 1, 6);
        dhcp[28..34].copy_from_slice(&GUEST.0);
        dhcp[236..244].copy_from_slice(&[0x63, 0x82, 0x53, 0x63, 53, 1, 1, 255]);
        let stations = Stations { from: GUEST, to: MacAddress::BROADCAST };
        let (from, to) = (([0, 0, 0, 0], 68).into(), ([255; 4], 67).into());
        let request = frame::udp(stations, from, to, &dhcp);
        let offer = services().answer("vm0", &request, Nanos(1), Vec::new).unwrap();
        let parsed = Frame::parse(&offer, offer.len()).unwrap();
        assert_eq!((parsed.destination, &offer[58..62]), (GUEST, &[10, 0, 2, 15][..]));
        let Carried::Ip(ip) = parsed.carried else { panic!("no IP") };
        let sum = frame::pseudo_sum(ip.from, ip.to, UDP, ip.payload_len);
        assert_eq!(sum.add_bytes(ip.payload).fold(), 0xffff);
    }

    proptest! {
        #[test]
        fn anything_is_survived(
            kind in prop_oneof![Just(0x0800u16), Just(0x0806), Just(0x86dd), any::<u16>()],
            mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
            first in prop_oneof![Just(0x45u8), Just(0x60), any::<u8>()],
        ) {
            let len = bytes.len();
            if let Some(ethertype) = bytes.get_mut(12..14) {
                ethertype.copy_from_slice(&kind.to_be_bytes());
            }
            if let Some(version) = bytes.get_mut(14) {
                *version = first;
            }
            // Often a length that fits.
            if first != 0x60 && len > 34 && len % 2 == 0 {
                bytes[16..18].copy_from_slice(&frame::low_word(len - 14).to_be_bytes());
            }
            services().answer("vm0", &bytes, Nanos(1), Vec::new);
        }
    }
}
