//! What a driver has in flight: private records, never read back from shared memory.
//!
//! How: one record for each buffer, found by its *key*: what a used entry names, in a split ring
//! its first descriptor, in a packed ring its id. Each is stamped with a running number. Without
//! IN_ORDER a used entry stands for its buffer; with IN_ORDER it opens a *batch*, all buffers from
//! the oldest one up to it (virtio 1.2 §2.7.9, §2.8.10). A record stays when its buffer came back, so
//! that the same can be staged again. Limits: keys are below the queue size; a device that keeps a
//! buffer for as long as 2^32 others may break its queue by returning it.

use alloc::boxed::Box;
use alloc::vec;

use crate::{Broken, BufferId, Returned, Why};

/// A buffer that was given to the device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Buffer {
    pub id: BufferId,
    /// Ring descriptors it takes.
    pub descriptors: u16,
    /// Bytes the device may write.
    pub writable: u32,
}

/// The record of one key.
#[derive(Debug, Clone, Copy, Default)]
struct Flying {
    /// The buffer that has the key, or had it last.
    buffer: Buffer,
    /// Its running number, modulo 2^32.
    number: u32,
    /// [`IN_FLIGHT`] and [`REPEATABLE`]: one byte, so that both take one comparison.
    state: u8,
}

/// The buffer is staged, or the device has it.
const IN_FLIGHT: u8 = 1;
/// It takes one descriptor and the device may write it: it can be staged again as it was.
const REPEATABLE: u8 = 2;

impl Flying {
    #[inline(always)]
    fn new(buffer: Buffer, number: u32) -> Self {
        let repeatable = buffer.descriptors == 1 && buffer.writable > 0;
        let state = if repeatable { IN_FLIGHT | REPEATABLE } else { IN_FLIGHT };
        Self { buffer, number, state }
    }

    #[inline(always)]
    fn is_in_flight(&self) -> bool {
        self.state & IN_FLIGHT != 0
    }

    /// The device gives the buffer back.
    #[inline(always)]
    fn land(&mut self) -> Buffer {
        self.state &= !IN_FLIGHT;
        self.buffer
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
        let mut staging = self.staging();
        let is_new = staging.add(key, buffer);
        self.added = staging.added;
        is_new
    }

    /// The descriptor with this number is free, and becomes a part of another buffer.
    pub fn forget(&mut self, key: u16) {
        self.flying[usize::from(key)].state = 0;
    }

    /// For several, one after the other; what was [`added`](Staging::added) goes to
    /// [`staged`](Self::staged).
    #[inline(always)]
    pub fn staging(&mut self) -> Staging<'_> {
        Staging { flying: &mut self.flying, order: &mut self.order, added: self.added }
    }

    /// So many buffers were added up to now, modulo 2^32.
    #[inline(always)]
    pub fn staged(&mut self, added: u32) {
        self.added = added;
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
        take: impl FnMut(Returned),
    ) -> Result<(), Broken> {
        let in_order = self.in_order;
        let mut returning = self.returning(most);
        let result = match in_order {
            false => returning.take_each(ring, take),
            true => returning.take_in_order(ring, take),
        };
        let Returning { returned, batch, .. } = returning;
        let taken = returned != self.returned;
        (self.returned, self.batch) = (returned, batch);
        if taken { Ok(()) } else { result }
    }

    #[inline(always)]
    fn returning(&mut self, most: u16) -> Returning<'_> {
        Returning {
            until: self.returned.wrapping_add(self.published().min(u32::from(most))),
            flying: &mut self.flying,
            order: &self.order,
            staged: self.added.wrapping_sub(self.published),
            published: self.published,
            returned: self.returned,
            batch: self.batch,
        }
    }
}

/// Where the order has a buffer.
#[inline(always)]
fn place(number: u32, order: &[u16]) -> usize {
    number as usize & (order.len() - 1)
}

/// The records while buffers are staged one after the other: with a copy of what else would have to
/// be read and written again for each of them.
pub(crate) struct Staging<'a> {
    flying: &'a mut [Flying],
    order: &'a mut [u16],
    added: u32,
}

impl Staging<'_> {
    /// Buffers added so far, modulo 2^32.
    #[inline(always)]
    pub fn added(&self) -> u32 {
        self.added
    }

    /// As [`InFlight::add`].
    #[inline(always)]
    fn add(&mut self, key: u16, buffer: Buffer) -> bool {
        let flying = &mut self.flying[usize::from(key)];
        assert!(!flying.is_in_flight(), "buffer {key} is in flight");
        *flying = Flying::new(buffer, self.added);
        self.append(key)
    }

    /// The same for a buffer that came back, as it was. `None`: it takes several descriptors, the
    /// device does not write it, or another one has had its key since.
    #[inline(always)]
    pub fn add_again(&mut self, key: u16, id: BufferId) -> Option<bool> {
        let flying = &mut self.flying[usize::from(key)];
        if flying.state != REPEATABLE || flying.buffer.id != id {
            return None;
        }
        (flying.number, flying.state) = (self.added, IN_FLIGHT | REPEATABLE);
        Some(self.append(key))
    }

    #[inline(always)]
    fn append(&mut self, key: u16) -> bool {
        let place = place(self.added, self.order);
        self.added = self.added.wrapping_add(1);
        core::mem::replace(&mut self.order[place], key) != key
    }
}

/// The used entries of one format, from the next one on.
pub(crate) trait UsedEntries {
    /// The next used entry, if there is one; a format that knows how many are shown is not asked for
    /// more (`most` of [`InFlight::take`]).
    fn next(&self, returning: &Returning<'_>) -> Option<Entry>;

    /// The buffer with this key came back: so many descriptors are free.
    fn release(&mut self, key: u16, descriptors: u16);
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
    /// How many may have come back in the end, modulo 2^32.
    until: u32,
    flying: &'a mut [Flying],
    order: &'a [u16],
    /// Buffers that are only staged.
    staged: u32,
    published: u32,
    returned: u32,
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

    /// Bytes that the device may write into the buffer that has this key, or had it last;
    /// 0: there never was one.
    #[inline(always)]
    pub fn writable(&self, key: u32) -> u32 {
        self.flying.get(key as usize).map_or(0, |flying| flying.buffer.writable)
    }

    /// Without IN_ORDER: each entry stands for its buffer.
    #[inline(always)]
    fn take_each(
        &mut self,
        ring: &mut impl UsedEntries,
        mut take: impl FnMut(Returned),
    ) -> Result<(), Broken> {
        while self.returned != self.until
            && let Some(entry) = ring.next(self)
        {
            let (key, flying) = named(self.flying, entry)?;
            // From the first that is only staged to the last; every other number is the device's.
            if flying.number.wrapping_sub(self.published) < self.staged {
                return Err(Broken(Why::NotInFlight));
            }
            let Buffer { id, descriptors, .. } = flying.land();
            self.returned = self.returned.wrapping_add(1);
            ring.release(key, descriptors);
            take(Returned { id, key: entry.key, len: entry.len });
        }
        Ok(())
    }

    /// With IN_ORDER: each entry stands for the oldest buffer, or for a batch.
    #[inline(always)]
    fn take_in_order(
        &mut self,
        ring: &mut impl UsedEntries,
        mut take: impl FnMut(Returned),
    ) -> Result<(), Broken> {
        loop {
            while let Some(batch) = self.batch
                && self.returned != self.until
            {
                take(self.oldest(batch, ring));
            }
            let (key, entry, ahead) = loop {
                if self.returned == self.until {
                    return Ok(());
                }
                let Some(entry) = ring.next(self) else { return Ok(()) };
                let (key, flying) = named(self.flying, entry)?;
                let ahead = flying.number.wrapping_sub(self.returned);
                if ahead > 0 {
                    break (key, entry, ahead);
                }
                let Buffer { id, descriptors, .. } = flying.land();
                self.returned = self.returned.wrapping_add(1);
                ring.release(key, descriptors);
                take(Returned { id, key: entry.key, len: entry.len });
            };
            if ahead >= entry.shown {
                return Err(Broken(Why::NotInFlight));
            }
            self.batch = Some((key, entry.len));
        }
    }

    /// The next buffer of the open batch.
    #[inline(always)]
    fn oldest(&mut self, (last, written): (u16, u32), ring: &mut impl UsedEntries) -> Returned {
        let key = self.order[place(self.returned, self.order)];
        let Buffer { id, descriptors, writable } = self.flying[usize::from(key)].land();
        self.returned = self.returned.wrapping_add(1);
        ring.release(key, descriptors);
        let mut len = writable;
        if key == last {
            (self.batch, len) = (None, written);
        }
        Returned { id, key: u32::from(key), len }
    }
}

/// Checks what the device wrote, except whether it has seen that buffer at all; returns its record.
#[inline(always)]
fn named(flying: &mut [Flying], entry: Entry) -> Result<(u16, &mut Flying), Broken> {
    let flying = flying.get_mut(entry.key as usize).ok_or(Broken(Why::BadIndex))?;
    if !flying.is_in_flight() {
        return Err(Broken(Why::NotInFlight));
    }
    if entry.len > flying.buffer.writable {
        return Err(Broken(Why::UsedTooLong));
    }
    // Keys are 16 bits.
    Ok(((entry.key & 0xffff) as u16, flying))
}
