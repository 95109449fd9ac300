//! What a driver has in flight: private records, never read back from shared memory.
//!
//! How: one record for each buffer, found by its *key*: what a used entry names, in a split ring
//! its first descriptor, in a packed ring its id. Each is stamped with a running number. Without
//! IN_ORDER a used entry stands for its buffer; with IN_ORDER it opens a *batch*, all buffers from
//! the oldest one up to it (virtio 1.2 §2.7.9, §2.8.10). Limits: keys are below the queue size; a
//! device that keeps a buffer for as long as 2^32 others may break its queue by returning it.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Broken, BufferId, Used, Why};

/// A buffer that was given to the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Buffer {
    pub id: BufferId,
    /// Ring descriptors it takes; 0: not in flight.
    pub descriptors: u16,
    /// Bytes the device may write.
    pub writable: u32,
}

/// The record of one key.
#[derive(Debug, Clone, Copy, Default)]
struct Flying {
    buffer: Buffer,
    /// Running number of the buffer, modulo 2^32.
    number: u32,
}

/// A buffer that came back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Returned {
    pub key: u16,
    pub buffer: Buffer,
    /// Bytes the device has written.
    pub len: u32,
}

impl Returned {
    #[inline]
    pub fn used(&self) -> Used {
        Used { id: self.buffer.id, len: self.len }
    }
}

/// All buffers of one driver queue.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// By key.
    flying: Box<[Flying]>,
    /// Keys in the order they were added, at first 0; its length is a power of two.
    order: Box<[u16]>,
    in_order: bool,
    /// Buffers so far, modulo 2^32. Each is at most 32768 ahead of the one behind it; but a number
    /// in flight can be any number of buffers old, as a device may keep one while others return.
    added: u32,
    published: u32,
    returned: u32,
    /// The last key of the open batch, and what was written there.
    batch: Option<(u16, u32)>,
}

impl InFlight {
    pub fn new(size: u16, in_order: bool) -> Self {
        Self {
            flying: vec![Flying::default(); usize::from(size)].into(),
            order: vec![0; usize::from(size).next_power_of_two()].into(),
            in_order,
            added: 0,
            published: 0,
            returned: 0,
            batch: None,
        }
    }

    /// Records a staged buffer. Its key must be below the size and not in flight. `true`: the one
    /// that was added a lap ago had another key.
    #[inline(always)]
    pub fn add(&mut self, key: u16, buffer: Buffer) -> bool {
        let number = self.added;
        let place = &mut self.flying[usize::from(key)];
        assert!(place.buffer.descriptors == 0, "buffer {key} is in flight");
        *place = Flying { buffer, number };
        self.added = number.wrapping_add(1);
        let place = self.place(number);
        core::mem::replace(&mut self.order[place], key) != key
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

    /// Buffers added so far, modulo 2^32.
    #[inline]
    pub fn added(&self) -> u32 {
        self.added
    }

    /// How many of them the device was shown.
    #[inline]
    pub fn shown(&self) -> u32 {
        self.published
    }

    /// How many of them came back.
    #[inline]
    pub fn returned(&self) -> u32 {
        self.returned
    }

    /// Takes used buffers, at most `most`, as long as the ring has used entries. On an error nothing
    /// was taken: what the device did wrong later is left for the next time.
    #[inline(always)]
    pub fn take(
        &mut self,
        most: u16,
        ring: &mut impl UsedEntries,
        mut take: impl FnMut(Used),
    ) -> Result<(), Broken> {
        let mut left = self.published().min(u32::from(most));
        let mut returning = self.returning();
        let mut result = Ok(());
        while left > 0 {
            if let Some(batch) = returning.batch {
                let returned = returning.oldest(batch);
                ring.release(&returned);
                take(returned.used());
                left -= 1;
                continue;
            }
            while left > 0 {
                let Some(entry) = ring.next(&returning) else {
                    left = 0;
                    break;
                };
                match returning.accept(entry) {
                    Ok(Some(returned)) => {
                        ring.release(&returned);
                        take(returned.used());
                        left -= 1;
                    }
                    Ok(None) => break,
                    Err(broken) => {
                        result = Err(broken);
                        left = 0;
                    }
                }
            }
        }
        let Returning { returned, batch, .. } = returning;
        let taken = returned != self.returned;
        (self.returned, self.batch) = (returned, batch);
        if taken { Ok(()) } else { result }
    }

    #[inline(always)]
    fn returning(&mut self) -> Returning<'_> {
        Returning {
            flying: &mut self.flying,
            order: &self.order,
            staged: self.added.wrapping_sub(self.published),
            published: self.published,
            returned: self.returned,
            in_order: self.in_order,
            batch: self.batch,
        }
    }

    #[inline]
    fn place(&self, number: u32) -> usize {
        number as usize & (self.order.len() - 1)
    }
}

/// The used entries of one format, from the next one on.
pub(crate) trait UsedEntries {
    /// The next used entry, if there is one.
    fn next(&self, returning: &Returning<'_>) -> Option<Entry>;

    /// A buffer came back: its descriptors are free.
    fn release(&mut self, returned: &Returned);
}

/// A used entry as the device wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub key: u32,
    pub len: u32,
    /// How many buffers it may stand for, with IN_ORDER.
    pub shown: u32,
}

/// The records while used entries are taken one after the other: with copies of what else would have
/// to be read again for each of them.
pub(crate) struct Returning<'a> {
    flying: &'a mut [Flying],
    order: &'a [u16],
    /// Buffers that are only staged.
    staged: u32,
    published: u32,
    returned: u32,
    in_order: bool,
    batch: Option<(u16, u32)>,
}

impl Returning<'_> {
    /// Buffers that came back so far, modulo 2^32.
    #[inline(always)]
    pub fn returned(&self) -> u32 {
        self.returned
    }

    /// Buffers the device has.
    #[inline(always)]
    pub fn published(&self) -> u32 {
        self.published.wrapping_sub(self.returned)
    }

    /// Bytes that the device may write into the buffer that has this key; 0: there is none.
    #[inline(always)]
    pub fn writable(&self, key: u32) -> u32 {
        self.flying.get(key as usize).map_or(0, |flying| flying.buffer.writable)
    }

    /// Checks an entry; returns its buffer. `None`: it opened a batch.
    #[inline(always)]
    fn accept(&mut self, entry: Entry) -> Result<Option<Returned>, Broken> {
        let Entry { key, len, shown } = entry;
        let place = self.flying.get_mut(key as usize).ok_or(Broken(Why::BadIndex))?;
        // Keys are 16 bits.
        let key = (key & 0xffff) as u16;
        let Flying { buffer, number } = *place;
        // From the first that is only staged to the last; every other number is the device's.
        let is_staged = number.wrapping_sub(self.published) < self.staged;
        if buffer.descriptors == 0 || is_staged {
            return Err(Broken(Why::NotInFlight));
        }
        if len > buffer.writable {
            return Err(Broken(Why::UsedTooLong));
        }
        // In order and not the oldest one: it stands for others, too.
        if self.in_order && number != self.returned {
            if number.wrapping_sub(self.returned) >= shown {
                return Err(Broken(Why::NotInFlight));
            }
            self.batch = Some((key, len));
            return Ok(None);
        }
        place.buffer.descriptors = 0;
        self.returned = self.returned.wrapping_add(1);
        Ok(Some(Returned { key, buffer, len }))
    }

    /// The next buffer of the open batch.
    #[inline(always)]
    fn oldest(&mut self, (last, len): (u16, u32)) -> Returned {
        let key = self.order[self.returned as usize & (self.order.len() - 1)];
        let place = &mut self.flying[usize::from(key)];
        let buffer = place.buffer;
        place.buffer.descriptors = 0;
        self.returned = self.returned.wrapping_add(1);
        if key == last {
            self.batch = None;
            return Returned { key, buffer, len };
        }
        Returned { key, buffer, len: buffer.writable }
    }
}
