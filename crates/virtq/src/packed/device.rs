//! The device's side of a packed ring.
//!
//! How: a position is a [`Place`]. Used entries are kept privately until they are published, then
//! stored one right after the other, the flags of the first one last: the driver looks at the
//! entries in order, so storing those flags shows them all. Limits: what lies between the published
//! position and any cursor is never more than one lap, whatever the driver says is available.

mod publish;

use alloc::boxed::Box;

use crate::areas::Bound;
use crate::chain::{IndirectTable, Sink, element};
use crate::desc::{Descriptor, Descriptors, INDIRECT, NEXT, PACKED_FLAGS, WRITE};
use crate::event::{self, AT_POSITION, DISABLE, ENABLE, RingOffset};
use crate::marker::Marker;
use crate::packed::event_word;
use crate::packed::place::{Place, behind_available};
use crate::packed::used_entry::{UsedEntry, left};
use crate::queue::prefetch_distance;
use crate::table::Table;
use crate::{
    Areas, Arm, Broken, Cursor, DeviceQueue, Elements, Format, Head, One, Position, QueueOptions,
    QueueSetup, Regions, RingRecord, SIZE_MAX, SharedSlice, Why,
};

/// A packed virtqueue, seen from the device.
#[derive(Debug)]
pub struct PackedDevice {
    parts: Bound,
    /// The ring of `parts`, entry by entry.
    ring: Descriptors,
    size: u16,
    options: QueueOptions,
    /// Next descriptor that is not popped.
    popped: Place,
    /// Where the first used entry goes that is not published.
    published: Place,
    /// Used entries that are only staged, first to last, in the first so many entries of the
    /// record: at most one lap. Its word is the place as published, and how many of them are kept.
    record: RingRecord,
    staged: usize,
    /// In order: the entry that stands for all before it, for so many descriptors; whether it will
    /// for the next one as well; and whether others behind it would.
    first: usize,
    first_descriptors: u16,
    is_first_open: bool,
    is_mixed: bool,
    /// Ring entries published since [`must_call`](DeviceQueue::must_call) was last asked.
    unasked: u32,
    /// Not asked since the start or a rebind: where the driver last saw us is unknown.
    is_first_call: bool,
    /// The event suppression word as last stored, if it was.
    armed: Option<u32>,
    /// Where there is a log of written pages.
    marker: Option<Box<Marker>>,
}

impl PackedDevice {
    /// With the first descriptor that is not popped, and the first one that is not published.
    fn start_at(
        setup: &QueueSetup,
        regions: &Regions,
        record: RingRecord,
        [popped, published]: [Place; 2],
    ) -> Result<Self, Broken> {
        let size = setup.size;
        assert!(record.room() >= usize::from(size), "a record of a shorter ring");
        let parts = Bound::translate(Format::Packed, size, &setup.areas, regions)?;
        Ok(Self {
            ring: Table::new(parts.descriptor, 0, size),
            parts,
            size,
            options: setup.options,
            popped,
            published,
            record,
            staged: 0,
            first: 0,
            first_descriptors: 0,
            is_first_open: setup.options.in_order,
            is_mixed: false,
            unasked: 0,
            is_first_call: true,
            armed: None,
            marker: Marker::new(&setup.areas, regions),
        })
    }

    /// Whether the descriptor in that place is available, by its flags.
    #[inline(always)]
    fn is_available(&self, at: Place) -> bool {
        at.is_available(self.ring.at(usize::from(at.at())).load_u16(PACKED_FLAGS))
    }

    /// Whether all entries up to that place are popped and not published: no driver makes one
    /// available that it did not get back.
    #[inline(always)]
    fn is_lap_full(&self, at: Place) -> bool {
        at == self.published.a_lap_on()
    }

    /// The private copy of the descriptor in that place.
    #[inline(always)]
    fn descriptor(&self, at: u16) -> Descriptor {
        Descriptor::load(self.ring.at(usize::from(at)), 0)
    }

    /// Follows one chain; returns buffer id and entries.
    fn walk(&self, from: Place, regions: &Regions, into: &mut impl Sink) -> Result<Head, Broken> {
        let mut at = from;
        // Entries that are not published yet and this chain share one lap.
        let left = u32::from(self.size).saturating_sub(from.distance(self.published, self.size));
        for descriptors in (1..=self.size).take(left as usize) {
            let descriptor = self.descriptor(at.at());
            let (id, flags) = (descriptor.third, descriptor.fourth);
            if flags & INDIRECT != 0 {
                let allowed = self.options.indirect;
                let table = IndirectTable::find(&descriptor, flags, allowed, regions)?;
                table.walk_all(regions, into)?;
            } else {
                into.push(&descriptor, flags, regions)?;
            }
            // The id counts in the last descriptor of the chain (virtio 1.2 §2.8.6).
            if flags & NEXT == 0 {
                let is_writable = into.is_writable();
                let head = (id < self.size).then_some(Head { id, descriptors, is_writable });
                return head.ok_or(Broken(Why::BadIndex));
            }
            at = at.advanced(1, self.size);
        }
        Err(Broken(Why::ChainTooLong))
    }

    #[inline]
    fn store_armed(&mut self, word: u32) {
        if self.armed != Some(word) {
            self.parts.device.store_u32(0, word);
            self.armed = Some(word);
            if let Some(marker) = &self.marker {
                marker.mark_armed(0, 4);
            }
        }
    }

    /// Asks for a kick there; what is available is to be looked for afterwards.
    #[inline(always)]
    fn arm_at(&mut self, place: Place) {
        self.store_armed(match self.options.event_idx {
            false => event_word(ENABLE, 0),
            true => event_word(AT_POSITION, place.offset().to_bits()),
        });
        event::before_second_look();
    }
}

impl DeviceQueue for PackedDevice {
    const FORMAT: Format = Format::Packed;

    fn start_in(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken> {
        let Position { available, available_wrap, used, used_wrap } = setup.position;
        let size = setup.size;
        if size == 0 || size > SIZE_MAX || available >= size || used >= size {
            return Err(Broken(Why::BadIndex));
        }
        let popped = RingOffset { at: available, wrap: available_wrap };
        let used = RingOffset { at: used, wrap: used_wrap };
        if popped.distance(used, size) > u32::from(size) {
            return Err(Broken(Why::BadIndex));
        }
        let places = [popped, used].map(Place::new);
        let queue = Self::start_at(setup, regions, record, places)?;
        queue.mark_start();
        queue.record.store([queue.published.word(), 0]);
        Ok(queue)
    }

    fn recover(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken> {
        let size = setup.size;
        if size == 0 || size > SIZE_MAX {
            return Err(Broken(Why::BadIndex));
        }
        let (published, staged, behind) = left(&record, size)?;
        let mut queue = Self::start_at(setup, regions, record, [behind, published])?;
        (queue.staged, queue.is_mixed) = (staged, true);
        queue.mark_start();
        let flags = queue.ring.at(usize::from(published.at())).load_u16(PACKED_FLAGS);
        if published.is_used_since(flags) {
            // Only the record was behind.
            (queue.published, queue.staged) = (behind, 0);
        }
        queue.publish();
        queue.record.store([queue.published.word(), 0]);
        Ok(queue)
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn cursor(&self) -> Cursor {
        Cursor(self.popped.word())
    }

    #[inline(always)]
    fn peek(
        &mut self,
        at: &mut Cursor,
        regions: &Regions,
        into: &mut Elements,
    ) -> Result<Option<Head>, Broken> {
        let from = Place::from_word(at.0);
        if !self.is_available(from) {
            return Ok(None);
        }
        event::after_seeing();
        if self.is_lap_full(from) {
            return Err(Broken(Why::IndexJump));
        }
        into.clear();
        let head = self.walk(from, regions, into)?;
        *at = Cursor(from.advanced(head.descriptors, self.size).word());
        Ok(Some(head))
    }

    #[inline(always)]
    fn peek_one(&mut self, at: Cursor, regions: &Regions) -> Option<One> {
        let at = Place::from_word(at.0);
        let entry = self.ring.at(usize::from(at.at()));
        if !at.is_available(entry.load_u16(PACKED_FLAGS)) || self.is_lap_full(at) {
            return None;
        }
        event::after_seeing();
        let descriptor = Descriptor::load(entry, 0);
        let (id, flags) = (descriptor.third, descriptor.fourth);
        if flags & (INDIRECT | NEXT) != 0 || id >= self.size {
            return None;
        }
        let memory = element(&descriptor, regions).ok()?;
        Some(One { head: Head { id, descriptors: 1, is_writable: flags & WRITE != 0 }, memory })
    }

    #[inline(always)]
    fn ahead(&self, at: Cursor, regions: &Regions) -> Option<SharedSlice> {
        let at = Place::from_word(at.0);
        let soon = at.advanced(prefetch_distance(at.at()), self.size);
        // In a short ring that may be further than once around, and outside.
        let entry = self.ring.find(soon.at())?;
        match soon.is_available(entry.load_u16(PACKED_FLAGS)) {
            true => regions.hint(entry.load_u64(0)),
            false => None,
        }
    }

    #[inline(always)]
    fn pop(&mut self, head: Head) {
        self.popped = self.popped.advanced(head.descriptors, self.size);
    }

    #[inline(always)]
    fn add_used(&mut self, head: Head, written: u32) {
        assert!(head.descriptors <= self.size, "a head of another queue");
        let entry = UsedEntry::new(head, written);
        self.record.store_entry(self.staged, entry.word, entry.step);
        if self.is_first_open {
            self.first = self.staged;
            self.first_descriptors += head.descriptors;
            if head.is_writable {
                self.is_first_open = false;
            }
        } else if !head.is_writable {
            self.is_mixed = true;
        }
        self.staged += 1;
    }

    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, reason = "at most 2^15")]
    fn keep(&mut self) {
        self.record.store_kept(self.staged as u32);
    }

    fn keep_at_publish(&mut self) {
        self.record.hold();
    }

    #[inline]
    fn publish(&mut self) {
        match &self.marker {
            None => self.show(),
            Some(_) => self.show_marked(),
        }
    }

    #[inline]
    fn must_call(&mut self) -> bool {
        let unasked = core::mem::take(&mut self.unasked);
        if unasked == 0 {
            return false;
        }
        event::before_asking();
        let mut word = self.parts.driver.load_u32(0);
        let is_first = core::mem::take(&mut self.is_first_call);
        let at_position = event_word(AT_POSITION, 0);
        if word & event_word(3, 0) == at_position && (is_first || !self.options.event_idx) {
            word = event_word(ENABLE, 0);
        }
        event::packed_wants(word, self.published.offset(), unasked, self.size)
    }

    fn driver_event(&self) -> u32 {
        self.parts.driver.load_u32(0)
    }

    #[inline]
    fn arm_kicks(&mut self, arm: Arm) -> bool {
        let entries = match arm {
            Arm::Never => {
                self.store_armed(event_word(DISABLE, 0));
                return false;
            }
            Arm::Next => 1,
            Arm::After(buffers) => buffers.clamp(1, self.size),
        };
        self.arm_at(self.popped.advanced(entries - 1, self.size));
        self.is_available(self.popped)
    }

    fn arm_kicks_behind(&mut self, at: Cursor) -> bool {
        let behind = Place::from_word(at.0);
        self.arm_at(behind);
        self.is_available(behind)
    }

    fn behind_available(&self, at: Cursor) -> Option<Cursor> {
        Some(Cursor(behind_available(&self.ring, Place::from_word(at.0)).word()))
    }

    fn position(&self) -> Position {
        let (popped, published) = (self.popped.offset(), self.published.offset());
        Position {
            available: popped.at,
            available_wrap: popped.wrap,
            used: published.at,
            used_wrap: published.wrap,
        }
    }

    fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        self.parts = Bound::translate(Format::Packed, self.size, areas, regions)?;
        self.ring = Table::new(self.parts.descriptor, 0, self.size);
        self.is_first_call = true;
        self.armed = None;
        self.marker = Marker::new(areas, regions);
        Ok(())
    }
}
