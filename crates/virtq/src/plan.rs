//! How a driver puts one buffer into a ring: how many descriptors, and with a table or without.
//!
//! Limits: see [`INDIRECT_ELEMENTS_MAX`]; a buffer has at most as many elements as the queue has
//! entries (virtio 1.2 §2.7.5.2, §2.7.5.3.1).

use crate::{INDIRECT_ELEMENTS_MAX, QueueFull, QueueOptions};

/// The plan for one buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Descriptors it takes in the ring.
    pub descriptors: u16,
    /// Whether its elements go into an indirect table.
    pub indirect: bool,
    /// Bytes the device may write.
    pub writable: u32,
}

impl Plan {
    /// In a queue of `size` entries, of which that many are free.
    pub fn of(
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        size: u16,
        free: u16,
        options: QueueOptions,
    ) -> Result<Self, QueueFull> {
        let elements = readable.len() + writable.len();
        assert!(elements > 0, "a buffer without elements");
        assert!(is_filled(readable) && is_filled(writable), "an empty element");
        let count = u16::try_from(elements).ok().filter(|&count| count <= size).ok_or(QueueFull)?;
        let indirect = options.indirect && (2..=INDIRECT_ELEMENTS_MAX).contains(&elements);
        let descriptors = if indirect { 1 } else { count };
        if descriptors > free {
            return Err(QueueFull);
        }
        let writable = writable.iter().fold(0u32, |sum, &(_, len)| sum.saturating_add(len));
        Ok(Self { descriptors, indirect, writable })
    }
}

/// Whether no element is empty.
#[inline]
pub(crate) fn is_filled(elements: &[(u64, u32)]) -> bool {
    elements.iter().all(|&(_, len)| len > 0)
}
