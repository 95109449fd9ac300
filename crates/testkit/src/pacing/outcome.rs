//! What came of a simulation, in numbers.

/// What came of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets delivered, both ways.
    pub packets: u64,
    /// Packets that entered a queue and did not leave it.
    pub lost: u64,
    /// Kicks.
    pub kicks: u64,
    /// Calls for packets.
    pub calls: u64,
    /// Calls for used transmit buffers.
    pub return_calls: u64,
    /// Times the device woke up.
    pub device_wakes: u64,
    /// From wanting to send until delivered, nanoseconds, half of all packets.
    pub p50_ns: u64,
    /// The same for 99 of 100 packets.
    pub p99_ns: u64,
    /// The same for all.
    pub max_ns: u64,
}

impl Outcome {
    /// All notifications per 1,000 packets.
    pub fn notifications_per_1000(&self) -> f64 {
        per_1000(self.kicks + self.calls + self.return_calls, self.packets)
    }
}

/// `count` per 1,000 packets.
#[allow(clippy::cast_precision_loss)]
fn per_1000(count: u64, packets: u64) -> f64 {
    count as f64 * 1000.0 / packets.max(1) as f64
}
