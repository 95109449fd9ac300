//! packets → receiveq: what the guest receives, copied once, straight into its buffers.
//!
//! The guest's buffers are read ahead into a *window*: peeked, not popped. `reserve` makes the
//! window large enough, `commit` accepts as many of its buffers as the packet fills and stages
//! their used entries, `flush` publishes them all at once, so that a merged packet is never seen
//! half. What was peeked and not needed simply stays in the window for the next packet.

mod refuse;

use crate::copy::{copy, write};
use crate::from_guest::count_of;
use crate::requests::Requests;
use crate::ring::{GuestRing, Published, Staged};
use crate::window::{Buffer, ReceiveLists};
use ringway_net::offload::Segment;
use ringway_net::{Counters, DropReason, HEADER_LEN, HEADER_LEN_HASH, HeaderHash, Negotiated};
use ringway_net::{NetHeader, Packet, PacketSink, Put, ReceiveHash};
use ringway_virtq::{Areas, Arm, Cursor, DeviceQueue, Head, Regions};
use ringway_virtq::{Broken, One, Position, SharedSlice, Why};

/// The device side of one receiveq.
#[derive(Debug)]
pub struct ToGuest<Q> {
    ring: GuestRing<Q>,
    negotiated: Negotiated,
    /// How the hash is computed that the guest wants with each packet; `None`: it wants none.
    hash: Option<ReceiveHash>,
    pub(crate) lists: ReceiveLists,
    /// Packets committed and not published.
    staged: Staged,
    /// The last packet needs more pieces of the guest's buffers than one packet may have.
    never_fits: bool,
    /// Whether a packet may be a request, whose sender waits for an answer.
    pub requests: Requests,
    /// Packets that went through, and packets dropped on the way out.
    pub counters: Counters,
}

impl<Q: DeviceQueue> ToGuest<Q> {
    /// Wraps a started queue; `counters` continue from an earlier start.
    pub fn new(
        queue: Q,
        regions: Regions,
        negotiated: Negotiated,
        counters: Counters,
        lists: ReceiveLists,
    ) -> Self {
        Self {
            ring: GuestRing::new(queue, regions),
            negotiated,
            hash: None,
            lists,
            staged: Staged::new(&counters),
            never_fits: false,
            requests: Requests::default(),
            counters,
        }
    }

    /// Room for one packet of up to `len` bytes, header not counted, in the guest's own memory.
    ///
    /// With mergeable buffers as many buffers as needed; without, the next one, which may be
    /// shorter than `len`. `None`: the guest has not posted enough; nothing changed.
    pub fn reserve(&mut self, len: u32) -> Option<&[SharedSlice]> {
        if !self.has_room(len) {
            return None;
        }
        self.lists.window.lay_out(&self.negotiated, len, &mut self.lists.slot);
        Some(&self.lists.slot)
    }

    /// Whether no buffers of the kind that the guest posts would have been enough for the last
    /// [`reserve`](Self::reserve): they are in too many pieces. Shorter packets may fit.
    pub fn never_fits(&self) -> bool {
        self.never_fits
    }

    /// Whether the window has room for so many bytes behind a header, as far as it can be told.
    #[inline]
    fn has_room(&mut self, len: u32) -> bool {
        let bytes = u64::from(len) + self.negotiated.header_len as u64;
        if self.is_filled(bytes) {
            return true;
        }
        match self.ring.broken {
            Some(_) => false,
            None => self.fill_window(bytes).unwrap_or_else(|why| {
                self.set_broken(why);
                false
            }),
        }
    }

    /// Accepts the `len` bytes that were written into the reserved room, with this header.
    ///
    /// `len` must not be larger than what was reserved.
    pub fn commit(&mut self, header: NetHeader, len: u32) {
        let hash = self.hash_of(len);
        self.requests.see(&Packet { header: &header, payload: &self.lists.slot, len });
        let header_at = self.lists.window.buffers[self.lists.window.first].pieces_from;
        let mut left = u64::from(len) + self.negotiated.header_len as u64;
        let mut used = 0u16;
        while left > 0 {
            let buffer = self.lists.window.take();
            let written = u32::try_from(left).map_or(buffer.bytes, |left| left.min(buffer.bytes));
            self.ring.queue.add_used(buffer.head, written);
            self.ring.queue.pop(buffer.head);
            left -= u64::from(written);
            used += 1;
        }
        self.write_header(header_at, NetHeader { num_buffers: used, ..header }, hash);
        // All of the packet is there.
        self.ring.queue.keep();
        self.staged.packets += 1;
        self.counters.count(len);
    }

    /// Publishes what was committed; `true`: the guest wants a call.
    pub fn flush(&mut self) -> bool {
        self.publish().packets > 0 && self.must_call()
    }

    /// Publishes what was committed, and says how many packets that are.
    pub fn publish(&mut self) -> Published {
        self.ring.publish(&mut self.staged, &self.counters)
    }

    /// Whether the guest wants a call about what was published since the last time asked.
    pub fn must_call(&mut self) -> bool {
        self.ring.must_call()
    }

    /// See [`DeviceQueue::driver_event`]; `None` if the ring is not in the guest's memory.
    pub fn driver_event(&self) -> Option<u32> {
        self.ring.driver_event()
    }

    /// Tells the guest when to kick after posting buffers; `true`: new ones are already there.
    ///
    /// The window does not count: if it were enough, no packet would wait for buffers.
    pub fn arm_kicks(&mut self, arm: Arm) -> bool {
        if self.ring.broken.is_some() {
            return false;
        }
        match (arm, self.lists.window.unused().last()) {
            (Arm::Next | Arm::After(_), Some(last)) => self.ring.queue.arm_kicks_behind(last.next),
            _ => self.ring.queue.arm_kicks(arm),
        }
    }

    /// Whether the guest may receive a packet with this header.
    pub fn accepts(&self, header: &NetHeader) -> bool {
        self.negotiated.accepts(header)
    }

    /// Other receive offloads hold from the next packet on; everything else stays.
    pub fn set_negotiated(&mut self, negotiated: Negotiated) {
        self.negotiated = negotiated;
    }

    /// How hashes are computed from the next packet on; `None`: not at all.
    pub fn set_hash(&mut self, hash: Option<ReceiveHash>) {
        self.hash = hash;
    }

    /// The packet of `len` bytes that was written into the reserved room.
    pub fn reserved<'a>(&'a self, header: &'a NetHeader, len: u32) -> Packet<'a> {
        Packet { header, payload: &self.lists.slot, len }
    }

    /// Why the queue stopped, if the guest broke it.
    pub fn broken(&self) -> Option<Why> {
        self.ring.broken
    }

    pub(crate) fn stop(&mut self) -> Position {
        self.flush();
        self.ring.stop()
    }

    /// From now on the ring is at `areas` in `regions`. If it is not in that memory the queue is
    /// broken; a queue that was broken for that reason alone goes on once it is.
    ///
    /// # Errors
    /// [`Broken`]: the areas are not in that memory.
    pub fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        self.lists.window.clear();
        self.ring.rebind(areas, regions)
    }

    fn set_broken(&mut self, why: Why) {
        self.lists.window.clear();
        self.ring.broken = Some(why);
    }

    /// Peeks further buffers until the window holds `bytes`, or one buffer without merging.
    fn fill_window(&mut self, bytes: u64) -> Result<bool, Why> {
        self.never_fits = false;
        if self.lists.window.unused().is_empty() {
            self.lists.window.clear();
        }
        while !self.is_filled(bytes) {
            let mut next = match self.lists.window.unused().last() {
                Some(buffer) => buffer.next,
                None => self.ring.queue.cursor(),
            };
            let found =
                self.ring.queue.peek(&mut next, &self.ring.regions, &mut self.lists.elements);
            let Some(head) = found.map_err(|broken| broken.0)? else { return Ok(false) };
            if !self.push(head, next)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_filled(&self, bytes: u64) -> bool {
        let window = &self.lists.window;
        if self.negotiated.mergeable { window.bytes >= bytes } else { !window.is_used_up() }
    }

    /// Adds the buffer in `elements` to the window. `false`: the packet would need more pieces
    /// than one packet may have, so it never fits.
    fn push(&mut self, head: Head, next: Cursor) -> Result<bool, Why> {
        let ReceiveLists { elements, window, .. } = &mut self.lists;
        if !elements.readable().is_empty() {
            return Err(Why::WrongDirection);
        }
        let writable = elements.writable();
        window.extra_units = window.extra_units.saturating_add(count_of(writable) - 1);
        let bytes = u32::try_from(elements.bytes()).unwrap_or(u32::MAX);
        if (bytes as usize) < self.negotiated.header_len {
            return Err(Why::NoHeader);
        }
        if !window.has_room_for(writable.len()) {
            self.never_fits = window.first == 0;
            if !self.never_fits {
                // A peek is undone by forgetting it: the next round reads these buffers again.
                window.clear();
            }
            return Ok(!self.never_fits);
        }
        let pieces_from = window.pieces.len();
        match writable {
            // Nearly all buffers: it need not be found out how many pieces to move.
            &[piece] => window.pieces.push(piece),
            pieces => window.pieces.extend_from_slice(pieces),
        }
        let pieces_to = window.pieces.len();
        window.buffers.push(Buffer { head, next, pieces_from, pieces_to, bytes });
        window.bytes += u64::from(bytes);
        Ok(true)
    }

    /// The hash of the packet that was written into the reserved room; what the guest makes of its
    /// memory meanwhile is reported to itself only.
    fn hash_of(&self, len: u32) -> HeaderHash {
        match &self.hash {
            Some(hash) if self.negotiated.header_len == HEADER_LEN_HASH => {
                hash.of(&self.reserved(&NetHeader::ZERO, len))
            }
            _ => HeaderHash::default(),
        }
    }

    /// Writes the header into the pieces from that one on, which were checked to hold it.
    #[inline]
    fn write_header(&self, first: usize, header: NetHeader, hash: HeaderHash) {
        let header_len = self.negotiated.header_len;
        let header = self.negotiated.to_guest(header);
        let piece = self.lists.window.pieces[first];
        if header_len == HEADER_LEN && piece.len() >= HEADER_LEN {
            return piece.write_array(0, &header.encode());
        }
        let bytes = header.encode_hash(hash);
        let mut at = 0;
        for piece in &self.lists.window.pieces[first..] {
            let len = piece.len().min(header_len - at);
            piece.write(0, &bytes[at..at + len]);
            at += len;
            if at == header_len {
                return;
            }
        }
    }

    /// Copies in one packet that was completed for this guest, out of private memory.
    pub fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        let Ok(len) = u32::try_from(segment.bytes.len()) else {
            return self.refuse(DropReason::TooLong);
        };
        if self.reserve(len).is_none() {
            return self.no_room();
        }
        if !write(segment.bytes, &self.lists.slot) {
            return self.refuse_written();
        }
        self.commit(segment.header, len);
        Put::Done
    }

    /// The usual packet, of so many bytes, into one buffer, which is one piece. `None`: it is not
    /// so, and nothing changed. `is_silent`: its header says nothing.
    #[inline(always)]
    fn put_whole(
        &mut self,
        packet: &Packet<'_>,
        len: usize,
        is_silent: bool,
        copy_into: impl FnOnce(SharedSlice),
    ) -> Option<Put> {
        let is_plain = self.negotiated.header_len == HEADER_LEN && self.ring.broken.is_none();
        if !is_plain || !self.lists.window.is_used_up() {
            return None;
        }
        let at = self.ring.queue.cursor();
        let One { head, memory: room } = self.ring.queue.peek_one(at, &self.ring.regions)?;
        if !head.is_writable {
            return None;
        }
        if let Some(soon) = self.ring.queue.ahead(at, &self.ring.regions) {
            soon.prefetch_to_write(0);
        }
        let behind_header = room.slice(HEADER_LEN, len)?;
        let written = u32::try_from(HEADER_LEN + len).ok()?;
        let num_buffers = 1;
        let header = match is_silent {
            // Nothing that would have to be put together.
            true => NetHeader { num_buffers, ..NetHeader::default() }.encode(),
            false => self.negotiated.to_guest(NetHeader { num_buffers, ..*packet.header }).encode(),
        };
        room.write_array(0, &header);
        copy_into(behind_header);
        self.ring.queue.add_used(head, written);
        self.ring.queue.keep();
        self.ring.queue.pop(head);
        self.requests.see(packet);
        self.staged.packets += 1;
        self.counters.count(packet.len);
        Some(Put::Done)
    }

    /// A packet in several pieces. Not part of the usual way, which would take longer with it.
    #[inline(never)]
    fn put_several(&mut self, packet: &Packet<'_>, is_silent: bool) -> Put {
        let copy_into = |room| {
            copy(packet.payload, &[room], 0);
        };
        match self.put_whole(packet, packet.len as usize, is_silent, copy_into) {
            Some(put) => put,
            None => self.put_pieces(packet),
        }
    }

    /// Any packet, into as many buffers as it takes.
    #[inline(never)]
    fn put_pieces(&mut self, packet: &Packet<'_>) -> Put {
        if !self.has_room(packet.len) {
            return self.no_room();
        }
        if self.hash.is_some() || self.requests.looks() {
            self.lists.window.lay_out(&self.negotiated, packet.len, &mut self.lists.slot);
        }
        let rooms = self.lists.window.next_pieces(&self.negotiated);
        if !copy(packet.payload, rooms, self.negotiated.header_len) {
            return self.refuse_written();
        }
        self.commit(*packet.header, packet.len);
        Put::Done
    }
}

impl<Q: DeviceQueue> PacketSink for ToGuest<Q> {
    #[inline(always)]
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        let is_silent = packet.header.is_zero();
        if !is_silent && !self.negotiated.accepts(packet.header) {
            return Put::Unfinished;
        }
        let &[from] = packet.payload else { return self.put_several(packet, is_silent) };
        let copy_into = |room| {
            from.copy_to(room);
        };
        match self.put_whole(packet, from.len(), is_silent, copy_into) {
            Some(put) => put,
            None => self.put_pieces(packet),
        }
    }
}
