//! The addresses and multicast groups that the switch has learned, for the data plane that comes
//! after this one.
//!
//! A data plane notes both 100 ms after the news that something was learned, every minute, and at
//! its end.
//!
//! Layout: an address has two words. The first has the MAC address (48 bits, above) and the VLAN
//! (16), the second the port (16, above) and when it was heard, in ms (48). A note about groups is
//! one word, as the switch lays it out (`crates/switch/src/groups/noted.rs`): who wants which
//! group, behind which ports routers are, which VLANs have a querier, and when that was heard.
//!
//! Limits: what was learned since the last list is lost with the process.

use ringway_net::MacAddress;
use ringway_switch::{GROUP_NOTES_MAX, GroupNote, MACS_MAX, PortId};

use crate::journal::Journal;

/// Words of both lists.
pub(super) const ADDRESS_WORDS_MAX: usize = ADDRESS_WORDS * MACS_MAX;
pub(super) const GROUP_WORDS_MAX: usize = GROUP_NOTES_MAX;

/// Words of one address.
const ADDRESS_WORDS: usize = 2;

const VLAN_BITS: u32 = 16;
/// Of the word with the time; the port is above.
const SEEN_BITS: u32 = 48;

/// A station that was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedAddress {
    /// Its address.
    pub address: MacAddress,
    /// Its VLAN; 0: none.
    pub vlan: u16,
    /// The port that it is behind.
    pub port: PortId,
    /// When, by the monotonic clock, in milliseconds.
    pub seen_ms: u64,
}

impl NotedAddress {
    fn words(&self) -> [u64; ADDRESS_WORDS] {
        let seen = self.seen_ms & ((1 << SEEN_BITS) - 1);
        let key = self.address.to_u64() << VLAN_BITS | u64::from(self.vlan);
        [key, u64::from(self.port.0) << SEEN_BITS | seen]
    }

    fn of_words([key, seen]: [u64; ADDRESS_WORDS]) -> Self {
        Self {
            address: MacAddress::from_u64(key >> VLAN_BITS),
            vlan: (key & 0xffff) as u16,
            port: PortId((seen >> SEEN_BITS) as u16),
            seen_ms: seen & ((1 << SEEN_BITS) - 1),
        }
    }
}

impl Journal {
    /// These, and no others, are known; more than the switch can have are left out.
    pub fn note_addresses(&self, addresses: &[NotedAddress]) {
        self.addresses_list().note(addresses.iter().flat_map(NotedAddress::words));
    }

    /// The addresses that were noted last; none if the note cannot be right.
    pub fn addresses(&self) -> Vec<NotedAddress> {
        let words = self.addresses_list().noted();
        words.as_chunks().0.iter().map(|words| NotedAddress::of_words(*words)).collect()
    }

    /// That, and no more, is known of multicast groups.
    pub fn note_groups(&self, groups: &[GroupNote]) {
        self.groups_list().note(groups.iter().map(|note| note.word()));
    }

    /// The multicast groups that were noted last; none if the note cannot be right.
    pub fn groups(&self) -> Vec<GroupNote> {
        self.groups_list().noted().into_iter().map(GroupNote::from_word).collect()
    }
}
