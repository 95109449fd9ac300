//! A list of slots in order, each at most once.

use std::collections::VecDeque;

use ringway_switch::{PORTS_MAX, PortId};

/// Slots there can be.
const SLOTS_MAX: usize = 1 << u16::BITS;

/// A list that has each slot at most once.
#[derive(Debug)]
pub(crate) struct SlotList {
    order: VecDeque<PortId>,
    is_listed: Box<[bool; SLOTS_MAX]>,
}

impl SlotList {
    pub(crate) fn new() -> Self {
        let is_listed = Box::new([false; SLOTS_MAX]);
        Self { order: VecDeque::with_capacity(PORTS_MAX), is_listed }
    }

    /// The slot is in the list from now on: behind all others, if it was not in it yet.
    #[inline]
    pub(crate) fn add(&mut self, slot: PortId) {
        if !std::mem::replace(&mut self.is_listed[usize::from(slot.0)], true) {
            self.order.push_back(slot);
        }
    }

    /// As [`add`](Self::add), but before all others.
    #[inline]
    pub(crate) fn add_first(&mut self, slot: PortId) {
        if !std::mem::replace(&mut self.is_listed[usize::from(slot.0)], true) {
            self.order.push_front(slot);
        }
    }

    /// Takes the slot at the front.
    #[inline]
    pub(crate) fn pop_front(&mut self) -> Option<PortId> {
        let slot = self.order.pop_front()?;
        self.is_listed[usize::from(slot.0)] = false;
        Some(slot)
    }

    /// Takes the slot at the back.
    #[inline]
    pub(crate) fn pop_back(&mut self) -> Option<PortId> {
        let slot = self.order.pop_back()?;
        self.is_listed[usize::from(slot.0)] = false;
        Some(slot)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }
}

#[cfg(test)]
impl SlotList {
    pub(crate) fn front(&self) -> Option<&PortId> {
        self.order.front()
    }

    pub(crate) fn contains(&self, slot: PortId) -> bool {
        self.is_listed[usize::from(slot.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_slot_is_in_the_list_once() {
        let mut list = SlotList::new();
        for slot in [3, 1, 3, u16::MAX, 1] {
            list.add(PortId(slot));
        }
        assert_eq!(
            (list.len(), list.pop_front(), list.pop_back()),
            (3, Some(PortId(3)), Some(PortId(u16::MAX)))
        );
        list.add(PortId(3));
        list.add_first(PortId(7));
        list.add_first(PortId(1));
        let rest: Vec<PortId> = std::iter::from_fn(|| list.pop_front()).collect();
        assert_eq!((rest, list.is_empty()), (vec![PortId(7), PortId(1), PortId(3)], true));
    }
}
