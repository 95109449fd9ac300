//! The state that the commands of the control queue change.

use crate::coalescing::Coalescing;
use crate::receive_filter::{FILTER_LEN, ReceiveFilter, ReceiveMode};
use crate::{Features, MacAddress, Negotiated, Packet, ReceiveHash, RssTable};

/// The state that commands change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlState {
    /// The guest's address.
    pub mac: MacAddress,
    /// The filter for packets to the guest.
    pub filter: ReceiveFilter,
    /// The receive offloads that are on.
    pub guest_offloads: Features,
    /// How often the guest has acknowledged that it shall announce itself.
    pub announcements: u64,
    /// Pairs that the device has: more cannot be set.
    pub queue_pairs_max: u16,
    /// Pairs that the guest uses.
    pub queue_pairs: u16,
    /// The first so many of the device's pairs run.
    pub running_pairs: u16,
    /// How received packets are hashed for the guest's eyes, if it asked for that.
    pub hash: Option<ReceiveHash>,
    /// How received packets are spread over the pairs, if the guest decides that.
    pub rss: Option<RssTable>,
    /// How seldom the guest wants to be called.
    pub coalescing: Coalescing,
}

impl ControlState {
    /// The state after a reset, for a device with this address.
    pub const fn new(mac: MacAddress, negotiated: &Negotiated) -> Self {
        Self {
            mac,
            filter: ReceiveFilter::new(negotiated.features.contains(Features::CTRL_VLAN)),
            guest_offloads: negotiated.features.intersection(Features::GUEST_OFFLOADS),
            announcements: 0,
            queue_pairs_max: 1,
            queue_pairs: 1,
            running_pairs: u16::MAX,
            hash: None,
            rss: None,
            coalescing: Coalescing::NOTHING,
        }
    }

    /// The same for a device with so many queue pairs; the guest uses one until it says more.
    #[must_use]
    pub fn with_queue_pairs_max(self, queue_pairs_max: u16) -> Self {
        Self { queue_pairs_max: queue_pairs_max.max(1), ..self }
    }

    /// Whether the guest wants this packet.
    #[inline]
    pub fn wants(&self, packet: &Packet<'_>) -> bool {
        if self.filter.mode(ReceiveMode::Promiscuous) {
            return true;
        }
        let mut head = [0; FILTER_LEN];
        packet.copy_out(&mut head);
        self.filter.accepts(self.mac, &head)
    }
}
