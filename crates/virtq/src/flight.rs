//! Buffers that a driver has in flight: private records, never read back from shared memory.
//!
//! How: the records are a ring of their own, one record for each descriptor: those in flight,
//! oldest first, and behind them the free ones. A buffer has as many records as it takes
//! descriptors; the first one describes it. A used entry names a buffer by its *key*: in a split
//! ring its first descriptor, in a packed ring its id. Mostly that is the oldest buffer: counting
//! on frees its records. Any other buffer first changes places with the oldest one. With IN_ORDER
//! it stays where it is, and opens a *batch*: all buffers from the oldest one up to it (virtio 1.2
//! §2.7.9, §2.8.10). A free record keeps its content, so that the same buffer can be staged again.
//! If the queue size is no power of two, there are more records than keys: a record that comes back
//! then changes places with the one a queue size later, which has no key.
//!
//! Limits: keys are below the queue size; a device that keeps a buffer for as long as 2^32 others
//! may break its queue by returning it.

use alloc::boxed::Box;

use crate::records::{Buffer, Flying, Records, place};
use crate::{Broken, BufferId, Returned, Why, prefetch_distance};

/// All buffers of one driver queue.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// Their number is a power of two.
    flying: Box<[Flying]>,
    /// By key: where its record is.
    places: Box<[u16]>,
    in_order: bool,
    /// Buffers so far, modulo 2^32.
    added: u32,
    published: u32,
    returned: u32,
    /// Descriptors so far, modulo 2^32, which say where records are: those that were taken, that
    /// were given to the device, and that came back.
    taken: u32,
    given: u32,
    freed: u32,
    /// The last key of the open batch, and what was written there.
    batch: Option<(u16, u32)>,
}

impl InFlight {
    pub fn new(size: u16, in_order: bool) -> Self {
        let flying = |key| Flying { key, buffer: Buffer::default(), number: 0 };
        Self {
            flying: (0..size.next_power_of_two()).map(flying).collect(),
            places: (0..size).collect(),
            in_order,
            added: 0,
            published: 0,
            returned: 0,
            taken: 0,
            given: 0,
            freed: 0,
            batch: None,
        }
    }

    /// Descriptors that are in flight.
    #[inline(always)]
    pub fn descriptors(&self) -> u16 {
        (self.taken.wrapping_sub(self.freed) & 0xffff) as u16
    }

    /// The key of the record that is taken next, or so many behind it; of no free one it may be
    /// none.
    #[inline(always)]
    pub fn next_key(&self, behind: u16) -> u16 {
        self.flying[place(self.taken.wrapping_add(behind.into()), &self.flying)].key
    }

    /// The key of a record that is taken soon, in scattered order (ADR 23); a hint.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "modulo 2^16 is enough")]
    pub fn soon_key(&self) -> u16 {
        self.next_key(prefetch_distance(self.taken as u16))
    }

    /// Gives the record that is taken next, which is free, this key, which must be below the size
    /// and not in flight.
    #[inline(always)]
    pub fn name_next(&mut self, key: u16) {
        let next = place(self.taken, &self.flying);
        if self.flying[next].key != key {
            self.rename(key, next);
        }
    }

    #[inline(never)]
    fn rename(&mut self, key: u16, next: usize) {
        let window = self.freed..self.taken;
        let mut records = Records { flying: &mut self.flying, places: &mut self.places };
        assert!(records.find(key.into(), window).is_err(), "buffer {key} is in flight");
        let before = usize::from(records.places[usize::from(key)]);
        records.swap(before, next);
        // Maybe inside another buffer.
        records.flying[before].buffer.descriptors = 0;
    }

    /// Records a staged buffer; there must be as many free descriptors. `true`: the one a lap
    /// before it had another key.
    #[inline(always)]
    pub fn add(&mut self, buffer: Buffer) -> bool {
        for further in 1..u32::from(buffer.descriptors) {
            let place = place(self.taken.wrapping_add(further), &self.flying);
            self.flying[place].buffer.descriptors = 0;
        }
        let a_lap_before = a_lap_before(self.added, &self.flying);
        let flying = &mut self.flying[place(self.taken, &self.flying)];
        let is_new = flying.number != a_lap_before || !flying.is_first();
        (flying.buffer, flying.number) = (buffer, self.added);
        self.added = self.added.wrapping_add(1);
        self.taken = self.taken.wrapping_add(buffer.descriptors.into());
        is_new
    }

    /// Records buffers that came back, no more than are free, as staged again as they were; of
    /// each, `stage` gets how many were before it, its key, and whether that is new as in
    /// [`add`](Self::add). Ends at one whose record is not the one that is taken next, that takes
    /// several descriptors, that the device does not write, or that is not `is_same`. Returns how
    /// many are before that.
    #[inline(always)]
    pub fn add_again(
        &mut self,
        returned: &[Returned],
        mut is_same: impl FnMut(BufferId) -> bool,
        mut stage: impl FnMut(u16, u16, bool),
    ) -> u16 {
        let flying = &mut self.flying[..];
        let mut count = 0;
        for &Returned { id, key, .. } in returned {
            let added = self.added.wrapping_add(count.into());
            let a_lap_before = a_lap_before(added, flying);
            let next = &mut flying[place(self.taken.wrapping_add(count.into()), flying)];
            if !is_same(id) || !next.is_repeatable(key, id) {
                break;
            }
            stage(count, key, core::mem::replace(&mut next.number, added) != a_lap_before);
            count += 1;
        }
        self.added = self.added.wrapping_add(count.into());
        self.taken = self.taken.wrapping_add(count.into());
        count
    }

    /// Everything staged is now the device's; says how many buffers that were.
    #[inline]
    pub fn publish(&mut self) -> u32 {
        self.given = self.taken;
        self.added.wrapping_sub(core::mem::replace(&mut self.published, self.added))
    }

    /// Buffers the device has.
    #[inline]
    pub fn published(&self) -> u32 {
        self.published.wrapping_sub(self.returned)
    }

    /// As many buffers as asked for, or as many as the device can return, but at least one.
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

    /// Buffers that were added and did not come back.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "at most the queue size")]
    pub fn buffers(&self) -> u16 {
        self.added.wrapping_sub(self.returned) as u16
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

    /// Takes used buffers, at most `most`, as long as the ring has used entries. On an error
    /// nothing was taken: what the device did wrong later is left for the next time.
    #[inline(always)]
    pub fn take(
        &mut self,
        most: u16,
        ring: &mut impl UsedEntries,
        take: impl FnMut(Returned),
    ) -> Result<(), Broken> {
        let mut returning = Returning {
            until: self.returned.wrapping_add(self.published().min(u32::from(most))),
            published: self.published,
            returned: self.returned,
            given: self.given,
            freed: self.freed,
            batch: self.batch,
            records: Records { flying: &mut self.flying, places: &mut self.places },
        };
        let result = match self.in_order {
            false => returning.take_each(ring, take),
            true => returning.take_in_order(ring, take),
        };
        let Returning { returned, freed, batch, .. } = returning;
        let has_taken = returned != self.returned;
        if self.places.len() < self.flying.len() {
            self.move_up(freed);
        }
        (self.returned, self.freed, self.batch) = (returned, freed, batch);
        if has_taken { Ok(()) } else { result }
    }

    /// Moves the records that came back, up to that descriptor, a queue size on.
    #[inline(never)]
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^15")]
    fn move_up(&mut self, to: u32) {
        let size = self.places.len() as u32;
        let mut records = Records { flying: &mut self.flying, places: &mut self.places };
        for by in 0..to.wrapping_sub(self.freed) {
            records.exchange(self.freed, by, by + size);
        }
    }
}

/// The number of the buffer that was added a lap before that one.
#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "at most 2^15")]
fn a_lap_before(added: u32, flying: &[Flying]) -> u32 {
    added.wrapping_sub(flying.len() as u32)
}

/// The used entries of one format, from the next one on.
pub(crate) trait UsedEntries {
    /// The next used entry, if there is one; a format that knows how many are shown is not asked
    /// for more (`most` of [`InFlight::take`]).
    fn next(&self, returning: &Returning<'_>) -> Option<Entry>;

    /// A buffer came back that took so many descriptors.
    fn release(&mut self, descriptors: u16);
}

/// A used entry as the device wrote it.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    pub key: u32,
    pub len: u32,
    /// A length that is larger than the buffer is not a mistake, but means nothing.
    pub is_vague: bool,
    /// How many buffers it may stand for, with IN_ORDER.
    pub shown: u32,
}

impl Entry {
    /// The length, checked against what the device may write.
    #[inline(always)]
    fn written(&self, writable: u32) -> Result<u32, Broken> {
        if self.len <= writable { Ok(self.len) } else { self.too_long(writable) }
    }

    #[cold]
    fn too_long(&self, writable: u32) -> Result<u32, Broken> {
        self.is_vague.then_some(writable).ok_or(Broken(Why::UsedTooLong))
    }
}

/// The records while used entries are taken one after the other: with copies of what else would
/// have to be read again for each of them.
pub(crate) struct Returning<'a> {
    /// How many may have come back in the end, modulo 2^32.
    until: u32,
    published: u32,
    returned: u32,
    given: u32,
    freed: u32,
    batch: Option<(u16, u32)>,
    records: Records<'a>,
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
            if entry.key != u32::from(self.oldest().key) {
                self.records.reborrow().bring_forward(entry.key, self.freed..self.given)?;
            }
            let len = entry.written(self.oldest().buffer.writable)?;
            take(self.free_oldest(len, ring));
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
            while let Some((last, written)) = self.batch
                && self.returned != self.until
            {
                take(self.free_of_batch(last, written, ring));
            }
            let entry = loop {
                if self.returned == self.until {
                    return Ok(());
                }
                let Some(entry) = ring.next(self) else { return Ok(()) };
                if entry.key != u32::from(self.oldest().key) {
                    break entry;
                }
                let len = entry.written(self.oldest().buffer.writable)?;
                take(self.free_oldest(len, ring));
            };
            let at = self.records.find(entry.key, self.freed..self.given)?;
            let last = self.records.flying[at];
            if last.number.wrapping_sub(self.returned) >= entry.shown {
                return Err(Broken(Why::NotInFlight));
            }
            self.batch = Some((last.key, entry.written(last.buffer.writable)?));
        }
    }

    /// The record of the oldest buffer; the device must have one.
    #[inline(always)]
    fn oldest(&self) -> &Flying {
        &self.records.flying[place(self.freed, self.records.flying)]
    }

    /// That buffer is back, with so many bytes.
    #[inline(always)]
    fn free_oldest(&mut self, len: u32, ring: &mut impl UsedEntries) -> Returned {
        let &Flying { key, buffer: Buffer { id, descriptors, .. }, .. } = self.oldest();
        self.returned = self.returned.wrapping_add(1);
        self.freed = self.freed.wrapping_add(descriptors.into());
        ring.release(descriptors);
        Returned { id, key, len }
    }

    /// It is a part of the open batch.
    #[inline(always)]
    fn free_of_batch(&mut self, last: u16, written: u32, ring: &mut impl UsedEntries) -> Returned {
        let &Flying { key, buffer: Buffer { writable, .. }, .. } = self.oldest();
        let mut len = writable;
        if key == last {
            (self.batch, len) = (None, written);
        }
        self.free_oldest(len, ring)
    }
}
