//! From the text of a filter to its steps: a word at a time, from the left.

use alloc::format;
use alloc::vec::Vec;
use core::net::IpAddr;

use ringway_net::MacAddress;

use super::{FilterError, STEPS_MAX, Side, Step, Test};
use crate::VlanId;
use crate::frame::{ARP, IPV4, IPV6, RARP};

const WORDS: &str = "use host, net, port, portrange, src, dst, ether, vlan, proto, ip, ip6, arp, \
                     tcp, udp, icmp, icmp6, broadcast, multicast, less, greater, not and \
                     parentheses";

/// Flags of TCP, from the lowest bit of its header's byte (RFC 9293).
const TCP_FLAGS: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"];

/// Protocols by the names that filters have for them (IANA).
const PROTOCOLS: [(&str, u8); 8] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("gre", 47),
    ("esp", 50),
    ("icmp6", 58),
    ("sctp", 132),
];

const ETHERTYPES: [(&str, u16); 4] = [("ip", IPV4), ("ip6", IPV6), ("arp", ARP), ("rarp", RARP)];

/// The steps of a filter.
///
/// # Errors
/// The first mistake.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, FilterError> {
    let end = text.chars().count() + 1;
    let mut parser = Parser { words: words(text), at: 0, end, last: None };
    let mut steps = Steps(Vec::new());
    parser.expression(&mut steps, 0)?;
    match parser.next() {
        None => Ok(steps.0),
        Some((column, ")")) => {
            Err(FilterError { column, wrong: "\")\" without \"(\" before it".into() })
        }
        Some((column, word)) => {
            let wrong = format!("{word:?} stands where and or or is to be: add one of them");
            Err(FilterError { column, wrong })
        }
    }
}

struct Steps(Vec<Step>);

impl Steps {
    fn push(&mut self, column: usize, step: Step) -> Result<(), FilterError> {
        if self.0.len() == STEPS_MAX {
            return Err(too_long(column));
        }
        self.0.push(step);
        Ok(())
    }
}

fn too_long(column: usize) -> FilterError {
    FilterError { column, wrong: format!("too long: a filter has at most {STEPS_MAX} parts") }
}

/// Words and their columns; parentheses and ! are words of their own.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut begun: Option<(usize, usize)> = None;
    for (column, (at, letter)) in text.char_indices().enumerate() {
        let is_alone = matches!(letter, '(' | ')' | '!');
        if (letter.is_whitespace() || is_alone)
            && let Some((column, start)) = begun.take()
        {
            words.push((column, &text[start..at]));
        }
        if is_alone {
            words.push((column + 1, &text[at..=at]));
        } else if !letter.is_whitespace() && begun.is_none() {
            begun = Some((column + 1, at));
        }
    }
    words.extend(begun.map(|(column, start)| (column, &text[start..])));
    words
}

struct Parser<'a> {
    words: Vec<(usize, &'a str)>,
    at: usize,
    /// The column behind the text.
    end: usize,
    /// The last test was of that kind: a value alone, behind and or or, is of the same.
    last: Option<Kind>,
}

/// Tests that have a value.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Host(Side),
    Net(Side),
    Port(Side, Option<u8>),
    PortRange(Side, Option<u8>),
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|(_, word)| *word)
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        let word = self.words.get(self.at).copied();
        self.at += 1;
        word
    }

    fn column(&self) -> usize {
        self.words.get(self.at).map_or(self.end, |(column, _)| *column)
    }

    /// Takes the word if it is this one.
    fn takes(&mut self, word: &str) -> bool {
        let is_it = self.peek() == Some(word);
        self.at += usize::from(is_it);
        is_it
    }

    /// Parts with and, or between them: as in pcap-filter(7), neither binds more than the other.
    fn expression(&mut self, steps: &mut Steps, depth: usize) -> Result<(), FilterError> {
        self.part(steps, depth)?;
        loop {
            let column = self.column();
            let step = match self.peek() {
                Some("and" | "&&") => Step::And,
                Some("or" | "||") => Step::Or,
                _ => return Ok(()),
            };
            self.at += 1;
            self.part(steps, depth)?;
            steps.push(column, step)?;
        }
    }

    fn part(&mut self, steps: &mut Steps, depth: usize) -> Result<(), FilterError> {
        let column = self.column();
        if depth == STEPS_MAX {
            return Err(too_long(column));
        }
        if self.takes("not") || self.takes("!") {
            self.part(steps, depth + 1)?;
            return steps.push(column, Step::Not);
        }
        if self.takes("(") {
            self.expression(steps, depth + 1)?;
            if self.takes(")") {
                return Ok(());
            }
            let wrong = format!("the \"(\" of column {column} has no \")\": add it");
            return Err(FilterError { column: self.column(), wrong });
        }
        self.primitive(steps)
    }

    fn primitive(&mut self, steps: &mut Steps) -> Result<(), FilterError> {
        let Some((column, word)) = self.next() else {
            let wrong = format!("a filter ends where a test is to be: {WORDS}");
            return Err(FilterError { column: self.end, wrong });
        };
        let mut push = |test| steps.push(column, Step::Test(test));
        if let Some(kind) = self.last
            && word.starts_with(|letter: char| letter.is_ascii_digit())
        {
            self.at -= 1;
            return push(self.of_kind(kind)?);
        }
        self.last = None;
        match word {
            "host" | "net" | "port" | "portrange" | "src" | "dst" => {
                self.at -= 1;
                push(self.address(None)?)
            }
            "less" => push(Test::Less(self.length()?)),
            "greater" => push(Test::Greater(self.length()?)),
            "ether" => push(self.ether()?),
            "vlan" => {
                let is_number =
                    |word: &str| word.starts_with(|letter: char| letter.is_ascii_digit());
                let vlan = if self.peek().is_some_and(is_number) {
                    Some(self.value("no VLAN: write 1 to 4094", |word| {
                        word.parse().ok().and_then(VlanId::new)
                    })?)
                } else {
                    None
                };
                push(Test::Vlan(vlan))
            }
            "broadcast" => push(Test::Broadcast),
            "multicast" => push(Test::Multicast),
            "proto" => push(Test::Protocol(self.protocol()?)),
            _ => self.named(steps, column, word),
        }
    }

    /// A protocol by its name, perhaps with what more is asked of it.
    fn named(&mut self, steps: &mut Steps, column: usize, word: &str) -> Result<(), FilterError> {
        if let Some((_, ethertype)) = ETHERTYPES.iter().find(|(name, _)| *name == word) {
            steps.push(column, Step::Test(Test::EtherType(*ethertype)))?;
            let more = match self.peek() {
                Some("proto") => {
                    self.at += 1;
                    Test::Protocol(self.protocol()?)
                }
                Some("host" | "net" | "src" | "dst") => self.address(None)?,
                Some("multicast") if matches!(*ethertype, IPV4 | IPV6) => {
                    self.at += 1;
                    Test::IpMulticast
                }
                _ => return Ok(()),
            };
            steps.push(column, Step::Test(more))?;
            return steps.push(column, Step::And);
        }
        let Some((_, protocol)) = PROTOCOLS.iter().find(|(name, _)| *name == word) else {
            let wrong = format!("{word:?} is no word of a filter: {WORDS}");
            return Err(FilterError { column, wrong });
        };
        let test = match self.peek() {
            Some("port" | "portrange" | "src" | "dst") if matches!(word, "tcp" | "udp") => {
                self.address(Some(*protocol))?
            }
            Some(flag) if word == "tcp" && TCP_FLAGS.contains(&flag) => {
                self.at += 1;
                let bit = TCP_FLAGS.iter().position(|name| *name == flag);
                Test::TcpFlags(bit.map_or(0, |at| 1 << at))
            }
            _ => Test::Protocol(*protocol),
        };
        steps.push(column, Step::Test(test))
    }

    fn side(&mut self) -> Side {
        if self.takes("src") {
            Side::Source
        } else if self.takes("dst") {
            Side::Destination
        } else {
            Side::Either
        }
    }

    /// `[src|dst] host|net|port VALUE`, or an address alone; with a protocol only ports.
    fn address(&mut self, protocol: Option<u8>) -> Result<Test, FilterError> {
        let side = self.side();
        if self.takes("port") {
            return self.of_kind(Kind::Port(side, protocol));
        }
        if self.takes("portrange") {
            return self.of_kind(Kind::PortRange(side, protocol));
        }
        if protocol.is_some() {
            let wrong = "port is to be here".into();
            return Err(FilterError { column: self.column(), wrong });
        }
        if self.takes("net") {
            return self.of_kind(Kind::Net(side));
        }
        let is_address =
            self.peek().is_some_and(|it| it.starts_with(|a: char| a.is_ascii_hexdigit()));
        if self.takes("host") || side != Side::Either && is_address {
            return self.of_kind(Kind::Host(side));
        }
        let wrong = "host, net, port or an address is to be here".into();
        Err(FilterError { column: self.column(), wrong })
    }

    /// A test of that kind with the value that comes next.
    fn of_kind(&mut self, kind: Kind) -> Result<Test, FilterError> {
        self.last = Some(kind);
        match kind {
            Kind::Net(side) => self.net(side),
            Kind::Host(side) => {
                let wrong = "no IP address: write IPv4 or IPv6, such as 192.0.2.1";
                let ip: IpAddr = self.value(wrong, |word| word.parse().ok())?;
                Ok(Test::Net(side, ip, bits(ip)))
            }
            Kind::Port(side, protocol) => {
                let wrong = "no port: write a number up to 65535";
                let port = self.value(wrong, |it| it.parse().ok())?;
                Ok(Test::Port(side, protocol, port, port))
            }
            Kind::PortRange(side, protocol) => {
                let (first, last) = self.value("no range of ports: write 80-90", |it| {
                    let (first, last) = it.split_once('-')?;
                    let (first, last) = (first.parse::<u16>().ok()?, last.parse().ok()?);
                    (first <= last).then_some((first, last))
                })?;
                Ok(Test::Port(side, protocol, first, last))
            }
        }
    }

    fn length(&mut self) -> Result<u32, FilterError> {
        self.value("no length: write a number of bytes", |word| word.parse().ok())
    }

    fn net(&mut self, side: Side) -> Result<Test, FilterError> {
        let column = self.column();
        let wrong = "no network: write it as 192.0.2.0/24";
        let (net, prefix) = self.value(wrong, |word| {
            let (net, prefix) = word.split_once('/')?;
            let (net, prefix): (IpAddr, u8) = (net.parse().ok()?, prefix.parse().ok()?);
            (prefix <= bits(net)).then_some((net, prefix))
        })?;
        let is_clean = match net {
            IpAddr::V4(ip) => ip.to_bits().checked_shl(prefix.into()).unwrap_or(0) == 0,
            IpAddr::V6(ip) => ip.to_bits().checked_shl(prefix.into()).unwrap_or(0) == 0,
        };
        if is_clean {
            return Ok(Test::Net(side, net, prefix));
        }
        let wrong = format!("{net}/{prefix} has bits behind its prefix: write zeros there");
        Err(FilterError { column, wrong })
    }

    fn ether(&mut self) -> Result<Test, FilterError> {
        if self.takes("proto") {
            let wrong = "no EtherType: write a name such as ip6, or a number such as 0x0806";
            return Ok(Test::EtherType(self.value(wrong, |word| {
                let known = ETHERTYPES.iter().find(|(name, _)| *name == word);
                known.map(|(_, ethertype)| *ethertype).or_else(|| number(word))
            })?));
        }
        if self.takes("broadcast") {
            return Ok(Test::Broadcast);
        }
        if self.takes("multicast") {
            return Ok(Test::Multicast);
        }
        let side = self.side();
        self.takes("host");
        let wrong = "no MAC address: write it as 52:54:00:12:34:56";
        let mac = self.value(wrong, |word| word.parse::<MacAddress>().ok())?;
        Ok(Test::Ether(side, mac))
    }

    fn protocol(&mut self) -> Result<u8, FilterError> {
        let wrong = "no protocol: write a name such as udp, or a number up to 255";
        self.value(wrong, |word| {
            let known = PROTOCOLS.iter().find(|(name, _)| *name == word);
            known.map(|(_, protocol)| *protocol).or_else(|| word.parse().ok())
        })
    }

    /// The value of the next word; `wrong`: what that is if it has none.
    fn value<T>(
        &mut self,
        wrong: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, FilterError> {
        let column = self.column();
        let word = self.next().map(|(_, word)| word);
        word.and_then(read).ok_or_else(|| {
            let shown = word.map_or_else(|| "the end".into(), |word| format!("{word:?}"));
            FilterError { column, wrong: format!("{shown} is {wrong}") }
        })
    }
}

fn bits(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

/// Decimal, or hexadecimal behind 0x.
fn number(word: &str) -> Option<u16> {
    match word.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}
