//! Which addresses the switch has learned, for the data plane that comes after this one.
//!
//! How: two places, of which a word says which one holds how many. A list is in place before it
//! takes the place of the other. Limits: what was learned since the last list is lost with the
//! process.

use std::sync::atomic::{Ordering, compiler_fence};

use ringway_net::MacAddress;
use ringway_switch::{MACS_MAX, PortId};

use crate::journal::Journal;

/// Bytes of one list, and of one address.
pub(super) const LIST_LEN: usize = ADDRESS_LEN * MACS_MAX;
const ADDRESS_LEN: usize = 16;

/// The second place holds the list; below it is how many addresses are in it.
const SECOND: u64 = 1 << 63;

const VLAN_BITS: u32 = 16;
/// Of the word with the time; the port is above.
const SEEN_BITS: u32 = 48;

/// A station that was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotedAddress {
    /// Its address.
    pub address: MacAddress,
    /// In which VLAN; 0: in none.
    pub vlan: u16,
    /// Behind which port.
    pub port: PortId,
    /// When, by the monotonic clock, in milliseconds.
    pub seen_ms: u64,
}

impl Journal {
    /// These, and no others, are known; more than the switch can have are left out.
    pub fn note_addresses(&self, addresses: &[NotedAddress]) {
        let addresses = &addresses[..addresses.len().min(MACS_MAX)];
        let word = self.addresses_word();
        let other = !word.load_u64(0) & SECOND;
        let place = self.addresses_list(other != 0);
        for (at, noted) in addresses.iter().enumerate() {
            let key = noted.address.to_u64() << VLAN_BITS | u64::from(noted.vlan);
            let seen = noted.seen_ms & ((1 << SEEN_BITS) - 1);
            place.store_u64(ADDRESS_LEN * at, key);
            place.store_u64(ADDRESS_LEN * at + 8, u64::from(noted.port.0) << SEEN_BITS | seen);
        }
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::Release);
        word.store_u64(0, other | addresses.len() as u64);
        // PAIRS WITH: the end of this process
        compiler_fence(Ordering::SeqCst);
    }

    /// What was noted last; nothing if that cannot be.
    pub fn addresses(&self) -> Vec<NotedAddress> {
        let word = self.addresses_word().load_u64(0);
        let place = self.addresses_list(word & SECOND != 0);
        let count = usize::try_from(word & !SECOND).unwrap_or(usize::MAX);
        let count = if count <= MACS_MAX { count } else { 0 };
        let noted = (0..count).map(|at| {
            let [key, seen] = [0, 8].map(|word| place.load_u64(ADDRESS_LEN * at + word));
            NotedAddress {
                address: MacAddress::from_u64(key >> VLAN_BITS),
                vlan: (key & 0xffff) as u16,
                port: PortId((seen >> SEEN_BITS) as u16),
                seen_ms: seen & ((1 << SEEN_BITS) - 1),
            }
        });
        noted.collect()
    }
}
