//! How used entries become visible in a split ring, and the marks of pages that are written.

use super::SplitDevice;
use crate::desc::{INDIRECT, NEXT, WRITE};
use crate::event;
use crate::fault::Mark;
use crate::marker::Marker;
use crate::split::{FLAGS, INDEX, RING, place};
use crate::{AreaSizes, DeviceQueue, Format};

impl SplitDevice {
    /// Stores the own index with what is staged.
    #[inline(always)]
    pub(super) fn show(&mut self) {
        self.record.release();
        let added = self.staged.value().wrapping_sub(self.published);
        if added == 0 {
            return;
        }
        self.keep();
        event::before_showing();
        self.parts.device.store_u16(INDEX, self.staged.value());
        self.record.store([self.staged.0; 2]);
        self.published = self.staged.value();
        self.unasked = self.unasked.saturating_add(u32::from(added));
    }

    /// Publishes, and marks the pages that have got something.
    #[cold]
    pub(super) fn show_marked(&mut self) {
        let from = self.published;
        if let Some(marker) = &self.marker {
            event::before_marking();
            self.mark_buffers(marker, from);
        }
        self.show();
        if let Some(marker) = self.marker.as_ref().filter(|_| self.published != from) {
            event::before_marking();
            self.mark_entries(marker, from);
        }
    }

    /// Marks the buffers of entries from one on that are staged. The driver must not change them
    /// yet; one that does loses pages of its own.
    fn mark_buffers(&self, marker: &Marker, from: u16) {
        let mut at = from;
        while at != self.staged.value() {
            let [id, written] = self.written.entry(place(at, self.used.last()));
            match u16::try_from(id).map(|id| (id, self.descriptor(id))) {
                Ok((_, Some(only))) if only.third & (WRITE | NEXT | INDIRECT) == WRITE => {
                    marker.mark_element(&only, written);
                }
                Ok((id, _)) if written > 0 => {
                    let _ = self.walk(id, &marker.regions, &mut marker.written(written));
                }
                _ => {}
            }
            at = at.wrapping_add(1);
        }
    }

    /// Marks the entries from one on that are shown, and the index.
    fn mark_entries(&self, marker: &Marker, from: u16) {
        let (first, count) = (place(from, self.used.last()), self.published.wrapping_sub(from));
        let count = usize::from(count);
        let before_end = count.min(self.used.last() + 1 - first);
        for (at, count) in [(first, before_end), (0, count - before_end)] {
            marker.mark_device(Mark::UsedEntries, RING + 8 * at, 8 * count);
        }
        marker.mark_device(Mark::UsedIndex, INDEX, 2);
    }

    /// A device that was killed may have written anything into the ring, and into buffers that are
    /// not shown as used.
    pub(super) fn mark_start(&self) {
        let Some(marker) = &self.marker else { return };
        event::before_marking();
        let len = AreaSizes::of(Format::Split, self.size()).device as usize;
        marker.mark_device(Mark::Start, FLAGS, len);
        let index = self.parts.driver.load_u16(INDEX);
        if index.wrapping_sub(self.published) > self.size() {
            return;
        }
        event::after_seeing();
        let (mut at, mut posted) = (self.published, marker.posted());
        while at != index && posted.goes_on() {
            let _ = self.walk(self.available(at), &marker.regions, &mut posted);
            at = at.wrapping_add(1);
        }
    }
}
