//! The driver as a device of smoltcp, a TCP/IP stack.
//!
//! How: what the stack can leave to the device, it leaves. Towards the device ([`offload`]) TCP and
//! UDP checksums are handed over as a pseudo-header sum, and TCP segments of up to 64 KiB with the
//! size they are to be cut into. From the device ([`is_sound`]) large packets are taken as they
//! are; packets that were checked, or never left a machine, are not checked again, and those that
//! the device says nothing about are checked here, because the stack then checks none.
//!
//! Limits: Ethernet without VLAN tags. Fragments are passed on unchecked; a stack that reassembles
//! them must not be told to trust us. Each packet is copied once more than the ring needs, because
//! the stack wants ordinary memory: what a device may still write to is none.

use alloc::boxed::Box;
use alloc::vec;
use core::num::{NonZeroU16, NonZeroUsize};

use ringway_net::{
    Counters, DropReason, GsoType, NEEDS_CSUM, Negotiated, NetConfig, NetHeader, PACKET_LEN_MAX,
};
use ringway_net::{DATA_VALID, ETHERNET_HEADER_LEN};
use ringway_virtq::{Broken, DriverQueue};
use smoltcp::phy::{
    Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, PacketMeta, RxToken,
    SegmentationCapabilities, TxToken,
};
use smoltcp::time::Instant;
use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
    UdpPacket, checksum,
};

use crate::{DeviceState, NetDriver, NetTx, Sent};

/// Longest packet that the stack may hand over for segmentation: what an IPv4 header can say.
const SEGMENTED_LEN_MAX: usize = ETHERNET_HEADER_LEN + 65_535;

/// Offsets of the checksum in the two headers.
const TCP_CSUM_OFFSET: u16 = 16;
const UDP_CSUM_OFFSET: u16 = 6;

/// Shortest headers of the two.
const TCP_HEADER_LEN_MIN: usize = 20;
const UDP_HEADER_LEN: usize = 8;

/// Most packets that one call may look at and drop.
const UNSOUND_MAX: u16 = 64;

/// The queues that the device wants to be kicked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Kicks {
    /// Buffers were posted.
    pub receiveq: bool,
    /// Packets were sent.
    pub transmitq: bool,
}

/// A queue pair as smoltcp wants it.
#[derive(Debug)]
pub struct SmoltcpDevice<Q> {
    driver: NetDriver<Q>,
    capabilities: DeviceCapabilities,
    /// The stack leaves checksums of received packets to us.
    checks: bool,
    received: Box<[u8]>,
    sending: Box<[u8]>,
    dropped: Counters,
    broken: Option<Broken>,
}

impl<Q: DriverQueue> SmoltcpDevice<Q> {
    /// Takes the driver of a device with which this was negotiated. Allocates two packets' memory.
    pub fn new(driver: NetDriver<Q>, negotiated: &Negotiated, config: &NetConfig) -> Self {
        let packet = || vec![0; PACKET_LEN_MAX as usize].into_boxed_slice();
        Self {
            driver,
            capabilities: capabilities(negotiated, DeviceState::new(config, negotiated).mtu),
            checks: negotiated.guest_csum,
            received: packet(),
            sending: packet(),
            dropped: Counters::default(),
            broken: None,
        }
    }

    /// Publishes what the stack has sent and posts buffers again. Call it after each poll.
    pub fn flush(&mut self) -> Kicks {
        Kicks { receiveq: self.driver.rx.flush(), transmitq: self.driver.tx.flush() }
    }

    /// The driver, for its counters and for arming calls.
    pub fn driver(&mut self) -> &mut NetDriver<Q> {
        &mut self.driver
    }

    /// Packets dropped between the driver and the stack.
    pub fn dropped(&self) -> &Counters {
        &self.dropped
    }

    /// Why the device must be set up again, if it broke the rules.
    pub fn broken(&self) -> Option<Broken> {
        self.broken
    }

    /// Copies the next sound packet; returns its length.
    fn next_packet(&mut self) -> Result<Option<usize>, Broken> {
        for _ in 0..UNSOUND_MAX {
            let Some(received) = self.driver.rx.receive()? else { return Ok(None) };
            let Some(packet) = self.received.get_mut(..received.len as usize) else {
                self.dropped.count_drop(DropReason::TooLong);
                continue;
            };
            received.copy_to(packet);
            if !self.checks || is_sound(&received.header, packet) {
                return Ok(Some(packet.len()));
            }
            self.dropped.count_drop(DropReason::Malformed);
        }
        Ok(None)
    }

    /// Remembers the first failure; nothing works from there on.
    fn unless_broken<X>(&mut self, result: Result<X, Broken>, otherwise: X) -> X {
        result.unwrap_or_else(|broken| {
            self.broken.get_or_insert(broken);
            otherwise
        })
    }
}

fn capabilities(negotiated: &Negotiated, mtu: u16) -> DeviceCapabilities {
    let mut checksums = ChecksumCapabilities::default();
    checksums.tcp = match (negotiated.csum, negotiated.guest_csum) {
        (false, false) => Checksum::Both,
        (false, true) => Checksum::Tx,
        (true, false) => Checksum::Rx,
        (true, true) => Checksum::None,
    };
    checksums.udp = checksums.tcp;
    let segmented = NonZeroUsize::new(SEGMENTED_LEN_MAX);
    let mut segmentation = SegmentationCapabilities::default();
    segmentation.tcpv4 = segmented.filter(|_| negotiated.host_tso4);
    segmentation.tcpv6 = segmented.filter(|_| negotiated.host_tso6);
    let mut capabilities = DeviceCapabilities::default();
    capabilities.medium = Medium::Ethernet;
    capabilities.max_transmission_unit = ETHERNET_HEADER_LEN + usize::from(mtu);
    capabilities.checksum = checksums;
    capabilities.segmentation = segmentation;
    capabilities
}

impl<Q: DriverQueue> Device for SmoltcpDevice<Q> {
    type RxToken<'a>
        = PacketToken<'a>
    where
        Q: 'a;
    type TxToken<'a>
        = RoomToken<'a, Q>
    where
        Q: 'a;

    fn receive(&mut self, now: Instant) -> Option<(PacketToken<'_>, RoomToken<'_, Q>)> {
        // A packet is taken only if it can be answered.
        self.transmit(now)?;
        let next = self.next_packet();
        let len = self.unless_broken(next, None)?;
        let room = RoomToken {
            tx: &mut self.driver.tx,
            sending: &mut self.sending,
            offloads: !self.capabilities.checksum.tcp.tx(),
            segment: None,
        };
        Some((PacketToken { packet: &self.received[..len] }, room))
    }

    fn transmit(&mut self, _: Instant) -> Option<RoomToken<'_, Q>> {
        let room = self.driver.tx.has_room();
        self.unless_broken(room, false).then(|| RoomToken {
            tx: &mut self.driver.tx,
            sending: &mut self.sending,
            offloads: !self.capabilities.checksum.tcp.tx(),
            segment: None,
        })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

/// A received packet.
#[derive(Debug)]
pub struct PacketToken<'a> {
    packet: &'a [u8],
}

impl RxToken for PacketToken<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, use_packet: F) -> R {
        use_packet(self.packet)
    }
}

/// Room for one packet to send.
#[derive(Debug)]
pub struct RoomToken<'a, Q> {
    tx: &'a mut NetTx<Q>,
    sending: &'a mut [u8],
    offloads: bool,
    segment: Option<NonZeroU16>,
}

impl<Q: DriverQueue> TxToken for RoomToken<'_, Q> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        // The stack keeps to the lengths in our capabilities.
        let packet = &mut self.sending[..len];
        let result = fill(packet);
        let header = match self.offloads {
            true => offload(packet, self.segment),
            false => NetHeader::default(),
        };
        // Without room, or on a broken queue, the packet is lost like on any network; the token
        // was only given because there was room. What is too long the driver counts.
        let _: Result<Sent, Broken> = self.tx.send(&header, packet);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}

/// A transport header and where it is.
struct Transport {
    protocol: IpProtocol,
    source: IpAddress,
    destination: IpAddress,
    /// Offset of the transport header in the packet, and of the end of what it describes.
    start: usize,
    end: usize,
}

impl Transport {
    /// Finds TCP or UDP in a packet; `None`: something else, a fragment, or not well-formed.
    fn find(packet: &[u8]) -> Option<Self> {
        let frame = EthernetFrame::new_checked(packet).ok()?;
        let found = match frame.ethertype() {
            EthernetProtocol::Ipv4 => {
                let ip = Ipv4Packet::new_checked(frame.payload()).ok()?;
                if ip.more_frags() || ip.frag_offset() != 0 {
                    return None;
                }
                let (start, len) = (usize::from(ip.header_len()), usize::from(ip.total_len()));
                let (source, destination) = (ip.src_addr().into(), ip.dst_addr().into());
                Self { protocol: ip.next_header(), source, destination, start, end: len }
            }
            EthernetProtocol::Ipv6 => {
                let ip = Ipv6Packet::new_checked(frame.payload()).ok()?;
                let (protocol, start) = behind_options(&ip, frame.payload())?;
                let (source, destination) = (ip.src_addr().into(), ip.dst_addr().into());
                Self { protocol, source, destination, start, end: ip.total_len() }
            }
            _ => return None,
        };
        let found = Self {
            start: found.start + ETHERNET_HEADER_LEN,
            end: found.end + ETHERNET_HEADER_LEN,
            ..found
        };
        let header_len = match found.protocol {
            IpProtocol::Tcp => TCP_HEADER_LEN_MIN,
            IpProtocol::Udp => UDP_HEADER_LEN,
            _ => return None,
        };
        (found.start + header_len <= found.end).then_some(found)
    }

    fn csum_offset(&self) -> u16 {
        if self.protocol == IpProtocol::Tcp { TCP_CSUM_OFFSET } else { UDP_CSUM_OFFSET }
    }
}

/// The protocol that an IPv6 packet carries, and where: behind hop-by-hop options, as the stack
/// sees it.
fn behind_options<T: AsRef<[u8]>>(
    ip: &Ipv6Packet<T>,
    packet: &[u8],
) -> Option<(IpProtocol, usize)> {
    let (protocol, start) = (ip.next_header(), ip.header_len());
    if protocol != IpProtocol::HopByHop {
        return Some((protocol, start));
    }
    // RFC 8200 section 4.3: the next header, and how many more times eight bytes there are.
    let &[next, more] = packet.get(start..)?.first_chunk()?;
    Some((next.into(), start + 8 * (usize::from(more) + 1)))
}

/// Writes the pseudo-header sum where the checksum goes, and says in the header what the device
/// has to do: complete the sum, and with `segment` cut the packet into segments of that many
/// payload bytes (virtio 1.2 §5.1.6.2). A packet without TCP or UDP needs nothing.
pub fn offload(packet: &mut [u8], segment: Option<NonZeroU16>) -> NetHeader {
    let Some(transport) = Transport::find(packet) else { return NetHeader::default() };
    let offset = transport.csum_offset();
    let Ok(start) = u16::try_from(transport.start) else { return NetHeader::default() };
    let len = u32::try_from(transport.end - transport.start).unwrap_or(u32::MAX);
    let (source, destination) = (&transport.source, &transport.destination);
    let sum = checksum::pseudo_header(source, destination, transport.protocol, len);
    let at = transport.start + usize::from(offset);
    packet[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    let header = NetHeader {
        flags: NEEDS_CSUM,
        csum_start: start,
        csum_offset: offset,
        ..Default::default()
    };
    let Some(segment) = segment else { return header };
    let data_offset = packet[transport.start + 12] >> 4;
    let is_v4 = matches!(transport.source, IpAddress::Ipv4(_));
    NetHeader {
        gso_type: if is_v4 { GsoType::TcpV4.raw() } else { GsoType::TcpV6.raw() },
        hdr_len: start + 4 * u16::from(data_offset),
        gso_size: segment.get(),
        ..header
    }
}

/// Whether a received packet may go to a stack that checks no TCP and UDP checksums: the device
/// has checked it, it comes from this very machine, or its sum is right (virtio 1.2 §5.1.6.4.2).
/// Large packets are no exception.
pub fn is_sound(header: &NetHeader, packet: &[u8]) -> bool {
    if header.flags & (NEEDS_CSUM | DATA_VALID) != 0 {
        return true;
    }
    let Some(transport) = Transport::find(packet) else { return true };
    let Some(bytes) = packet.get(transport.start..transport.end) else { return false };
    let (source, destination) = (&transport.source, &transport.destination);
    match transport.protocol {
        IpProtocol::Tcp => {
            TcpPacket::new_checked(bytes).is_ok_and(|tcp| tcp.verify_checksum(source, destination))
        }
        _ => {
            UdpPacket::new_checked(bytes).is_ok_and(|udp| udp.verify_checksum(source, destination))
        }
    }
}
