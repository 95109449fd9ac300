//! Forwarding while the worker watches for page faults that sleep: one packet per visit, by way of
//! a copy, so that each step touches the memory of one guest only.

use ringway_device::FromGuest;
use ringway_net::{NetHeader, Packet, PacketSource};
use ringway_virtq::{Arm, DeviceQueue, SharedSlice};

use crate::forward::{Fabric, VisitEnd, forward};
use crate::memory::pieces::gather;
use crate::os::page_faults::{Step, missing_pages};
use crate::port::queue_pair::Drops;

/// The findings of a visit about its guest's memory.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Found {
    /// For how long the thread slept in it, in nanoseconds.
    pub(crate) stalled_ns: u64,
    /// Pages that were not there before, and are now.
    pub(crate) untouched: u32,
}

/// One packet of a queue, by way of a copy.
pub(crate) fn visit_watched<Q: DeviceQueue>(
    from_guest: &mut FromGuest<Q>,
    fabric: &mut Fabric<'_>,
    bounce: SharedSlice,
) -> (VisitEnd, Found) {
    let missing = missing_pages(from_guest.ahead());
    let step = Step::begin();
    from_guest.arm_kicks(Arm::Never);
    let mut source = Watched {
        source: from_guest,
        bounce,
        lent: None,
        payload: [bounce],
        is_popped: false,
        stalled_ns: step.stalled_ns(),
    };
    let visit = forward(&mut source, fabric);
    let untouched = if missing > 0 && step.has_touched() { missing } else { 0 };
    (visit, Found { stalled_ns: source.end(), untouched })
}

/// A source of one packet, which its receivers find in memory of our own.
struct Watched<'a, S> {
    source: &'a mut S,
    bounce: SharedSlice,
    lent: Option<(NetHeader, u32)>,
    payload: [SharedSlice; 1],
    /// Its source is told at the end.
    is_popped: bool,
    stalled_ns: u64,
}

impl<S: PacketSource> Watched<'_, S> {
    fn end(self) -> u64 {
        let step = Step::begin();
        if self.is_popped {
            self.source.pop();
        }
        self.stalled_ns + step.stalled_ns()
    }
}

impl<S: PacketSource> PacketSource for Watched<'_, S> {
    fn peek(&mut self) -> Option<Packet<'_>> {
        if self.is_popped {
            return None;
        }
        if self.lent.is_none() {
            let step = Step::begin();
            if let Some(packet) = self.source.peek() {
                gather(packet.payload, self.bounce);
                self.lent = Some((*packet.header, packet.len));
                self.payload = [self.bounce.split_at(packet.len as usize).0];
            }
            self.stalled_ns += step.stalled_ns();
        }
        let (header, len) = self.lent.as_ref()?;
        Some(Packet { header, payload: &self.payload, len: *len })
    }

    fn segments_done(&self) -> usize {
        self.source.segments_done()
    }

    fn set_segments_done(&mut self, count: usize) {
        self.source.set_segments_done(count);
    }

    fn dropped(&self) -> Drops {
        self.source.dropped()
    }

    fn pop(&mut self) {
        self.is_popped = true;
    }
}
