//! The ring of any of the guest's queues: publish, notify, stop, and find it again.
//!
//! Limits: a ring that is broken for another reason than missing memory stays broken. One whose own
//! area is there still publishes what was staged.

use ringway_net::Counters;
use ringway_virtq::{Areas, Arm, Broken, DeviceQueue, Position, Regions, Why};

/// The packets that a queue has published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// Packets.
    pub packets: u32,
    /// How many of them are of [`LONG_LEN`](ringway_net::LONG_LEN) bytes or more.
    pub long: u32,
}

/// Packets that were put or taken and are not published.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub packets: u32,
    /// Long packets that were counted when the queue last published.
    long_before: u64,
}

impl Staged {
    /// Continues with the counters of an earlier queue.
    pub fn new(counters: &Counters) -> Self {
        Self { packets: 0, long_before: counters.long_packets }
    }

    fn take(&mut self, counters: &Counters) -> Published {
        let long = counters.long_packets - self.long_before;
        self.long_before = counters.long_packets;
        let packets = std::mem::take(&mut self.packets);
        Published { packets, long: u32::try_from(long).unwrap_or(u32::MAX) }
    }
}

/// A ring of the guest, the memory that it is in, and why it stopped if the guest broke it.
#[derive(Debug)]
pub(crate) struct GuestRing<Q> {
    pub queue: Q,
    pub regions: Regions,
    pub broken: Option<Why>,
}

impl<Q: DeviceQueue> GuestRing<Q> {
    /// A ring that has just started.
    pub fn new(queue: Q, regions: Regions) -> Self {
        Self { queue, regions, broken: None }
    }

    /// Whether the ring is outside of the guest's memory: the memory it was in may be unmapped.
    #[inline]
    fn is_lost(&self) -> bool {
        self.broken == Some(Why::BadArea)
    }

    /// Publishes what was staged, and says what that is: nothing if the ring is lost.
    #[inline]
    pub fn publish(&mut self, staged: &mut Staged, counters: &Counters) -> Published {
        let published = staged.take(counters);
        if self.is_lost() {
            return Published::default();
        }
        if published.packets > 0 {
            self.queue.publish();
        }
        published
    }

    /// Whether the guest wants a call about what was published since the last time asked.
    #[inline]
    pub fn must_call(&mut self) -> bool {
        !self.is_lost() && self.queue.must_call()
    }

    /// See [`DeviceQueue::driver_event`]; `None` if the ring is not in the guest's memory.
    #[inline]
    pub fn driver_event(&self) -> Option<u32> {
        (!self.is_lost()).then(|| self.queue.driver_event())
    }

    /// Tells the guest when to kick; `true`: buffers are already there.
    #[inline]
    pub fn arm_kicks(&mut self, arm: Arm) -> bool {
        self.broken.is_none() && self.queue.arm_kicks(arm)
    }

    /// From now on the ring is at `areas` in `regions`. If it is not in that memory it is broken;
    /// one that was broken for that reason alone goes on once it is, and so does one whose guest
    /// named memory that was not there yet.
    pub fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        self.regions = regions.clone();
        let bound = self.queue.rebind(areas, regions);
        self.broken = match bound {
            Err(Broken(why)) => Some(why),
            Ok(()) => self.broken.filter(|why| !matches!(why, Why::BadArea | Why::OutsideMemory)),
        };
        bound
    }

    /// Where a queue stands that stops, and has published all; the guest kicks about whatever it
    /// makes available next.
    pub fn stop(&mut self) -> Position {
        if self.broken.is_none() {
            self.arm_behind_all();
        }
        self.queue.position()
    }

    /// Asks for a kick at the next buffer behind all that are there. The device does not look at
    /// the buffers of a stopped queue, so a kick is the only sign that the guest wants it to go on.
    fn arm_behind_all(&mut self) {
        let mut at = self.queue.cursor();
        // A driver cannot make more available than the ring holds; one that tries is not waited
        // for.
        for _ in 0..=self.queue.size() {
            match self.queue.behind_available(at) {
                Some(behind) if self.queue.arm_kicks_behind(behind) => at = behind,
                _ => return,
            }
        }
    }
}
