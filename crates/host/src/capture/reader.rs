//! The other process's side: takes records out of all rings.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{Ordering, fence};

use super::record::{ALIGNMENT, CaptureRecord, HEAD_LEN};
use super::writer::{SKIP, place};
use super::{CaptureFile, LOST_AT, READ_AT, RING_LEN, RingMemory, WRITTEN_AT};

/// The data plane has written what cannot be.
#[derive(Debug, thiserror::Error)]
#[error("the capture has records that cannot be")]
pub struct Impossible;

/// All rings of a file.
#[derive(Debug)]
pub struct CaptureReader {
    rings: Vec<Ring>,
    _file: CaptureFile,
}

#[derive(Debug)]
struct Ring {
    memory: RingMemory,
    /// Bytes read since the start.
    read: u64,
}

impl CaptureReader {
    /// A reader of that file.
    ///
    /// # Errors
    /// It is not a file of captures, or the operating system refuses.
    pub fn open(file: impl AsFd) -> io::Result<Self> {
        let file = CaptureFile::open(file)?;
        let rings = (0..file.rings).filter_map(|number| file.ring(number));
        let rings = rings.map(|memory| Ring { memory, read: 0 }).collect();
        Ok(Self { rings, _file: file })
    }

    /// Gives what is there now, ring by ring, to `take`, and ends early when that returns `false`.
    ///
    /// # Errors
    /// The data plane has written what cannot be.
    pub fn read(
        &mut self,
        mut take: impl FnMut(CaptureRecord, Vec<u8>) -> bool,
    ) -> Result<(), Impossible> {
        for ring in &mut self.rings {
            let end = ring.memory.counts.load_u64(WRITTEN_AT);
            // PAIRS WITH: capture/writer.rs::try_put
            fence(Ordering::Acquire);
            while let Some((record, bytes)) = ring.next(end)? {
                if !take(record, bytes) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Packets that found no room so far.
    pub fn lost(&self) -> u64 {
        let lost = self.rings.iter().map(|ring| ring.memory.counts.load_u64(LOST_AT));
        lost.fold(0, u64::saturating_add)
    }
}

impl Ring {
    /// The next record before `end`. At most one ring of them is taken: a writer that goes
    /// backwards is found out.
    fn next(&mut self, end: u64) -> Result<Option<(CaptureRecord, Vec<u8>)>, Impossible> {
        let left = end.wrapping_sub(self.read);
        if left == 0 {
            return Ok(None);
        }
        if left > RING_LEN as u64 {
            return Err(Impossible);
        }
        let at = place(self.read);
        let records = self.memory.records;
        if records.load_u32(at) == SKIP {
            self.give_back((RING_LEN - at) as u64);
            return if at == 0 { Err(Impossible) } else { self.next(end) };
        }
        let head = records.slice(at, HEAD_LEN).ok_or(Impossible)?.read_array(0);
        let (record, len) = CaptureRecord::decode(&head);
        let len = usize::try_from(len).map_err(|_| Impossible)?;
        let room = HEAD_LEN.saturating_add(len).next_multiple_of(ALIGNMENT);
        let payload = records.slice(at + HEAD_LEN, len).ok_or(Impossible)?;
        if room as u64 > left || record.packet_len < u32::try_from(len).unwrap_or(u32::MAX) {
            return Err(Impossible);
        }
        let mut bytes = vec![0; len];
        payload.read(0, &mut bytes);
        self.give_back(room as u64);
        Ok(Some((record, bytes)))
    }

    fn give_back(&mut self, len: u64) {
        self.read += len;
        // PAIRS WITH: capture/writer.rs::has_room, behind which these bytes are written.
        fence(Ordering::Release);
        self.memory.counts.store_u64(READ_AT, self.read);
    }
}
