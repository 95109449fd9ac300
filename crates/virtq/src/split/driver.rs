//! The driver's side of a split ring.
//!
//! How: which descriptors are free and the record of every chain are private (`flight.rs`); the
//! shared table is only written. Free descriptors are taken in the order in which they came back,
//! so that with IN_ORDER they are used in ring order, as the specification wants it (virtio 1.2
//! §2.7.5.2). Limits: indirect tables hold [`INDIRECT_ELEMENTS_MAX`](crate::INDIRECT_ELEMENTS_MAX)
//! elements.

use alloc::boxed::Box;
use alloc::vec;

use crate::areas::DriverMemory;
use crate::desc::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE};
use crate::event;
use crate::flight::{Entry, InFlight, Returning, UsedEntries};
use crate::plan::{Plan, is_filled};
use crate::records::Buffer;
use crate::split::{
    FAR, FLAGS, INDEX, NO_NOTIFICATION, RING, UsedRing, available_entry, available_event, size_of,
    used_event,
};
use crate::{
    Areas, Arm, Broken, BufferId, DriverQueue, Format, QueueFull, QueueOptions, Returned,
    SharedSlice, Why,
};

/// The used ring and the index as last loaded, to take used entries.
struct Taking {
    used: UsedRing,
    seen: u16,
}

impl UsedEntries for Taking {
    #[inline(always)]
    fn next(&self, returning: &Returning<'_>) -> Option<Entry> {
        let returned = returning.returned();
        let entry = self.used.at(returned as usize & self.used.last());
        let [key, len] = entry.load_u32_pair(0);
        // No more are taken than are shown.
        let shown = u32::from(self.seen.wrapping_sub(index_of(returned)));
        Some(Entry { key, len, is_vague: false, shown })
    }

    #[inline(always)]
    fn release(&mut self, _: u16) {}
}

/// A split virtqueue, seen from the driver.
#[derive(Debug)]
pub struct SplitDriver {
    memory: DriverMemory,
    used_ring: UsedRing,
    options: QueueOptions,
    /// By descriptor: what was last stored. The same is not stored again, for the reason in
    /// `written.rs`.
    written: Box<[[u64; 2]]>,
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
        if self.free() == 0 {
            return Err(QueueFull);
        }
        let first = self.in_flight.next_key(0);
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
        let plan = Plan::of(readable, writable, self.size(), self.free(), self.options)?;
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
        if self.in_flight.add(buffer) {
            self.memory
                .bound
                .driver
                .store_u16(available_entry(index, self.used_ring.last()), first);
        }
    }

    /// Writes a descriptor, unless it is there already.
    #[inline(always)]
    fn write_descriptor(&mut self, index: u16, descriptor: Descriptor) {
        let written = &mut self.written[usize::from(index)];
        if *written != descriptor.words() {
            *written = descriptor.words();
            descriptor.store(self.memory.bound.descriptor, index);
        }
    }

    /// Writes the elements into free descriptors; returns the first of them.
    fn write_chain(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> u16 {
        let last = readable.len() + writable.len() - 1;
        let first = self.in_flight.next_key(0);
        let (mut index, mut behind) = (first, 0);
        for (at, &(address, len)) in readable.iter().chain(writable).enumerate() {
            let write = if at < readable.len() { 0 } else { WRITE };
            behind += 1;
            let (flags, next) = match at < last {
                true => (write | NEXT, self.in_flight.next_key(behind)),
                false => (write, 0),
            };
            self.write_descriptor(index, Descriptor { address, len, third: flags, fourth: next });
            index = next;
        }
        first
    }

    /// Writes the elements into the table of a free descriptor, and that descriptor.
    fn write_table(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)]) -> u16 {
        let first = self.in_flight.next_key(0);
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

/// The index after so many buffers.
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
            written: vec![[0; 2]; usize::from(size)].into(),
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
        self.size() - self.in_flight.descriptors()
    }

    #[inline]
    fn in_flight(&self) -> u16 {
        self.in_flight.buffers()
    }

    #[inline(always)]
    fn next_id(&self) -> Option<BufferId> {
        (self.free() > 0).then(|| BufferId(self.in_flight.next_key(0)))
    }

    #[inline(always)]
    fn soon_id(&self) -> BufferId {
        BufferId(self.in_flight.soon_key())
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
    fn add_again(&mut self, returned: &[Returned], is_same: impl FnMut(BufferId) -> bool) -> usize {
        let (available, last) = (self.memory.bound.driver, self.used_ring.last());
        let index = index_of(self.in_flight.added());
        let free = usize::from(self.free()).min(returned.len());
        let stage = |at: u16, key, is_new| {
            if is_new {
                available.store_u16(available_entry(index.wrapping_add(at), last), key);
            }
        };
        self.in_flight.add_again(&returned[..free], is_same, stage).into()
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
        let mut taking = Taking { used: self.used_ring, seen: self.seen };
        self.in_flight.take(most, &mut taking, take)
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
