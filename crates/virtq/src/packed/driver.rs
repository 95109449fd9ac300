//! The driver's side of a packed ring.
//!
//! How: descriptors are taken in ring order; a used buffer frees as many as it took, in the order
//! in which the device uses them, whichever buffer they were for. Staged descriptors are kept
//! privately, without the flags of their lap; `publish` stores them one right after the other, the
//! flags of the first one last.
//! Limits: indirect tables hold [`INDIRECT_ELEMENTS_MAX`](crate::INDIRECT_ELEMENTS_MAX) elements.

use alloc::boxed::Box;
use alloc::vec;

use crate::areas::DriverMemory;
use crate::desc::{
    AVAIL, DESCRIPTOR_LEN, Descriptor, Descriptors, INDIRECT, NEXT, PACKED_FLAGS, PACKED_ID,
    PACKED_LEN, USED, WRITE,
};
use crate::event::{self, AT_POSITION, DISABLE, ENABLE, RingOffset};
use crate::flight::{Entry, InFlight, Returning, UsedEntries};
use crate::packed::{are_used, available_flags, event_word};
use crate::plan::{Plan, is_filled};
use crate::records::Buffer;
use crate::{
    Areas, Arm, Broken, BufferId, DriverQueue, Format, QueueFull, QueueOptions, Returned,
    SharedSlice,
};

/// A packed virtqueue, seen from the driver.
#[derive(Debug)]
pub struct PackedDriver {
    memory: DriverMemory,
    ring: Descriptors,
    size: u16,
    options: QueueOptions,
    in_flight: InFlight,
    /// Where the first descriptor goes that is only staged.
    published: RingOffset,
    /// Descriptors that are only staged, in order, and how many: at most one lap.
    descriptors: Box<[[u64; 2]]>,
    staged: u16,
    /// By buffer id: the descriptor that it had last, if it was one and for the device to write.
    last: Box<[[u64; 2]]>,
    /// Ring entries published since [`must_kick`](DriverQueue::must_kick) was last asked.
    unasked: u32,
    /// Where the device puts the next used entry.
    used: RingOffset,
}

impl PackedDriver {
    /// The usual buffer: one element, one descriptor.
    #[inline(always)]
    fn add_one(&mut self, element: (u64, u32), flags: u16, id: BufferId) -> Result<(), QueueFull> {
        assert!(is_filled(&[element]), "an empty element");
        if self.free() == 0 {
            return Err(QueueFull);
        }
        let writable = if flags & WRITE == 0 { 0 } else { element.1 };
        self.in_flight.name_next(id.0);
        self.in_flight.add(Buffer { id, descriptors: 1, writable });
        let descriptor = self.stage(element, id, flags);
        if writable > 0 {
            self.last[usize::from(id.0)] = descriptor;
        }
        Ok(())
    }

    /// Any buffer of several elements.
    fn add_several(
        &mut self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        id: BufferId,
    ) -> Result<(), QueueFull> {
        let plan = Plan::of(readable, writable, self.size, self.free(), self.options)?;
        let Plan { descriptors, indirect, writable: bytes } = plan;
        self.in_flight.name_next(id.0);
        self.in_flight.add(Buffer { id, descriptors, writable: bytes });
        match indirect {
            true => self.stage_table(readable, writable, id),
            false => self.stage_chain(readable, writable, id),
        }
        Ok(())
    }

    /// Keeps a descriptor until it is published.
    #[inline(always)]
    fn stage(&mut self, element: (u64, u32), id: BufferId, flags: u16) -> [u64; 2] {
        let (address, len) = element;
        let descriptor = Descriptor { address, len, third: id.0, fourth: flags }.words();
        self.descriptors[usize::from(self.staged)] = descriptor;
        self.staged += 1;
        descriptor
    }

    fn stage_chain(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)], id: BufferId) {
        let last = readable.len() + writable.len() - 1;
        for (at, &element) in readable.iter().chain(writable).enumerate() {
            let write = if at < readable.len() { 0 } else { WRITE };
            let next = if at < last { NEXT } else { 0 };
            self.stage(element, id, write | next);
        }
    }

    fn stage_table(&mut self, readable: &[(u64, u32)], writable: &[(u64, u32)], id: BufferId) {
        let (table, table_address) = self.memory.indirect_table(id.0);
        let mut count = 0u16;
        for (at, &(address, len)) in readable.iter().chain(writable).enumerate() {
            let flags = if at < readable.len() { 0 } else { WRITE };
            Descriptor { address, len, third: 0, fourth: flags }.store(table, count);
            count += 1;
        }
        let element = (table_address, u32::from(count) * DESCRIPTOR_LEN);
        self.last[usize::from(id.0)] = self.stage(element, id, INDIRECT);
    }
}

/// The ring and the place of the next used entry, to take used entries.
struct Taking {
    ring: Descriptors,
    size: u16,
    used: RingOffset,
}

impl UsedEntries for Taking {
    #[inline(always)]
    fn next(&self, returning: &Returning<'_>) -> Option<Entry> {
        let entry = self.ring.at(usize::from(self.used.at));
        if !are_used(entry.load_u16(PACKED_FLAGS), self.used.wrap) {
            return None;
        }
        event::after_seeing();
        let Descriptor { len, third, fourth, .. } = Descriptor::load(entry, 0);
        // Without WRITE the length means nothing (virtio 1.2 §2.8.5), says the specification.
        // QEMU never sets it and means the length; so it counts, as far as the buffer goes.
        let is_vague = fourth & WRITE == 0;
        Some(Entry { key: u32::from(third), len, is_vague, shown: returning.published() })
    }

    #[inline(always)]
    fn release(&mut self, descriptors: u16) {
        self.used = self.used.advanced(descriptors, self.size);
    }
}

impl DriverQueue for PackedDriver {
    const FORMAT: Format = Format::Packed;

    fn new(memory: SharedSlice, device_address: u64, size: u16, options: QueueOptions) -> Self {
        let memory = DriverMemory::new(Format::Packed, memory, device_address, size, options);
        Self {
            ring: Descriptors::new(memory.bound.descriptor, 0, size),
            memory,
            size,
            options,
            in_flight: InFlight::new(size, options.in_order),
            published: RingOffset::FRESH,
            descriptors: vec![[0; 2]; usize::from(size)].into(),
            staged: 0,
            last: vec![[0; 2]; usize::from(size)].into(),
            unasked: 0,
            used: RingOffset::FRESH,
        }
    }

    fn areas(&self) -> Areas {
        self.memory.areas
    }

    #[inline]
    fn size(&self) -> u16 {
        self.size
    }

    #[inline]
    fn free(&self) -> u16 {
        self.size - self.in_flight.descriptors()
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
        let free = usize::from(self.free()).min(returned.len());
        let room = &mut self.descriptors[usize::from(self.staged)..];
        let stage = |at: u16, key: u16, _| {
            room[usize::from(at)] = self.last[usize::from(key)];
        };
        let count = self.in_flight.add_again(&returned[..free], is_same, stage);
        self.staged += count;
        count.into()
    }

    #[inline]
    fn publish(&mut self) {
        let staged = core::mem::take(&mut self.staged);
        let descriptors = &self.descriptors[..usize::from(staged)];
        let Some((&first, others)) = descriptors.split_first() else { return };
        let mut at = usize::from(self.published.at);
        let (entry, flags) = (self.ring.at(at), available_flags(self.published.wrap));
        let mut lap = Descriptor::flags_word(flags);
        for &[address, rest] in others {
            at += 1;
            if at > self.ring.last() {
                (at, lap) = (0, lap ^ Descriptor::flags_word(AVAIL | USED));
            }
            self.ring.at(at).store_u64_pair(0, [address, rest | lap]);
        }
        let first = Descriptor::from_words(first);
        entry.store_u64(0, first.address);
        entry.store_u32(PACKED_LEN, first.len);
        entry.store_u16(PACKED_ID, first.third);
        event::before_showing();
        entry.store_u16(PACKED_FLAGS, first.fourth | flags);
        self.in_flight.publish();
        self.published = self.published.advanced(staged, self.size);
        self.unasked = self.unasked.saturating_add(u32::from(staged));
    }

    #[inline]
    fn must_kick(&mut self) -> bool {
        let unasked = core::mem::take(&mut self.unasked);
        if unasked == 0 {
            return false;
        }
        event::before_asking();
        let mut word = self.memory.bound.device.load_u32(0);
        if !self.options.event_idx && word & event_word(3, 0) == event_word(AT_POSITION, 0) {
            word = event_word(ENABLE, 0);
        }
        event::packed_wants(word, self.published, unasked, self.size)
    }

    #[inline(always)]
    fn take_used(&mut self, most: u16, take: impl FnMut(Returned)) -> Result<(), Broken> {
        let mut taking = Taking { ring: self.ring, size: self.size, used: self.used };
        let result = self.in_flight.take(most, &mut taking, take);
        self.used = taking.used;
        result
    }

    #[inline]
    fn arm_calls(&mut self, arm: Arm) -> bool {
        let entries = match arm {
            Arm::Never => {
                self.memory.bound.driver.store_u32(0, event_word(DISABLE, 0));
                return false;
            }
            Arm::Next => 1,
            Arm::After(buffers) => self.in_flight.can_come(buffers),
        };
        let word = match self.options.event_idx {
            false => event_word(ENABLE, 0),
            true => {
                let wanted_at = self.used.advanced(entries - 1, self.size);
                event_word(AT_POSITION, wanted_at.to_bits())
            }
        };
        self.memory.bound.driver.store_u32(0, word);
        event::before_second_look();
        let is_waiting = self.in_flight.published() > 0;
        let flags = self.ring.at(usize::from(self.used.at)).load_u16(PACKED_FLAGS);
        self.in_flight.is_in_batch() || (is_waiting && are_used(flags, self.used.wrap))
    }
}
