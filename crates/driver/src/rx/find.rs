//! Packets in the buffers that came back: the usual one in few steps, any other with care.
//!
//! How: see [`NetRx`]. Limits: the device is not trusted; each step says what it checks.

use ringway_net::{DropReason, HeaderError, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Broken, BufferId, DriverQueue, PREFETCH_AHEAD, PREFETCH_SCATTER, Returned};

use super::NetRx;
use crate::received::{Fragment, LINEAR_TRUESIZE};
use crate::rx_memory::Extent;

/// The content of the used ring for one packet.
enum RxOutcome {
    Nothing,
    Dropped(DropReason),
    Packet,
}

impl<Q: DriverQueue> NetRx<Q> {
    /// Finds the next packet, if it is a usual one: in the list, in one buffer, and nothing to do
    /// about it. Of anything else `find` says what it is, anew.
    #[inline(always)]
    pub(super) fn find_usual(&mut self) -> bool {
        let Some(&used) = self.used[..self.taken].get(self.next) else { return false };
        let Some(len) = used.len.checked_sub(self.header_len) else { return false };
        self.prefetch(self.next + usize::from(PREFETCH_AHEAD));
        let (extent, header) = self.begin(used.id, len);
        let is_one = header.num_buffers == 1 || !self.options.mergeable;
        if !is_one || !header.is_plain() || !is_packet_len(len) {
            return false;
        }
        // The lending of the packet before ends only now: if this is not a usual one, `find` ends
        // it.
        self.end_lending();
        self.next += 1;
        self.len = len;
        self.count_packet();
        if len > self.start.len() {
            self.keep(extent, self.header_len + self.start.len(), used.len);
        }
        true
    }

    /// Takes used buffers until there is a packet that can be lent; whether there is one.
    #[inline(never)]
    pub(super) fn find(&mut self) -> Result<bool, Broken> {
        let mut dropped = 0;
        loop {
            self.end_lending();
            match self.take_packet()? {
                RxOutcome::Packet => {
                    self.count_packet();
                    return Ok(true);
                }
                RxOutcome::Dropped(reason) => self.counters.count_drop(reason),
                RxOutcome::Nothing => return Ok(false),
            }
            dropped += 1;
            if dropped == self.queue.size() {
                self.end_lending();
                return Ok(false);
            }
        }
    }

    #[inline]
    fn count_packet(&mut self) {
        self.counters.count(self.len);
        self.sizer.on_packet(self.len);
    }

    /// The buffers of one packet, first to last.
    #[inline]
    fn take_packet(&mut self) -> Result<RxOutcome, Broken> {
        let Some(first) = self.take_buffer()? else { return Ok(RxOutcome::Nothing) };
        self.prefetch(self.next - 1 + usize::from(PREFETCH_AHEAD));
        let Some(mut len) = first.len.checked_sub(self.header_len) else {
            return Ok(RxOutcome::Dropped(DropReason::Malformed));
        };
        let (extent, header) = self.begin(first.id, len);
        if len > self.start.len() {
            self.keep(extent, self.header_len + self.start.len(), first.len);
        }
        let buffers = if self.options.mergeable { header.num_buffers } else { 1 };
        if buffers != 1 {
            match self.take_further(buffers)? {
                Some(further) => len = len.saturating_add(further),
                None => return Ok(RxOutcome::Dropped(DropReason::Malformed)),
            }
        }
        self.len = len;
        Ok(self.judge(&header))
    }

    /// Reads the header of a packet that has `len` bytes in its first buffer; returns where that
    /// is, and the header taken apart: out of registers, before it is put away.
    #[inline(always)]
    fn begin(&mut self, first: BufferId, len: u32) -> (Extent, NetHeader) {
        let extent = self.slots[usize::from(first.0)].extent;
        let bytes = self.memory.header(extent);
        let header = NetHeader::decode(&bytes);
        self.header = bytes;
        self.truesize = LINEAR_TRUESIZE;
        self.start.begin(extent.offset + self.header_len, len);
        (extent, header)
    }

    /// The next used buffer. No longer than what was posted, as the ring checks.
    #[inline(always)]
    fn take_buffer(&mut self) -> Result<Option<Returned>, Broken> {
        if self.next == self.taken && !self.take_more()? {
            return Ok(None);
        }
        let used = self.used[self.next];
        self.next += 1;
        Ok(Some(used))
    }

    /// Takes all used buffers off the ring; whether there are any.
    #[inline(never)]
    fn take_more(&mut self) -> Result<bool, Broken> {
        self.broken.map_or(Ok(()), Err)?;
        let before = self.taken;
        let (used, taken) = (&mut self.used, &mut self.taken);
        let result = self.queue.take_used(self.queue.size(), |returned| {
            // There is room for as many as the queue has entries.
            if let Some(place) = used.get_mut(*taken) {
                *place = returned;
                *taken += 1;
            }
        });
        self.broken = result.err();
        // The others' turn comes as packets are taken.
        (0..usize::from(PREFETCH_AHEAD)).for_each(|ahead| self.prefetch(before + ahead));
        result.map(|()| self.taken > before)
    }

    /// Asks for the memory of one of the used buffers that were taken, if there are so many; places
    /// in scattered order (ADR 23). What the driver does not read stays in the cache of the device,
    /// if the packet before is anything to go by.
    #[inline(always)]
    fn prefetch(&self, place: usize) {
        let place = place ^ usize::from(PREFETCH_SCATTER);
        if let Some(used) = self.used[..self.taken].get(place)
            && let Some(slot) = self.slots.get(usize::from(used.id.0))
        {
            self.memory.prefetch(slot.extent, self.start.is_read());
        }
    }

    /// The other buffers of a packet that takes so many; their bytes. `None`: it cannot.
    #[inline(never)]
    fn take_further(&mut self, buffers: u16) -> Result<Option<u32>, Broken> {
        if buffers == 0 || buffers > self.queue.size() {
            return Ok(None);
        }
        let mut len = 0u32;
        for _ in 1..buffers {
            // All buffers of a packet become used together (virtio 1.2 §5.1.6.4): none may miss.
            let Some(used) = self.take_buffer()? else { return Ok(None) };
            if used.len > 0 {
                self.keep(self.slots[usize::from(used.id.0)].extent, 0, used.len);
            }
            len = len.saturating_add(used.len);
        }
        Ok(Some(len))
    }

    /// Whether a complete packet can be handed up.
    #[inline]
    fn judge(&self, header: &NetHeader) -> RxOutcome {
        if !is_packet_len(self.len) {
            return RxOutcome::Dropped(DropReason::Malformed);
        }
        if header.is_plain() { RxOutcome::Packet } else { self.judge_offloads() }
    }

    /// The same for what the header asks for.
    #[inline(never)]
    fn judge_offloads(&self) -> RxOutcome {
        let header = NetHeader::decode(&self.header);
        match header.check(self.len) {
            // A device must ask for the checksum of whatever it asks to be segmented (virtio 1.2
            // §5.1.6.4.1), and a Linux host does not when it has checked a packet that it merged.
            Ok(()) | Err(HeaderError::GsoWithoutCsum) => {}
            Err(_) => return RxOutcome::Dropped(DropReason::Malformed),
        }
        if !self.options.accepts(header) {
            return RxOutcome::Dropped(DropReason::Offload);
        }
        RxOutcome::Packet
    }

    /// Adds the bytes from `skipped` to `written`, which is more, of a buffer.
    #[inline(never)]
    fn keep(&mut self, extent: Extent, skipped: u32, written: u32) {
        self.truesize += extent.len;
        let piece = Extent { offset: extent.offset + skipped, len: written - skipped };
        let is_fixed = self.options.scheme.is_fixed();
        if let Some(before) = self.fragments.last_mut()
            && before.extent.offset + before.extent.len == piece.offset
            && (is_fixed || self.memory.is_one_chunk(before.extent.offset, piece.offset))
        {
            before.extent.len += piece.len;
            before.buffers += 1;
            self.statistics.coalesced += 1;
            return;
        }
        self.fragments.push(Fragment { extent: piece, buffers: 1 });
    }
}

/// Whether a packet can have so many bytes.
#[inline(always)]
fn is_packet_len(len: u32) -> bool {
    // One below 0 is longer than any packet.
    len.wrapping_sub(1) < PACKET_LEN_MAX
}
