//! How used entries become visible in a packed ring, and the marks of pages that are written.

use super::PackedDevice;
use crate::desc::{INDIRECT, NEXT, PACKED_FLAGS, PACKED_ID, PACKED_LEN, WRITE};
use crate::event;
use crate::fault::Mark;
use crate::marker::Marker;
use crate::packed::used_entry::{IS_READABLE, UsedEntry};
use crate::{AreaSizes, DeviceQueue, Format};

impl PackedDevice {
    /// Stores what is staged into the ring, the flags last that show it.
    #[inline(always)]
    pub(super) fn show(&mut self) {
        self.record.release();
        if self.staged == 0 {
            return;
        }
        self.keep();
        let in_order = self.options.in_order;
        let (first, mut next) = match in_order && !self.is_mixed {
            true => (self.first_entry(), self.first + 1),
            false => self.entry_from(0),
        };
        let mut at = self.published.advanced(first.descriptors(), self.size);
        while in_order && self.is_mixed && next < self.staged {
            let (used, behind) = self.entry_from(next);
            self.ring.at(usize::from(at.at())).store_u64(PACKED_LEN, used.word_at(at));
            (at, next) = (at.advanced(used.descriptors(), self.size), behind);
        }
        for (word, step) in self.record.entries(next, self.staged) {
            let used = UsedEntry { word, step };
            self.ring.at(usize::from(at.at())).store_u64(PACKED_LEN, used.word_at(at));
            at = at.advanced(used.descriptors(), self.size);
        }
        let entry = self.ring.at(usize::from(self.published.at()));
        let word = first.word_at(self.published);
        entry.store_u32(PACKED_LEN, (word & 0xffff_ffff) as u32);
        entry.store_u16(PACKED_ID, (word >> 32 & 0xffff) as u16);
        event::before_showing();
        entry.store_u16(PACKED_FLAGS, (word >> 48) as u16);
        self.record.store([at.word(), 0]);
        (self.staged, self.first_descriptors) = (0, 0);
        (self.is_first_open, self.is_mixed) = (in_order, false);
        let added = at.distance(self.published, self.size);
        self.published = at;
        self.unasked = self.unasked.saturating_add(added);
    }

    /// The entry that goes into the ring first, in order.
    #[inline(always)]
    fn first_entry(&self) -> UsedEntry {
        let step = self.first_descriptors.into();
        UsedEntry { step, ..UsedEntry::load(&self.record, self.first) }
    }

    /// The ring's entry for the staged one at `from`, and which one comes behind that. In order, an
    /// entry stands for all buffers before it as well, and says nothing of what was written there
    /// (virtio 1.2 §2.8.10): so it does for those that cannot be written.
    #[inline]
    fn entry_from(&self, from: usize) -> (UsedEntry, usize) {
        let mut entry = UsedEntry::load(&self.record, from);
        let mut next = from + 1;
        while entry.step & IS_READABLE != 0 && self.options.in_order && next < self.staged {
            let other = UsedEntry::load(&self.record, next);
            entry = UsedEntry { step: other.step + u32::from(entry.descriptors()), ..other };
            next += 1;
        }
        (entry, next)
    }

    /// Publishes, and marks the pages that have got something.
    #[cold]
    pub(super) fn show_marked(&mut self) {
        let from = self.published;
        if let Some(marker) = &self.marker {
            event::before_marking();
            self.mark_buffers(marker);
        }
        self.show();
        if let Some(marker) = &self.marker {
            event::before_marking();
            let shown = self.published.distance(from, self.size);
            marker.mark_descriptors(Mark::Descriptors, from.at(), shown, self.size);
        }
    }

    /// Marks the buffers that are staged. Their descriptors are the driver's, which must not change
    /// them yet; one that does loses pages of its own.
    fn mark_buffers(&self, marker: &Marker) {
        let mut at = self.published;
        for (word, step) in self.record.entries(0, self.staged) {
            let used = UsedEntry { word, step };
            let written = (word & 0xffff_ffff) as u32;
            let first = self.descriptor(at.at());
            if first.fourth & (WRITE | NEXT | INDIRECT) == WRITE {
                marker.mark_element(&first, written);
            } else if written > 0 {
                let _ = self.walk(at, &marker.regions, &mut marker.written(written));
            }
            at = at.advanced(used.descriptors(), self.size);
        }
    }

    /// A device that was killed may have written anything into the ring, and into buffers that are
    /// not shown as used. It marked those whose descriptors it has overwritten.
    pub(super) fn mark_start(&self) {
        let Some(marker) = &self.marker else { return };
        event::before_marking();
        marker.mark_descriptors(Mark::Start, 0, self.size.into(), self.size);
        let len = AreaSizes::of(Format::Packed, self.size).device as usize;
        marker.mark_device(Mark::Start, 0, len);
        let (mut at, mut posted) = (self.published, marker.posted());
        for (word, step) in self.record.entries(0, self.staged) {
            let _ = self.walk(at, &marker.regions, &mut posted);
            at = at.advanced(UsedEntry { word, step }.descriptors(), self.size);
        }
        let mut left = u32::from(self.size);
        while self.is_available(at) && left > 0 && posted.goes_on() {
            event::after_seeing();
            let Ok(head) = self.walk(at, &marker.regions, &mut posted) else { return };
            at = at.advanced(head.descriptors, self.size);
            left = left.saturating_sub(head.descriptors.into());
        }
    }
}
