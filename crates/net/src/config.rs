//! The device configuration space (virtio 1.2 §5.1.4, `struct virtio_net_config`).
//!
//! Always the full 24 bytes; a driver looks only at the fields whose features were negotiated.

use crate::MacAddress;
use crate::{HASH_KEY_LEN_MAX, HASH_TYPES_SUPPORTED, INDIRECTION_LEN_MAX};

/// Bytes of the configuration space.
pub const CONFIG_LEN: usize = 24;

/// `VIRTIO_NET_S_LINK_UP` in `status`.
const LINK_UP: u16 = 1;
/// `VIRTIO_NET_S_ANNOUNCE` in `status`.
const ANNOUNCE: u16 = 2;
/// Speed and duplex that are not known (§5.1.4).
const SPEED_UNKNOWN: u32 = u32::MAX;
const DUPLEX_UNKNOWN: u8 = u8::MAX;

/// With `RSS` or `HASH_REPORT`: `rss_max_key_size` and `rss_max_indirection_table_length`.
const RSS_KEY_LEN_MAX: u8 = 40;
const RSS_INDIRECTION_LEN_MAX: u16 = 128;

const _: () = assert!(RSS_KEY_LEN_MAX as usize == HASH_KEY_LEN_MAX);
const _: () = assert!(RSS_INDIRECTION_LEN_MAX as usize == INDIRECTION_LEN_MAX);

/// The configuration space of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(alias = "virtio_net_config")]
pub struct NetConfig {
    /// With `MAC`: the guest's address.
    pub mac: MacAddress,
    /// With `STATUS`: whether the link is up.
    pub link_up: bool,
    /// With `GUEST_ANNOUNCE`: the guest shall announce itself to its network.
    pub announce: bool,
    /// With `MQ`: most queue pairs that can be used, at least 1.
    pub max_queue_pairs: u16,
    /// With `MTU`: largest MTU in bytes, without the Ethernet header; 68 to 65535.
    pub mtu: u16,
}

impl NetConfig {
    /// Encodes to the bytes the driver reads.
    pub fn encode(&self) -> [u8; CONFIG_LEN] {
        let link_up = if self.link_up { LINK_UP } else { 0 };
        let status = link_up | if self.announce { ANNOUNCE } else { 0 };
        let mut bytes = [0; CONFIG_LEN];
        bytes[0..6].copy_from_slice(&self.mac.0);
        bytes[6..8].copy_from_slice(&status.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.max_queue_pairs.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.mtu.to_le_bytes());
        bytes[12..16].copy_from_slice(&SPEED_UNKNOWN.to_le_bytes());
        bytes[16] = DUPLEX_UNKNOWN;
        bytes[17] = RSS_KEY_LEN_MAX;
        bytes[18..20].copy_from_slice(&RSS_INDIRECTION_LEN_MAX.to_le_bytes());
        bytes[20..24].copy_from_slice(&HASH_TYPES_SUPPORTED.to_le_bytes());
        bytes
    }

    /// Decodes the bytes a driver has read; fields that are not represented are skipped.
    pub fn decode(bytes: &[u8; CONFIG_LEN]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let [a, b, c, d, e, f, ..] = *bytes;
        Self {
            mac: MacAddress([a, b, c, d, e, f]),
            link_up: word(6) & LINK_UP != 0,
            announce: word(6) & ANNOUNCE != 0,
            max_queue_pairs: word(8),
            mtu: word(10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survives_the_round_trip() {
        for (link_up, announce) in [(false, false), (true, false), (false, true), (true, true)] {
            let config = NetConfig {
                mac: MacAddress::local(7),
                link_up,
                announce,
                max_queue_pairs: 0x0102,
                mtu: 9000,
            };
            assert_eq!(NetConfig::decode(&config.encode()), config);
        }
    }

    #[test]
    fn other_status_bits_are_not_the_link() {
        let mut bytes = [0; CONFIG_LEN];
        bytes[6..8].copy_from_slice(&[0xfc, 0xff]);
        let config = NetConfig::decode(&bytes);
        assert!(!config.link_up && !config.announce);
    }
}
