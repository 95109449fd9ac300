//! A tap: the host's end of a cable, with offloads and without copies.
//!
//! Every packet to and from the kernel has the 12-byte header of virtio-net in front of it
//! (`IFF_VNET_HDR`), so that checksums and segmentation stay undone for as long as the receiver
//! accepts that. To the tap, a packet is written straight from the sender's memory. From the tap,
//! [`Tap::read_into`] reads straight into a receiver's buffers; where a lookup has to come first,
//! the tap lends packets from a buffer of its own (`PacketSource`), which costs one copy. Of many
//! short packets that wait, several are read with one system call, and copied (`tap::ahead`).
//!
//! Limits: packets of at most [`PACKET_LEN_MAX`] bytes; longer ones are counted as too long. A
//! [`Tap`] is one queue; of several, each has its own.

pub(crate) mod ahead;
pub(crate) mod batch;
pub(crate) mod calls;
pub(crate) mod error;
pub(crate) mod ioctl;
pub(crate) mod offloads;
pub(crate) mod open;
pub(crate) mod pending;
pub(crate) mod read_batcher;
pub(crate) mod ring;
pub(crate) mod watch;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_net::offload::Segment;
use ringway_net::{Counters, DropReason, GsoType, HEADER_LEN, NEEDS_CSUM, NetHeader};
use ringway_net::{PACKET_LEN_MAX, Packet, PacketSink, Put, TapCalls};
use ringway_virtq::SharedSlice;

pub use error::TapError;
pub use offloads::TapOffloads;
pub use open::TapOptions;

mod read;

use crate::tap::pending::Pending;

use crate::memory::pieces::gather;
use crate::memory::scratch::Scratch;
use crate::tap::ahead::ReadAhead;
use crate::tap::batch::{TapBatch, drop_reason};
use crate::tap::calls::writes_from;
use crate::tap::ioctl::{PIECES_MAX, Vectors};
use crate::tap::watch::TapWatch;

/// Bytes of a frame that the MTU does not count: the Ethernet header and two VLAN tags.
const FRAME_OVERHEAD_LEN: u32 = 14 + 2 * 4;

/// An open tap. One that we created vanishes when this is dropped; others stay.
#[derive(Debug)]
pub struct Tap {
    interface: TapInterface,
    offloads: TapOffloads,
    /// Whether the kernel completes unsegmented UDP (Linux 6.2).
    takes_uso: bool,
    /// See [`complete_all`](Self::complete_all).
    completes_all: bool,
    vectors: Vectors,
    reader: TapReader,
    writer: TapWriter,
    watch: TapWatch,
    /// The worker has not told yet that the interface is gone.
    is_gone_untold: bool,
    /// Packets to the tap.
    pub to_tap: Counters,
    /// Packets from the tap.
    pub from_tap: Counters,
}

/// The interface of the kernel, and the queue of it that is open.
#[derive(Debug)]
struct TapInterface {
    fd: OwnedFd,
    name: String,
    /// For asking about the interface; none if it is in another network namespace.
    interfaces: Option<OwnedFd>,
    /// In bytes; `None`: not known.
    mtu: Option<u32>,
}

/// Packets that are read: the one that was lent, and those behind it.
#[derive(Debug)]
struct TapReader {
    /// One packet, and one byte behind it that tells when a packet was longer.
    scratch: Scratch,
    /// Short packets that were read ahead; none: each is read alone.
    ahead: Option<Box<ReadAhead>>,
    /// The packet that was lent and not taken yet.
    pending: Option<Pending>,
    /// See [`take_unread`](Tap::take_unread).
    is_unread: bool,
    /// See [`stop_reading`](Tap::stop_reading).
    stops_reading: bool,
    /// Segments of it that its receiver has already.
    segments_done: usize,
    lent: [SharedSlice; 1],
}

/// Packets that are written.
#[derive(Debug)]
struct TapWriter {
    /// Those that are written at the end of the visit; none: at once.
    batch: Option<Box<TapBatch>>,
    /// For packets in more pieces than one call takes.
    bounce: Scratch,
}

impl Tap {
    /// A queue that is open, as by [`Tap::open`] in another process. `interfaces`: a socket in the
    /// network namespace of the tap, if it is this one.
    pub fn new(fd: OwnedFd, name: String, interfaces: Option<OwnedFd>) -> Self {
        let mut tap = Self {
            interface: TapInterface { fd, name, interfaces, mtu: None },
            offloads: TapOffloads::default(),
            takes_uso: false,
            completes_all: false,
            vectors: Vectors::new(),
            reader: TapReader {
                scratch: Scratch::new(PACKET_LEN_MAX as usize + 1),
                ahead: None,
                pending: None,
                is_unread: false,
                stops_reading: false,
                segments_done: 0,
                lent: [SharedSlice::EMPTY],
            },
            writer: TapWriter { batch: None, bounce: Scratch::new(PACKET_LEN_MAX as usize) },
            watch: TapWatch::default(),
            is_gone_untold: false,
            to_tap: Counters::default(),
            from_tap: Counters::default(),
        };
        tap.refresh_mtu();
        let uso = TapOffloads { csum: true, uso: true, ..TapOffloads::default() };
        tap.takes_uso = tap.set_offloads(uso) == uso;
        tap.set_offloads(TapOffloads::default());
        tap
    }

    fn refresh_mtu(&mut self) {
        if let Some(interfaces) = &self.interface.interfaces {
            self.interface.mtu =
                ioctl::interface_mtu(interfaces.as_fd(), &self.interface.name).ok();
        }
    }

    /// The socket for asking about the interface.
    pub fn interfaces(&self) -> Option<BorrowedFd<'_>> {
        self.interface.interfaces.as_ref().map(AsFd::as_fd)
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.interface.name
    }

    /// Says from elsewhere whether the interface is gone.
    pub fn watch(&self) -> TapWatch {
        self.watch.clone()
    }

    /// Whether the interface was found to be gone since this was last asked.
    pub(crate) fn take_gone(&mut self) -> bool {
        std::mem::take(&mut self.is_gone_untold)
    }

    /// MTU in bytes as last looked up; `None` for a passed tap in another network namespace.
    pub fn mtu(&self) -> Option<u32> {
        self.interface.mtu
    }

    /// Length in bytes of the longest packet (without header) that is to be expected from the tap
    /// with the offloads granted last.
    pub fn packet_len_max(&self) -> u32 {
        match self.interface.mtu {
            Some(mtu) if !self.offloads.leaves_segmentation() => {
                mtu.saturating_add(FRAME_OVERHEAD_LEN).min(PACKET_LEN_MAX)
            }
            _ => PACKET_LEN_MAX,
        }
    }

    /// Tells the kernel what the receivers of this tap's packets accept, and gives what it grants.
    /// The kernel completes itself the work that is not granted: slower, never wrong.
    pub fn set_offloads(&mut self, wanted: TapOffloads) -> TapOffloads {
        let wanted = wanted.consistent();
        let attempts = [
            wanted,
            TapOffloads { uso: false, ..wanted },
            TapOffloads { uso: false, ecn: false, ..wanted },
            TapOffloads { csum: wanted.csum, ..TapOffloads::default() },
            TapOffloads::default(),
        ];
        let is_granted = |offloads: &TapOffloads| {
            ioctl::set_offload(self.interface.fd.as_fd(), offloads.flags()).is_ok()
        };
        // If even nothing is refused, the kernel has kept what it was told before.
        self.offloads = attempts.into_iter().find(is_granted).unwrap_or(self.offloads);
        self.offloads
    }

    /// With `is_on` no work is left to the kernel: a program that reads the interface with a raw
    /// socket does not see what is undone.
    pub fn complete_all(&mut self, is_on: bool) {
        self.completes_all = is_on;
    }

    /// Whether packets to it may have partial checksums.
    pub(crate) fn accepts_csum(&self) -> bool {
        !self.completes_all
    }

    /// Whether the kernel gets a packet as it is.
    fn takes(&self, header: &NetHeader) -> bool {
        let gso = header.gso();
        match self.completes_all {
            true => gso == Some(GsoType::None) && header.flags & NEEDS_CSUM == 0,
            false => self.takes_uso || gso != Some(GsoType::UdpL4),
        }
    }

    /// Another worker sets the offloads of this tap, so anything may come from it.
    pub fn expect_any_offload(&mut self) {
        self.offloads = TapOffloads { csum: true, tso4: true, tso6: true, ..self.offloads };
    }

    /// Sets the interface's carrier (`TUNSETCARRIER`).
    ///
    /// # Errors
    /// The kernel is older than 5.0, or the interface is down.
    pub fn set_link(&self, is_up: bool) -> io::Result<()> {
        ioctl::set_carrier(self.interface.fd.as_fd(), is_up)
    }

    /// Changes the MTU of the interface, in bytes.
    ///
    /// # Errors
    /// Not permitted, not possible, or a passed tap in another network namespace.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), TapError> {
        let set = Self::set_mtu_of(&self.interface.name, self.interfaces(), mtu);
        self.refresh_mtu();
        set
    }

    /// The same for a tap that another process has; `interfaces` as for [`Tap::new`].
    ///
    /// # Errors
    /// As of [`set_mtu`](Self::set_mtu).
    pub fn set_mtu_of(
        name: &str,
        interfaces: Option<BorrowedFd<'_>>,
        mtu: u16,
    ) -> Result<(), TapError> {
        let set = match interfaces {
            Some(interfaces) => ioctl::set_interface_mtu(interfaces, name, mtu),
            None => Err(io::Error::other("it is in another network namespace")),
        };
        set.map_err(|source| TapError::Mtu { name: name.to_owned(), mtu, source })
    }

    /// Writes one segment of a packet that [`put`](PacketSink::put) found unfinished.
    pub fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        let bytes = self.writer.bounce.bytes();
        let Some(lent) = bytes.slice(0, segment.bytes.len()) else {
            self.to_tap.count_drop(DropReason::TooLong);
            return Put::Refused;
        };
        lent.write(0, segment.bytes);
        let len = u32::try_from(segment.bytes.len()).unwrap_or(u32::MAX);
        self.put(&Packet { header: &segment.header, payload: &[lent], len })
    }

    /// As `put`, for a packet that stays where it is until [`flush`](Self::flush): it may be
    /// written only then, and what becomes of it counted.
    pub fn stage(&mut self, packet: &Packet<'_>) -> Put {
        let pieces = packet.payload.len();
        if self.writer.batch.is_none() || !self.takes(packet.header) || packet.len > PACKET_LEN_MAX
        {
            return self.put(packet);
        }
        let Some(batch) = &mut self.writer.batch else { return self.put(packet) };
        if !batch.has_room(pieces) {
            self.flush();
        }
        match &mut self.writer.batch {
            Some(batch) if batch.has_room(pieces) => {
                batch.note(header_for_kernel(packet), packet);
                Put::Done
            }
            _ => self.put(packet),
        }
    }

    /// Writes what was staged.
    pub fn flush(&mut self) {
        let Some(batch) = &mut self.writer.batch else { return };
        let (to_tap, fd) = (&mut self.to_tap, &self.interface.fd);
        if batch.is_empty() {
            return;
        }
        batch.write(fd.as_fd(), |len, written| match written {
            Ok(()) => to_tap.count(len),
            // Its sender has been told that it was taken.
            Err(why) => to_tap.count_drop(drop_reason(&why).unwrap_or(DropReason::NoRoom)),
        });
    }

    /// Chooses how packets are written, what is staged first; gives from how many packets at a time
    /// on io_uring is used, or `None`: never, as for [`set_reads`](Self::set_reads).
    pub fn set_writes(&mut self, writes: TapCalls) -> Option<usize> {
        self.flush();
        let from = writes_from(writes);
        self.writer.batch = from.and_then(|from| TapBatch::new(from).ok()).map(Box::new);
        from.filter(|_| self.writer.batch.is_some())
    }

    fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        let header = header_for_kernel(packet);
        if packet.payload.len() <= PIECES_MAX {
            return self.vectors.write(self.interface.fd.as_fd(), &header, packet.payload);
        }
        let len = gather(packet.payload, self.writer.bounce.bytes());
        let Some(bytes) = self.writer.bounce.bytes().slice(0, len) else { return Ok(()) };
        self.vectors.write(self.interface.fd.as_fd(), &header, &[bytes])
    }
}

/// `num_buffers` means nothing to the kernel. `hdr_len` is a hint, which drivers fill as they like:
/// the kernel makes as much of a packet contiguous, and refuses one that is shorter.
fn header_for_kernel(packet: &Packet<'_>) -> [u8; HEADER_LEN] {
    let len = u16::try_from(packet.len).unwrap_or(u16::MAX);
    let hdr_len = packet.header.hdr_len.min(len);
    NetHeader { hdr_len, num_buffers: 0, ..*packet.header }.encode()
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.interface.fd.as_fd()
    }
}

impl PacketSink for Tap {
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        // The packets that came before it go before it.
        self.flush();
        if packet.len > PACKET_LEN_MAX {
            self.to_tap.count_drop(DropReason::TooLong);
            return Put::Refused;
        }
        if !self.takes(packet.header) {
            return Put::Unfinished;
        }
        let Err(why) = self.write(packet) else {
            self.to_tap.count(packet.len);
            return Put::Done;
        };
        let Some(reason) = drop_reason(&why) else { return Put::NoRoom };
        self.to_tap.count_drop(reason);
        Put::Refused
    }
}
