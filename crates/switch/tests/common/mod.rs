//! Packets made by hand, and a switch that says where each one goes.
#![allow(dead_code, reason = "each test uses a part of it")]

use ringway_net::{DropReason, MacAddress};
use ringway_switch::{Decision, PEEK_LEN, PortId, PortPolicy, Route, Switch, TagChange, VlanId};

pub const ARP: u16 = 0x0806;
pub const IPV4: u16 = 0x0800;
pub const IPV6: u16 = 0x86dd;
pub const UDP: u8 = 17;
pub const IGMP: u8 = 2;
pub const ICMPV6: u8 = 58;
pub const NS_PER_MS: u64 = 1_000_000;

pub const BROADCAST: MacAddress = MacAddress::BROADCAST;

pub fn mac(n: u32) -> MacAddress {
    MacAddress::local(n)
}

pub fn vlan(number: u16) -> VlanId {
    VlanId::new(number).expect("1 to 4094")
}

pub fn ethernet(to: MacAddress, from: MacAddress, ethertype: u16, payload: &[u8]) -> Vec<u8> {
    [&to.0[..], &from.0, &ethertype.to_be_bytes(), payload].concat()
}

/// With a tag of that kind and content in front of the type.
pub fn tagged(frame: &[u8], tpid: u16, tci: u16) -> Vec<u8> {
    [&frame[..12], &tpid.to_be_bytes(), &tci.to_be_bytes(), &frame[12..]].concat()
}

pub fn arp(sender_mac: MacAddress, sender_ip: [u8; 4]) -> Vec<u8> {
    let fixed = [0, 1, 8, 0, 6, 4, 0, 1];
    [&fixed[..], &sender_mac.0, &sender_ip, &[0; 6], &[10, 0, 0, 99]].concat()
}

pub fn ipv4(protocol: u8, source: [u8; 4], to: [u8; 4], payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).expect("short");
    let mut ip = vec![0x45, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([0, 0, 0, 0, 1, protocol, 0, 0]);
    [&ip[..], &source, &to, payload].concat()
}

pub fn ipv6(next: u8, source: [u8; 16], payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).expect("short");
    let mut ip = vec![0x60, 0, 0, 0];
    ip.extend(len.to_be_bytes());
    ip.extend([next, 1]);
    [&ip[..], &source, &[0xff; 16], payload].concat()
}

/// A hop-by-hop header with a router alert in front of `payload`.
pub fn hop_by_hop(next: u8, payload: &[u8]) -> Vec<u8> {
    [&[next, 0, 5, 2, 0, 0, 1, 0], payload].concat()
}

/// Any packet without special meaning.
pub fn plain(to: MacAddress, from: MacAddress) -> Vec<u8> {
    ethernet(to, from, 0x88b5, &[0; 46])
}

/// Where a packet went.
pub type Went = Result<Vec<(PortId, TagChange)>, DropReason>;

/// A switch and its clock.
pub struct Bench {
    pub switch: Switch,
    pub now_ns: u64,
}

impl Bench {
    pub fn new(policies: &[PortPolicy]) -> Self {
        let mut switch = Switch::new(1);
        for (at, policy) in policies.iter().enumerate() {
            let port = PortId(u16::try_from(at).expect("few"));
            switch.add_port(port).expect("new");
            switch.set_port(port, policy.clone()).expect("sensible");
        }
        Self { switch, now_ns: 5_000_000_000 }
    }

    pub fn send(&mut self, from: u16, frame: &[u8]) -> Went {
        send(&mut self.switch, PortId(from), frame, self.now_ns).expect("no rate limit")
    }

    /// The ports that got it.
    pub fn reached(&mut self, from: u16, frame: &[u8]) -> Vec<u16> {
        self.send(from, frame).unwrap_or_default().iter().map(|(port, _)| port.0).collect()
    }

    pub fn wait_ms(&mut self, ms: u64) {
        self.now_ns += ms * NS_PER_MS;
    }
}

/// Moves one packet. `Err`: it waits until then. If the short way has an answer, it must be the
/// same as the long way's.
pub fn send(switch: &mut Switch, from: PortId, frame: &[u8], now_ns: u64) -> Result<Went, u64> {
    let header = frame.first_chunk();
    let route = header.map(|header| switch.route_plain(from, header, now_ns / NS_PER_MS));
    let head = &frame[..frame.len().min(PEEK_LEN)];
    let decision = switch.decide(from, head, now_ns);
    let len = u32::try_from(frame.len()).expect("short");
    let went = match decision {
        Decision::Wait(at_ns) => return Err(at_ns),
        Decision::Drop(reason) => Err(reason),
        Decision::One(to, change) => Ok(vec![(to, change)]),
        Decision::Flood(flood) => {
            let changes = switch.ports().map(|port| (port, switch.goes_to(&flood, port)));
            Ok(changes.filter_map(|(port, change)| Some((port, change?))).collect())
        }
    };
    switch.taken(from, len, &decision, now_ns);
    match route.flatten() {
        Some(Route::One(to)) => assert_eq!(went, Ok(vec![(to, TagChange::Keep)])),
        Some(Route::Drop) => assert_eq!(went, Err(DropReason::NoRoute)),
        Some(Route::Flood) => {
            let others = switch.ports().filter(|port| *port != from);
            assert_eq!(went, Ok(others.map(|port| (port, TagChange::Keep)).collect()));
        }
        None => {}
    }
    Ok(went)
}
