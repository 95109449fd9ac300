//! The vocabulary that both formats and both sides share.
//!
//! How: two traits, one for each side, each implemented once for each format. Code above is generic
//! over them and chooses a format once, when a queue starts. Limits: a queue has at most
//! [`SIZE_MAX`] entries.

use crate::{Broken, Elements, Format, QueueFull, Regions, RingRecord, SharedSlice};

/// Most entries a queue may have (virtio 1.2 §2.7, §2.8).
pub const SIZE_MAX: u16 = 32768;

/// How many buffers ahead memory is fetched into the cache, on average: the other core has touched
/// it last, so that this takes as long as several packets do.
pub const PREFETCH_AHEAD: u16 = 16;

/// Bits of a position that are turned over, so that memory is not fetched in the order in which it
/// is used: 5, 4, 7, 6, 1, 0, 3, 2.
pub const PREFETCH_SCATTER: u16 = 5;

/// How many buffers behind the one at `position` is the one to fetch now: 11 to 21.
///
/// Each is fetched once, but never several in a row at equal distances. Buffers mostly are at equal
/// distances, and a processor that sees that fetches the next ones by itself, as if it were to read
/// them: then each write waits for the other core once more, one after the other (ADR 23).
#[inline(always)]
pub fn prefetch_distance(position: u16) -> u16 {
    (position.wrapping_add(PREFETCH_AHEAD) ^ PREFETCH_SCATTER).wrapping_sub(position)
}

/// Where the three parts of a queue are; guest-physical on the device side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Areas {
    /// Descriptor area (split: descriptor table; packed: descriptor ring).
    pub descriptor: u64,
    /// Driver area (split: available ring; packed: driver event suppression).
    pub driver: u64,
    /// Device area (split: used ring; packed: device event suppression).
    pub device: u64,
    /// Where the device area counts as written, in a log of pages: a front-end may say another
    /// place.
    pub device_log: u64,
}

impl Areas {
    /// The parts at these addresses, of which the last one counts as written where it is.
    pub const fn new(descriptor: u64, driver: u64, device: u64) -> Self {
        Self { descriptor, driver, device, device_log: device }
    }
}

/// The negotiated features that change how a ring works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueOptions {
    /// `VIRTIO_F_EVENT_IDX`
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC`
    pub indirect: bool,
    /// `VIRTIO_F_IN_ORDER`
    pub in_order: bool,
    /// `VIRTIO_F_NOTIFY_ON_EMPTY` (split only)
    pub notify_on_empty: bool,
}

/// Where in the ring a side continues: next available and next used position.
///
/// Split: the free-running 16-bit indexes; the wrap counters are not used.
/// Packed: the offset in the ring with its wrap counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Next available buffer the device will look at.
    pub available: u16,
    /// Its wrap counter (packed).
    pub available_wrap: bool,
    /// Next used entry the device will write.
    pub used: u16,
    /// Its wrap counter (packed).
    pub used_wrap: bool,
}

impl Position {
    /// A ring that was not used yet: index 0, and wrap counters 1.
    pub const FRESH: Self = Self { available: 0, available_wrap: true, used: 0, used_wrap: true };
}

/// All that is needed to start a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueSetup {
    /// Entries: a power of two for split, 1 to 32768 for both.
    pub size: u16,
    /// Where the ring is.
    pub areas: Areas,
    /// Where to continue in a packed ring. A split ring says that itself, by its used index.
    pub position: Position,
    /// The negotiated options.
    pub options: QueueOptions,
}

/// When the peer shall notify us.
///
/// Whatever was armed before no longer holds. A peer may always notify more often than asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arm {
    /// Not at all: we look by ourselves.
    Never,
    /// At the next buffer.
    Next,
    /// When this many further buffers have come; `After(1)` is `Next`. Without EVENT_IDX the same
    /// as `Next`; in a packed ring what is counted is ring entries, so a buffer of several
    /// elements may count for more than one. Never more than can come: at most the queue size.
    After(u16),
}

/// The driver's name for a buffer in flight: below the queue size, chosen by the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BufferId(pub u16);

/// A buffer the device has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// The buffer.
    pub id: BufferId,
    /// Bytes the device wrote; never more than the buffer's writable bytes.
    pub len: u32,
}

/// A used buffer, and what it takes to stage it again as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Returned {
    /// As in [`Used`].
    pub id: BufferId,
    /// Its name in the ring. Split: its first descriptor; packed: its id.
    pub(crate) key: u16,
    /// As in [`Used`].
    pub len: u32,
}

/// A buffer the device has peeked at: enough to give it back later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Split: index of the chain's first descriptor. Packed: buffer id.
    pub id: u16,
    /// Ring entries it takes (split: always 1 of the used ring).
    pub descriptors: u16,
    /// Whether the device may write any of it.
    pub is_writable: bool,
}

/// A buffer of one element, which is the usual one: peeked at without [`Elements`].
#[derive(Debug, Clone, Copy)]
pub struct One {
    /// To give it back.
    pub head: Head,
    /// The element, checked.
    pub memory: SharedSlice,
}

/// A copy of a position in the available ring, in a number of its format. Peeking moves it;
/// dropping it undoes the peek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub(crate) u32);

/// The driver's side of one virtqueue. `add` stages, `publish` makes available, `must_kick` asks.
pub trait DriverQueue {
    /// The ring format.
    const FORMAT: Format;

    /// Zeroes `memory` and starts a fresh queue of `size` entries in it.
    ///
    /// [`Layout::of`](crate::Layout::of) this format, size and options says how long `memory` must
    /// be and how the parts lie in it; `device_address` is where the device sees its first byte.
    /// Both addresses must be multiples of [`Layout::ALIGN`](crate::Layout::ALIGN), `memory` long
    /// enough, and `size` 1 to 32768, for split a power of two (programmer error otherwise).
    fn new(memory: SharedSlice, device_address: u64, size: u16, options: QueueOptions) -> Self
    where
        Self: Sized;

    /// Where the parts are, as the device sees them.
    fn areas(&self) -> Areas;

    /// Entries of the queue.
    fn size(&self) -> u16;

    /// Descriptors that are free.
    fn free(&self) -> u16;

    /// Buffers that were added and did not come back.
    fn in_flight(&self) -> u16;

    /// An id that no buffer in flight has, if that is where all ids come from, and with which
    /// [`add`](Self::add) has least to do: for buffers whose memory follows from their id. As long
    /// as they come back in the order in which they went, each meets the same place of the ring lap
    /// after lap. `None`: no descriptor is free.
    fn next_id(&self) -> Option<BufferId>;

    /// The value of [`next_id`](Self::next_id) soon, once for each, to fetch its memory into the
    /// cache. A hint: it may be in flight, or not below the size, and must not be used for anything
    /// else.
    fn soon_id(&self) -> BufferId;

    /// Stages one buffer: `readable` then `writable` elements as (device address, length).
    /// With `indirect` negotiated and more than one element, one ring entry is taken.
    ///
    /// The id must be below the size and not in flight, there must be an element, and none may be
    /// empty (programmer error otherwise). A packed queue checks all of that. A split
    /// queue never looks at ids, as it tells buffers apart by their descriptors: it hands back
    /// whatever it was given, an id that was used twice also twice.
    ///
    /// # Errors
    /// [`QueueFull`]; nothing changed. Also for a buffer of more elements than the queue has
    /// entries, which never fits (virtio 1.2 §2.7.5.2, §2.8.6).
    fn add(
        &mut self,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
        id: BufferId,
    ) -> Result<(), QueueFull>;

    /// Stages used buffers again, each with the elements that it had, in fewer steps than
    /// [`add`](Self::add): the first ones of them, up to one for which not all of this holds.
    ///
    /// - `is_same` says so of its id;
    /// - it takes one descriptor, and the device may write it;
    /// - of all free descriptors the one that it had is free longest.
    ///
    /// The last holds of all if they come in the order in which they were taken, none left out. In
    /// a packed ring, whose descriptors belong to no buffer, it means the buffer that was added a
    /// lap ago. Returns how many were staged. A buffer that was added with other elements since it
    /// was taken would be staged with those: a caller that has changed them says so by `is_same`.
    fn add_again(&mut self, returned: &[Returned], is_same: impl FnMut(BufferId) -> bool) -> usize;

    /// Makes everything added available at once.
    fn publish(&mut self);

    /// Whether the device wants to be told about what was published since the last time asked.
    fn must_kick(&mut self) -> bool;

    /// Takes used buffers, at most `most`, and no more than are shown when it is called.
    ///
    /// With IN_ORDER negotiated one used entry may stand for several buffers: each is returned by
    /// its own id, those that were skipped with all their writable bytes as length, because the
    /// device has used them completely (virtio 1.2 §2.7.9).
    ///
    /// # Errors
    /// [`Broken`] when the device returns what it never got. Then nothing was taken: buffers before
    /// such an entry are returned first.
    fn take_used(&mut self, most: u16, take: impl FnMut(Returned)) -> Result<(), Broken>;

    /// Takes the next used buffer, as [`take_used`](Self::take_used) does.
    ///
    /// # Errors
    /// As there.
    fn pop_used(&mut self) -> Result<Option<Used>, Broken> {
        let mut next = None;
        self.take_used(1, |Returned { id, len, .. }| next = Some(Used { id, len }))?;
        Ok(next)
    }

    /// Tells the device when to call. `true`: used buffers are already there, look again.
    fn arm_calls(&mut self, arm: Arm) -> bool;
}

/// The device's side of one virtqueue.
pub trait DeviceQueue: Sized {
    /// The ring format.
    const FORMAT: Format;

    /// Translates the areas and starts at the position of the setup.
    ///
    /// # Errors
    /// [`crate::Why::BadArea`], [`crate::Why::BadIndex`].
    fn start(setup: &QueueSetup, regions: &Regions) -> Result<Self, Broken> {
        Self::start_in(setup, regions, RingRecord::own(Self::FORMAT, setup.size))
    }

    /// The same with a record that is given. A packed ring's must have room for its entries
    /// (programmer error otherwise).
    ///
    /// # Errors
    /// As above; then nothing is in the record.
    fn start_in(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken>;

    /// Continues where a device ended whose record this is, in the midst of whatever it did: shows
    /// what it has kept. What the record says is believed only where it can be so; the position of
    /// the setup does not count. The driver may have to be called about what was shown before, so
    /// it has to be, without asking.
    ///
    /// # Errors
    /// As above, and [`crate::Why::BadRecord`], [`crate::Why::OtherRing`]: the queue has to be
    /// started anew.
    fn recover(setup: &QueueSetup, regions: &Regions, record: RingRecord) -> Result<Self, Broken>;

    /// Entries of the queue.
    fn size(&self) -> u16;

    /// Where the next peek starts.
    fn cursor(&self) -> Cursor;

    /// Reads the next available buffer into `into` and moves the cursor past it. Without a buffer
    /// nothing of what is in `into` means anything.
    ///
    /// # Errors
    /// [`Broken`]: the queue must not be used any more.
    fn peek(
        &mut self,
        at: &mut Cursor,
        regions: &Regions,
        into: &mut Elements,
    ) -> Result<Option<Head>, Broken>;

    /// The same as [`peek`](Self::peek), in fewer steps, of a buffer that is one element. `None`:
    /// it is not, or there is none, or something is wrong, and `peek` says what. The cursor stays.
    fn peek_one(&mut self, at: Cursor, regions: &Regions) -> Option<One>;

    /// The first element of a buffer that will be peeked soon after the one at the cursor, to fetch
    /// it into the cache. A hint: it may be read before it is available, and must not be used for
    /// anything else.
    fn ahead(&self, at: Cursor, regions: &Regions) -> Option<SharedSlice>;

    /// Accepts the next buffer, of which this is the head.
    fn pop(&mut self, head: Head);

    /// Stages one used entry; invisible until [`publish`](Self::publish).
    fn add_used(&mut self, head: Head, written: u32);

    /// Notes what is staged in the record: from now on it is used, even if this process ends. To be
    /// asked when a packet is whole, with all of its buffers.
    fn keep(&mut self);

    /// From now on until the next publish [`keep`](Self::keep) does nothing.
    fn keep_at_publish(&mut self);

    /// Makes all staged used entries visible at once.
    fn publish(&mut self);

    /// Whether the driver wants to be told about what was published since the last time asked.
    fn must_call(&mut self) -> bool;

    /// When the driver wants to be told, as it stands in the ring now: only to be compared. If it
    /// says so by an index, this changes whenever it has looked and found something used.
    fn driver_event(&self) -> u32;

    /// Tells the driver when to kick. `true`: buffers beyond the popped position are already
    /// there, look again.
    fn arm_kicks(&mut self, arm: Arm) -> bool;

    /// Asks for a kick at the first buffer behind the cursor: for buffers that were peeked, are
    /// kept, and are not enough. `true`: there is one already, look again.
    fn arm_kicks_behind(&mut self, at: Cursor) -> bool;

    /// The place behind all buffers that are available from the cursor on, whatever they are.
    /// `None`: no driver can have made so many available.
    fn behind_available(&self, at: Cursor) -> Option<Cursor>;

    /// Where another device would continue. Staged but unpublished entries do not count.
    fn position(&self) -> Position;

    /// Memory or areas changed under a running queue: translates again, keeps the position.
    /// On an error the queue stays where it was.
    ///
    /// # Errors
    /// [`crate::Why::BadArea`].
    fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken>;
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn each_buffer_is_fetched_once_and_no_two_steps_in_a_row_are_equal() {
        let mut fetched = vec![0u8; 65_536];
        let (mut last, mut step) = (0u16, 0u16);
        for position in 0..=u16::MAX {
            let place = position.wrapping_add(prefetch_distance(position));
            fetched[usize::from(place)] += 1;
            assert!((11..=21).contains(&prefetch_distance(position)), "{position}");
            assert_ne!(place.wrapping_sub(last), step, "{position}");
            (step, last) = (place.wrapping_sub(last), place);
        }
        assert!(fetched.iter().all(|&times| times == 1));
    }
}
