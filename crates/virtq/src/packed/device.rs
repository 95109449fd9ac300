//! The device's side of a packed ring.
//!
//! How: a position is a [`Place`]. Used entries are kept privately until they are published, then
//! stored one right after the other, the flags of the first one last: the driver looks at the
//! entries in order, so storing those flags shows them all. Limits: what lies between the published
//! position and any cursor is never more than one lap, whatever the driver says is available.

use alloc::boxed::Box;
use alloc::vec;

use crate::areas::Bound;
use crate::chain::{IndirectTable, element};
use crate::desc::{
    Descriptor, Descriptors, INDIRECT, NEXT, PACKED_FLAGS, PACKED_ID, PACKED_LEN, WRITE,
};
use crate::event::{self, AT_POSITION, DISABLE, ENABLE, RingOffset};
use crate::packed::event_word;
use crate::packed::place::Place;
use crate::queue::prefetch_distance;
use crate::table::Table;
use crate::{
    Areas, Arm, Broken, Cursor, DeviceQueue, Elements, Format, Head, One, Position, QueueOptions,
    QueueSetup, Regions, SIZE_MAX, SharedSlice, Why,
};

/// What the device writes into a descriptor, which is the next one behind those of the entry
/// before.
#[derive(Debug, Clone, Copy, Default)]
struct UsedEntry {
    /// Length, id and flags, as they are in memory, but without what the place decides.
    word: u64,
    /// Of all buffers that it stands for.
    descriptors: u16,
}

impl UsedEntry {
    #[inline(always)]
    fn new(Head { id, descriptors, .. }: Head, written: u32) -> Self {
        let flags = if written > 0 { WRITE } else { 0 };
        let word = u64::from(written) | u64::from(id) << 32 | u64::from(flags) << 48;
        Self { word, descriptors }
    }

    #[inline(always)]
    fn word_at(&self, place: Place) -> u64 {
        self.word | u64::from(place.used_flags()) << 48
    }
}

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
    /// What is only staged, first to last, in the first so many places: at most one lap.
    entries: Box<[UsedEntry]>,
    kept: usize,
    /// The last of these will stand for the next buffer as well.
    is_open: bool,
    /// Ring entries published since [`must_call`](DeviceQueue::must_call) was last asked.
    unasked: u32,
    /// Not asked since the start or a rebind: where the driver last saw us is unknown.
    is_first_call: bool,
    /// The event suppression word as last stored, if it was.
    armed: Option<u32>,
}

impl PackedDevice {
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
    fn walk(&self, from: Place, regions: &Regions, into: &mut Elements) -> Result<Head, Broken> {
        into.clear();
        let mut at = from;
        // What is not published yet and this chain share one lap.
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
                let is_writable = !into.writable().is_empty();
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
        }
    }
}

impl DeviceQueue for PackedDevice {
    const FORMAT: Format = Format::Packed;

    fn start(setup: &QueueSetup, regions: &Regions) -> Result<Self, Broken> {
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
        let parts = Bound::translate(Format::Packed, size, &setup.areas, regions)?;
        Ok(Self {
            ring: Table::new(parts.descriptor, 0, size),
            parts,
            size,
            options: setup.options,
            popped: Place::new(popped),
            published: Place::new(used),
            entries: vec![UsedEntry::default(); usize::from(size)].into(),
            kept: 0,
            is_open: false,
            unasked: 0,
            is_first_call: true,
            armed: None,
        })
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
        if self.is_open {
            let last = &mut self.entries[self.kept - 1];
            last.word = entry.word;
            last.descriptors += entry.descriptors;
        } else {
            self.entries[self.kept] = entry;
            self.kept += 1;
        }
        // In order, an entry stands for all buffers before it as well, and says nothing of what was
        // written there (virtio 1.2 §2.8.10): so it does for those that cannot be written.
        self.is_open = self.options.in_order && !head.is_writable;
    }

    #[inline]
    fn publish(&mut self) {
        let Some((first, others)) = self.entries[..self.kept].split_first() else { return };
        let mut at = self.published.advanced(first.descriptors, self.size);
        for used in others {
            self.ring.at(usize::from(at.at())).store_u64(PACKED_LEN, used.word_at(at));
            at = at.advanced(used.descriptors, self.size);
        }
        let entry = self.ring.at(usize::from(self.published.at()));
        let word = first.word_at(self.published);
        entry.store_u32(PACKED_LEN, (word & 0xffff_ffff) as u32);
        entry.store_u16(PACKED_ID, (word >> 32 & 0xffff) as u16);
        event::before_showing();
        entry.store_u16(PACKED_FLAGS, (word >> 48) as u16);
        (self.kept, self.is_open) = (0, false);
        let added = at.distance(self.published, self.size);
        self.published = at;
        self.unasked = self.unasked.saturating_add(added);
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
        self.store_armed(match self.options.event_idx {
            false => event_word(ENABLE, 0),
            true => {
                let wanted_at = self.popped.advanced(entries - 1, self.size);
                event_word(AT_POSITION, wanted_at.offset().to_bits())
            }
        });
        event::before_second_look();
        self.is_available(self.popped)
    }

    fn arm_kicks_behind(&mut self, at: Cursor) -> bool {
        let behind = Place::from_word(at.0);
        self.store_armed(match self.options.event_idx {
            false => event_word(ENABLE, 0),
            true => event_word(AT_POSITION, behind.offset().to_bits()),
        });
        event::before_second_look();
        self.is_available(behind)
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
        Ok(())
    }
}
