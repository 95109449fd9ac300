//! The device's side of a packed ring.
//!
//! How: a position is an offset with a wrap counter. Used entries are kept privately until they are
//! published, then stored one right after the other, the flags of the first one last: the driver
//! looks at the entries in order, so storing those flags shows them all. Limits: what lies between
//! the used position and any cursor is never more than one lap.

use alloc::boxed::Box;
use alloc::vec;

use crate::areas::Bound;
use crate::chain::{IndirectTable, element};
use crate::desc::{
    Descriptor, Descriptors, INDIRECT, NEXT, PACKED_FLAGS, PACKED_ID, PACKED_LEN, WRITE,
};
use crate::event::{self, AT_POSITION, DISABLE, ENABLE, RingOffset};
use crate::packed::{are_available, event_word, prefetch_at, used_flags};
use crate::table::Table;
use crate::{
    Areas, Arm, Broken, Cursor, DeviceQueue, Elements, Format, Head, One, Position, QueueOptions,
    QueueSetup, Regions, SIZE_MAX, SharedSlice, Why,
};

/// What the device writes into a descriptor.
#[derive(Debug, Clone, Copy, Default)]
struct UsedEntry {
    at: u16,
    id: u16,
    flags: u16,
    written: u32,
    /// Whether the device may write any of its last buffer.
    is_writable: bool,
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
    popped: RingOffset,
    /// Where the next used entry goes, with and without what is only staged.
    staged: RingOffset,
    published: RingOffset,
    /// What is only staged, first to last, in the first so many places: at most one lap.
    entries: Box<[UsedEntry]>,
    kept: usize,
    /// Ring entries published since [`must_call`](DeviceQueue::must_call) was last asked.
    unasked: u32,
    /// Nobody has asked since the start or a rebind: where the driver last saw us is unknown.
    is_first_call: bool,
    /// The event suppression word as last stored, if it was.
    armed: Option<u32>,
}

impl PackedDevice {
    /// Whether the descriptor in that place is available, by its flags.
    #[inline(always)]
    fn is_available(&self, at: RingOffset) -> bool {
        are_available(self.ring.at(usize::from(at.at)).load_u16(PACKED_FLAGS), at.wrap)
    }

    /// The private copy of the descriptor in that place.
    #[inline(always)]
    fn descriptor(&self, at: u16) -> Descriptor {
        Descriptor::load(self.ring.at(usize::from(at)), 0)
    }

    /// Follows one chain; returns buffer id and entries.
    fn walk(
        &self,
        from: RingOffset,
        regions: &Regions,
        into: &mut Elements,
    ) -> Result<Head, Broken> {
        into.clear();
        let mut at = from;
        // What is not used yet and this chain share one lap.
        let left = u32::from(self.size).saturating_sub(from.distance(self.staged, self.size));
        for descriptors in (1..=self.size).take(left as usize) {
            let descriptor = self.descriptor(at.at);
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
            popped,
            staged: used,
            published: used,
            entries: vec![UsedEntry::default(); usize::from(size)].into(),
            kept: 0,
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
        Cursor { at: self.popped.at, wrap: self.popped.wrap }
    }

    #[inline(always)]
    fn peek(
        &mut self,
        at: &mut Cursor,
        regions: &Regions,
        into: &mut Elements,
    ) -> Result<Option<Head>, Broken> {
        let from = RingOffset { at: at.at, wrap: at.wrap };
        if !self.is_available(from) {
            return Ok(None);
        }
        event::after_seeing();
        // What is not used yet and what is still available share one lap; no step goes beyond it.
        if from == self.staged.a_lap_on() {
            return Err(Broken(Why::IndexJump));
        }
        let head = self.walk(from, regions, into)?;
        let next = from.advanced(head.descriptors, self.size);
        *at = Cursor { at: next.at, wrap: next.wrap };
        Ok(Some(head))
    }

    #[inline(always)]
    fn peek_one(&mut self, at: &mut Cursor, regions: &Regions) -> Option<One> {
        let from = RingOffset { at: at.at, wrap: at.wrap };
        let entry = self.ring.at(usize::from(from.at));
        let is_available = are_available(entry.load_u16(PACKED_FLAGS), from.wrap);
        if !is_available || from == self.staged.a_lap_on() {
            return None;
        }
        event::after_seeing();
        let descriptor = Descriptor::load(entry, 0);
        let (id, flags) = (descriptor.third, descriptor.fourth);
        if flags & (INDIRECT | NEXT) != 0 || id >= self.size {
            return None;
        }
        let memory = element(&descriptor, regions).ok()?;
        let next = from.advanced(1, self.size);
        *at = Cursor { at: next.at, wrap: next.wrap };
        Some(One { head: Head { id, descriptors: 1, is_writable: flags & WRITE != 0 }, memory })
    }

    #[inline(always)]
    fn ahead(&self, at: Cursor, regions: &Regions) -> Option<SharedSlice> {
        let soon = prefetch_at(RingOffset { at: at.at, wrap: at.wrap }, self.size)?;
        let descriptor = self.descriptor(soon.at);
        match are_available(descriptor.fourth, soon.wrap) {
            true => regions.hint(descriptor.address),
            false => None,
        }
    }

    #[inline(always)]
    fn pop_to(&mut self, at: Cursor) {
        self.popped = RingOffset { at: at.at, wrap: at.wrap };
    }

    #[inline(always)]
    fn add_used(&mut self, head: Head, written: u32) {
        assert!(head.descriptors <= self.size, "a head of another queue");
        let Head { id, is_writable, .. } = head;
        let write = if written > 0 { WRITE } else { 0 };
        if self.options.in_order
            && let Some(last) = self.entries[..self.kept].last_mut()
            && !last.is_writable
        {
            // In order, an entry stands for all buffers before it as well, and says nothing of what
            // was written there (virtio 1.2 §2.8.10): so it does for those that cannot be written.
            let flags = last.flags | write;
            *last = UsedEntry { id, flags, written, is_writable, ..*last };
        } else {
            let (at, flags) = (self.staged.at, write | used_flags(self.staged.wrap));
            self.entries[self.kept] = UsedEntry { at, id, flags, written, is_writable };
            self.kept += 1;
        }
        self.staged = self.staged.advanced(head.descriptors, self.size);
    }

    #[inline]
    fn publish(&mut self) {
        let Some((first, others)) = self.entries[..self.kept].split_first() else { return };
        for &UsedEntry { at, id, flags, written, .. } in others {
            let id_and_flags = u64::from(id) << 32 | u64::from(flags) << 48;
            let entry = self.ring.at(usize::from(at));
            entry.store_u64(PACKED_LEN, u64::from(written) | id_and_flags);
        }
        let entry = self.ring.at(usize::from(first.at));
        entry.store_u32(PACKED_LEN, first.written);
        entry.store_u16(PACKED_ID, first.id);
        event::before_showing();
        entry.store_u16(PACKED_FLAGS, first.flags);
        self.kept = 0;
        let added = self.staged.distance(self.published, self.size);
        self.published = self.staged;
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
        event::packed_wants(word, self.published, unasked, self.size)
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
                event_word(AT_POSITION, wanted_at.to_bits())
            }
        });
        event::before_second_look();
        self.is_available(self.popped)
    }

    fn arm_kicks_behind(&mut self, at: Cursor) -> bool {
        let behind = RingOffset { at: at.at, wrap: at.wrap };
        self.store_armed(match self.options.event_idx {
            false => event_word(ENABLE, 0),
            true => event_word(AT_POSITION, behind.to_bits()),
        });
        event::before_second_look();
        self.is_available(behind)
    }

    fn position(&self) -> Position {
        Position {
            available: self.popped.at,
            available_wrap: self.popped.wrap,
            used: self.published.at,
            used_wrap: self.published.wrap,
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
