//! A guest: our driver on a device in the same thread, and smoltcp, whose receive window is what
//! its socket may still hold, whole buffers counted.
//!
//! How: a packet that arrives is copied for the stack and stays in its buffers, held, until the
//! application has read all that came with it. Each acknowledgement says how much more payload
//! fits the memory that is left, if it comes as the last [`RECENT`] packets came; that end of the
//! window never moves back.
//!
//! Limits: one connection, in order, one way. A packet in more places than the driver holds counts
//! as if it were held: Linux chains such packets.

use std::collections::VecDeque;
use std::num::{NonZeroU16, NonZeroUsize};

use anyhow::{anyhow, ensure};
use ringway_driver::phy::offload;
use ringway_driver::{Held, NetTx, RxOptions, RxScheme};
use ringway_net::{ETHERNET_HEADER_LEN, Features, PACKET_LEN_MAX};
use ringway_testkit::{Mirror, MirrorOptions};
use ringway_virtq::{SplitDevice, SplitDriver};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium, PacketMeta, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, EthernetFrame, IpCidr, Ipv4Address, Ipv4Packet, TcpPacket};

use crate::RX_LIMIT;

const MTU: usize = 1500;
const PORT: u16 = 5001;
const QUEUE_SIZE: u16 = 256;
/// Room for the largest buffers in every entry, and for what is held.
const BUFFERS_LEN: u64 = 64 << 20;
/// Bytes of each socket's buffers: more than the receiver ever allows to be on the way.
pub const SOCKET_LEN: usize = 4 << 20;
/// The unit of a window, as a power of two, with sockets of that length.
const WINDOW_SHIFT: u32 = SOCKET_LEN.ilog2() + 1 - 16;
/// Packets that say how much memory payload takes.
const RECENT: usize = 256;

pub const ADDRESSES: [Ipv4Address; 2] =
    [Ipv4Address::new(10, 0, 0, 1), Ipv4Address::new(10, 0, 0, 2)];

pub struct Stack {
    pub nic: Nic,
    interface: Interface,
    sockets: SocketSet<'static>,
    socket: SocketHandle,
}

/// The driver as smoltcp's device, and what its packets hold.
pub struct Nic {
    pub mirror: Mirror<SplitDriver, SplitDevice>,
    packet: Vec<u8>,
    /// The buffers of the last packet received, and that packet itself.
    arrived: Option<Arrived>,
    last: Option<Held>,
    pub memory: SocketMemory,
    broken: bool,
}

/// The buffers that a packet was found in.
#[derive(Debug, Clone, Copy)]
pub struct Arrived {
    pub len: u32,
    pub truesize: u32,
    pub buffers: u16,
    /// Pieces of neighbouring bytes.
    pub fragments: u16,
}

/// The memory of a socket, and the window that follows from it.
#[derive(Default)]
pub struct SocketMemory {
    held: Vec<Held>,
    truesize: u64,
    recent: VecDeque<(u32, u32)>,
    /// Payload that has arrived, and up to where more may come.
    received: u64,
    pub edge: u64,
}

impl SocketMemory {
    /// A packet with so much payload.
    fn add(&mut self, truesize: u32, payload: u32) {
        self.truesize += u64::from(truesize);
        self.received += u64::from(payload);
        self.recent.push_back((payload, truesize));
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        self.open();
    }

    /// Moves the end of the window to where the memory that is left allows it.
    fn open(&mut self) {
        let payload: u64 = self.recent.iter().map(|recent| u64::from(recent.0)).sum();
        let truesize: u64 = self.recent.iter().map(|recent| u64::from(recent.1)).sum();
        let window = RX_LIMIT.saturating_sub(self.truesize) * payload / truesize.max(1);
        self.edge = self.edge.max(self.received + (window >> WINDOW_SHIFT << WINDOW_SHIFT));
    }

    /// How much more may come, as an acknowledgement says it.
    fn window(&self) -> u16 {
        u16::try_from((self.edge - self.received) >> WINDOW_SHIFT).unwrap_or(u16::MAX)
    }

    pub fn is_half_full(&self) -> bool {
        2 * self.truesize >= RX_LIMIT
    }
}

impl Stack {
    pub fn new(place: usize, scheme: RxScheme) -> anyhow::Result<Self> {
        let mirror = Mirror::new(&MirrorOptions {
            rx: RxOptions { spare_len: 2 * u32::try_from(RX_LIMIT)?, ..RxOptions::of(scheme) },
            tx_len_max: PACKET_LEN_MAX,
            queue_size: QUEUE_SIZE,
            buffers_len: BUFFERS_LEN,
            without: Features::empty(),
        })?;
        let memory = SocketMemory::default();
        let packet = vec![0; PACKET_LEN_MAX as usize];
        let mut nic = Nic { mirror, packet, arrived: None, last: None, memory, broken: false };
        let mac = EthernetAddress([2, 0, 0, 0, 0, u8::try_from(place)?]);
        let mut interface = Interface::new(Config::new(mac.into()), &mut nic, Instant::ZERO);
        interface.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(ADDRESSES[place].into(), 24));
        });
        let buffer = || SocketBuffer::new(vec![0; SOCKET_LEN]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(None);
        let mut sockets = SocketSet::new(Vec::new());
        let socket = sockets.add(socket);
        Ok(Self { nic, interface, sockets, socket })
    }

    pub fn listen(&mut self) -> anyhow::Result<()> {
        self.socket().listen(PORT).map_err(|why| anyhow!("{why}"))
    }

    pub fn connect(&mut self, to: Ipv4Address) -> anyhow::Result<()> {
        let socket = self.sockets.get_mut::<Socket<'_>>(self.socket);
        let connected = socket.connect(self.interface.context(), (to, PORT), PORT + 1);
        connected.map_err(|why| anyhow!("{why}"))
    }

    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.socket)
    }

    /// Lets the stack take the next packet that the device has put, if there is one.
    pub fn take(&mut self, now: Instant) -> anyhow::Result<Option<Arrived>> {
        self.nic.arrived = None;
        let before = self.socket().recv_queue();
        self.interface.poll_ingress_single(now, &mut self.nic, &mut self.sockets);
        let payload = u32::try_from(self.socket().recv_queue() - before)?;
        if let Some(arrived) = self.nic.arrived
            && payload > 0
        {
            let held = self.nic.last.take();
            self.nic.memory.held.extend(held);
            self.nic.memory.add(arrived.truesize, payload);
        } else if let Some(held) = self.nic.last.take() {
            self.nic.release(held);
        }
        ensure!(!self.nic.broken, "the ring is broken");
        Ok(self.nic.arrived)
    }

    /// Lets the stack send what is due.
    pub fn send(&mut self, now: Instant) {
        self.interface.poll_egress(now, &mut self.nic, &mut self.sockets);
        let _ = self.nic.mirror.driver.tx.flush();
    }

    /// The application reads all there is, and its memory is free again; how much that was.
    pub fn read(&mut self) -> u64 {
        let mut read = 0;
        while let Ok(len) = self.socket().recv(|bytes| (bytes.len(), bytes.len()))
            && len > 0
        {
            read += len as u64;
        }
        let held = std::mem::take(&mut self.nic.memory.held);
        held.into_iter().for_each(|held| self.nic.release(held));
        self.nic.memory.truesize = 0;
        self.nic.memory.open();
        read
    }
}

impl Nic {
    /// Its memory is free again.
    fn release(&mut self, held: Held) {
        self.mirror.driver.rx.release(held);
        let _ = self.mirror.driver.rx.flush();
    }

    /// The next packet, copied and held; its length.
    fn next(&mut self) -> Option<usize> {
        let rx = &mut self.mirror.driver.rx;
        let packet = rx.receive();
        self.broken |= packet.is_err();
        let packet = packet.ok()??;
        let len = packet.len as usize;
        packet.copy_to(&mut self.packet[..len]);
        let fragments = u16::try_from(packet.fragments().len()).unwrap_or(u16::MAX);
        let (truesize, buffers) = (packet.truesize, packet.header.num_buffers);
        self.arrived = Some(Arrived { len: packet.len, truesize, buffers, fragments });
        self.last = rx.hold();
        let _ = rx.flush();
        Some(len)
    }

    fn room(tx: &mut NetTx<SplitDriver>, window: u16) -> Option<Room<'_>> {
        let has_room = tx.has_room().ok()?;
        has_room.then_some(Room { tx, window, segment: None })
    }
}

impl Device for Nic {
    type RxToken<'a> = Lent<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Lent<'_>, Room<'_>)> {
        let len = self.next()?;
        let window = self.memory.window();
        Some((Lent(&self.packet[..len]), Self::room(&mut self.mirror.driver.tx, window)?))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        let window = self.memory.window();
        Self::room(&mut self.mirror.driver.tx, window)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = ETHERNET_HEADER_LEN + MTU;
        capabilities.checksum.tcp = Checksum::None;
        capabilities.segmentation.tcpv4 = NonZeroUsize::new(ETHERNET_HEADER_LEN + 65_535);
        capabilities
    }
}

pub struct Lent<'a>(&'a [u8]);

impl RxToken for Lent<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, use_packet: F) -> R {
        use_packet(self.0)
    }
}

pub struct Room<'a> {
    tx: &'a mut NetTx<SplitDriver>,
    window: u16,
    segment: Option<NonZeroU16>,
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, fill: F) -> R {
        let mut packet = vec![0; len];
        let result = fill(&mut packet);
        limit_window(&mut packet, self.window);
        let header = offload(&mut packet, self.segment);
        // There was room; what is lost would be missed at the other end.
        let _ = self.tx.send(&header, &packet);
        result
    }

    fn set_meta(&mut self, meta: PacketMeta) {
        self.segment = meta.segmentation_offload_size;
    }
}

/// Lets an acknowledgement of TCP allow no more than that. Where a connection begins, windows are
/// not multiples, and stay as they are.
fn limit_window(packet: &mut [u8], window: u16) {
    let Ok(mut frame) = EthernetFrame::new_checked(packet) else { return };
    let Ok(mut ip) = Ipv4Packet::new_checked(frame.payload_mut()) else { return };
    let Ok(mut tcp) = TcpPacket::new_checked(ip.payload_mut()) else { return };
    if !tcp.syn() && window < tcp.window_len() {
        tcp.set_window_len(window);
    }
}
