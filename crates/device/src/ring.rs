//! What all of the guest's queues do with their ring when it is lost, found again, or published.
//!
//! How: a queue keeps why it is broken, and these say what follows. Limits: a queue that is broken
//! for another reason than a lost ring still publishes what it had staged, and stays broken.

use ringway_net::Counters;
use ringway_virtq::{Broken, DeviceQueue, Elements, Position, Regions, Why};

/// What a queue has published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Published {
    /// Packets.
    pub packets: u32,
    /// How many of them are of [`LONG_LEN`](ringway_net::LONG_LEN) bytes or more.
    pub long: u32,
}

/// What was put or taken and is not published.
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

/// Whether the ring is not in the memory that there is: the one it was in may be unmapped.
#[inline]
pub(crate) fn is_lost(broken: Option<Why>) -> bool {
    broken == Some(Why::BadArea)
}

/// Publishes what was staged, and says what that is; nothing in a ring that is lost.
#[inline]
pub(crate) fn publish<Q: DeviceQueue>(
    queue: &mut Q,
    broken: Option<Why>,
    staged: &mut Staged,
    counters: &Counters,
) -> Published {
    let published = staged.take(counters);
    if is_lost(broken) {
        return Published::default();
    }
    if published.packets > 0 {
        queue.publish();
    }
    published
}

/// Asks for a kick at the next buffer behind all that are there. The device does not look at the
/// buffers of a stopped queue, so a kick is the only sign that the guest wants it to go on.
fn arm_behind_all<Q: DeviceQueue>(queue: &mut Q, regions: &Regions) {
    let (mut at, mut elements) = (queue.cursor(), Elements::new());
    // A driver cannot make more available than the ring holds; one that tries is not waited for.
    for _ in 0..=queue.size() {
        match queue.peek(&mut at, regions, &mut elements) {
            Ok(Some(_)) => {}
            Ok(None) if queue.arm_kicks_behind(at) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

/// Where a queue stands that stops, and has published all; its ring is left so that the guest
/// kicks.
pub(crate) fn stop<Q: DeviceQueue>(
    queue: &mut Q,
    broken: Option<Why>,
    regions: &Regions,
) -> Position {
    if broken.is_none() {
        arm_behind_all(queue, regions);
    }
    queue.position()
}

/// Why the queue is broken now that its ring was looked for again: it goes on if that was all that
/// was wrong.
pub(crate) fn broken_after(rebound: Result<(), Broken>, broken: Option<Why>) -> Option<Why> {
    match rebound {
        Err(Broken(why)) => Some(why),
        Ok(()) => broken.filter(|_| !is_lost(broken)),
    }
}
