//! Names of guests: questions about the guests' domain and their addresses, which the router
//! answers itself (RFC 1035). All other questions go to the host's resolver.
//!
//! Limits: one question in a datagram, of class IN; no EDNS in answers, which are short.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_net::MacAddress;

use crate::addresses::{DNS_PORT, Plan};
use crate::frame::{self, Stations, UDP, UDP_HEADER_LEN};
use crate::packet::{Ip, array, word};

/// Most addresses in an answer.
const ANSWERS_MAX: usize = 8;

/// How long others may remember an answer, in seconds: guests come and go.
const TTL_S: u32 = 10;

const HEADER_LEN: usize = 12;
/// Longest name, and most of its labels (RFC 1035 §2.3.4).
const NAME_LEN_MAX: usize = 255;
const LABELS_MAX: usize = 127;

const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const ANY: u16 = 255;
const IN: u16 = 1;

const NOT_IMPLEMENTED_OR_ANSWER: u8 = 0xf8;
const NAME_ERROR: u8 = 3;

/// Reserved for private use: no resolver outside knows more of it.
const PRIVATE: &str = "internal";

/// The addresses of guests, and whose they are.
pub(crate) trait Addresses {
    /// The addresses of the guest with that name, which is in lower case.
    fn of_guest(&self, name: &str) -> Vec<IpAddr>;
    /// The name of the guest with that address.
    fn name_of(&self, address: IpAddr) -> Option<String>;
}

/// A question, as far as it was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question<'a> {
    message: &'a [u8],
    /// In lower case, without the dot at the end.
    name: String,
    kind: u16,
    /// Where it ends in the message.
    end: usize,
}

/// The subject of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
enum About {
    /// A guest, or the router itself, by name.
    Station(String),
    /// The guests' domain itself.
    Domain,
    Address(IpAddr),
}

impl<'a> Question<'a> {
    /// The question of a message; `None`: it is none, or one for resolvers.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let flags = *message.get(2)?;
        if flags & NOT_IMPLEMENTED_OR_ANSWER != 0 || word(message, 4)? != 1 {
            return None;
        }
        let end = question_end(message)?;
        let (mut name, mut at) = (String::new(), HEADER_LEN);
        loop {
            let label = label(message, at)?;
            at += 1 + label.len();
            if label.is_empty() {
                break;
            }
            // Nothing but what a host's name may have.
            let is_good = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
            let label = std::str::from_utf8(label).ok()?;
            if !label.as_bytes().iter().all(is_good) {
                return None;
            }
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&label.to_ascii_lowercase());
        }
        let (kind, class) = (word(message, at)?, word(message, at + 2)?);
        (class == IN).then_some(Self { message, name, kind, end })
    }

    /// The name, in lower case and without the dot at its end.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of records that are asked for.
    pub fn kind(&self) -> u16 {
        self.kind
    }

    fn about(&self, plan: &Plan) -> Option<About> {
        if let Some(address) = reverse(&self.name) {
            return plan.is_inside(address).then_some(About::Address(address));
        }
        let domain = plan.domains.first()?;
        let rest = self.name.strip_suffix(domain.as_str())?;
        match rest.strip_suffix('.') {
            Some(name) => Some(About::Station(name.to_owned())),
            None if rest.is_empty() => Some(About::Domain),
            None => None,
        }
    }

    /// The answer; `None`: a resolver has to be asked.
    pub fn answer(&self, plan: &Plan, addresses: &impl Addresses) -> Option<Vec<u8>> {
        let domain = plan.domains.first().map_or("", String::as_str);
        match self.about(plan)? {
            About::Domain => is_private(domain).then(|| self.reply(0, &[])),
            About::Station(name) => {
                let known = own(plan, &name).unwrap_or_else(|| addresses.of_guest(&name));
                if known.is_empty() {
                    // Others may know more of a domain that is not private.
                    return is_private(domain).then(|| self.reply(NAME_ERROR, &[]));
                }
                let wanted = known.iter().filter(|address| self.is_for(**address));
                let records: Vec<Vec<u8>> = wanted.map(octets).take(ANSWERS_MAX).collect();
                Some(self.reply(0, &records))
            }
            About::Address(address) => {
                let name = own_name(plan, address).map(str::to_owned);
                let Some(name) = name.or_else(|| addresses.name_of(address)) else {
                    return Some(self.reply(NAME_ERROR, &[]));
                };
                let names = crate::dhcp::names(&[format!("{name}.{domain}")]);
                let is_wanted = matches!(self.kind, PTR | ANY) && !names.is_empty();
                Some(self.reply(0, if is_wanted { std::slice::from_ref(&names) } else { &[] }))
            }
        }
    }

    fn is_for(&self, address: IpAddr) -> bool {
        self.kind == ANY || self.kind == if address.is_ipv4() { A } else { AAAA }
    }

    fn reply(&self, code: u8, records: &[Vec<u8>]) -> Vec<u8> {
        const ANSWER: u8 = 0x84;
        const RECURSION_WANTED: u8 = 1;
        const RECURSION_THERE: u8 = 0x80;
        let mut reply = self.message[..self.end].to_vec();
        reply[2] = ANSWER | reply[2] & RECURSION_WANTED;
        reply[3] = RECURSION_THERE | code;
        let count = u16::try_from(records.len()).unwrap_or(0);
        reply[6..8].copy_from_slice(&count.to_be_bytes());
        reply[8..HEADER_LEN].fill(0);
        for data in records {
            let kind = match data.len() {
                _ if reverse(&self.name).is_some() => PTR,
                4 => A,
                _ => AAAA,
            };
            // The name of the question.
            reply.extend([0xc0, 0x0c]);
            reply.extend([kind, IN].map(u16::to_be_bytes).as_flattened());
            reply.extend(TTL_S.to_be_bytes());
            reply.extend(crate::frame::low_word(data.len()).to_be_bytes());
            reply.extend(data);
        }
        reply
    }
}

/// Where the first question of a message ends, whatever its name and class are; `None`: it is not
/// whole, or its name has pointers or is too long.
pub(crate) fn question_end(message: &[u8]) -> Option<usize> {
    let mut at = HEADER_LEN;
    for _ in 0..=LABELS_MAX {
        let len = label(message, at)?.len();
        at += 1 + len;
        if len == 0 {
            let is_short = at - HEADER_LEN <= NAME_LEN_MAX;
            return Some(at + 4).filter(|end| is_short && *end <= message.len());
        }
    }
    None
}

/// The label at that offset of a message; `None`: there is a pointer, or it is not whole.
fn label(message: &[u8], at: usize) -> Option<&[u8]> {
    let len = usize::from(*message.get(at)?);
    message.get(at + 1..at + 1 + len).filter(|_| len < 64)
}

fn is_private(domain: &str) -> bool {
    domain == PRIVATE || domain.ends_with(".internal")
}

/// Addresses of the router itself, and of the host where guests reach it.
fn own(plan: &Plan, name: &str) -> Option<Vec<IpAddr>> {
    match name {
        "gateway" => {
            let gateway6 = plan.gateway6().map(IpAddr::V6);
            Some([Some(plan.gateway4().into()), gateway6].into_iter().flatten().collect())
        }
        "host" => plan.host.map(|host| vec![host]),
        _ => None,
    }
}

fn own_name(plan: &Plan, address: IpAddr) -> Option<&'static str> {
    let is_gateway = address == IpAddr::V4(plan.gateway4());
    let is_gateway6 = plan.gateway6().is_some_and(|gateway| address == IpAddr::V6(gateway));
    (is_gateway || is_gateway6).then_some("gateway")
}

fn octets(address: &IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address whose name is asked for (RFC 1035 §3.5, RFC 3596 §2.5).
fn reverse(name: &str) -> Option<IpAddr> {
    if let Some(octets) = name.strip_suffix(".in-addr.arpa") {
        let mut all = [0; 4];
        let mut parts = octets.split('.');
        for place in all.iter_mut().rev() {
            *place = parts.next()?.parse().ok()?;
        }
        return parts.next().is_none().then_some(IpAddr::V4(Ipv4Addr::from(all)));
    }
    let nibbles = name.strip_suffix(".ip6.arpa")?;
    let (mut bits, mut count) = (0u128, 0u32);
    for nibble in nibbles.split('.') {
        let nibble = u8::from_str_radix(nibble, 16).ok().filter(|nibble| *nibble < 16)?;
        bits |= u128::from(nibble).checked_shl(4 * count)?;
        count += 1;
    }
    (count == 32).then_some(IpAddr::V6(Ipv6Addr::from_bits(bits)))
}

/// The answer to a question for the name or the address of a guest; `None`: it is something else.
pub(crate) fn answer(
    plan: &Plan,
    mac: MacAddress,
    ip: &Ip<'_>,
    known: &impl Addresses,
) -> Option<Vec<u8>> {
    if ip.protocol != UDP || word(ip.payload, 2)? != DNS_PORT {
        return None;
    }
    let (from, server) = (SocketAddr::new(ip.from, word(ip.payload, 0)?), (ip.to, DNS_PORT).into());
    if !plan.is_name_server(server) || !plan.is_inside(ip.from) {
        return None;
    }
    let answer = Question::parse(message(ip.payload)?)?.answer(plan, known)?;
    Some(frame::udp(Stations { from: plan.mac(), to: mac }, server, from, &answer))
}

/// The message that a datagram to the router's name server carries behind its UDP header.
pub(crate) fn message(payload: &[u8]) -> Option<&[u8]> {
    let len = usize::from(u16::from_be_bytes(array(payload, 4)?));
    let end = len.min(payload.len());
    payload.get(UDP_HEADER_LEN..end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::addresses::Prefix6;

    struct Two;

    const GUEST: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);

    fn guest6() -> Ipv6Addr {
        Ipv6Addr::from_bits(Prefix6::local(5).network().to_bits() | 0x99)
    }

    impl Addresses for Two {
        fn of_guest(&self, name: &str) -> Vec<IpAddr> {
            if name == "vm0" { vec![GUEST.into(), guest6().into()] } else { Vec::new() }
        }

        fn name_of(&self, address: IpAddr) -> Option<String> {
            let is_known = [IpAddr::V4(GUEST), IpAddr::V6(guest6())].contains(&address);
            is_known.then(|| "vm0".to_owned())
        }
    }

    fn plan(domain: &str) -> Plan {
        let prefix6 = Some(Prefix6::local(5));
        Plan { prefix6, domains: vec![domain.to_owned()], ..Plan::default() }
    }

    fn question(name: &str, kind: u16) -> Vec<u8> {
        let mut bytes = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        bytes.extend(crate::dhcp::names(&[name.to_owned()]));
        bytes.extend([kind, IN].map(u16::to_be_bytes).as_flattened());
        bytes
    }

    /// Code and records of an answer.
    fn ask(domain: &str, name: &str, kind: u16) -> Option<(u8, Vec<Vec<u8>>)> {
        let bytes = question(name, kind);
        let answer = Question::parse(&bytes)?.answer(&plan(domain), &Two)?;
        assert_eq!((&answer[..2], answer[2], answer[3] & 0xf0), (&[0xab, 0xcd][..], 0x85, 0x80));
        assert_eq!(answer[12..bytes.len()], bytes[12..]);
        let (mut rest, mut records) = (&answer[bytes.len()..], Vec::new());
        while !rest.is_empty() {
            let len = usize::from(word(rest, 10).unwrap());
            records.push(rest[12..12 + len].to_vec());
            rest = &rest[12 + len..];
        }
        assert_eq!(usize::from(word(&answer, 6).unwrap()), records.len());
        Some((answer[3] & 0xf, records))
    }

    #[test]
    fn guests_have_names_of_both_families() {
        let four = GUEST.octets().to_vec();
        let six = guest6().octets().to_vec();
        assert_eq!(ask("internal", "vm0.internal", A), Some((0, vec![four.clone()])));
        assert_eq!(ask("internal", "VM0.Internal", AAAA), Some((0, vec![six.clone()])));
        assert_eq!(ask("internal", "vm0.internal", ANY), Some((0, vec![four, six])));
        assert_eq!(ask("internal", "vm0.internal", 15), Some((0, vec![])), "no such record");
        let gateway = vec![vec![10, 0, 2, 2]];
        assert_eq!(ask("internal", "gateway.internal", A), Some((0, gateway)));
    }

    #[test]
    fn only_private_names_do_not_exist() {
        assert_eq!(ask("internal", "vm9.internal", A), Some((NAME_ERROR, vec![])));
        assert_eq!(ask("lab.internal", "a.b.lab.internal", A), Some((NAME_ERROR, vec![])));
        assert_eq!(ask("example.com", "www.example.com", A), None, "others know it");
        assert_eq!(ask("example.com", "vm0.example.com", A).unwrap().0, 0);
        assert_eq!(ask("internal", "example.com", A), None);
        assert_eq!(ask("internal", "notinternal", A), None);
    }

    #[test]
    fn addresses_have_names() {
        let name = b"\x03vm0\x08internal\0".to_vec();
        let asked = ask("internal", "15.2.0.10.in-addr.arpa", PTR);
        assert_eq!(asked, Some((0, vec![name.clone()])));
        let nibbles: Vec<String> =
            (0..32).map(|at| format!("{:x}", guest6().to_bits() >> (4 * at) & 0xf)).collect();
        let asked = ask("internal", &format!("{}.ip6.arpa", nibbles.join(".")), PTR);
        assert_eq!(asked, Some((0, vec![name])));
        let unknown = ask("internal", "99.2.0.10.in-addr.arpa", PTR);
        assert_eq!(unknown, Some((NAME_ERROR, vec![])));
        assert_eq!(ask("internal", "8.8.8.8.in-addr.arpa", PTR), None, "not of this network");
    }

    #[test]
    fn pointers_and_answers_are_no_questions() {
        let mut looped = question("a", A);
        looped.splice(12..14, [0xc0, 0x0c]);
        assert_eq!(Question::parse(&looped), None);
        let mut answer = question("vm0.internal", A);
        answer[2] |= 0x80;
        assert_eq!(Question::parse(&answer), None);
    }

    proptest! {
        #[test]
        fn anything_is_survived(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..300),
            len in 0..64u8,
        ) {
            if let Some(start) = bytes.get_mut(2..13) {
                start.copy_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0, len]);
            }
            if let Some(question) = Question::parse(&bytes) {
                question.answer(&plan("internal"), &Two);
            }
        }
    }
}
