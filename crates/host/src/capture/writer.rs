//! The worker's side of a ring: copies packets in, and never waits.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use ringway_net::Packet;
use ringway_virtq::SharedSlice;

use super::record::{ALIGNMENT, CaptureRecord, HEAD_LEN};
use super::{CaptureFile, LOST_AT, READ_AT, RING_LEN, RingMemory, WRITTEN_AT};

/// Stands for the length where the rest of the ring is left out.
pub(super) const SKIP: u32 = u32::MAX;

/// One ring.
#[derive(Debug)]
pub(crate) struct CaptureWriter {
    ring: RingMemory,
    /// Bytes written since the start, what was left out at the end included.
    written: u64,
    /// Packets that found no room.
    lost: u64,
    /// The file that the ring lies in.
    _file: Arc<CaptureFile>,
}

impl CaptureWriter {
    /// The ring of that worker; `None`: there is none for it.
    pub(crate) fn new(file: Arc<CaptureFile>, worker: u16) -> Option<Self> {
        let ring = file.ring(worker.into())?;
        Some(Self { ring, written: 0, lost: 0, _file: file })
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> RingMemory {
        self.ring
    }

    /// Copies a packet in, at most `snap` bytes of it; one without room is counted.
    pub(crate) fn put(&mut self, record: &CaptureRecord, packet: &Packet<'_>, snap: u32) {
        let len = packet.len.min(snap);
        if !self.try_put(record, packet, len) {
            self.lost += 1;
            self.ring.counts.store_u64(LOST_AT, self.lost);
        }
    }

    fn try_put(&mut self, record: &CaptureRecord, packet: &Packet<'_>, len: u32) -> bool {
        let room = (HEAD_LEN + len as usize).next_multiple_of(ALIGNMENT);
        let at = place(self.written);
        let skipped = if at + room > RING_LEN { RING_LEN - at } else { 0 };
        if !self.has_room(skipped + room) {
            return false;
        }
        if skipped > 0 {
            self.ring.records.store_u32(at, SKIP);
            self.written += skipped as u64;
        }
        let at = place(self.written);
        let Some(into) = self.ring.records.slice(at, room) else { return false };
        into.write(0, &record.encode(len));
        copy(packet, into.split_at(HEAD_LEN).1, len as usize);
        self.written += room as u64;
        // PAIRS WITH: capture/reader.rs::next, which reads what was written before.
        fence(Ordering::Release);
        self.ring.counts.store_u64(WRITTEN_AT, self.written);
        true
    }

    /// The reader may say anything: what cannot be is no room.
    fn has_room(&self, len: usize) -> bool {
        let read = self.ring.counts.load_u64(READ_AT);
        // PAIRS WITH: capture/reader.rs::give_back, behind which these bytes are not read.
        fence(Ordering::Acquire);
        let used = self.written.wrapping_sub(read);
        used <= RING_LEN as u64 && RING_LEN as u64 - used >= len as u64
    }
}

/// Where in the ring that byte is.
pub(super) fn place(count: u64) -> usize {
    // The remainder is less than the ring's length.
    usize::try_from(count % RING_LEN as u64).unwrap_or(0)
}

/// The first `len` bytes of a packet, which has as many.
fn copy(packet: &Packet<'_>, into: SharedSlice, len: usize) {
    let (mut into, _) = into.split_at(len);
    for piece in packet.payload {
        if into.is_empty() {
            return;
        }
        let copied = piece.copy_to(into);
        into = into.split_at(copied).1;
    }
}
