//! The reading half of a tap: straight into a receiver's buffers, or lent.
//!
//! A packet is read where it goes, unless that is not possible, or not worth it: what was read
//! ahead, with others and one system call, is copied (see `tap::ahead`), and so is a packet whose
//! way depends on its bytes.

use std::io;
use std::os::fd::AsFd;

use ringway_net::{DropReason, ETHERNET_HEADER_LEN, HEADER_LEN, NetHeader};
use ringway_net::{PACKET_LEN_MAX, Packet, PacketSource, TapCalls};
use ringway_virtq::SharedSlice;

use super::Tap;
use crate::memory::pieces::{copy_all, gather};
use crate::tap::ahead::ReadAhead;
use crate::tap::calls::reads_from;
use crate::tap::ioctl::PIECES_MAX;
use crate::tap::pending::Pending;

/// Packets dropped in one call before the caller hears about it.
const DROPS_MAX: usize = 64;

impl Tap {
    /// Chooses how packets are read; gives from how many packets at a time on io_uring is used, or
    /// `None`: never, because it was not asked for, is not faster, or the kernel has none for us.
    ///
    /// # Panics
    /// It was chosen before, or a packet is lent: it may lie where packets are read ahead.
    pub fn set_reads(&mut self, reads: TapCalls) -> Option<usize> {
        assert!(
            self.reader.ahead.is_none() && self.reader.pending.is_none(),
            "packets may wait there already"
        );
        let from = reads_from(reads)?;
        self.reader.ahead = ReadAhead::new(from).ok().map(Box::new);
        self.reader.ahead.as_ref().map(|_| from)
    }

    /// Reads the next packet into `pieces`, and gives its header and its length in bytes. A packet
    /// that was read ahead is copied there. `None`: no packet waits, or it is longer than the
    /// pieces, as the first one is after the MTU was raised. The tap then [lends](Self::is_lending)
    /// it.
    ///
    /// # Errors
    /// The kernel gave no packet although it may have more: the interface is gone (`EBADFD`), or
    /// many packets in a row were dropped, a signal interrupted the call, or the pieces are not
    /// memory any more (`EFAULT`; the packet is counted as dropped). Not every kernel tells that
    /// the memory is gone: Linux 6.18 gives a packet whose bytes are lost with it, and so does a
    /// copy, under [`install_bus_guard`](crate::install_bus_guard); without that guard it ends the
    /// process.
    pub fn read_into(&mut self, pieces: &[SharedSlice]) -> io::Result<Option<(NetHeader, u32)>> {
        if self.reader.pending.is_some() || pieces.len() > PIECES_MAX || self.top_up_ahead() {
            return self.read_with_copy(pieces);
        }
        let packet = self.read_packet(pieces)?;
        if let Some((_, len)) = packet {
            self.from_tap.count(len);
        }
        Ok(packet)
    }

    /// Lends the packet that was just read into `pieces`: its receiver does not take it as it is.
    pub fn lend(&mut self, header: NetHeader, len: u32, pieces: &[SharedSlice]) {
        gather(pieces, self.reader.scratch.bytes());
        self.reader.pending = Some(self.in_scratch(header, len));
        // It is counted when it is taken.
        self.from_tap.packets -= 1;
        self.from_tap.bytes -= u64::from(len);
    }

    /// Whether a packet is lent and not taken yet.
    pub fn is_lending(&self) -> bool {
        self.reader.pending.is_some()
    }

    /// Reads no more packets from now on: another process will. Whether none is left that was read
    /// and not taken.
    pub(crate) fn stop_reading(&mut self) -> bool {
        self.reader.stops_reading = true;
        self.reader.pending.is_none() && !self.top_up_ahead()
    }

    /// Reads ahead if that is worth it, and says whether something was; only while none is pending,
    /// which may be one of those.
    fn top_up_ahead(&mut self) -> bool {
        if self.reader.stops_reading {
            return self.reader.ahead.as_ref().is_some_and(|ahead| ahead.is_waiting());
        }
        self.reader.ahead.as_mut().is_some_and(|ahead| ahead.top_up(self.interface.fd.as_fd()))
    }

    /// Whether it was left before it was found empty, since this was last asked: what waits there
    /// does not wake the worker.
    pub(crate) fn take_unread(&mut self) -> bool {
        std::mem::take(&mut self.reader.is_unread)
    }

    /// A packet is lost, or the whole interface.
    fn note_lost(&mut self, why: &io::Error) {
        match why.raw_os_error() {
            // It was taken out of the tap and could not be written where it should go.
            Some(libc::EFAULT) => self.from_tap.count_drop(DropReason::Os),
            Some(libc::EBADFD) => self.is_gone_untold |= self.watch.note_gone(),
            _ => {}
        }
    }

    /// No packet was found where there may be some.
    fn note_failure(&mut self, why: &io::Error) {
        self.reader.is_unread = why.raw_os_error() != Some(libc::EBADFD);
        let is_counted = why.kind() == io::ErrorKind::Interrupted || is_too_many_drops(why);
        if self.reader.is_unread && !is_counted {
            self.from_tap.count_drop(DropReason::Os);
        }
    }

    fn in_scratch(&self, header: NetHeader, len: u32) -> Pending {
        Pending { header, bytes: self.reader.scratch.bytes().split_at(len as usize).0, len }
    }

    /// The way with a copy: a packet was lent or read ahead before, or there are more pieces than
    /// one call takes.
    fn read_with_copy(&mut self, pieces: &[SharedSlice]) -> io::Result<Option<(NetHeader, u32)>> {
        self.make_pending()?;
        let Some(Pending { header, bytes, len }) = self.reader.pending else { return Ok(None) };
        if !copy_all(bytes, pieces) {
            self.refresh_mtu();
            return Ok(None);
        }
        self.pop();
        Ok(Some((header, len)))
    }

    /// Makes sure that there is a pending packet, if there is one at all.
    fn make_pending(&mut self) -> io::Result<()> {
        if self.reader.pending.is_none() {
            self.reader.pending = self.take_ahead()?;
        }
        if self.reader.pending.is_none() {
            let room = self.reader.scratch.bytes().split_at(PACKET_LEN_MAX as usize).0;
            let packet = self.read_packet(&[room])?;
            self.reader.pending = packet.map(|(header, len)| self.in_scratch(header, len));
        }
        Ok(())
    }

    /// The next packet of those that were read ahead.
    fn take_ahead(&mut self) -> io::Result<Option<Pending>> {
        for _ in 0..DROPS_MAX {
            if !self.top_up_ahead() {
                return Ok(None);
            }
            let Some(read) = self.reader.ahead.as_mut().and_then(|ahead| ahead.pop()) else {
                return Ok(None);
            };
            let mut header = [0; HEADER_LEN];
            read.read(0, &mut header);
            match accepted(&header, read.len()) {
                Ok((header, len)) => {
                    let bytes = read.split_at(HEADER_LEN).1;
                    return Ok(Some(Pending { header, bytes, len }));
                }
                Err(reason) => self.from_tap.count_drop(reason),
            }
        }
        Err(too_many_drops())
    }

    fn read_packet(&mut self, pieces: &[SharedSlice]) -> io::Result<Option<(NetHeader, u32)>> {
        if self.reader.stops_reading {
            return Ok(None);
        }
        let room = pieces.iter().fold(0, |room: usize, piece| room.saturating_add(piece.len()));
        // A longer packet, as after the MTU was raised, spills to its place in the scratch.
        let spill = self.reader.scratch.bytes().split_at(room.min(PACKET_LEN_MAX as usize)).1;
        for _ in 0..DROPS_MAX {
            let mut header = [0; HEADER_LEN];
            let read = self.vectors.read(self.interface.fd.as_fd(), &mut header, pieces, spill);
            let read = read.inspect_err(|why| self.note_lost(why))?;
            if let Some(ahead) = &mut self.reader.ahead {
                ahead.row.record(read.unwrap_or(0));
            }
            let Some(read) = read else { return Ok(None) };
            match accepted(&header, read) {
                Ok((header, len)) if len as usize > room => {
                    gather(pieces, self.reader.scratch.bytes().split_at(room).0);
                    self.reader.pending = Some(self.in_scratch(header, len));
                    self.refresh_mtu();
                    return Ok(None);
                }
                Ok(packet) => return Ok(Some(packet)),
                Err(reason) => self.from_tap.count_drop(reason),
            }
        }
        Err(too_many_drops())
    }
}

impl PacketSource for Tap {
    fn peek(&mut self) -> Option<Packet<'_>> {
        if let Err(why) = self.make_pending() {
            self.note_failure(&why);
        }
        let Pending { header, bytes, len } = self.reader.pending.as_ref()?;
        self.reader.lent = [*bytes];
        Some(Packet { header, payload: &self.reader.lent, len: *len })
    }

    fn segments_done(&self) -> usize {
        self.reader.segments_done
    }

    fn set_segments_done(&mut self, count: usize) {
        self.reader.segments_done = count;
    }

    fn dropped(&self) -> [u64; DropReason::ALL.len()] {
        self.from_tap.drops
    }

    fn pop(&mut self) {
        self.reader.segments_done = 0;
        if let Some(packet) = self.reader.pending.take() {
            self.from_tap.count(packet.len);
        }
    }
}

/// The header and the length of the packet that was read, header in front; or why it is none.
fn accepted(header: &[u8; HEADER_LEN], read: usize) -> Result<(NetHeader, u32), DropReason> {
    let len = read.saturating_sub(HEADER_LEN);
    let packet_len = u32::try_from(len).unwrap_or(u32::MAX);
    // The kernel does not write `num_buffers`.
    let header = NetHeader { num_buffers: 0, ..NetHeader::decode(header) };
    if packet_len > PACKET_LEN_MAX {
        return Err(DropReason::TooLong);
    }
    let is_packet = len >= ETHERNET_HEADER_LEN && header.check(packet_len).is_ok();
    if is_packet { Ok((header, packet_len)) } else { Err(DropReason::Malformed) }
}

/// Each of them has been counted.
fn too_many_drops() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

fn is_too_many_drops(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::InvalidData
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use rustix::net::RecvFlags;

    use super::*;
    use crate::{GuestMemory, MemoryRequest};

    /// A socket stands for a tap.
    #[test]
    fn short_ones_in_a_row_are_read_ahead() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut tap = Tap::new(ours.into(), "socket".to_owned(), None);
        if tap.set_reads(TapCalls::IoUring).is_none() {
            return println!("skipped: no io_uring here");
        }
        for mark in 0..6 {
            theirs.send(&[&[0; HEADER_LEN][..], &[mark; 60]].concat()).unwrap();
        }
        let mut bytes = [0xff; 60];
        // SAFETY: the bytes live until the end of this function, and nothing else refers to them.
        let room = unsafe { SharedSlice::new(bytes.as_mut_ptr(), bytes.len()) };
        // Two alone, then two at once.
        for (mark, left_from) in [(0, 1), (1, 2), (2, 4), (3, 4)] {
            assert_eq!(tap.read_into(&[room]).unwrap(), Some((NetHeader::ZERO, 60)));
            let mut read = [0];
            room.read(0, &mut read);
            let mut left = [0; HEADER_LEN + 60];
            rustix::net::recv(&tap, &mut left[..], RecvFlags::PEEK).unwrap();
            assert_eq!((read[0], left[HEADER_LEN]), (mark, left_from));
        }
    }

    /// A socket stands for a tap of a kernel that tells, as not every kernel does of a tap.
    #[test]
    fn a_packet_that_is_lost_with_its_receivers_memory_is_counted() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
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
            theirs.send(&[&[0; HEADER_LEN][..], &[mark; 60]].concat()).unwrap();
        }
        let failure = tap.read_into(&[lost]).unwrap_err();
        assert_eq!(failure.raw_os_error(), Some(libc::EFAULT));
        assert_eq!((tap.from_tap.packets, tap.from_tap.drops[DropReason::Os as usize]), (0, 1));
        let mut bytes = [0; 60];
        tap.peek().unwrap().payload[0].read(0, &mut bytes);
        assert_eq!(bytes, [2; 60], "the next one comes");
    }
}
