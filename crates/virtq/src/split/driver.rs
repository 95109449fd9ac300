//! The driver's side of a split ring.
//!
//! How: the free list and the record of every chain are private; the shared table is only
//! written. Free descriptors are taken from the front of the list and come back at its end, so
//! that with IN_ORDER they are used in ring order, as the specification wants it (virtio 1.2
//! §2.7.5.2). Limits: indirect tables hold [`INDIRECT_ELEMENTS_MAX`](crate::INDIRECT_ELEMENTS_MAX)
//! elements.

use alloc::boxed::Box;

use crate::areas::{DESCRIPTOR_LEN, DriverMemory};
use crate::desc::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::event;
use crate::flight::{Buffer, InFlight, Returned};
use crate::plan::{Plan, is_filled};
use crate::queue::prefetch_distance;
use crate::split::{
    FAR, FLAGS, INDEX, NO_NOTIFICATION, available_entry, available_event, size_of, used_entry,
    used_event,
};
use crate::{
    Areas, Arm, Broken, BufferId, DriverQueue, Format, QueueFull, QueueOptions, SharedSlice, Used,
    Why,
};

/// What is known of one descriptor.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// What was last stored: the same is not stored again, for the reason in `written.rs`.
    words: [u64; 2],
    /// The descriptor behind it, in a chain or in the free list.
    next: u16,
}

/// A split virtqueue, seen from the driver.
#[derive(Debug)]
pub struct SplitDriver {
    memory: DriverMemory,
    /// The last entry: a whole word, for the reason that `Index` is one.
    last: usize,
    options: QueueOptions,
    places: Box<[Place]>,
    free_first: u16,
    free_last: u16,
    free: u16,
    in_flight: InFlight,
    /// The own index with and without what is only staged.
    staged: u16,
    published: u16,
    /// Buffers published since [`must_kick`](DriverQueue::must_kick) was last asked.
    unasked: u32,
    /// Next used entry, and the device's index as last loaded.
    used: u16,
    seen: u16,
}

impl SplitDriver {
    /// The usual buffer: one element, one descriptor.
    #[inline(always)]
    fn add_one(&mut self, element: (u64, u32), flags: u16, id: BufferId) -> Result<(), QueueFull> {
        let (address, len) = element;
        assert!(is_filled(&[element]), "an empty element");
        if self.free == 0 {
            return Err(QueueFull);
        }
        let first = self.free_first;
        let descriptor = Descriptor { address, len, third: flags, fourth: 0 };
        self.free_first = self.write_descriptor(first, descriptor);
        let writable = if flags & WRITE == 0 { 0 } else { len };
        self.stage(first, Buffer { id, descriptors: 1, last: first, writable });
        Ok(())
    }

    /// Any buffer of several elements.
    fn add_several(
        &mut self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        id: BufferId,
    ) -> Result<(), QueueFull> {
        let plan = Plan::of(readable, writable, (self.size(), self.free), self.options)?;
        let (first, last) = match plan.indirect {
            true => self.write_table(readable, writable),
            false => self.write_chain(readable, writable),
        };
        let Plan { descriptors, writable, .. } = plan;
        self.stage(first, Buffer { id, descriptors, last, writable });
        Ok(())
    }

    /// Makes a chain that was written the next entry of the available ring.
    #[inline(always)]
    fn stage(&mut self, first: u16, buffer: Buffer) {
        self.free -= buffer.descriptors;
        // The same is not stored again, for the reason in `written.rs`.
        if self.in_flight.add(first, buffer) {
            let entry = available_entry(self.staged, self.last);
            self.memory.bound.driver.store_u16(entry, first);
        }
        self.staged = self.staged.wrapping_add(1);
    }

    /// Writes a descriptor, unless it is there already; returns the one behind it.
    #[inline(always)]
    fn write_descriptor(&mut self, index: u16, descriptor: Descriptor) -> u16 {
        let place = &mut self.places[usize::from(index)];
        if place.words != descriptor.words() {
            place.words = descriptor.words();
            descriptor.store(self.memory.bound.descriptor, index);
        }
        place.next
    }

    /// Writes the elements into free descriptors; returns the first and the last of them.
    fn write_chain(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> (u16, u16) {
        let count = readable.len() + writable.len();
        let first = self.free_first;
        let (mut index, mut last) = (first, first);
        for (at, &(address, len)) in readable.iter().chain(writable).enumerate() {
            let write = if at < readable.len() { 0 } else { WRITE };
            let next = self.places[usize::from(index)].next;
            let (flags, fourth) = if at + 1 < count { (write | NEXT, next) } else { (write, 0) };
            self.write_descriptor(index, Descriptor { address, len, third: flags, fourth });
            last = index;
            index = next;
        }
        self.free_first = index;
        (first, last)
    }

    /// Writes the elements into the table of a free descriptor, and that descriptor.
    fn write_table(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> (u16, u16) {
        let first = self.free_first;
        let (table, table_address) = self.memory.indirect_table(first);
        let mut count = 0u16;
        let last = readable.len() + writable.len() - 1;
        for (at, &(address, len)) in readable.iter().chain(writable).enumerate() {
            let write = if at < readable.len() { 0 } else { WRITE };
            let (flags, next) = if at < last { (write | NEXT, count + 1) } else { (write, 0) };
            Descriptor { address, len, third: flags, fourth: next }.store(table, count);
            count += 1;
        }
        let len = u32::from(count) * DESCRIPTOR_LEN;
        let descriptor = Descriptor { address: table_address, len, third: INDIRECT, fourth: 0 };
        self.free_first = self.write_descriptor(first, descriptor);
        (first, first)
    }

    #[inline(always)]
    fn release(&mut self, first: u16, buffer: Buffer) {
        if self.free == 0 {
            self.free_first = first;
        } else {
            self.places[usize::from(self.free_last)].next = first;
        }
        self.free_last = buffer.last;
        self.free += buffer.descriptors;
    }

    /// Reads and checks the next used entry, if there is one.
    #[inline(always)]
    fn accept_used(&mut self) -> Result<Option<Returned>, Broken> {
        let device = self.memory.bound.device;
        if self.used == self.seen && !self.load_index()? {
            return Ok(None);
        }
        let [first, len] = device.load_u32_pair(used_entry(self.used, self.last));
        let shown = u32::from(self.seen.wrapping_sub(self.used));
        self.in_flight.accept(first, len, shown).map(Some)
    }

    /// The device's index, checked; whether there is anything new.
    fn load_index(&mut self) -> Result<bool, Broken> {
        let index = self.memory.bound.device.load_u16(INDEX);
        if index == self.used {
            return Ok(false);
        }
        if u32::from(index.wrapping_sub(self.used)) > self.in_flight.published() {
            return Err(Broken(Why::NotInFlight));
        }
        event::after_seeing();
        self.seen = index;
        Ok(true)
    }
}

impl DriverQueue for SplitDriver {
    const FORMAT: Format = Format::Split;

    fn new(memory: SharedSlice, device_address: u64, size: u16, options: QueueOptions) -> Self {
        assert!(size.is_power_of_two(), "a split queue of {size} entries");
        Self {
            memory: DriverMemory::new(Format::Split, memory, device_address, size, options),
            last: usize::from(size) - 1,
            options,
            // The memory is zero.
            places: (1..=size).map(|next| Place { words: [0; 2], next: next % size }).collect(),
            free_first: 0,
            free_last: size - 1,
            free: size,
            // What it takes for the first lap of the available ring is what zeroed memory holds.
            in_flight: InFlight::new(size, options.in_order),
            staged: 0,
            published: 0,
            unasked: 0,
            used: 0,
            seen: 0,
        }
    }

    fn areas(&self) -> Areas {
        self.memory.areas
    }

    #[inline]
    fn size(&self) -> u16 {
        size_of(self.last)
    }

    #[inline]
    fn free(&self) -> u16 {
        self.free
    }

    #[inline(always)]
    fn add(
        &mut self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        id: BufferId,
    ) -> Result<(), QueueFull> {
        match (readable, writable) {
            (&[element], []) => self.add_one(element, 0, id),
            ([], &[element]) => self.add_one(element, WRITE, id),
            _ => self.add_several(readable, writable, id),
        }
    }

    #[inline]
    fn publish(&mut self) {
        let added = self.in_flight.publish();
        if added == 0 {
            return;
        }
        event::before_showing();
        self.memory.bound.driver.store_u16(INDEX, self.staged);
        self.published = self.staged;
        self.unasked = self.unasked.saturating_add(added);
    }

    #[inline]
    fn must_kick(&mut self) -> bool {
        let unasked = core::mem::take(&mut self.unasked);
        if unasked == 0 {
            return false;
        }
        event::before_asking();
        let device = self.memory.bound.device;
        if !self.options.event_idx {
            return device.load_u16(FLAGS) & NO_NOTIFICATION == 0;
        }
        let Ok(added) = u16::try_from(unasked) else { return true };
        let wanted_at = device.load_u16(available_event(self.size()));
        event::crossed(wanted_at, self.published, self.published.wrapping_sub(added))
    }

    #[inline(always)]
    fn pop_used(&mut self) -> Result<Option<Used>, Broken> {
        let next = match self.in_flight.return_next() {
            Some(next) => Some(next),
            None => self.accept_used()?,
        };
        let Some(returned) = next else { return Ok(None) };
        self.release(returned.key, returned.buffer);
        self.used = self.used.wrapping_add(1);
        Ok(Some(returned.used()))
    }

    #[inline(always)]
    fn used_ahead(&self) -> Option<BufferId> {
        let distance = prefetch_distance(self.used);
        // No more than one lap lies between the two.
        if self.seen.wrapping_sub(self.used) <= distance {
            return None;
        }
        let soon = self.used.wrapping_add(distance);
        let first = self.memory.bound.device.load_u32(used_entry(soon, self.last));
        self.in_flight.buffer(first).map(|buffer| buffer.id)
    }

    #[inline]
    fn arm_calls(&mut self, arm: Arm) -> bool {
        let driver = self.memory.bound.driver;
        let buffers = match arm {
            Arm::Never => {
                match self.options.event_idx {
                    false => driver.store_u16(FLAGS, NO_NOTIFICATION),
                    true => driver.store_u16(used_event(self.size()), self.used.wrapping_add(FAR)),
                }
                return false;
            }
            Arm::Next => 1,
            Arm::After(buffers) => self.in_flight.can_come(buffers),
        };
        match self.options.event_idx {
            false => driver.store_u16(FLAGS, 0),
            true => driver.store_u16(used_event(self.size()), self.used.wrapping_add(buffers - 1)),
        }
        event::before_second_look();
        self.in_flight.is_in_batch() || self.memory.bound.device.load_u16(INDEX) != self.used
    }
}
