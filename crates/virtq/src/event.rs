//! Notification suppression: the arithmetic, and the fences that keep a wake-up from being lost.
//!
//! How: one side publishes and then asks whether it must notify; the other side says when it wants
//! to hear and then looks once more. Each does store, full fence, load. So at least one of them
//! sees the store of the other: either the notification is sent, or the second look finds the
//! work. Without one of the two fences both loads may be served before both stores are visible,
//! and the work lies there with both sides asleep.
//!
//! Limits: ordering is only here. Words of shared memory are otherwise accessed with relaxed
//! atomics.

#[cfg(not(loom))]
use core::sync::atomic::{Ordering, fence};
#[cfg(loom)]
use loom::sync::atomic::{Ordering, fence};

/// Packed event suppression flags (virtio 1.2 §2.8.14).
pub(crate) const ENABLE: u16 = 0;
pub(crate) const DISABLE: u16 = 1;
pub(crate) const AT_POSITION: u16 = 2;

/// Whether a notification is wanted when the index went from `old` to `new` and the peer asked
/// for it at `event`: whether `event` is in `old..new`, counted modulo 2^16 (virtio 1.2 §2.7.10).
#[inline]
pub(crate) fn crossed(event: u16, new: u16, old: u16) -> bool {
    event.wrapping_sub(old) < new.wrapping_sub(old)
}

/// An offset in a packed ring with its wrap counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RingOffset {
    pub at: u16,
    pub wrap: bool,
}

impl RingOffset {
    /// Where a fresh ring starts.
    pub const FRESH: Self = Self { at: 0, wrap: true };

    /// `by` entries further, at most `size`.
    #[inline]
    pub fn advanced(self, by: u16, size: u16) -> Self {
        // Below 2^16: `at` is below `size`, and `by` is at most `size`.
        let at = self.at.wrapping_add(by);
        if at < size { Self { at, ..self } } else { self.around(at.wrapping_sub(size)) }
    }

    /// On the next lap. Out of line, so that the usual step is a jump that is not taken.
    #[cold]
    fn around(self, at: u16) -> Self {
        Self { at, wrap: !self.wrap }
    }

    /// Entries from `from` to here, counted modulo twice the size: two laps look different.
    #[inline]
    pub fn distance(self, from: Self, size: u16) -> u32 {
        let lap = 2 * u32::from(size);
        let ahead = self.on_lap(size) + lap - from.on_lap(size);
        if ahead < lap { ahead } else { ahead - lap }
    }

    /// As the event suppression areas and vhost-user carry it: the wrap counter on top.
    #[inline]
    pub fn to_bits(self) -> u16 {
        self.at | u16::from(self.wrap) << 15
    }

    /// The reverse of [`to_bits`](Self::to_bits); may be outside the ring.
    #[inline]
    pub fn from_bits(bits: u16) -> Self {
        Self { at: bits & 0x7fff, wrap: bits >> 15 != 0 }
    }

    fn on_lap(self, size: u16) -> u32 {
        u32::from(self.at) + if self.wrap { 0 } else { u32::from(size) }
    }
}

/// Whether a notification is wanted when a packed ring was advanced by `added` entries to `new`
/// and the peer asked with the event suppression word `word` (virtio 1.2 §2.8.14).
///
/// A word that makes no sense counts as a wish to be notified.
#[inline]
pub(crate) fn packed_wants(word: u32, new: RingOffset, added: u32, size: u16) -> bool {
    let flags = (word >> 16 & 3) as u16;
    if flags != AT_POSITION {
        return flags != DISABLE;
    }
    let event = RingOffset::from_bits((word & 0xffff) as u16);
    if event.at >= size || added >= 2 * u32::from(size) {
        return true;
    }
    // The event is in old..new exactly if it is 1 to `added` entries behind new.
    let behind = new.distance(event, size);
    behind != 0 && behind <= added
}

/// After the content is written and before the index or the flags that show it are.
///
/// PAIRS WITH: event.rs::after_seeing
/// Without it the peer could see the index first and read stale descriptors.
#[inline]
pub(crate) fn before_showing() {
    fence(Ordering::Release);
}

/// After an index or flags showed content and before that content is read.
///
/// PAIRS WITH: event.rs::before_showing
#[inline]
pub(crate) fn after_seeing() {
    fence(Ordering::Acquire);
}

/// After bytes were written and before their page's bit is looked at.
///
/// PAIRS WITH: the front-end, which takes a bit, clears it, and then copies the page
/// Without it the bit that we see set could be one that was taken before our bytes are visible: the
/// page is copied without them, and not marked any more.
pub(crate) fn before_marking() {
    fence(Ordering::SeqCst);
}

/// After publishing and before reading how the peer wants to be notified.
///
/// PAIRS WITH: event.rs::before_second_look
/// Without it we could read "do not notify" while the peer, having just armed, misses what we
/// published: it sleeps, and no notification wakes it.
#[inline]
pub(crate) fn before_asking() {
    fence(Ordering::SeqCst);
}

/// After arming and before looking once more for work.
///
/// PAIRS WITH: event.rs::before_asking
/// Without it we could miss what the peer has just published while it still reads that we do not
/// want to be notified: we sleep, and no notification wakes us.
#[inline]
pub(crate) fn before_second_look() {
    fence(Ordering::SeqCst);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn spec_2_7_10_an_event_is_crossed_exactly_inside_old_to_new() {
        for old in [0u16, 1, 0x7fff, 0x8000, 0xfff0, 0xffff] {
            for added in [0u16, 1, 2, 255, 0x7fff, 0xffff] {
                let new = old.wrapping_add(added);
                for distance in 0..=u16::MAX {
                    let event = old.wrapping_add(distance);
                    assert_eq!(crossed(event, new, old), distance < added, "{old} {added}");
                }
            }
        }
    }

    #[test]
    fn spec_2_8_14_packed_events_count_over_the_wrap() {
        for size in [1u16, 2, 3, 7] {
            let lap = 2 * size;
            let at = |n: u16| {
                RingOffset::FRESH.advanced(n % lap / 2, size).advanced(n % lap - n % lap / 2, size)
            };
            for (old, added) in (0..lap).flat_map(|old| (0..lap).map(move |n| (old, n))) {
                let new = at(old + added);
                for distance in 0..lap {
                    let word = u32::from(at(old + distance).to_bits()) | 2 << 16;
                    let wants = packed_wants(word, new, u32::from(added), size);
                    assert_eq!(wants, distance < added, "size {size} old {old} +{added}");
                }
            }
        }
    }

    #[test]
    fn packed_flags_and_nonsense() {
        let new = RingOffset { at: 1, wrap: true };
        assert!(packed_wants(u32::from(ENABLE) << 16, new, 1, 4));
        assert!(!packed_wants(u32::from(DISABLE) << 16, new, 1, 4));
        assert!(packed_wants(3 << 16, new, 1, 4), "reserved flags");
        for outside in [4, 0x7fff, 0x8004, 0xffff] {
            assert!(packed_wants(outside | 2 << 16, new, 1, 4), "{outside:#x} is outside the ring");
        }
        assert!(packed_wants(3 | 2 << 16, new, 8, 4), "more than two laps");
    }

    #[test]
    fn offsets_advance_over_the_wrap() {
        let size = 32768;
        let end = RingOffset { at: 32767, wrap: true };
        assert_eq!(end.advanced(1, size), RingOffset { at: 0, wrap: false });
        assert_eq!(end.advanced(size, size), RingOffset { at: 32767, wrap: false });
        assert_eq!(end.advanced(1, size).distance(end, size), 1);
        assert_eq!(end.distance(end.advanced(1, size), size), 65535);
        assert_eq!(RingOffset::from_bits(end.to_bits()), end);
    }
}
