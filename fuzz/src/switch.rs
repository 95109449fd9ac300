//! Packets of guests, against what the switch reads of them: tags, ARP, neighbour discovery, IGMP,
//! MLD.

use std::net::{IpAddr, Ipv4Addr};

use ringway_net::{MacAddress, NetHeader};
use ringway_switch::{
    Decision, PEEK_LEN, PortId, PortPolicy, Switch, Vlan, VlanId, VlanSet, spares_judged,
};

/// Ports, each with a policy of its own.
const PORTS: u16 = 5;
/// The port that may use one address only.
const LOCKED: PortId = PortId(2);
/// The port that reaches the uplink only, and that uplink.
const ISOLATED: PortId = PortId(3);
const UPLINK: PortId = PortId(4);
/// Bytes in front of a frame in the input: port, destination and source, kind, length.
const STEP_LEN: usize = 4;
/// Most frames of one input.
const FRAMES_MAX: usize = 16;
/// Between two frames, in nanoseconds: an input covers several seconds.
const FRAME_NS: u64 = 300_000_000;

/// Bytes between the Ethernet addresses and the bytes of the input, so that they are read.
const STARTS: [&[u8]; 8] = [
    &[],
    // IPv4 with IGMP, and with UDP.
    &[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 2, 224, 0, 0, 22],
    &[0x08, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0],
    // IPv6 with ICMPv6, and with options of the kind "hop by hop" in front.
    &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 64, 58, 255],
    &[0x86, 0xdd, 0x60, 0, 0, 0, 0, 64, 0, 1],
    // ARP.
    &[0x08, 6, 0, 1, 0x08, 0, 6, 4, 0, 1],
    // A VLAN's tag, and a provider's.
    &[0x81, 0, 0, 7],
    &[0x88, 0xa8, 0, 7, 0x81, 0],
];

/// Frames on ports with and without VLANs, locks and isolation, through a switch that snoops.
pub(crate) fn switch(data: &[u8]) {
    let mut switch = five_ports();
    let mut rest = data;
    for at in 0..FRAMES_MAX as u64 {
        let Some((step, behind)) = rest.split_first_chunk::<STEP_LEN>() else { return };
        let (bytes, behind) = behind.split_at(usize::from(step[3]).min(behind.len()));
        rest = behind;
        let from = PortId(u16::from(step[0]) % PORTS);
        pass(&mut switch, from, &frame(step, bytes), at * FRAME_NS);
    }
}

fn five_ports() -> Switch {
    let mut switch = Switch::new(1);
    let tagged: VlanSet = [7, 8].into_iter().filter_map(VlanId::new).collect();
    let policies = [
        PortPolicy { vlan: Vlan::Trunk { tagged, native: None }, ..PortPolicy::default() },
        PortPolicy { storm_packets_per_second: 2, ..PortPolicy::default() },
        PortPolicy {
            locked_mac: Some(MacAddress::local(2)),
            locked_ips: vec![IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))],
            ..PortPolicy::default()
        },
        PortPolicy { isolated: true, ..PortPolicy::default() },
        PortPolicy { is_uplink: true, ..PortPolicy::default() },
    ];
    for (port, policy) in (0..PORTS).zip(policies) {
        switch.add_port(PortId(port)).expect("a new port");
        switch.set_port(PortId(port), policy).expect("a policy without contradictions");
    }
    switch.snoop_multicast(true);
    switch
}

/// An Ethernet frame from the choices of a step.
fn frame(step: &[u8; STEP_LEN], bytes: &[u8]) -> Vec<u8> {
    let [_, addresses, kind, _] = *step;
    let destination = match addresses % 8 {
        0 => MacAddress::BROADCAST,
        1 => MacAddress([1, 0, 0x5e, 0, 0, 22]),
        2 => MacAddress([0x33, 0x33, 0, 0, 0, 22]),
        3 => MacAddress([1, 0x80, 0xc2, 0, 0, 0]),
        station => MacAddress::local(u32::from(station) - 3),
    };
    let source = MacAddress::local(u32::from(addresses >> 3) % 4);
    let start = STARTS[usize::from(kind) % STARTS.len()];
    [&destination.0, &source.0, start, bytes].concat()
}

fn pass(switch: &mut Switch, from: PortId, frame: &[u8], now_ns: u64) {
    let head = &frame[..frame.len().min(PEEK_LEN)];
    let decision = switch.decide(from, head, now_ns);
    let targets: Vec<PortId> = match decision {
        Decision::One(to, _) => vec![to],
        Decision::Flood(flood) => {
            (0..PORTS).map(PortId).filter(|&to| switch.goes_to(&flood, to).is_some()).collect()
        }
        Decision::Drop(_) | Decision::Wait(_) => Vec::new(),
    };
    assert!(!targets.contains(&from), "a packet came back");
    if from == LOCKED && !targets.is_empty() {
        assert_eq!(&frame[6..12], &MacAddress::local(2).0, "a locked port used another address");
    }
    let reach = |port| from == port && targets.iter().any(|&to| to != UPLINK);
    assert!(!reach(ISOLATED), "an isolated port reached {targets:?}");
    assert!(from == UPLINK || !targets.contains(&ISOLATED), "{from} reached an isolated port");
    let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    targets.iter().for_each(|&to| switch.delivered(to, len, now_ns));
    switch.taken(from, len, &decision, now_ns);
    any_checksum(head, frame);
}

/// A checksum anywhere must be judged, too.
fn any_checksum(head: &[u8], frame: &[u8]) {
    let word = |at: usize| frame.get(at).map_or(0, |byte| u16::from(*byte));
    let (csum_start, csum_offset) = (word(12), word(13));
    let header = NetHeader {
        flags: ringway_net::NEEDS_CSUM,
        csum_start,
        csum_offset,
        ..NetHeader::default()
    };
    let _ = spares_judged(head, &header);
}
