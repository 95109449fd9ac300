//! The driver's side of a split ring.
//!
//! How: the free list and the record of every chain are private; the shared table is only
//! written. Free descriptors are taken in the order in which they came back, so that with
//! IN_ORDER they are used in ring order, as the specification wants it (virtio 1.2
//! §2.7.5.2). Limits: indirect tables hold [`INDIRECT_ELEMENTS_MAX`](crate::INDIRECT_ELEMENTS_MAX)
//! elements.

use alloc::boxed::Box;
use alloc::vec;

use crate::areas::{DESCRIPTOR_LEN, DriverMemory};
use crate::desc::{Descriptor, INDIRECT, NEXT, WRITE};
use crate::event;
use crate::flight::{Buffer, Entry, InFlight, Returning, UsedEntries};
use crate::plan::{Plan, is_filled};
use crate::split::{
    FAR, FLAGS, INDEX, NO_NOTIFICATION, RING, UsedRing, available_entry, available_event, place,
    size_of, used_event,
};
use crate::{
    Areas, Arm, Broken, BufferId, DriverQueue, Format, QueueFull, QueueOptions, Returned,
    SharedSlice, Why,
};

/// What is known of one descriptor.
#[derive(Debug, Clone, Copy)]
struct Place {
    /// What was last stored: the same is not stored again, for the reason in `written.rs`.
    words: [u64; 2],
    /// The descriptor behind it in a chain.
    next: u16,
}

/// The free descriptors, in the order in which they came back.
#[derive(Debug)]
struct Free {
    /// As many as the queue has entries.
    descriptors: Box<[u16]>,
    /// Taken and given back so far, modulo 2^16; at first all are given.
    taken: u16,
    given: u16,
}

impl Free {
    #[inline(always)]
    fn count(&self) -> u16 {
        self.given.wrapping_sub(self.taken)
    }

    #[inline(always)]
    fn at(&self, number: u16) -> u16 {
        self.descriptors[place(number, self.descriptors.len() - 1)]
    }

    /// Takes the one that is free longest; there must be one.
    #[inline(always)]
    fn take(&mut self) -> u16 {
        let descriptor = self.at(self.taken);
        self.taken = self.taken.wrapping_add(1);
        descriptor
    }
}

/// What is needed to take used entries.
struct Taking<'a> {
    used: UsedRing,
    seen: u16,
    places: &'a [Place],
    free: &'a mut [u16],
    given: u16,
}

impl Taking<'_> {
    #[inline(always)]
    fn give(&mut self, descriptor: u16) {
        let at = place(self.given, self.free.len() - 1);
        self.free[at] = descriptor;
        self.given = self.given.wrapping_add(1);
    }
}

impl UsedEntries for Taking<'_> {
    #[inline(always)]
    fn next(&self, returning: &Returning<'_>) -> Option<Entry> {
        let returned = returning.returned();
        let entry = self.used.at(returned as usize & self.used.last());
        let [key, len] = entry.load_u32_pair(0);
        // No more are taken than are shown.
        let shown = u32::from(self.seen.wrapping_sub(index_of(returned)));
        Some(Entry { key, len, shown })
    }

    #[inline(always)]
    fn release(&mut self, key: u16, descriptors: u16) {
        self.give(key);
        let mut descriptor = key;
        for _ in 1..descriptors {
            descriptor = self.places[usize::from(descriptor)].next;
            self.give(descriptor);
        }
    }
}

/// A split virtqueue, seen from the driver.
#[derive(Debug)]
pub struct SplitDriver {
    memory: DriverMemory,
    used_ring: UsedRing,
    options: QueueOptions,
    places: Box<[Place]>,
    free: Free,
    in_flight: InFlight,
    /// Buffers published since [`must_kick`](DriverQueue::must_kick) was last asked.
    unasked: u32,
    /// The device's index as last loaded.
    seen: u16,
}

impl SplitDriver {
    /// The usual buffer: one element, one descriptor.
    #[inline(always)]
    fn add_one(&mut self, element: (u64, u32), flags: u16, id: BufferId) -> Result<(), QueueFull> {
        let (address, len) = element;
        assert!(is_filled(&[element]), "an empty element");
        if self.free.count() == 0 {
            return Err(QueueFull);
        }
        let first = self.free.take();
        self.write_descriptor(first, Descriptor { address, len, third: flags, fourth: 0 });
        let writable = if flags & WRITE == 0 { 0 } else { len };
        self.stage(first, Buffer { id, descriptors: 1, writable });
        Ok(())
    }

    /// Any buffer of several elements.
    fn add_several(
        &mut self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        id: BufferId,
    ) -> Result<(), QueueFull> {
        let plan = Plan::of(readable, writable, (self.size(), self.free.count()), self.options)?;
        let first = match plan.indirect {
            true => self.write_table(readable, writable),
            false => self.write_chain(readable, writable),
        };
        let Plan { descriptors, writable, .. } = plan;
        self.stage(first, Buffer { id, descriptors, writable });
        Ok(())
    }

    /// Makes a chain that was written the next entry of the available ring.
    #[inline(always)]
    fn stage(&mut self, first: u16, buffer: Buffer) {
        let index = index_of(self.in_flight.added());
        // The same is not stored again, for the reason in `written.rs`.
        if self.in_flight.add(first, buffer) {
            self.memory
                .bound
                .driver
                .store_u16(available_entry(index, self.used_ring.last()), first);
        }
    }

    /// Writes a descriptor, unless it is there already.
    #[inline(always)]
    fn write_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        let place = &mut self.places[usize::from(index)];
        if place.words != descriptor.words() {
            place.words = descriptor.words();
            descriptor.store(self.memory.bound.descriptor, index);
        }
    }

    /// Writes the elements into free descriptors; returns the first of them.
    fn write_chain(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> u16 {
        let count = readable.len() + writable.len();
        let first = self.free.take();
        let mut index = first;
        for (at, &(address, len)) in readable.iter().chain(writable).enumerate() {
            let write = if at < readable.len() { 0 } else { WRITE };
            let is_last = at + 1 == count;
            let next = if is_last { 0 } else { self.free.take() };
            let flags = if is_last { write } else { write | NEXT };
            self.write_descriptor(index, Descriptor { address, len, third: flags, fourth: next });
            self.places[usize::from(index)].next = next;
            if index != first {
                self.in_flight.forget(index);
            }
            index = next;
        }
        first
    }

    /// Writes the elements into the table of a free descriptor, and that descriptor.
    fn write_table(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> u16 {
        let first = self.free.take();
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
        self.write_descriptor(first, descriptor);
        first
    }

    /// Looks for used entries behind those that are known: the device's index, checked.
    fn load_index(&mut self) -> Result<(), Broken> {
        let index = self.memory.bound.device.load_u16(INDEX);
        if u32::from(index.wrapping_sub(self.seen)) > self.in_flight.published() {
            return Err(Broken(Why::NotInFlight));
        }
        event::after_seeing();
        self.seen = index;
        Ok(())
    }

    /// The next used entry.
    #[inline]
    fn used(&self) -> u16 {
        index_of(self.in_flight.returned())
    }
}

/// What the index is after so many buffers.
#[inline(always)]
fn index_of(buffers: u32) -> u16 {
    (buffers & 0xffff) as u16
}

impl DriverQueue for SplitDriver {
    const FORMAT: Format = Format::Split;

    fn new(memory: SharedSlice, device_address: u64, size: u16, options: QueueOptions) -> Self {
        assert!(size.is_power_of_two(), "a split queue of {size} entries");
        let memory = DriverMemory::new(Format::Split, memory, device_address, size, options);
        Self {
            used_ring: UsedRing::new(memory.bound.device, RING, size),
            memory,
            options,
            // The memory is zero.
            places: vec![Place { words: [0; 2], next: 0 }; usize::from(size)].into(),
            free: Free { descriptors: (0..size).collect(), taken: 0, given: size },
            // What it takes for the first lap of the available ring is what zeroed memory holds.
            in_flight: InFlight::new(size, options.in_order),
            unasked: 0,
            seen: 0,
        }
    }

    fn areas(&self) -> Areas {
        self.memory.areas
    }

    #[inline]
    fn size(&self) -> u16 {
        size_of(self.used_ring.last())
    }

    #[inline]
    fn free(&self) -> u16 {
        self.free.count()
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

    #[inline(always)]
    fn add_again(
        &mut self,
        returned: &[Returned],
        mut is_same: impl FnMut(BufferId) -> bool,
    ) -> usize {
        let mut staging = self.in_flight.staging();
        let free = usize::from(self.free.count());
        let mut taken = self.free.taken;
        let add_again = |returned: &Returned| {
            let (key, index) = (returned.key(), index_of(staging.added()));
            if !is_same(returned.id) || self.free.at(taken) != key {
                return false;
            }
            let Some(is_new) = staging.add_again(key, returned.id) else { return false };
            if is_new {
                let entry = available_entry(index, self.used_ring.last());
                self.memory.bound.driver.store_u16(entry, key);
            }
            taken = taken.wrapping_add(1);
            true
        };
        let most = free.min(returned.len());
        let count = returned[..most].iter().map(add_again).take_while(|&is_added| is_added).count();
        let added = staging.added();
        self.in_flight.staged(added);
        self.free.taken = taken;
        count
    }

    #[inline]
    fn publish(&mut self) {
        let added = self.in_flight.publish();
        if added == 0 {
            return;
        }
        event::before_showing();
        self.memory.bound.driver.store_u16(INDEX, index_of(self.in_flight.added()));
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
        let published = index_of(self.in_flight.shown());
        event::crossed(wanted_at, published, published.wrapping_sub(added))
    }

    #[inline(always)]
    fn take_used(&mut self, most: u16, take: impl FnMut(Returned)) -> Result<(), Broken> {
        if self.used() == self.seen {
            self.load_index()?;
        }
        let most = most.min(self.seen.wrapping_sub(self.used()));
        let mut taking = Taking {
            used: self.used_ring,
            seen: self.seen,
            places: &self.places,
            free: &mut self.free.descriptors,
            given: self.free.given,
        };
        let result = self.in_flight.take(most, &mut taking, take);
        self.free.given = taking.given;
        result
    }

    #[inline]
    fn arm_calls(&mut self, arm: Arm) -> bool {
        let driver = self.memory.bound.driver;
        let buffers = match arm {
            Arm::Never => {
                match self.options.event_idx {
                    false => driver.store_u16(FLAGS, NO_NOTIFICATION),
                    true => {
                        driver.store_u16(used_event(self.size()), self.used().wrapping_add(FAR))
                    }
                }
                return false;
            }
            Arm::Next => 1,
            Arm::After(buffers) => self.in_flight.can_come(buffers),
        };
        match self.options.event_idx {
            false => driver.store_u16(FLAGS, 0),
            true => {
                driver.store_u16(used_event(self.size()), self.used().wrapping_add(buffers - 1))
            }
        }
        event::before_second_look();
        self.in_flight.is_in_batch() || self.memory.bound.device.load_u16(INDEX) != self.used()
    }
}
