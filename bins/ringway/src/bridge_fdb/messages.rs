//! The forwarding database of bridges as the kernel tells it (rtnetlink(7), family `AF_BRIDGE`):
//! requests and answers as bytes.

use anyhow::{Context, ensure};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{
    InfoBridgePort, InfoData, InfoPortData, InfoVxlan, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::neighbour::{self, Address, NeighbourEntry, bytes};

/// Most messages of one datagram: it has 32 KiB, and each its header.
const MESSAGES_MAX: usize = 4096;

/// One address at a port of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeEntry {
    /// The interface that is the bridge's port.
    pub interface: u32,
    pub address: [u8; 6],
    /// 0: the bridge does not tell VLANs apart.
    pub vlan: u16,
    /// The bridge has learned it from a packet: it is not configured, and no program has put it
    /// there.
    pub is_learned: bool,
}

/// One thing that the kernel says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Entry(BridgeEntry),
    Link(KernelLink),
    Neighbour(NeighbourEntry),
    Address(Address),
    /// That was all; the tables have changed meanwhile, so some may be missing.
    Done {
        is_torn: bool,
    },
    /// A request was carried out.
    Acknowledged,
    /// It was not: the number of the error.
    Refused(i32),
    /// Nothing that concerns us.
    Other,
}

/// Asks for all entries of all bridges.
pub fn list(number: u32) -> Vec<u8> {
    let message = RouteNetlinkMessage::GetNeighbour(about(0));
    bytes(message, NLM_F_REQUEST | NLM_F_DUMP, number)
}

/// An interface.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelLink {
    pub interface: u32,
    pub name: String,
    pub mtu: u32,
    /// The bridge that it is a port of, if any.
    pub bridge: Option<u32>,
    /// As a port of a bridge: the bridge answers for neighbours that it knows instead of asking
    /// there (`neigh_suppress`).
    pub suppresses: bool,
    /// Of a VXLAN device: whether it learns by itself where stations are.
    pub vxlan_learns: Option<bool>,
}

/// Asks for all interfaces.
pub fn links(number: u32) -> Vec<u8> {
    let message = RouteNetlinkMessage::GetLink(LinkMessage::default());
    bytes(message, NLM_F_REQUEST | NLM_F_DUMP, number)
}

/// Asks for one interface.
pub fn one_link(interface: u32, number: u32) -> Vec<u8> {
    let mut message = LinkMessage::default();
    message.header.index = interface;
    bytes(RouteNetlinkMessage::GetLink(message), NLM_F_REQUEST | NLM_F_ACK, number)
}

/// Takes an entry away.
pub fn remove(entry: &BridgeEntry, number: u32) -> Vec<u8> {
    let mut message = about(entry.interface);
    message.header.flags = NeighbourFlags::Controller;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(entry.address.to_vec()));
    if entry.vlan != 0 {
        message.attributes.push(NeighbourAttribute::Vlan(entry.vlan));
    }
    bytes(RouteNetlinkMessage::DelNeighbour(message), NLM_F_REQUEST | NLM_F_ACK, number)
}

fn about(interface: u32) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Bridge;
    message.header.ifindex = interface;
    message
}

/// The messages of a datagram of the kernel in answer to the request of that number.
///
/// # Errors
/// It is no such datagram.
pub fn read(mut datagram: &[u8], number: u32) -> anyhow::Result<Vec<Said>> {
    let mut all = Vec::new();
    while !datagram.is_empty() {
        ensure!(all.len() < MESSAGES_MAX, "more messages than a datagram has");
        let head = NetlinkBuffer::new_checked(datagram).context("a message of netlink")?;
        let len = usize::try_from(head.length())?;
        let message = datagram.get(..len).context("a message longer than its datagram")?;
        let message = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message);
        // One that this program is too old for is nothing that it has asked for.
        all.push(message.map_or(Said::Other, |message| meaning(message, number)));
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(all)
}

fn meaning(message: NetlinkMessage<RouteNetlinkMessage>, number: u32) -> Said {
    let (header, payload) = message.into_parts();
    if header.sequence_number != number {
        return Said::Other;
    }
    match payload {
        NetlinkPayload::Done(_) => Said::Done { is_torn: header.flags & NLM_F_DUMP_INTR != 0 },
        NetlinkPayload::Error(answer) => match answer.code {
            None => Said::Acknowledged,
            Some(code) => Said::Refused(code.get().saturating_neg()),
        },
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewNeighbour(message)) => {
            match (entry(&message), neighbour::entry(&message)) {
                (Some(entry), _) => Said::Entry(entry),
                (None, Some(it)) => Said::Neighbour(it),
                (None, None) => Said::Other,
            }
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewAddress(message)) => {
            neighbour::address(&message).map_or(Said::Other, Said::Address)
        }
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(message)) => {
            link(&message).map_or(Said::Other, Said::Link)
        }
        _ => Said::Other,
    }
}

fn link(message: &LinkMessage) -> Option<KernelLink> {
    let mut link = KernelLink { interface: message.header.index, ..KernelLink::default() };
    for attribute in &message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Mtu(number) => link.mtu = *number,
            LinkAttribute::Controller(number) => link.bridge = Some(*number),
            LinkAttribute::LinkInfo(details) => note_details(&mut link, details),
            _ => {}
        }
    }
    (link.mtu > 0).then_some(link)
}

fn note_details(link: &mut KernelLink, details: &[LinkInfo]) {
    for detail in details {
        match detail {
            LinkInfo::PortData(InfoPortData::BridgePort(port)) => {
                link.suppresses = port.contains(&InfoBridgePort::NeighSupress(true));
            }
            LinkInfo::Data(InfoData::Vxlan(device)) => {
                link.vxlan_learns = Some(device.contains(&InfoVxlan::Learning(true)));
            }
            _ => {}
        }
    }
}

fn entry(message: &NeighbourMessage) -> Option<BridgeEntry> {
    let header = &message.header;
    let (mut address, mut vlan) = (None, 0);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                address = bytes.as_slice().try_into().ok()
            }
            NeighbourAttribute::Vlan(number) => vlan = *number,
            _ => {}
        }
    }
    let is_aging = matches!(header.state, NeighbourState::Reachable | NeighbourState::Stale);
    let by_others = NeighbourFlags::ExtLearned | NeighbourFlags::Sticky;
    let is_put_there = header.flags.intersects(by_others);
    let is_learned = is_aging && !is_put_there;
    let is_bridge = header.family == AddressFamily::Bridge;
    is_bridge.then_some(BridgeEntry {
        interface: header.ifindex,
        address: address?,
        vlan,
        is_learned,
    })
}

#[cfg(test)]
mod tests {
    use super::super::neighbour::{Neighbour, Owner, add, replace};
    use super::*;

    /// An entry as the kernel tells it, of a bridge that tells VLANs apart.
    fn told(state: u16, flags: u8) -> Vec<u8> {
        let mut bytes = vec![28, 0, 2, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend([7, 0, 0, 0, 3, 0, 0, 0]);
        bytes.extend(state.to_ne_bytes());
        bytes.extend([flags, 0]);
        bytes.extend([10, 0, 2, 0, 2, 0, 0, 0, 0, 1, 0, 0]);
        bytes.extend([6, 0, 5, 0, 10, 0, 0, 0]);
        let len = u32::try_from(bytes.len() + 4).expect("short");
        [len.to_ne_bytes().to_vec(), bytes].concat()
    }

    #[test]
    fn entries_are_read() {
        let learned =
            BridgeEntry { interface: 3, address: [2, 0, 0, 0, 0, 1], vlan: 10, is_learned: true };
        let datagram =
            [told(2, 2), told(4, 0), told(0x40, 0), told(0x80, 0), told(2, 0x10), told(2, 0x40)];
        let datagram = datagram.concat();
        let said = read(&datagram, 7).expect("a datagram");
        let kinds = [true, true, false, false, false, false];
        let expected = kinds.map(|is_learned| Said::Entry(BridgeEntry { is_learned, ..learned }));
        assert_eq!(said, expected);
        assert_eq!(read(&datagram, 8).expect("a datagram"), vec![Said::Other; 6]);
    }

    #[test]
    fn answers_are_read() {
        let answer = |kind: u16, flags: u16, code: i32| {
            let head = [20u32.to_ne_bytes().to_vec(), kind.to_ne_bytes().to_vec()].concat();
            let rest = [flags.to_ne_bytes().to_vec(), 7u32.to_ne_bytes().to_vec(), vec![0; 4]];
            [head, rest.concat(), code.to_ne_bytes().to_vec()].concat()
        };
        let refused = [answer(2, 0, -2), vec![0; 16]].concat();
        let mut refused = refused;
        refused[..4].copy_from_slice(&36u32.to_ne_bytes());
        assert_eq!(read(&refused, 7).expect("one"), [Said::Refused(2)]);
        assert_eq!(read(&answer(3, 2, 0), 7).expect("one"), [Said::Done { is_torn: false }]);
        assert_eq!(read(&answer(3, 0x12, 0), 7).expect("one"), [Said::Done { is_torn: true }]);
    }

    #[test]
    fn requests_say_what_is_wanted() {
        let entry =
            BridgeEntry { interface: 3, address: [2, 0, 0, 0, 0, 1], vlan: 10, is_learned: true };
        let bytes = remove(&entry, 7);
        assert_eq!(bytes[4..6], 29u16.to_ne_bytes());
        assert_eq!((bytes[16], &bytes[20..24], bytes[26]), (7, &3u32.to_ne_bytes()[..], 4));
        assert!(bytes.windows(6).any(|part| part == entry.address));
        assert_eq!(list(7)[4..8], [30, 0, 1, 3]);
    }

    /// The kernel tells a neighbour as it was told of it.
    #[test]
    fn own_neighbours_are_told_from_others() {
        for ip in ["10.0.0.1", "fd00::1"] {
            let ip = ip.parse().expect("an address");
            let own = Neighbour { interface: 3, ip, address: [2, 0, 0, 0, 0, 1] };
            let bytes = add(&own, 7);
            assert_eq!((&bytes[20..24], bytes[24]), (&3u32.to_ne_bytes()[..], 0x40));
            let address = Some(own.address);
            let neighbour = |owner| NeighbourEntry { interface: 3, ip, address, owner };
            let said = |bytes: &[u8]| read(bytes, 7).expect("one");
            assert_eq!(said(&bytes), [Said::Neighbour(neighbour(Owner::Ringway))]);
            let at = bytes.windows(2).rposition(|pair| pair == [117, 0]).expect("a protocol");
            let with = |at: usize, value| {
                let mut bytes = bytes.clone();
                bytes[at] = value;
                bytes
            };
            let (state, flags) = (24, 26);
            let others = [with(at, 11), with(at, 0), with(state, 0x80), with(flags, 0x10)];
            for bytes in others {
                assert_eq!(said(&bytes), [Said::Neighbour(neighbour(Owner::Other))]);
            }
            assert_eq!(said(&with(state, 4)), [Said::Neighbour(neighbour(Owner::Kernel))]);
            assert_eq!(neighbour::remove(&own, 7)[4..6], 29u16.to_ne_bytes());
            // Either it creates, and nothing was there, or it replaces.
            assert_eq!((&add(&own, 7)[6..8], &replace(&own, 7)[6..8]), (&[5, 6][..], &[5, 1][..]));
        }
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let ip = "fd00::1".parse().expect("an address");
        let neighbour = Neighbour { interface: 3, ip, address: [2, 0, 0, 0, 0, 1] };
        let whole = [told(2, 2), told(4, 0), add(&neighbour, 7)].concat();
        for len in 0..whole.len() {
            let _ = read(&whole[..len], 7);
        }
        for at in 0..whole.len() {
            for value in 0..=0xff {
                let mut bytes = whole.clone();
                bytes[at] = value;
                let _ = read(&bytes, 7);
            }
        }
    }
}
