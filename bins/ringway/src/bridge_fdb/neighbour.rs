//! Neighbours of interfaces, and their own addresses, as the kernel tells them (rtnetlink(7)).

use std::net::IpAddr;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkHeader,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

/// Whose neighbours these are, as `ip neighbour` shows it (`proto`): no other program has that
/// number. So a ringway that is started again finds what the one before has left.
const OWN: RouteProtocol = RouteProtocol::Other(117);

/// A neighbour of a bridge: an IP address and its station, for which the bridge answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbour {
    /// The bridge.
    pub interface: u32,
    pub ip: IpAddr,
    pub address: [u8; 6],
}

/// The owner that has put a neighbour there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A ringway.
    Ringway,
    /// The kernel itself: it has asked for it, and forgets it.
    Kernel,
    /// An operator, or a program such as FRR.
    Other,
}

/// A neighbour that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NeighbourEntry {
    pub interface: u32,
    pub ip: IpAddr,
    /// `None`: no station has answered.
    pub address: Option<[u8; 6]>,
    pub owner: Owner,
}

/// An address of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    pub interface: u32,
    pub ip: IpAddr,
    /// The network that is there, and the length of its prefix.
    pub network: (IpAddr, u8),
}

/// Asks for all neighbours of all interfaces.
pub fn list(number: u32) -> Vec<u8> {
    let message = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
    bytes(message, NLM_F_REQUEST | NLM_F_DUMP, number)
}

/// Asks for all addresses of this machine.
pub fn addresses(number: u32) -> Vec<u8> {
    let message = RouteNetlinkMessage::GetAddress(AddressMessage::default());
    bytes(message, NLM_F_REQUEST | NLM_F_DUMP, number)
}

/// Puts a neighbour where there is none.
pub fn add(neighbour: &Neighbour, number: u32) -> Vec<u8> {
    put(neighbour, NLM_F_CREATE | NLM_F_EXCL, number)
}

/// Puts a neighbour in the place of the one that has its IP address.
pub fn replace(neighbour: &Neighbour, number: u32) -> Vec<u8> {
    put(neighbour, NLM_F_REPLACE, number)
}

fn put(neighbour: &Neighbour, flags: u16, number: u32) -> Vec<u8> {
    let mut message = about(neighbour);
    // It stays until it is taken away, and the kernel asks it nothing.
    message.header.state = NeighbourState::Noarp;
    message.attributes.push(NeighbourAttribute::LinkLayerAddress(neighbour.address.to_vec()));
    message.attributes.push(NeighbourAttribute::Protocol(OWN));
    bytes(RouteNetlinkMessage::NewNeighbour(message), NLM_F_REQUEST | NLM_F_ACK | flags, number)
}

/// Takes a neighbour away.
pub fn remove(neighbour: &Neighbour, number: u32) -> Vec<u8> {
    let message = RouteNetlinkMessage::DelNeighbour(about(neighbour));
    bytes(message, NLM_F_REQUEST | NLM_F_ACK, number)
}

fn about(neighbour: &Neighbour) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.ifindex = neighbour.interface;
    let (family, ip) = match neighbour.ip {
        IpAddr::V4(ip) => (AddressFamily::Inet, NeighbourAddress::Inet(ip)),
        IpAddr::V6(ip) => (AddressFamily::Inet6, NeighbourAddress::Inet6(ip)),
    };
    message.header.family = family;
    message.attributes = vec![NeighbourAttribute::Destination(ip)];
    message
}

/// A request, as it is sent.
pub(super) fn bytes(message: RouteNetlinkMessage, flags: u16, number: u32) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    (header.flags, header.sequence_number) = (flags, number);
    let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// The neighbour that a message is about.
pub fn entry(message: &NeighbourMessage) -> Option<NeighbourEntry> {
    let (mut ip, mut address, mut protocol) = (None, None, RouteProtocol::Unspec);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(it)) => ip = Some((*it).into()),
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(it)) => ip = Some((*it).into()),
            NeighbourAttribute::LinkLayerAddress(bytes) => {
                address = bytes.as_slice().try_into().ok()
            }
            NeighbourAttribute::Protocol(it) => protocol = *it,
            _ => {}
        }
    }
    // An operator who changes one of ringway's may leave its protocol as it was.
    let is_told = message.header.flags.contains(NeighbourFlags::ExtLearned);
    let owner = match (message.header.state, protocol) {
        _ if is_told => Owner::Other,
        (NeighbourState::Noarp, OWN) => Owner::Ringway,
        (NeighbourState::Noarp | NeighbourState::Permanent, _) => Owner::Other,
        (_, OWN | RouteProtocol::Unspec | RouteProtocol::Kernel) => Owner::Kernel,
        _ => Owner::Other,
    };
    Some(NeighbourEntry { interface: message.header.ifindex, ip: ip?, address, owner })
}

/// The address that a message tells.
pub fn address(message: &AddressMessage) -> Option<Address> {
    let (mut own, mut other) = (None, None);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(it) => own = Some(*it),
            // Of a link with two ends that is the other one; otherwise the same.
            AddressAttribute::Address(it) => other = Some(*it),
            _ => {}
        }
    }
    let (ip, network) = (own.or(other)?, other.or(own)?);
    let network = (network, message.header.prefix_len);
    Some(Address { interface: message.header.index, ip, network })
}
