//! What a driver has in flight: private records, never read back from shared memory.
//!
//! How: one record for each buffer id, stamped with a running number. A used entry opens a *batch*;
//! without IN_ORDER that is just its buffer, with IN_ORDER all buffers from the oldest one up to
//! it (virtio 1.2 §2.7.9, §2.8.10). Limits: ids are below the queue size.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Broken, BufferId, Used, Why};

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
    /// Running number of the buffer.
    number: u64,
}

/// All buffers of one driver queue.
#[derive(Debug)]
pub(crate) struct InFlight {
    buffers: Box<[Flying]>,
    /// Ids in the order they were added; its length is a power of two.
    order: Box<[u16]>,
    in_order: bool,
    added: u64,
    published: u64,
    returned: u64,
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

    /// Records a staged buffer.
    #[inline]
    pub fn add(&mut self, id: BufferId, descriptors: u16, chain: (u16, u16), writable: u32) {
        let number = self.added;
        let (first, last) = chain;
        self.buffers[usize::from(id.0)] = Flying { descriptors, first, last, writable, number };
        if self.in_order {
            let place = self.place(number);
            self.order[place] = id.0;
        }
        self.added += 1;
    }

    /// Whether nobody uses this id. Panics on one outside the queue.
    #[inline]
    pub fn is_free(&self, id: BufferId) -> bool {
        self.buffers[usize::from(id.0)].descriptors == 0
    }

    /// Everything staged is now the device's; says how many buffers that were.
    #[inline]
    pub fn publish(&mut self) -> u64 {
        self.added - core::mem::replace(&mut self.published, self.added)
    }

    /// Buffers the device has.
    #[inline]
    pub fn published(&self) -> u64 {
        self.published - self.returned
    }

    /// Whether a used entry was accepted and not all of its buffers have been returned.
    #[inline]
    pub fn is_in_batch(&self) -> bool {
        self.batch.is_some()
    }

    /// The first ring descriptor of a buffer in flight, if this is one.
    #[inline]
    pub fn first_of(&self, id: u16) -> Option<u16> {
        let flying = self.buffers.get(usize::from(id))?;
        (flying.descriptors != 0).then_some(flying.first)
    }

    /// Bytes the device may write to a buffer; 0 if it is none of ours.
    #[inline]
    pub fn writable_of(&self, id: u16) -> u32 {
        self.buffers.get(usize::from(id)).map_or(0, |flying| flying.writable)
    }

    /// Checks a used entry and opens its batch; `shown` is how many buffers it may stand for.
    #[inline]
    pub fn accept(&mut self, used: Used, shown: u64) -> Result<(), Broken> {
        let flying = self.buffers.get(usize::from(used.id.0)).ok_or(Broken(Why::BadIndex))?;
        if flying.descriptors == 0 || flying.number >= self.published {
            return Err(Broken(Why::NotInFlight));
        }
        if self.in_order && flying.number - self.returned >= shown {
            return Err(Broken(Why::NotInFlight));
        }
        if used.len > flying.writable {
            return Err(Broken(Why::UsedTooLong));
        }
        self.batch = Some(used);
        Ok(())
    }

    /// Returns the next buffer of the batch, with its record.
    #[inline]
    pub fn return_next(&mut self) -> Option<(Used, Flying)> {
        let batch = self.batch?;
        let id = if self.in_order { self.order[self.place(self.returned)] } else { batch.id.0 };
        let flying = core::mem::take(&mut self.buffers[usize::from(id)]);
        self.returned += 1;
        if id == batch.id.0 {
            self.batch = None;
            return Some((batch, flying));
        }
        Some((Used { id: BufferId(id), len: flying.writable }, flying))
    }

    #[inline]
    fn place(&self, number: u64) -> usize {
        // At most 32768 places, so no bit that counts is cut off.
        (number & 0xffff) as usize & (self.order.len() - 1)
    }
}
