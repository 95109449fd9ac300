//! What all of the guest's queues do with their ring when it is lost, found again, or published.
//!
//! How: a queue keeps why it is broken, and these say what follows. Limits: a queue that is broken
//! for another reason than a lost ring still publishes what it had staged, and stays broken.

use ringway_virtq::{Broken, DeviceQueue, Elements, Position, Regions, Why};

/// Whether the ring is not in the memory that there is: the one it was in may be unmapped.
#[inline]
pub(crate) fn is_lost(broken: Option<Why>) -> bool {
    broken == Some(Why::BadArea)
}

/// Publishes what was staged, and says how much that is; nothing in a ring that is lost.
#[inline]
pub(crate) fn publish<Q: DeviceQueue>(queue: &mut Q, broken: Option<Why>, staged: u32) -> u32 {
    if is_lost(broken) {
        return 0;
    }
    if staged > 0 {
        queue.publish();
    }
    staged
}

/// Asks for a kick at the next buffer behind all that are there: of a queue that stops nobody looks at
/// those, and a kick is what it may go on by.
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

/// Where a queue stands that stops, and has published all; its ring is left so that the guest kicks.
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
