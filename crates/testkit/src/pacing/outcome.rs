//! The outcome of a simulation, in numbers.

/// The outcome of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Packets delivered, both ways.
    pub packets: u64,
    /// Long ones of them.
    pub long: u64,
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
    /// For 99 of 100 packets that may be requests; `None`: there were none.
    pub asked_p99_ns: Option<u64>,
    /// Until the last packet was delivered, nanoseconds.
    pub took_ns: u64,
    /// Longest time in nanoseconds for which something waited.
    pub waits: Waits,
    /// Looks of a polling device that found something.
    pub hits: u64,
}

/// Longest time in nanoseconds for which each direction waited because of the device's policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waits {
    /// Packets to the guest, until it was time to call.
    pub calls_ns: u64,
    /// Used buffers, until it was time to call.
    pub returns_ns: u64,
    /// Packets from the guest, until they were taken.
    pub kicks_ns: u64,
    /// The slack on top of each: the end of a timer is late, and a visit takes its time.
    pub slack_ns: u64,
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
