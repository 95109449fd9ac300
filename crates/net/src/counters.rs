//! The counters of a port, one drop counter per reason.

/// Why a packet was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// The receiver had no buffers for too long.
    NoRoom,
    /// Shorter than an Ethernet header, or its header does not fit its bytes.
    Malformed,
    /// Longer than the receiver's buffers can take.
    TooLong,
    /// Uses an offload that the receiver did not accept, and is not what the sender says, so that
    /// it cannot be completed.
    Offload,
    /// The receiver's link is down, or its guest has not started the queue.
    LinkDown,
    /// The switch had nowhere to send it.
    NoRoute,
    /// The operating system refused it.
    Os,
    /// The guest did not want it: its receive modes, addresses or VLANs.
    Filtered,
    /// Its sender used a MAC address that it may not use, or that belongs to another port.
    SpoofedMac,
    /// Its sender used an IP address that it may not use.
    SpoofedIp,
    /// Its VLAN is not one of the port's, or it has a tag where none may be.
    Vlan,
    /// Between two ports of which one is isolated and the other no uplink.
    Isolated,
    /// More broadcasts, multicasts and packets to unknown stations than the port may send, or one
    /// whose copies took so much work that not all receivers got it.
    Storm,
    /// More than the rate of the receiver's port.
    RateLimit,
}

impl DropReason {
    /// All reasons, in the order of the counters.
    pub const ALL: [Self; 14] = [
        Self::NoRoom,
        Self::Malformed,
        Self::TooLong,
        Self::Offload,
        Self::LinkDown,
        Self::NoRoute,
        Self::Os,
        Self::Filtered,
        Self::SpoofedMac,
        Self::SpoofedIp,
        Self::Vlan,
        Self::Isolated,
        Self::Storm,
        Self::RateLimit,
    ];

    /// The name used in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::Malformed => "malformed",
            Self::TooLong => "too_long",
            Self::Offload => "offload",
            Self::LinkDown => "link_down",
            Self::NoRoute => "no_route",
            Self::Os => "os",
            Self::Filtered => "filtered",
            Self::SpoofedMac => "spoofed_mac",
            Self::SpoofedIp => "spoofed_ip",
            Self::Vlan => "vlan",
            Self::Isolated => "isolated",
            Self::Storm => "storm",
            Self::RateLimit => "rate_limit",
        }
    }
}

/// Packets of at least so many bytes are long: no ping, no request, no packet that a user waits for
/// by itself.
pub const LONG_LEN: u32 = 4096;

/// Counters of one direction of a port. Plain integers: one owner, no sharing. What is counted for
/// each packet is not side by side: compilers would make one addition of two, which takes longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Packets that went through.
    pub packets: u64,
    /// Notifications that arrived from the guest for this direction (kicks).
    pub kicks: u64,
    /// The bytes of the packets, without the virtio-net header.
    pub bytes: u64,
    /// Notifications sent to the guest for this direction (calls).
    pub calls: u64,
    /// How many of the packets had [`LONG_LEN`] bytes or more.
    pub long_packets: u64,
    /// Dropped packets by [`DropReason`].
    pub drops: [u64; DropReason::ALL.len()],
}

impl Counters {
    /// Counts one packet of `len` bytes.
    pub fn count(&mut self, len: u32) {
        self.packets += 1;
        self.bytes += u64::from(len);
        self.long_packets += u64::from(len >= LONG_LEN);
    }

    /// Counts one dropped packet.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.drops[reason as usize] += 1;
    }

    /// The sum of both; of numbers that cannot be, as many as there may be.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
            long_packets: self.long_packets.saturating_add(other.long_packets),
            kicks: self.kicks.saturating_add(other.kicks),
            calls: self.calls.saturating_add(other.calls),
            drops: core::array::from_fn(|at| self.drops[at].saturating_add(other.drops[at])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data plane that was taken over can leave anything in the journal.
    #[test]
    fn counts_that_cannot_be_are_added_all_the_same() {
        let mut most = Counters { packets: u64::MAX, bytes: u64::MAX, ..Counters::default() };
        most.drops.fill(u64::MAX);
        let sum = most.plus(&most);
        assert_eq!((sum.packets, sum.bytes, sum.drops[0]), (u64::MAX, u64::MAX, u64::MAX));
    }

    #[test]
    fn each_reason_has_its_own_counter() {
        let mut counters = Counters::default();
        for (at, reason) in DropReason::ALL.into_iter().enumerate() {
            counters.count_drop(reason);
            counters.count_drop(reason);
            assert_eq!(counters.drops[at], 2, "{}", reason.name());
            assert_eq!(counters.drops.iter().sum::<u64>(), 2 * (at as u64 + 1));
        }
        counters.count(60);
        counters.count(1500);
        assert_eq!((counters.packets, counters.bytes), (2, 1560));
    }
}
