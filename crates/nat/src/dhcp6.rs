//! A DHCP server for IPv6 (RFC 8415), as a function of a request and the leases.
//!
//! The address that a station gets has the number of its lease in the IPv4 network: nothing else is
//! remembered. What the format needs is the walk over options below; the libraries that have it
//! bring a resolver along.
//!
//! Limits: one address of a station; no prefixes, no relays.

use std::net::{Ipv4Addr, Ipv6Addr};

use ringway_net::Nanos;

use crate::addresses::Plan;
use crate::dhcp;
use crate::leases::{Leases, Lessee, Times};
use crate::packet::{array, word};

/// All servers and relays of a link.
pub(crate) const ALL_SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);

const SOLICIT: u8 = 1;
const ADVERTISE: u8 = 2;
const REQUEST: u8 = 3;
const CONFIRM: u8 = 4;
const RENEW: u8 = 5;
const REBIND: u8 = 6;
const REPLY: u8 = 7;
const RELEASE: u8 = 8;
const DECLINE: u8 = 9;
const INFORMATION: u8 = 11;

const CLIENT: u16 = 1;
const SERVER: u16 = 2;
const IA_NA: u16 = 3;
const IA_ADDRESS: u16 = 5;
const STATUS: u16 = 13;
const RAPID: u16 = 14;
const DNS_SERVERS: u16 = 23;
const DOMAINS: u16 = 24;

const SUCCESS: u16 = 0;
const NO_ADDRESS: u16 = 2;
const NOT_ON_LINK: u16 = 4;

/// Options that are looked at, in a request and in one of its associations.
const OPTIONS_MAX: usize = 64;

/// Associations of a request, and addresses of one of them, that are answered.
const ASSOCIATIONS_MAX: usize = 4;
const ADDRESSES_MAX: usize = 4;

/// Longest name of a client (RFC 8415 §11.1).
const CLIENT_LEN_MAX: usize = 130;

/// Where options begin: behind the kind and the transaction; behind the number and times of an
/// association.
const OPTIONS_AT: usize = 4;
const IA_OPTIONS_AT: usize = 12;

/// The server: what it says, and about whom it speaks.
#[derive(Debug)]
pub(crate) struct Dhcp6<'a> {
    pub plan: &'a Plan,
    /// Name of the port that the request came from, and the station behind it.
    pub who: Lessee<'a>,
    pub now: Nanos,
}

/// An association that a client wants an address for, and the addresses that it names.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Association {
    id: [u8; 4],
    addresses: Vec<Ipv6Addr>,
}

/// The parts of a request that count.
#[derive(Debug)]
struct Dhcp6Request<'a> {
    kind: u8,
    transaction: [u8; 3],
    client: Option<&'a [u8]>,
    server: Option<&'a [u8]>,
    associations: Vec<Association>,
    is_rapid: bool,
}

/// Options with their values, up to the first that is cut short.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let next = move || {
        let (code, len) = (word(bytes, 0)?, usize::from(word(bytes, 2)?));
        let value = bytes.get(4..4 + len)?;
        bytes = &bytes[4 + len..];
        Some((code, value))
    };
    std::iter::from_fn(next).take(OPTIONS_MAX)
}

fn put(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_be_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(value);
}

impl Association {
    fn parse(value: &[u8]) -> Option<Self> {
        let named = options(value.get(IA_OPTIONS_AT..)?).filter(|(code, _)| *code == IA_ADDRESS);
        let addresses = named.filter_map(|(_, value)| array::<16>(value, 0).map(Ipv6Addr::from));
        Some(Self { id: array(value, 0)?, addresses: addresses.take(ADDRESSES_MAX).collect() })
    }
}

impl<'a> Dhcp6Request<'a> {
    fn parse(bytes: &'a [u8]) -> Option<Self> {
        let [kind, transaction @ ..] = array::<OPTIONS_AT>(bytes, 0)?;
        let mut request = Self {
            kind,
            transaction,
            client: None,
            server: None,
            associations: Vec::new(),
            is_rapid: false,
        };
        for (code, value) in options(&bytes[OPTIONS_AT..]) {
            match code {
                CLIENT if value.len() <= CLIENT_LEN_MAX => request.client = Some(value),
                SERVER => request.server = Some(value),
                IA_NA if request.associations.len() < ASSOCIATIONS_MAX => {
                    request.associations.extend(Association::parse(value));
                }
                RAPID => request.is_rapid = true,
                _ => {}
            }
        }
        Some(request)
    }
}

impl Dhcp6<'_> {
    /// The answer to what a guest sent to all servers; `None`: silence.
    /// `used`: IPv4 addresses that are not free, although none has leased them.
    pub(crate) fn answer(
        &self,
        bytes: &[u8],
        leases: &mut Leases,
        used: impl FnOnce() -> Vec<Ipv4Addr>,
    ) -> Option<Vec<u8>> {
        let request = Dhcp6Request::parse(bytes)?;
        let kind = self.kind_of_answer(&request)?;
        let mut out = vec![kind];
        out.extend(request.transaction);
        if let Some(client) = request.client {
            put(&mut out, CLIENT, client);
        }
        put(&mut out, SERVER, &self.name());
        match request.kind {
            CONFIRM => put_status(&mut out, self.confirms(&request)?),
            RELEASE => put_status(&mut out, SUCCESS),
            DECLINE => {
                leases.decline6(self.who, self.now);
                put_status(&mut out, SUCCESS);
            }
            INFORMATION => self.put_network(&mut out),
            _ => {
                if kind == REPLY && request.kind == SOLICIT {
                    put(&mut out, RAPID, &[]);
                }
                let address = self.lease(leases, used);
                self.put_associations(&mut out, &request, address);
                self.put_network(&mut out);
            }
        }
        Some(out)
    }

    /// A request is answered or not by what it names (RFC 8415 §16).
    fn kind_of_answer(&self, request: &Dhcp6Request<'_>) -> Option<u8> {
        let is_for_us = request.server.map(|server| server == self.name());
        match (request.kind, is_for_us, request.client.is_some()) {
            (SOLICIT, None, true) => Some(if request.is_rapid { REPLY } else { ADVERTISE }),
            (REQUEST | RENEW | RELEASE | DECLINE, Some(true), true) => Some(REPLY),
            (CONFIRM | REBIND, None, true) => Some(REPLY),
            (INFORMATION, None | Some(true), _) => Some(REPLY),
            _ => None,
        }
    }

    /// The identifier of the server: its station's address.
    fn name(&self) -> [u8; 10] {
        let [a, b, c, d, e, f] = self.plan.mac().0;
        [0, 3, 0, 1, a, b, c, d, e, f]
    }

    /// Whether the addresses that a client has are of this link. `None`: it names none.
    fn confirms(&self, request: &Dhcp6Request<'_>) -> Option<u16> {
        let mut named = request.associations.iter().flat_map(|it| &it.addresses).peekable();
        named.peek()?;
        let is_inside = named.all(|address| self.plan.is_inside((*address).into()));
        Some(if is_inside { SUCCESS } else { NOT_ON_LINK })
    }

    /// The first association gets the station's address.
    fn put_associations(
        &self,
        out: &mut Vec<u8>,
        request: &Dhcp6Request<'_>,
        mut address: Option<Ipv6Addr>,
    ) {
        for association in &request.associations {
            let leased = address.take();
            let lease_s = if leased.is_some() { self.plan.lease_s } else { 0 };
            let mut value = association.id.to_vec();
            value.extend((lease_s / 2).to_be_bytes());
            value.extend((lease_s / 8 * 7).to_be_bytes());
            match leased {
                Some(address) => put_address(&mut value, address, lease_s),
                None => put_status(&mut value, NO_ADDRESS),
            }
            // An address that it has and that is not its own is not to be used any more.
            let had = association.addresses.iter().filter(|had| Some(**had) != leased);
            if request.kind != SOLICIT {
                had.for_each(|had| put_address(&mut value, *had, 0));
            }
            put(out, IA_NA, &value);
        }
    }

    fn lease(&self, leases: &mut Leases, used: impl FnOnce() -> Vec<Ipv4Addr>) -> Option<Ipv6Addr> {
        let times = Times::from_now(self.plan, self.now);
        let leased = leases.lease(self.who, None, times, used)?;
        let may_have = leases.has6(self.who, self.now);
        self.plan.twin6(leased).filter(|_| may_have)
    }

    fn put_network(&self, out: &mut Vec<u8>) {
        if let Some(dns) = self.plan.dns6().filter(|_| self.plan.has_dns) {
            put(out, DNS_SERVERS, &dns.octets());
        }
        let names = dhcp::names(&self.plan.domains);
        if !names.is_empty() {
            put(out, DOMAINS, &names);
        }
    }
}

fn put_status(out: &mut Vec<u8>, status: u16) {
    put(out, STATUS, &status.to_be_bytes());
}

/// With the time for which it may be used, and is valid.
fn put_address(out: &mut Vec<u8>, address: Ipv6Addr, lease_s: u32) {
    let mut value = address.octets().to_vec();
    value.extend([lease_s.to_be_bytes(), lease_s.to_be_bytes()].as_flattened());
    put(out, IA_ADDRESS, &value);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringway_net::MacAddress;

    use super::*;
    use crate::addresses::Prefix6;

    const MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
    const ME: (u16, &[u8]) = (CLIENT, &[0, 3, 0, 1, 2, 0, 0, 0, 0, 9]);
    const WANTED: (u16, &[u8]) = (IA_NA, &[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    const SERVER_NAME: [u8; 10] = [0, 3, 0, 1, 0x52, 0x55, 10, 0, 2, 2];

    struct Lab {
        plan: Plan,
        leases: Leases,
    }

    impl Lab {
        fn new() -> Self {
            let domains = vec!["lab.test".to_owned()];
            let plan = Plan { prefix6: Some(Prefix6::local(5)), domains, ..Plan::default() };
            Self { leases: Leases::new(plan.prefix4), plan }
        }

        fn ask(&mut self, kind: u8, parts: &[(u16, &[u8])]) -> Option<Vec<u8>> {
            let mut request = vec![kind, 1, 2, 3];
            parts.iter().for_each(|(code, value)| put(&mut request, *code, value));
            self.ask_bytes(&request)
        }

        fn ask_bytes(&mut self, request: &[u8]) -> Option<Vec<u8>> {
            let dhcp =
                Dhcp6 { plan: &self.plan, who: Lessee { port: "vm0", mac: MAC }, now: Nanos(1) };
            dhcp.answer(request, &mut self.leases, Vec::new)
        }
    }

    fn option(answer: &[u8], wanted: u16) -> Option<Vec<u8>> {
        let mut found = options(&answer[OPTIONS_AT..]).filter(|(code, _)| *code == wanted);
        found.next().map(|(_, value)| value.to_vec())
    }

    /// The association that is wanted, with that address and the time for which it holds.
    fn association(address: &str, lease_s: u32) -> Vec<u8> {
        let mut value = vec![0, 0, 0, 7];
        value.extend([1800u32.to_be_bytes(), 3150u32.to_be_bytes()].as_flattened());
        put_address(&mut value, address.parse().unwrap(), lease_s);
        value
    }

    #[test]
    fn a_station_gets_the_address_with_the_number_of_its_lease() {
        let mut lab = Lab::new();
        let server = (SERVER, &SERVER_NAME[..]);
        let advertised = lab.ask(SOLICIT, &[ME, WANTED]).unwrap();
        let golden = association("fd00::5:0:0:0:f", 3600);
        assert_eq!(advertised[..4], [ADVERTISE, 1, 2, 3]);
        assert_eq!(option(&advertised, IA_NA), Some(golden.clone()));
        assert_eq!(option(&advertised, CLIENT).as_deref(), Some(ME.1));
        assert_eq!(option(&advertised, SERVER).as_deref(), Some(&SERVER_NAME[..]));
        let dns = lab.plan.dns6().unwrap().octets().to_vec();
        assert_eq!(option(&advertised, DNS_SERVERS), Some(dns));
        assert_eq!(option(&advertised, DOMAINS).as_deref(), Some(&b"\x03lab\x04test\0"[..]));
        for kind in [REQUEST, RENEW] {
            let reply = lab.ask(kind, &[ME, server, (IA_NA, &golden)]).unwrap();
            assert_eq!((reply[0], option(&reply, IA_NA)), (REPLY, Some(golden.clone())));
        }
        let rebound = lab.ask(REBIND, &[ME, (IA_NA, &golden)]).unwrap();
        assert_eq!(option(&rebound, IA_NA), Some(golden.clone()));
        let rapid = lab.ask(SOLICIT, &[ME, (RAPID, &[]), WANTED]).unwrap();
        assert_eq!((rapid[0], option(&rapid, RAPID)), (REPLY, Some(vec![])));
        assert_eq!(lab.leases.all().count(), 1, "its IPv4 address is the same lease");
    }

    #[test]
    fn what_is_not_for_this_server_is_not_answered() {
        let mut lab = Lab::new();
        let (server, other) = ((SERVER, &SERVER_NAME[..]), (SERVER, &[0, 3, 0, 1, 9][..]));
        for (kind, parts) in [
            (SOLICIT, &[WANTED][..]),
            (SOLICIT, &[ME, server, WANTED]),
            (REQUEST, &[ME, WANTED]),
            (REQUEST, &[ME, other, WANTED]),
            (RENEW, &[server, WANTED]),
            (REBIND, &[ME, server, WANTED]),
            (CONFIRM, &[ME, WANTED]),
            (INFORMATION, &[other]),
            (ADVERTISE, &[ME, server]),
            (12, &[ME, server]),
        ] {
            assert_eq!(lab.ask(kind, parts), None, "{kind} {parts:?}");
        }
        assert_eq!(lab.leases.all().count(), 0);
    }

    #[test]
    fn addresses_of_other_links_and_those_that_are_in_use_are_given_up() {
        let mut lab = Lab::new();
        let server = (SERVER, &SERVER_NAME[..]);
        let status = |answer: Option<Vec<u8>>| option(&answer.unwrap(), STATUS).unwrap()[1];
        let [here, there] = ["fd00::5:0:0:0:f", "fd77::1"].map(|it| association(it, 60));
        assert_eq!(status(lab.ask(CONFIRM, &[ME, (IA_NA, &here)])), 0);
        assert_eq!(status(lab.ask(CONFIRM, &[ME, (IA_NA, &there)])), 4);
        let renewed = lab.ask(RENEW, &[ME, server, (IA_NA, &there)]).unwrap();
        let mut golden = association("fd00::5:0:0:0:f", 3600);
        put_address(&mut golden, "fd77::1".parse().unwrap(), 0);
        assert_eq!(option(&renewed, IA_NA), Some(golden));
        assert_eq!(status(lab.ask(RELEASE, &[ME, server, (IA_NA, &here)])), 0);
        assert_eq!(status(lab.ask(DECLINE, &[ME, server, (IA_NA, &here)])), 0);
        let none = lab.ask(SOLICIT, &[ME, WANTED, WANTED]).unwrap();
        let refused = [&[0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0, 13, 0, 2, 0, 2]].concat();
        assert_eq!(option(&none, IA_NA), Some(refused));
        assert!(lab.leases.address_of("vm0", MAC).is_some(), "its IPv4 address stays");
        let informed = lab.ask(INFORMATION, &[]).unwrap();
        assert!(option(&informed, DNS_SERVERS).is_some() && option(&informed, IA_NA).is_none());
    }

    proptest! {
        #[test]
        fn anything_is_survived(
            kind in 0..13u8,
            parts in proptest::collection::vec(
                (0..26u16, proptest::collection::vec(any::<u8>(), 0..60)), 0..8),
            cut in 0..400usize, any in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut request = vec![kind, 1, 2, 3];
            parts.iter().for_each(|(code, value)| put(&mut request, *code, value));
            put(&mut request, CLIENT, ME.1);
            request.truncate(cut);
            request.extend(any);
            if let Some(answer) = Lab::new().ask_bytes(&request) {
                prop_assert!(answer.len() < 1200 && [ADVERTISE, REPLY].contains(&answer[0]));
            }
        }
    }
}
