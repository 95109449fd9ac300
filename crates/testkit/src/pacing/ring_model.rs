//! One direction of notification: a queue with the arithmetic of EVENT_IDX, and nothing else.

use std::collections::VecDeque;

use ringway_virtq::Arm;

/// A ring that has things on their way from the side that gives to the side that takes.
#[derive(Debug, Clone)]
pub struct RingModel<T> {
    things: VecDeque<T>,
    published: u64,
    taken: u64,
    asked: u64,
    event: Option<u64>,
    /// Notifications sent.
    pub notifications: u64,
}

impl<T> Default for RingModel<T> {
    /// Empty, and armed for the first thing.
    fn default() -> Self {
        let things = VecDeque::new();
        Self { things, published: 0, taken: 0, asked: 0, event: Some(0), notifications: 0 }
    }
}

impl<T> RingModel<T> {
    /// Publishes one.
    pub fn give(&mut self, thing: T) {
        self.things.push_back(thing);
        self.published += 1;
    }

    /// Takes the next.
    pub fn take(&mut self) -> Option<T> {
        let thing = self.things.pop_front()?;
        self.taken += 1;
        Some(thing)
    }

    /// Things that wait.
    pub fn len(&self) -> usize {
        self.things.len()
    }

    /// Nothing waits.
    pub fn is_empty(&self) -> bool {
        self.things.is_empty()
    }

    /// Whether the consumer wants a notification about what was published since last asked; counted
    /// if so.
    pub fn must_notify(&mut self) -> bool {
        let asked_before = std::mem::replace(&mut self.asked, self.published);
        let event = self.event;
        let is_wanted = event.is_some_and(|event| (asked_before..self.published).contains(&event));
        self.notifications += u64::from(is_wanted);
        is_wanted
    }

    /// The consumer says when it wants a notification; `true`: something is there, look again.
    pub fn arm(&mut self, arm: Arm) -> bool {
        self.event = match arm {
            Arm::Never => None,
            Arm::Next => Some(self.taken),
            Arm::After(count) => Some(self.taken + u64::from(count.max(1)) - 1),
        };
        arm != Arm::Never && !self.is_empty()
    }
}
