//! Parts of the simulation: a processor, a packet, a visit.

/// A turn that never comes.
pub(super) const NEVER: u64 = u64::MAX;

/// A processor: its next turn, and whether it sleeps until then.
#[derive(Default)]
pub(super) struct Processor {
    pub(super) turn_at: u64,
    pub(super) is_asleep: bool,
    pub(super) wakes: u64,
}

impl Processor {
    pub(super) fn wake(&mut self, at: u64) {
        if self.is_asleep {
            self.is_asleep = false;
            self.wakes += 1;
            self.turn_at = at;
        }
    }

    /// Sleeps, at most until a timer ends at `wake_at`.
    pub(super) fn sleep(&mut self, wake_at: Option<u64>) {
        self.is_asleep = true;
        self.turn_at = wake_at.unwrap_or(NEVER);
    }
}

/// One thing on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) flow: usize,
    pub(super) is_answer: bool,
    pub(super) len: u32,
    pub(super) ready_at: u64,
    /// When it was published.
    pub(super) given_at: u64,
}

/// The packets that a visit of the device has moved.
#[derive(Default)]
pub(super) struct Done {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Long packets from the guest.
    pub(super) long_from: u32,
}

/// Long packets from the guest and to it so far.
#[derive(Default)]
pub(super) struct Long {
    pub(super) from: u64,
    pub(super) to: u64,
}
