//! What a driver has in flight: private records, never read back from shared memory.
//!
//! How: one record for each buffer id, stamped with a running number. Without IN_ORDER a
//! used entry stands for its buffer; with IN_ORDER it opens a *batch*, all buffers from the oldest
//! one up to it (virtio 1.2 §2.7.9, §2.8.10). Limits: ids are below the queue size.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Broken, BufferId, SIZE_MAX, Used, Why};

/// The record of one buffer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Flying {
    /// Ring descriptors it takes; 0: not in flight.
    pub descriptors: u16,
    /// First and last of them (split).
    pub first: u16,
    pub last: u16,
    /// Bytes the device may write.
    pub writable: u32,
    /// Running number of the buffer, modulo 2^32.
    number: u32,
}

/// All buffers of one driver queue.
#[derive(Debug)]
pub(crate) struct InFlight {
    buffers: Box<[Flying]>,
    /// Ids in the order they were added; its length is a power of two.
    order: Box<[u16]>,
    in_order: bool,
    /// Buffers so far, modulo 2^32: at most 32768 lie between any two of these.
    added: u32,
    published: u32,
    returned: u32,
    batch: Option<Used>,
}

impl InFlight {
    pub fn new(size: u16, in_order: bool) -> Self {
        let places = if in_order { usize::from(size).next_power_of_two() } else { 0 };
        Self {
            buffers: vec![Flying::default(); usize::from(size)].into(),
            order: vec![0; places].into(),
            in_order,
            added: 0,
            published: 0,
            returned: 0,
            batch: None,
        }
    }

    /// Records a staged buffer. Its id must be below the size and not in flight.
    #[inline(always)]
    pub fn add(&mut self, id: BufferId, descriptors: u16, chain: (u16, u16), writable: u32) {
        let number = self.added;
        let (first, last) = chain;
        let place = &mut self.buffers[usize::from(id.0)];
        assert!(place.descriptors == 0, "buffer {} is in flight", id.0);
        *place = Flying { descriptors, first, last, writable, number };
        if self.in_order {
            let place = self.place(number);
            self.order[place] = id.0;
        }
        self.added = self.added.wrapping_add(1);
    }

    /// Everything staged is now the device's; says how many buffers that were.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.added.wrapping_sub(core::mem::replace(&mut self.published, self.added))
    }

    /// Buffers the device has.
    #[inline]
    pub fn published(&self) -> u32 {
        self.published.wrapping_sub(self.returned)
    }

    /// So many buffers, or as many as the device can return, but at least one.
    #[inline]
    pub fn can_come(&self, buffers: u16) -> u16 {
        let published = u16::try_from(self.published()).unwrap_or(u16::MAX);
        buffers.clamp(1, published.max(1))
    }

    /// Whether a used entry was accepted and not all of its buffers have been returned.
    #[inline]
    pub fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// Bytes the device may write to a buffer; 0 if it is none of ours.
    #[inline]
    pub fn writable_of(&self, id: u16) -> u32 {
        self.buffers.get(usize::from(id)).map_or(0, |flying| flying.writable)
    }

    /// Checks a used entry, which names a buffer that begins with descriptor `first` (packed: 0)
    /// and may stand for that many (`shown`); returns the first of them with its record.
    #[inline(always)]
    pub fn accept(&mut self, used: Used, first: u16, shown: u32) -> Result<(Used, Flying), Broken> {
        let place = self.buffers.get_mut(usize::from(used.id.0)).ok_or(Broken(Why::BadIndex))?;
        let flying = *place;
        // Modulo 2^32, what was not published is the largest of all distances.
        let behind = self.published.wrapping_sub(flying.number).wrapping_sub(1);
        if flying.descriptors == 0 || flying.first != first || behind > u32::from(SIZE_MAX) {
            return Err(Broken(Why::NotInFlight));
        }
        if used.len > flying.writable {
            return Err(Broken(Why::UsedTooLong));
        }
        // In order and the oldest one: it stands for nobody else.
        if !self.in_order || flying.number == self.returned {
            place.descriptors = 0;
            self.returned = self.returned.wrapping_add(1);
            return Ok((used, flying));
        }
        if flying.number.wrapping_sub(self.returned) >= shown {
            return Err(Broken(Why::NotInFlight));
        }
        self.batch = Some(used);
        self.return_next().ok_or(Broken(Why::NotInFlight))
    }

    /// Returns the next buffer of an open batch, with its record.
    #[inline(always)]
    pub fn return_next(&mut self) -> Option<(Used, Flying)> {
        let batch = self.batch?;
        let id = self.order[self.place(self.returned)];
        let flying = core::mem::take(&mut self.buffers[usize::from(id)]);
        self.returned = self.returned.wrapping_add(1);
        if id == batch.id.0 {
            self.batch = None;
            return Some((batch, flying));
        }
        Some((Used { id: BufferId(id), len: flying.writable }, flying))
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.order.len() - 1)
    }
}
