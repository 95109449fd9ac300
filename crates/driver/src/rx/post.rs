//! Empty buffers to the device: what is free is staged, whether it has been used before or not.
//!
//! How: a slot whose memory still has the wanted length is staged as it is; any other is emptied,
//! and empty slots get new memory as long as there is some. Limits: see [`NetRx`].

use ringway_virtq::{BufferId, DriverQueue};

use super::{NetRx, Slot};
use crate::rx_memory::{Extent, divide};
use crate::rx_options::ELEMENTS_PER_BUFFER_MAX;

impl<Q: DriverQueue> NetRx<Q> {
    /// Stages the slots of packets that are over, or empties those that are too short or long.
    pub(super) fn post_again(&mut self) {
        let wanted = self.sizer.next_len();
        for at in self.post_same(wanted)..self.next {
            let id = self.used[at].id;
            let slot = self.slots[usize::from(id.0)];
            if slot.wanted != wanted || !self.post(id, slot.extent) {
                self.make_empty(id);
            }
        }
        // Those that were not looked at yet.
        self.used.copy_within(self.next..self.taken, 0);
        self.taken -= self.next;
        self.next = 0;
        self.lent_from = 0;
    }

    /// Stages them as they were, as long as they have the wanted length and the ring can do that,
    /// which is usual; returns how many.
    #[inline(always)]
    fn post_same(&mut self, wanted: u32) -> usize {
        let Self { queue, slots, used, next, .. } = self;
        queue.add_again(&used[..*next], |id| slots[usize::from(id.0)].wanted == wanted)
    }

    /// Takes a slot its memory, unless that is held.
    #[inline(never)]
    fn make_empty(&mut self, id: BufferId) {
        let slot = core::mem::take(&mut self.slots[usize::from(id.0)]);
        if slot.extent.len > 0 {
            self.memory.give_back(slot.extent.offset);
        }
        self.empty.push(id);
    }

    /// Gives empty slots memory and stages them, as long as there is some.
    pub(super) fn fill(&mut self) {
        let wanted = self.sizer.next_len();
        while let Some(&id) = self.empty.last() {
            let Some(extent) = self.memory.cut(wanted) else {
                self.count_missing(wanted);
                return;
            };
            if !self.post(id, extent) {
                self.memory.give_back(extent.offset);
                return;
            }
            self.empty.pop();
            self.slots[usize::from(id.0)] = Slot { extent, wanted };
        }
    }

    /// Counts that memory is out, unless there is just not enough for so many long buffers.
    fn count_missing(&mut self, wanted: u32) {
        let posted = self.slots.len() - self.empty.len();
        self.statistics.no_memory += u64::from(posted < self.memory.buffers_of(wanted) as usize);
    }

    /// Stages a buffer. `false`: the ring is full.
    #[inline(always)]
    fn post(&mut self, id: BufferId, extent: Extent) -> bool {
        let at = self.memory.device_address(extent.offset);
        match self.options.elements {
            1 => self.queue.add(&[], &[(at, extent.len)], id).is_ok(),
            _ => self.post_divided(id, extent),
        }
    }

    /// The same in several elements.
    #[inline(never)]
    fn post_divided(&mut self, id: BufferId, extent: Extent) -> bool {
        let at = self.memory.device_address(extent.offset);
        let mut room = [(0, 0); ELEMENTS_PER_BUFFER_MAX];
        let elements = &mut room[..usize::from(self.options.elements)];
        divide(at, extent.len, elements);
        self.queue.add(&[], elements, id).is_ok()
    }
}
