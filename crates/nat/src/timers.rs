//! The deadlines of flows, the next one first: a heap whose entries know their places.
//!
//! Each flow has one deadline at most, so setting one is a move in the heap, and nothing stale is
//! ever in it. Allocated once.

use ringway_net::Nanos;

/// Of an entry that is not in the heap.
const NOWHERE: u32 = u32::MAX;

/// Deadlines of entries with the numbers 0 to some capacity.
#[derive(Debug, Clone)]
pub(crate) struct Timers {
    heap: Vec<(Nanos, u32)>,
    places: Vec<u32>,
}

impl Timers {
    pub fn new(capacity: u32) -> Self {
        let places = vec![NOWHERE; capacity as usize];
        Self { heap: Vec::with_capacity(places.len()), places }
    }

    /// The nearest deadline, and whose it is.
    pub fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.first().copied()
    }

    /// The deadline of one.
    pub fn of(&self, index: u32) -> Option<Nanos> {
        let place = self.places[index as usize];
        self.heap.get(place as usize).map(|(at, _)| *at)
    }

    /// Sets, moves or removes a deadline.
    pub fn set(&mut self, index: u32, deadline: Option<Nanos>) {
        let place = self.places[index as usize];
        match (place, deadline) {
            (NOWHERE, None) => {}
            (NOWHERE, Some(at)) => {
                self.heap.push((at, index));
                self.up(self.heap.len() - 1);
            }
            (place, None) => {
                let place = place as usize;
                self.heap.swap_remove(place);
                self.places[index as usize] = NOWHERE;
                if place < self.heap.len() {
                    let place = self.up(place);
                    self.down(place);
                }
            }
            (place, Some(at)) => {
                self.heap[place as usize].0 = at;
                let place = self.up(place as usize);
                self.down(place);
            }
        }
    }

    fn up(&mut self, mut place: usize) -> usize {
        while place > 0 && self.heap[place] < self.heap[(place - 1) / 2] {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
        place
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let children = place * 2 + 1..(place * 2 + 3).min(self.heap.len());
            let Some(least) = children.min_by_key(|child| self.heap[*child]) else { break };
            if self.heap[place] <= self.heap[least] {
                break;
            }
            self.heap.swap(place, least);
            self.note(place);
            place = least;
        }
        self.note(place);
    }

    fn note(&mut self, place: usize) {
        let (_, index) = self.heap[place];
        self.places[index as usize] = u32::try_from(place).unwrap_or(NOWHERE);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_the_nearest(
            changes in vec((0..20u32, proptest::option::of(0..50u64)), 0..200),
        ) {
            let mut timers = Timers::new(20);
            let mut model = [None; 20];
            for (index, deadline) in changes {
                timers.set(index, deadline.map(Nanos));
                model[index as usize] = deadline;
                let all: BTreeSet<(Nanos, u32)> = (0..20u32)
                    .filter_map(|at| Some((Nanos(model[at as usize]?), at)))
                    .collect();
                prop_assert_eq!(timers.first(), all.first().copied());
            }
        }
    }
}
