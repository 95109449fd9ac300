//! The device's side of a split ring.
//!
//! How: indexes run freely over 16 bits and are cut to the ring when used. The driver's index is
//! loaded only when the cached one is exhausted, the own one stored once per publish. A queue
//! starts at the used index that stands in the ring: what was available beyond it and not used is
//! taken up again. Limits: a driver that makes a head available twice gets it twice; what it hurts
//! is only itself.

mod publish;

use alloc::boxed::Box;

use crate::areas::Bound;
use crate::chain::{IndirectTable, Sink, element};
use crate::desc::{Descriptor, Descriptors, INDIRECT, NEXT, WRITE};
use crate::event;
use crate::marker::Marker;
use crate::queue::prefetch_distance;
use crate::split::{
    FAR, FLAGS, INDEX, Index, NO_NOTIFICATION, RING, UsedRing, available_event, place, size_of,
    used_event,
};
use crate::table::Table;
use crate::written::Written;
use crate::{
    Areas, Arm, Broken, Cursor, DeviceQueue, Elements, Format, Head, One, Position, QueueOptions,
    QueueSetup, Regions, RingRecord, SIZE_MAX, SharedSlice, Why,
};

/// No used entry is this one: what is in a driver's memory at the start is not known.
const NEVER_USED: [u32; 2] = [u32::MAX; 2];

/// The entries of the available ring.
type Available = Table<2, 2>;

/// The tables that the parts consist of.
fn tables(parts: &Bound, size: u16) -> (Descriptors, Available, UsedRing) {
    let descriptors = Table::new(parts.descriptor, 0, size);
    (descriptors, Table::new(parts.driver, RING, size), Table::new(parts.device, RING, size))
}

/// A split virtqueue, seen from the device.
#[derive(Debug)]
pub struct SplitDevice {
    parts: Bound,
    /// The tables in `parts`, entry by entry.
    descriptors: Descriptors,
    available: Available,
    used: UsedRing,
    options: QueueOptions,
    /// Next available entry that is not popped.
    popped: Index,
    /// The driver's index as last loaded: `popped` to `popped + size`.
    seen: Index,
    /// The entry last stored in each place of `used`: id and length.
    written: Written,
    /// The own index with and without what is only staged.
    staged: Index,
    published: u16,
    /// The index as published, and with what is kept.
    record: RingRecord,
    /// Used entries published since [`must_call`](DeviceQueue::must_call) was last asked.
    unasked: u32,
    /// Not asked since the start or a rebind: where the driver last saw us is unknown.
    is_first_call: bool,
    /// The flags or event word as last stored, if it was.
    armed: Option<u16>,
    /// Where there is a log of written pages.
    marker: Option<Box<Marker>>,
}

/// Where a device was left whose record holds this word, in a ring that shows this index: the
/// indexes with which it goes on, without and with what it has kept.
fn left(word: [u32; 2], shown: u16, size: u16) -> Result<[u16; 2], Broken> {
    let [Ok(published), Ok(kept)] = word.map(u16::try_from) else {
        return Err(Broken(Why::BadRecord));
    };
    match (kept.wrapping_sub(published) <= size, shown) {
        (true, shown) if shown == published || shown == kept => Ok([shown, kept]),
        (true, _) => Err(Broken(Why::OtherRing)),
        (false, _) => Err(Broken(Why::BadRecord)),
    }
}

impl SplitDevice {
    /// A device in a ring that shows an index, of which `indexes` makes the own one, without and
    /// with what is staged.
    fn start_at(
        setup: &QueueSetup,
        regions: &Regions,
        record: RingRecord,
        indexes: impl FnOnce(u16) -> Result<[u16; 2], Broken>,
    ) -> Result<Self, Broken> {
        if !setup.size.is_power_of_two() || setup.size > SIZE_MAX {
            return Err(Broken(Why::BadIndex));
        }
        let parts = Bound::translate(Format::Split, setup.size, &setup.areas, regions)?;
        let (descriptors, available, used) = tables(&parts, setup.size);
        let [published, staged] = indexes(parts.device.load_u16(INDEX))?;
        Ok(Self {
            parts,
            descriptors,
            available,
            used,
            options: setup.options,
            popped: Index::new(staged),
            seen: Index::new(staged),
            written: Written::new(setup.size, NEVER_USED),
            staged: Index::new(staged),
            published,
            record,
            unasked: 0,
            is_first_call: true,
            armed: None,
            marker: Marker::new(&setup.areas, regions),
        })
    }

    /// The driver's index, checked against what may be available beyond the popped position.
    #[inline]
    fn load_index(&mut self, at: u16) -> Result<(), Broken> {
        let index = self.parts.driver.load_u16(INDEX);
        let beyond = index.wrapping_sub(self.popped.value());
        // An index that went back behind a cursor is as wrong as one that went too far.
        if beyond > self.size() || beyond < at.wrapping_sub(self.popped.value()) {
            return Err(Broken(Why::IndexJump));
        }
        event::after_seeing();
        self.seen = Index::new(index);
        Ok(())
    }

    #[inline(always)]
    fn is_seen(&self, at: u16) -> bool {
        // Of what is not, the next is 2^16 - 1 behind, and a cursor from before a rebind hardly
        // less.
        self.seen.value().wrapping_sub(at).wrapping_sub(1) < SIZE_MAX
    }

    /// The private copy of a descriptor that the driver has named.
    #[inline(always)]
    fn descriptor(&self, index: u16) -> Option<Descriptor> {
        self.descriptors.find(index).map(|entry| Descriptor::load(entry, 0))
    }

    /// The chain that was made available in that place.
    #[inline(always)]
    fn available(&self, at: u16) -> u16 {
        self.available.at(place(at, self.available.last())).load_u16(0)
    }

    /// Follows one chain; each descriptor is read once, and at most as many as there are.
    fn walk(&self, head: u16, regions: &Regions, into: &mut impl Sink) -> Result<(), Broken> {
        let mut index = head;
        for _ in 0..=self.descriptors.last() {
            let descriptor = self.descriptor(index).ok_or(Broken(Why::BadIndex))?;
            let flags = descriptor.third;
            if flags & INDIRECT != 0 {
                let allowed = self.options.indirect;
                let table = IndirectTable::find(&descriptor, flags, allowed, regions)?;
                return table.walk_linked(regions, into);
            }
            into.push(&descriptor, flags, regions)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.fourth;
        }
        Err(Broken(Why::ChainTooLong))
    }

    /// Stores the word with which the driver is told when to kick, unless it is there already.
    #[inline]
    fn store_armed(&mut self, offset: usize, value: u16) {
        if self.armed != Some(value) {
            self.parts.device.store_u16(offset, value);
            self.armed = Some(value);
            if let Some(marker) = &self.marker {
                marker.mark_armed(offset, 2);
            }
        }
    }

    fn is_event_far(&self) -> bool {
        let ahead = self.armed.map_or(0, |event| event.wrapping_sub(self.popped.value()));
        (FAR / 2..=FAR).contains(&ahead)
    }
}

impl DeviceQueue for SplitDevice {
    const FORMAT: Format = Format::Split;

    fn start_in(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken> {
        // Front-ends tell 0, the available index or nothing where a back-end before this one has
        // used buffers. The driver counts on from the index that it reads there. Any value is
        // possible: a wrong one is the driver's own, and the first look at the available index
        // notices it.
        let queue = Self::start_at(setup, regions, record, |shown| Ok([shown; 2]))?;
        queue.mark_start();
        queue.record.store([queue.staged.0; 2]);
        Ok(queue)
    }

    fn recover(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken> {
        let word = record.load();
        let mut queue =
            Self::start_at(setup, regions, record, |shown| left(word, shown, setup.size))?;
        queue.mark_start();
        // The used entries are in the ring. Where the index is there as well, only the record was
        // behind.
        queue.publish();
        queue.record.store([queue.staged.0; 2]);
        Ok(queue)
    }

    #[inline]
    fn size(&self) -> u16 {
        size_of(self.available.last())
    }

    #[inline]
    fn cursor(&self) -> Cursor {
        Cursor(self.popped.0)
    }

    #[inline(always)]
    fn peek(
        &mut self,
        at: &mut Cursor,
        regions: &Regions,
        into: &mut Elements,
    ) -> Result<Option<Head>, Broken> {
        let next = Index(at.0).value();
        if !self.is_seen(next) {
            self.load_index(next)?;
            if !self.is_seen(next) {
                return Ok(None);
            }
        }
        let id = self.available(next);
        into.clear();
        self.walk(id, regions, into)?;
        *at = Cursor(u32::from(next.wrapping_add(1)));
        Ok(Some(Head { id, descriptors: 1, is_writable: !into.writable().is_empty() }))
    }

    #[inline(always)]
    fn peek_one(&mut self, at: Cursor, regions: &Regions) -> Option<One> {
        let at = Index(at.0).value();
        if !self.is_seen(at) {
            self.load_index(at).ok().filter(|()| self.is_seen(at))?;
        }
        let id = self.available(at);
        let descriptor = self.descriptor(id)?;
        let flags = descriptor.third;
        if flags & (INDIRECT | NEXT) != 0 {
            return None;
        }
        let memory = element(&descriptor, regions).ok()?;
        Some(One { head: Head { id, descriptors: 1, is_writable: flags & WRITE != 0 }, memory })
    }

    #[inline(always)]
    fn ahead(&self, at: Cursor, regions: &Regions) -> Option<SharedSlice> {
        let at = Index(at.0).value();
        let soon = at.wrapping_add(prefetch_distance(at));
        if !self.is_seen(soon) {
            return None;
        }
        regions.hint(self.descriptors.find(self.available(soon))?.load_u64(0))
    }

    #[inline(always)]
    fn pop(&mut self, _: Head) {
        self.popped = Index::new(self.popped.value().wrapping_add(1));
    }

    #[inline(always)]
    fn add_used(&mut self, head: Head, written: u32) {
        let content = [u32::from(head.id), written];
        let place = place(self.staged.value(), self.used.last());
        if self.written.is_new(place, content) {
            self.used.at(place).store_u32_pair(0, content);
        }
        self.staged = Index::new(self.staged.value().wrapping_add(1));
    }

    #[inline(always)]
    fn keep(&mut self) {
        self.record.store_kept(self.staged.0);
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
        let driver = self.parts.driver;
        let is_first = core::mem::take(&mut self.is_first_call);
        if self.options.notify_on_empty && driver.load_u16(INDEX) == self.popped.value() {
            return true;
        }
        if !self.options.event_idx {
            return driver.load_u16(FLAGS) & NO_NOTIFICATION == 0;
        }
        let Ok(added) = u16::try_from(unasked) else { return true };
        let old = self.published.wrapping_sub(added);
        let wanted_at = driver.load_u16(used_event(self.size()));
        is_first || event::crossed(wanted_at, self.published, old)
    }

    fn driver_event(&self) -> u32 {
        let at = if self.options.event_idx { used_event(self.size()) } else { FLAGS };
        self.parts.driver.load_u16(at).into()
    }

    #[inline]
    fn arm_kicks(&mut self, arm: Arm) -> bool {
        let buffers = match arm {
            Arm::Never => {
                match self.options.event_idx {
                    false => self.store_armed(FLAGS, NO_NOTIFICATION),
                    true if self.is_event_far() => {}
                    true => {
                        let far = self.popped.value().wrapping_add(FAR);
                        self.store_armed(available_event(self.size()), far);
                    }
                }
                return false;
            }
            Arm::Next => 1,
            Arm::After(buffers) => buffers.clamp(1, self.size()),
        };
        match self.options.event_idx {
            false => self.store_armed(FLAGS, 0),
            true => {
                let wanted_at = self.popped.value().wrapping_add(buffers - 1);
                self.store_armed(available_event(self.size()), wanted_at);
            }
        }
        event::before_second_look();
        self.parts.driver.load_u16(INDEX) != self.popped.value()
    }

    fn arm_kicks_behind(&mut self, at: Cursor) -> bool {
        let behind = Index(at.0).value();
        match self.options.event_idx {
            false => self.store_armed(FLAGS, 0),
            true => self.store_armed(available_event(self.size()), behind),
        }
        event::before_second_look();
        self.parts.driver.load_u16(INDEX) != behind
    }

    fn behind_available(&self, _: Cursor) -> Option<Cursor> {
        let index = self.parts.driver.load_u16(INDEX);
        let is_possible = index.wrapping_sub(self.popped.value()) <= self.size();
        is_possible.then(|| Cursor(u32::from(index)))
    }

    fn position(&self) -> Position {
        Position { available: self.popped.value(), used: self.published, ..Position::FRESH }
    }

    fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        let size = self.size();
        self.parts = Bound::translate(Format::Split, size, areas, regions)?;
        (self.descriptors, self.available, self.used) = tables(&self.parts, size);
        self.seen = self.popped;
        self.written = Written::new(self.size(), NEVER_USED);
        self.is_first_call = true;
        self.armed = None;
        self.marker = Marker::new(areas, regions);
        Ok(())
    }
}
