//! A filter for packets to show, in a small part of the language of pcap-filter(7), as a value.
//!
//! How: the text becomes a list of steps, each of which pushes whether one thing holds, or puts
//! together what was pushed before. A worker goes through the list once per packet, without
//! allocation, on a copy of the packet's first bytes.
//!
//! Limits: [`STEPS_MAX`] steps; what lies behind the first [`PEEK_LEN`](crate::PEEK_LEN) bytes is
//! not seen. Unlike tcpdump, tests see through two VLAN tags, and a host that is named has to be
//! an address.

mod facts;
mod parse;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use facts::Facts;
use ringway_net::MacAddress;

use crate::VlanId;

/// Most steps of a filter.
pub const STEPS_MAX: usize = 64;

/// The side of an address, or of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Destination,
    Either,
}

/// One thing that holds of a packet, or does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Test {
    /// An IP address whose first bits are these.
    Net(Side, IpAddr, u8),
    /// A port of TCP or UDP, or of one of them, from the first to the last.
    Port(Side, Option<u8>, u16, u16),
    /// One of these flags of TCP.
    TcpFlags(u8),
    /// The packet has so many bytes at most, or at least.
    Less(u32),
    Greater(u32),
    Ether(Side, MacAddress),
    EtherType(u16),
    /// The protocol that IP carries.
    Protocol(u8),
    /// A tag, or one with that number.
    Vlan(Option<VlanId>),
    Broadcast,
    Multicast,
    /// The IP address that it is for is one of a group.
    IpMulticast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Test(Test),
    Not,
    And,
    Or,
}

/// A filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    steps: Vec<Step>,
}

/// The error in the text of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterError {
    /// At which character, counted from 1.
    pub column: usize,
    /// The error, and what to do.
    pub wrong: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.wrong)
    }
}

impl core::error::Error for FilterError {}

impl Filter {
    /// The filter of that text.
    ///
    /// # Errors
    /// [`FilterError`]: the first mistake.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { steps: parse::steps(text)? })
    }

    /// Whether a packet of that length passes. `head`: a copy of its first
    /// [`PEEK_LEN`](crate::PEEK_LEN) bytes, or of all.
    pub fn passes(&self, head: &[u8], len: u32) -> bool {
        let Some(facts) = Facts::of(head, len) else { return false };
        // One bit for each thing that was pushed: there are at most as many as steps.
        let mut stack: u64 = 0;
        for step in &self.steps {
            stack = match step {
                Step::Test(test) => stack << 1 | u64::from(facts.holds(test)),
                Step::Not => stack ^ 1,
                Step::And => stack >> 1 & (!1 | stack & 1),
                Step::Or => stack >> 1 | stack & 1,
            };
        }
        stack & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    fn ethernet(types: &[u16], rest: &[u8]) -> Vec<u8> {
        let mut bytes = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1]].concat();
        bytes.extend(types.iter().flat_map(|word| word.to_be_bytes()));
        bytes.extend(rest);
        bytes
    }

    /// From 10.0.0.1, port 1000, to 10.0.1.2, port 53.
    fn ipv4(protocol: u8, fragment: u16) -> Vec<u8> {
        let mut bytes = std::vec![0x45, 0, 0, 40, 0, 0];
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1, 2]);
        bytes.extend([1000u16.to_be_bytes(), 53u16.to_be_bytes()].concat());
        bytes.extend([0; 16]);
        bytes
    }

    /// From 2001:db8::1 to 2001:db8::2, ports as above.
    fn ipv6(protocol: u8) -> Vec<u8> {
        let mut bytes = std::vec![0x60, 0, 0, 0, 0, 20, protocol, 64];
        for last in [1, 2] {
            bytes.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last]);
        }
        bytes.extend([1000u16.to_be_bytes(), 53u16.to_be_bytes()].concat());
        bytes.extend([0; 16]);
        bytes
    }

    fn passes(filter: &str, packet: &[u8]) -> bool {
        let len = u32::try_from(packet.len()).expect("a packet");
        Filter::parse(filter).unwrap_or_else(|why| panic!("{filter}: {why}")).passes(packet, len)
    }

    #[test]
    fn each_test_tells_packets_apart() {
        let (tcp, udp) = (ethernet(&[0x0800], &ipv4(6, 0)), ethernet(&[0x0800], &ipv4(17, 0)));
        let six = ethernet(&[0x86dd], &ipv6(17));
        let tagged = ethernet(&[0x8100, 7, 0x0800], &ipv4(6, 0));
        let arp = [&[0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1][..], &[10, 0, 0, 1], &[0; 6]];
        let mut arp = ethernet(&[0x0806], &[&arp.concat()[..], &[10, 0, 1, 2]].concat());
        let all = [&tcp, &udp, &six, &tagged, &arp];
        let passed = |filter: &str| all.map(|packet| u8::from(passes(filter, packet)));
        for (filter, expected) in [
            ("tcp", [1, 0, 0, 1, 0]),
            ("udp", [0, 1, 1, 0, 0]),
            ("ip", [1, 1, 0, 1, 0]),
            ("ip6", [0, 0, 1, 0, 0]),
            ("arp", [0, 0, 0, 0, 1]),
            ("proto 17", [0, 1, 1, 0, 0]),
            ("ip proto 17", [0, 1, 0, 0, 0]),
            ("ether proto 0x86dd", [0, 0, 1, 0, 0]),
            ("host 10.0.0.1", [1, 1, 0, 1, 1]),
            ("src host 10.0.1.2", [0; 5]),
            ("dst 10.0.1.2", [1, 1, 0, 1, 1]),
            ("host 2001:db8::2", [0, 0, 1, 0, 0]),
            ("net 10.0.0.0/23", [1, 1, 0, 1, 1]),
            ("src net 10.0.1.0/24", [0; 5]),
            ("net 2001:db8::/32", [0, 0, 1, 0, 0]),
            ("net 0.0.0.0/0", [1, 1, 0, 1, 1]),
            ("port 53", [1, 1, 1, 1, 0]),
            ("src port 53", [0; 5]),
            ("tcp dst port 53", [1, 0, 0, 1, 0]),
            ("ether src 02:00:00:00:00:01", [1, 1, 1, 1, 1]),
            ("ether dst host 02:00:00:00:00:01", [0; 5]),
            ("vlan", [0, 0, 0, 1, 0]),
            ("vlan 7", [0, 0, 0, 1, 0]),
            ("vlan 8", [0; 5]),
            ("vlan and port 53", [0, 0, 0, 1, 0]),
            ("not ip", [0, 0, 1, 0, 1]),
            ("! ( tcp or udp )", [0, 0, 0, 0, 1]),
            // As in pcap-filter(7): equal precedence, from the left.
            ("tcp or udp and ip6", [0, 0, 1, 0, 0]),
            ("tcp || (udp && ip6)", [1, 0, 1, 1, 0]),
            ("not tcp and not udp", [0, 0, 0, 0, 1]),
            ("broadcast", [0; 5]),
        ] {
            assert_eq!(passed(filter), expected, "{filter}");
        }
        arp[..6].fill(0xff);
        assert!(passes("broadcast and multicast", &arp));
        assert!(passes("ether broadcast", &arp) && !passes("ether multicast", &tcp));
    }

    #[test]
    fn ranges_lengths_groups_and_flags_are_tests() {
        let syn_ack = || {
            let mut bytes = ethernet(&[0x0800], &ipv4(6, 0));
            bytes[14 + 20 + 13] = 0x12;
            bytes
        };
        let mut group = ethernet(&[0x0800], &ipv4(17, 0));
        group[30..34].copy_from_slice(&[224, 0, 0, 251]);
        for (filter, expected) in [
            ("portrange 50-60", [true, true]),
            ("dst portrange 54-60", [false, false]),
            ("tcp src portrange 1000-1000", [true, false]),
            ("dst port 52 or 53", [true, true]),
            ("dst port 80 or 443", [false, false]),
            ("src port 53 or 1000 and tcp", [true, false]),
            ("tcp dst port 53 or 80", [true, false]),
            ("host 10.0.0.9 or 10.0.0.1", [true, true]),
            ("src host 10.0.0.9 or 10.0.1.2", [false, false]),
            ("port 53 or host 10.0.0.9 or 10.9.9.9", [true, true]),
            ("less 54", [true, true]),
            ("less 53 or greater 55", [false, false]),
            ("greater 54", [true, true]),
            ("ip multicast", [false, true]),
            ("ip6 multicast", [false, false]),
            ("tcp syn", [true, false]),
            ("tcp syn and tcp ack", [true, false]),
            ("tcp rst", [false, false]),
        ] {
            let both = [passes(filter, &syn_ack()), passes(filter, &group)];
            assert_eq!(both, expected, "{filter}");
        }
    }

    #[test]
    fn fragments_and_cut_packets_have_no_ports() {
        let later = ethernet(&[0x0800], &ipv4(17, 8));
        assert!(passes("udp", &later) && !passes("port 53", &later));
        let whole = ethernet(&[0x0800], &ipv4(17, 0));
        for len in 0..whole.len() {
            // Whatever is there: an answer.
            let _ = passes("port 53 or host 10.0.0.1 or vlan 3 or net ::/0", &whole[..len]);
        }
        assert!(!passes("port 53", &whole[..36]) && passes("port 53", &whole[..38]));
    }

    #[test]
    fn a_mistake_is_told_with_its_place() {
        for (text, column, part) in [
            ("", 1, "a filter ends where"),
            ("tcp prot 80", 5, "and or or"),
            ("prot 80", 1, "\"prot\" is no word of a filter"),
            ("host", 5, "the end is no IP address"),
            ("host example.org", 6, "\"example.org\" is no IP address"),
            ("net 10.0.0.0/33", 5, "no network"),
            ("net 10.0.0.1/24", 5, "has bits behind its prefix"),
            ("port http", 6, "no port"),
            ("portrange 9-1", 11, "no range of ports"),
            ("less", 5, "no length"),
            ("tcp or 443", 8, "\"443\" is no word of a filter"),
            ("tcp port 70000", 10, "no port"),
            ("ether host 1", 12, "no MAC address"),
            ("vlan 4095", 6, "no VLAN"),
            ("(tcp", 5, "\")\""),
            ("tcp)", 4, "\")\" without"),
            ("tcp and", 8, "a filter ends where"),
            ("src tcp", 5, "host, net, port or an address"),
            ("ether proto", 12, "no EtherType"),
        ] {
            let why = Filter::parse(text).expect_err(text);
            assert!(why.column == column && why.wrong.contains(part), "{text}: {why}");
        }
        let long = "tcp or ".repeat(STEPS_MAX) + "udp";
        assert!(Filter::parse(&long).expect_err("long").wrong.contains("too long"));
        let deep = "(".repeat(10_000) + "tcp";
        assert!(Filter::parse(&deep).expect_err("deep").wrong.contains("too long"));
    }
}
