//! A tap: the host's end of a cable, with offloads and without copies.
//!
//! Every packet to and from the kernel has the 12-byte header of virtio-net in front of it
//! (`IFF_VNET_HDR`), so that checksums and segmentation stay undone for as long as the receiver
//! accepts that. To the tap, a packet is written straight from the sender's memory. From the tap,
//! [`Tap::read_into`] reads straight into a receiver's buffers; where a lookup has to come first,
//! the tap lends packets from a buffer of its own (`PacketSource`), which costs one copy.
//!
//! Limits: packets of at most [`PACKET_LEN_MAX`] bytes; longer ones are counted as too long. A
//! [`Tap`] is one queue; of several, each has its own.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringway_net::offload::Segment;
use ringway_net::{Counters, DropReason, ETHERNET_HEADER_LEN, GsoType, HEADER_LEN, NetHeader};
use ringway_net::{PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put};
use ringway_virtq::SharedSlice;

pub use crate::tap_offloads::TapOffloads;
pub use crate::tap_open::{TapError, TapOptions};

use crate::pieces::{copy_all, gather};
use crate::tap_batch::{TapBatch, TapWrites, drop_reason};
use crate::tap_ioctl as ioctl;
use crate::tap_ioctl::{PIECES_MAX, Scratch, Vectors};

/// Packets dropped in one call before the caller hears about it.
const DROPS_MAX: usize = 64;

/// Bytes of a frame beside what the MTU counts: the Ethernet header and two VLAN tags.
const FRAME_OVERHEAD_LEN: u32 = 14 + 2 * 4;

/// An open tap. One that we created vanishes when this is dropped; others stay.
#[derive(Debug)]
pub struct Tap {
    fd: OwnedFd,
    name: String,
    /// For asking about the interface; none if it is in another network namespace.
    interfaces: Option<OwnedFd>,
    /// In bytes; `None`: not known.
    mtu: Option<u32>,
    offloads: TapOffloads,
    /// Whether the kernel completes unsegmented UDP (Linux 6.2).
    takes_uso: bool,
    vectors: Vectors,
    /// Packets to the tap that are written at the end of the visit; none: at once.
    batch: Option<Box<TapBatch>>,
    /// One packet, and one byte behind it that tells when a packet was longer.
    scratch: Scratch,
    /// For packets to the tap in more pieces than one call takes.
    bounce: Scratch,
    /// The packet in `scratch` that was lent and not taken yet.
    pending: Option<(NetHeader, u32)>,
    /// Segments of it that its receiver has already.
    segments_done: usize,
    lent: [SharedSlice; 1],
    /// Packets to the tap.
    pub to_tap: Counters,
    /// Packets from the tap.
    pub from_tap: Counters,
}

impl Tap {
    /// `interfaces`: a socket in the network namespace of the tap, if it is this one.
    pub(crate) fn new(fd: OwnedFd, name: String, interfaces: Option<OwnedFd>) -> Self {
        let mut tap = Self {
            fd,
            name,
            interfaces,
            mtu: None,
            offloads: TapOffloads::default(),
            takes_uso: false,
            vectors: Vectors::new(),
            batch: None,
            scratch: Scratch::new(PACKET_LEN_MAX as usize + 1),
            bounce: Scratch::new(PACKET_LEN_MAX as usize),
            pending: None,
            segments_done: 0,
            lent: [SharedSlice::EMPTY],
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
        if let Some(interfaces) = &self.interfaces {
            self.mtu = ioctl::interface_mtu(interfaces.as_fd(), &self.name).ok();
        }
    }

    /// The socket for asking about the interface.
    pub(crate) fn interfaces(&self) -> Option<BorrowedFd<'_>> {
        self.interfaces.as_ref().map(AsFd::as_fd)
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// MTU in bytes as last looked up; `None` for a passed tap in another network namespace.
    pub fn mtu(&self) -> Option<u32> {
        self.mtu
    }

    /// Length in bytes of the longest packet (without header) that is to be expected from the tap
    /// with the offloads granted last.
    pub fn packet_len_max(&self) -> u32 {
        match self.mtu {
            Some(mtu) if !self.offloads.leaves_segmentation() => {
                mtu.saturating_add(FRAME_OVERHEAD_LEN).min(PACKET_LEN_MAX)
            }
            _ => PACKET_LEN_MAX,
        }
    }

    /// Says what the receivers of this tap's packets accept, and gives what the kernel makes of
    /// it. What is not granted the kernel completes itself: slower, never wrong.
    pub fn set_offloads(&mut self, wanted: TapOffloads) -> TapOffloads {
        let wanted = wanted.consistent();
        let attempts = [
            wanted,
            TapOffloads { uso: false, ..wanted },
            TapOffloads { uso: false, ecn: false, ..wanted },
            TapOffloads { csum: wanted.csum, ..TapOffloads::default() },
            TapOffloads::default(),
        ];
        let is_granted =
            |offloads: &TapOffloads| ioctl::set_offload(self.fd.as_fd(), offloads.flags()).is_ok();
        // If even nothing is refused, the kernel has kept what it was told before.
        self.offloads = attempts.into_iter().find(is_granted).unwrap_or(self.offloads);
        self.offloads
    }

    /// Somebody else sets the offloads of this tap, so anything may come from it.
    pub fn expect_any_offload(&mut self) {
        self.offloads = TapOffloads { csum: true, tso4: true, tso6: true, ..self.offloads };
    }

    /// Plugs the interface's cable in or out (`TUNSETCARRIER`).
    ///
    /// # Errors
    /// The kernel is older than 5.0, or the interface is down.
    pub fn set_link(&self, is_up: bool) -> io::Result<()> {
        ioctl::set_carrier(self.fd.as_fd(), is_up)
    }

    /// Changes the MTU of the interface, in bytes.
    ///
    /// # Errors
    /// Not permitted, not possible, or a passed tap in another network namespace.
    pub fn set_mtu(&mut self, mtu: u16) -> Result<(), TapError> {
        let set = match &self.interfaces {
            Some(interfaces) => ioctl::set_interface_mtu(interfaces.as_fd(), &self.name, mtu),
            None => Err(io::Error::other("it is in another network namespace")),
        };
        self.refresh_mtu();
        set.map_err(|source| TapError::Mtu { name: self.name.clone(), mtu, source })
    }

    /// Reads the next packet straight into `pieces`, and gives its header and its length in bytes.
    /// `None`: there is none now, or it is longer than the pieces, as the first one is after the
    /// MTU was raised: then it is [lent](Self::is_lending).
    ///
    /// # Errors
    /// The kernel gave no packet although it may have more: the interface is gone (`EBADFD`), or
    /// many packets in a row were dropped, or the pieces are not memory any more (`EFAULT`; the
    /// packet is counted as dropped). Not every kernel tells that the memory is gone: Linux 6.18
    /// gives a packet whose bytes are lost with it.
    pub fn read_into(&mut self, pieces: &[SharedSlice]) -> io::Result<Option<(NetHeader, u32)>> {
        if self.pending.is_some() || pieces.len() > PIECES_MAX {
            return self.read_through_scratch(pieces);
        }
        let packet = self.read_packet(pieces)?;
        if let Some((_, len)) = packet {
            self.from_tap.count(len);
        }
        Ok(packet)
    }

    /// Lends the packet that was just read into `pieces`: its receiver does not take it as it is.
    pub fn lend(&mut self, header: NetHeader, len: u32, pieces: &[SharedSlice]) {
        gather(pieces, self.scratch.bytes());
        self.pending = Some((header, len));
        // It is counted when it is taken.
        self.from_tap.packets -= 1;
        self.from_tap.bytes -= u64::from(len);
    }

    /// Whether a packet is lent and not taken yet.
    pub fn is_lending(&self) -> bool {
        self.pending.is_some()
    }

    /// The way with a copy: a packet was lent before, or there are more pieces than one call takes.
    fn read_through_scratch(
        &mut self,
        pieces: &[SharedSlice],
    ) -> io::Result<Option<(NetHeader, u32)>> {
        self.read_ahead()?;
        let Some((header, len)) = self.pending else { return Ok(None) };
        let bytes = self.scratch.bytes().split_at(len as usize).0;
        if !copy_all(bytes, pieces) {
            self.refresh_mtu();
            return Ok(None);
        }
        self.pop();
        Ok(Some((header, len)))
    }

    /// Makes sure that there is a pending packet, if there is one at all.
    fn read_ahead(&mut self) -> io::Result<()> {
        if self.pending.is_none() {
            let room = self.scratch.bytes().split_at(PACKET_LEN_MAX as usize).0;
            self.pending = self.read_packet(&[room])?;
        }
        Ok(())
    }

    fn read_packet(&mut self, pieces: &[SharedSlice]) -> io::Result<Option<(NetHeader, u32)>> {
        let room = pieces.iter().fold(0, |room: usize, piece| room.saturating_add(piece.len()));
        // What is longer, as when somebody has raised the MTU, spills to its place in the scratch.
        let spill = self.scratch.bytes().split_at(room.min(PACKET_LEN_MAX as usize)).1;
        for _ in 0..DROPS_MAX {
            // The kernel does not write `num_buffers`.
            let mut header = [0; HEADER_LEN];
            let read = self.vectors.read(self.fd.as_fd(), &mut header, pieces, spill);
            if read.as_ref().is_err_and(is_memory_lost) {
                self.from_tap.count_drop(DropReason::Os);
            }
            let Some(read) = read? else { return Ok(None) };
            let len = read.saturating_sub(HEADER_LEN);
            if len > PACKET_LEN_MAX as usize {
                self.from_tap.count_drop(DropReason::TooLong);
                continue;
            }
            let header = NetHeader::decode(&header);
            let packet_len = u32::try_from(len).unwrap_or(0);
            if len < ETHERNET_HEADER_LEN || header.check(packet_len).is_err() {
                self.from_tap.count_drop(DropReason::Malformed);
                continue;
            }
            if len > room {
                gather(pieces, self.scratch.bytes().split_at(room).0);
                self.pending = Some((header, packet_len));
                self.refresh_mtu();
                return Ok(None);
            }
            return Ok(Some((header, packet_len)));
        }
        Err(too_many_drops())
    }

    /// Writes one segment of a packet that [`put`](PacketSink::put) found unfinished.
    pub fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        let bytes = self.bounce.bytes();
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
        let Some(batch) = &mut self.batch else { return self.put(packet) };
        let is_whole = self.takes_uso || packet.header.gso() != Some(GsoType::UdpL4);
        if !is_whole || packet.len > PACKET_LEN_MAX {
            return self.put(packet);
        }
        if !batch.has_room(pieces) {
            self.flush();
        }
        match &mut self.batch {
            Some(batch) if batch.has_room(pieces) => {
                batch.note(NetHeader { num_buffers: 0, ..*packet.header }.encode(), packet);
                Put::Done
            }
            _ => self.put(packet),
        }
    }

    /// Writes what was staged.
    pub fn flush(&mut self) {
        let Self { batch: Some(batch), to_tap, fd, .. } = self else { return };
        if batch.is_empty() {
            return;
        }
        batch.write(fd.as_fd(), |len, written| match written {
            Ok(()) => to_tap.count(len),
            // Its sender has been told that it was taken.
            Err(why) => to_tap.count_drop(drop_reason(&why).unwrap_or(DropReason::NoRoom)),
        });
    }

    /// Chooses how packets are written; gives from how many at a time on io_uring is used.
    pub fn set_writes(&mut self, writes: TapWrites) -> Option<usize> {
        self.flush();
        let from = writes.batch_from()?;
        self.batch = TapBatch::new(from).ok().map(Box::new);
        self.batch.as_ref().map(|_| from)
    }

    fn write(&mut self, packet: &Packet<'_>) -> io::Result<()> {
        // `num_buffers` means nothing to the kernel.
        let header = NetHeader { num_buffers: 0, ..*packet.header }.encode();
        if packet.payload.len() <= PIECES_MAX {
            return self.vectors.write(self.fd.as_fd(), &header, packet.payload);
        }
        let len = gather(packet.payload, self.bounce.bytes());
        let Some(bytes) = self.bounce.bytes().slice(0, len) else { return Ok(()) };
        self.vectors.write(self.fd.as_fd(), &header, &[bytes])
    }
}

impl AsFd for Tap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl PacketSource for Tap {
    fn peek(&mut self) -> Option<Packet<'_>> {
        if self.read_ahead().is_err() {
            self.from_tap.count_drop(DropReason::Os);
        }
        let (header, len) = self.pending.as_ref()?;
        self.lent = [self.scratch.bytes().slice(0, *len as usize)?];
        Some(Packet { header, payload: &self.lent, len: *len })
    }

    fn segments_done(&self) -> usize {
        self.segments_done
    }

    fn set_segments_done(&mut self, count: usize) {
        self.segments_done = count;
    }

    fn pop(&mut self) {
        self.segments_done = 0;
        if let Some((_, len)) = self.pending.take() {
            self.from_tap.count(len);
        }
    }
}

impl PacketSink for Tap {
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        // What came before it goes before it.
        self.flush();
        if packet.len > PACKET_LEN_MAX {
            self.to_tap.count_drop(DropReason::TooLong);
            return Put::Refused;
        }
        if !self.takes_uso && packet.header.gso() == Some(GsoType::UdpL4) {
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

/// Whether a packet was taken out of the tap and could not be written where it should go.
fn is_memory_lost(why: &io::Error) -> bool {
    why.raw_os_error() == Some(libc::EFAULT)
}

fn too_many_drops() -> io::Error {
    io::Error::other("many packets in a row were dropped")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::{GuestMemory, MemoryRequest};

    /// A socket stands for a tap of a kernel that tells, as not every kernel does of a tap.
    #[test]
    fn a_packet_that_is_lost_with_its_receivers_memory_is_counted() {
        let (ours, wire) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut tap = Tap::new(ours.into(), "socket".to_owned(), None);
        let fd = rustix::fs::memfd_create("lost", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        let copy = fd.try_clone().unwrap();
        let request =
            MemoryRequest { guest_address: 0, size: 4096, mmap_offset: 0, fd: copy.into() };
        let memory = GuestMemory::map(vec![request]).unwrap();
        let lost = memory.regions().slice(0, 2000).unwrap();
        rustix::fs::ftruncate(&fd, 0).unwrap();
        for mark in [1, 2] {
            wire.send(&[&[0; HEADER_LEN][..], &[mark; 60]].concat()).unwrap();
        }
        let failure = tap.read_into(&[lost]).unwrap_err();
        assert_eq!(failure.raw_os_error(), Some(libc::EFAULT));
        assert_eq!((tap.from_tap.packets, tap.from_tap.drops[DropReason::Os as usize]), (0, 1));
        let mut bytes = [0; 60];
        tap.peek().unwrap().payload[0].read(0, &mut bytes);
        assert_eq!(bytes, [2; 60], "the next one comes");
    }
}
