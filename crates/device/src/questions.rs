//! Whether one of the packets that go to a guest is a question.

use ringway_net::{Packet, is_question};

/// Looks at packets only while somebody wants to know, and only until there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Questions {
    is_watching: bool,
    was_one: bool,
}

impl Questions {
    /// From now on somebody wants to know, or nobody does.
    pub fn watch(&mut self, is_watching: bool) {
        self.is_watching = is_watching;
    }

    /// Whether there was one since the last time asked.
    pub fn take(&mut self) -> bool {
        std::mem::take(&mut self.was_one)
    }

    /// Whether all packets since the last time asked were looked at, and none was one.
    #[inline]
    pub fn saw_none(&self) -> bool {
        self.looks()
    }

    /// Whether the next packet is looked at.
    #[inline]
    pub(crate) fn looks(&self) -> bool {
        self.is_watching && !self.was_one
    }

    /// This packet goes to the guest.
    #[inline]
    pub(crate) fn see(&mut self, packet: &Packet<'_>) {
        if self.looks() {
            self.was_one = is_question(packet);
        }
    }
}
