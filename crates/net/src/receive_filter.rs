//! The packets that a guest wants to receive (virtio 1.2 §5.1.6.5.1 to §5.1.6.5.3).
//!
//! The guest sets modes, two tables of addresses and a set of VLANs through the control queue;
//! [`ReceiveFilter::accepts`] looks at the first bytes of a packet and answers. A guest that has
//! set nothing yet receives everything, as with QEMU.
//!
//! Limits: a table of more than [`ADDRESSES_MAX`] addresses counts as "all of that kind", which
//! the specification allows: filtering is best effort.

use crate::MacAddress;

/// Addresses kept per table.
pub const ADDRESSES_MAX: usize = 64;
/// Bytes from the start of a packet that a filter needs: Ethernet header and VLAN tag.
pub const FILTER_LEN: usize = 16;

/// VLAN identifiers there are (IEEE 802.1Q).
const VLANS: usize = 4096;
/// EtherType of a VLAN tag.
const VLAN_TAG: [u8; 2] = [0x81, 0x00];

/// The switches of `VIRTIO_NET_CTRL_RX`, in the order of their commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveMode {
    /// Everything, whatever the rest says.
    Promiscuous,
    /// All packets to groups.
    AllMulticast,
    /// All packets to single stations.
    AllUnicast,
    /// No packet to a group.
    NoMulticast,
    /// No packet to a single station.
    NoUnicast,
    /// No packet to everybody.
    NoBroadcast,
}

impl ReceiveMode {
    /// All modes by their command.
    pub const ALL: [Self; 6] = [
        Self::Promiscuous,
        Self::AllMulticast,
        Self::AllUnicast,
        Self::NoMulticast,
        Self::NoUnicast,
        Self::NoBroadcast,
    ];
}

/// A bounded list of addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Addresses {
    list: [MacAddress; ADDRESSES_MAX],
    len: usize,
    /// The guest gave more than fit: all match.
    overflow: bool,
}

impl Addresses {
    const NONE: Self = Self { list: [MacAddress::ZERO; ADDRESSES_MAX], len: 0, overflow: false };

    fn from_iter(addresses: impl ExactSizeIterator<Item = MacAddress>) -> Self {
        let mut table = Self { overflow: addresses.len() > ADDRESSES_MAX, ..Self::NONE };
        for (place, address) in table.list.iter_mut().zip(addresses) {
            *place = address;
            table.len += 1;
        }
        table
    }

    fn has(&self, address: MacAddress) -> bool {
        self.overflow || self.list[..self.len].contains(&address)
    }
}

/// The filter of one guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiveFilter {
    modes: [bool; ReceiveMode::ALL.len()],
    unicast: Addresses,
    multicast: Addresses,
    /// One bit per VLAN; `None`: VLANs are not filtered.
    vlans: Option<[u64; VLANS / 64]>,
}

impl ReceiveFilter {
    /// A guest that has set nothing yet. `has_vlans`: `CTRL_VLAN` was negotiated.
    pub const fn new(has_vlans: bool) -> Self {
        let mut modes = [false; ReceiveMode::ALL.len()];
        modes[ReceiveMode::Promiscuous as usize] = true;
        Self {
            modes,
            unicast: Addresses::NONE,
            multicast: Addresses::NONE,
            vlans: if has_vlans { Some([0; VLANS / 64]) } else { None },
        }
    }

    /// Turns one mode on or off.
    pub fn set_mode(&mut self, mode: ReceiveMode, on: bool) {
        self.modes[mode as usize] = on;
    }

    /// Whether a mode is on.
    #[inline]
    pub fn mode(&self, mode: ReceiveMode) -> bool {
        self.modes[mode as usize]
    }

    /// Replaces both tables.
    pub fn set_addresses(
        &mut self,
        unicast: impl ExactSizeIterator<Item = MacAddress>,
        multicast: impl ExactSizeIterator<Item = MacAddress>,
    ) {
        self.unicast = Addresses::from_iter(unicast);
        self.multicast = Addresses::from_iter(multicast);
    }

    /// Both tables, such that they are the same when they are set again.
    pub(crate) fn tables(&self) -> [impl ExactSizeIterator<Item = MacAddress>; 2] {
        [&self.unicast, &self.multicast].map(|table| {
            // One more than fit, where more were given.
            let len = if table.overflow { ADDRESSES_MAX + 1 } else { table.len };
            (0..len).map(|at| table.list.get(at).copied().unwrap_or(MacAddress::ZERO))
        })
    }

    /// The VLANs that are let in.
    pub(crate) fn vlans(&self) -> impl Iterator<Item = u16> {
        let is_in = |vlan: &u16| {
            let (word, bit) = (usize::from(*vlan) / 64, vlan % 64);
            self.vlans.is_some_and(|vlans| vlans[word] >> bit & 1 != 0)
        };
        (0..4096).filter(is_in)
    }

    /// Lets a VLAN in or keeps it out. `false`: there is no such VLAN, or VLANs are not filtered.
    pub fn set_vlan(&mut self, vlan: u16, on: bool) -> bool {
        let (word, bit) = (usize::from(vlan) / 64, 1 << (vlan % 64));
        let Some(word) = self.vlans.as_mut().and_then(|vlans| vlans.get_mut(word)) else {
            return false;
        };
        if on {
            *word |= bit
        } else {
            *word &= !bit
        }
        true
    }

    /// Whether the guest with the address `own` wants a packet that starts with `head`; bytes
    /// that the packet does not have are zero.
    #[inline]
    pub fn accepts(&self, own: MacAddress, head: &[u8; FILTER_LEN]) -> bool {
        self.mode(ReceiveMode::Promiscuous)
            || self.accepts_vlan(head) && self.accepts_destination(own, head)
    }

    fn accepts_vlan(&self, head: &[u8; FILTER_LEN]) -> bool {
        let Some(vlans) = &self.vlans else { return true };
        if head[12..14] != VLAN_TAG {
            return true;
        }
        let vlan = usize::from(u16::from_be_bytes([head[14] & 0x0f, head[15]]));
        // A tag with VLAN 0 only carries a priority.
        vlan == 0 || vlans[vlan / 64] >> (vlan % 64) & 1 != 0
    }

    fn accepts_destination(&self, own: MacAddress, head: &[u8; FILTER_LEN]) -> bool {
        let [a, b, c, d, e, f, ..] = *head;
        let destination = MacAddress([a, b, c, d, e, f]);
        if destination.is_broadcast() {
            !self.mode(ReceiveMode::NoBroadcast)
        } else if destination.is_multicast() {
            !self.mode(ReceiveMode::NoMulticast)
                && (self.mode(ReceiveMode::AllMulticast) || self.multicast.has(destination))
        } else {
            !self.mode(ReceiveMode::NoUnicast)
                && (destination == own
                    || self.mode(ReceiveMode::AllUnicast)
                    || self.unicast.has(destination))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    const OWN: MacAddress = MacAddress::local(1);
    const OTHER: MacAddress = MacAddress::local(2);
    const GROUP: MacAddress = MacAddress([1, 0, 0x5e, 1, 2, 3]);
    const KINDS: [MacAddress; 4] = [OWN, OTHER, GROUP, MacAddress::BROADCAST];

    fn strict() -> ReceiveFilter {
        let mut filter = ReceiveFilter::new(false);
        filter.set_mode(ReceiveMode::Promiscuous, false);
        filter
    }

    fn head(destination: MacAddress, rest: [u8; 4]) -> [u8; FILTER_LEN] {
        let mut head = [0; FILTER_LEN];
        head[..6].copy_from_slice(&destination.0);
        head[12..].copy_from_slice(&rest);
        head
    }

    /// For each of [`KINDS`], whether it gets through.
    fn through(filter: &ReceiveFilter) -> Vec<bool> {
        KINDS.iter().map(|to| filter.accepts(OWN, &head(*to, [8, 0, 0x45, 0]))).collect()
    }

    #[test]
    fn every_mode_alone() {
        use ReceiveMode::*;
        assert_eq!(through(&ReceiveFilter::new(true)), [true; 4], "nothing set yet");
        assert_eq!(through(&strict()), [true, false, false, true]);
        let expected = [
            (Promiscuous, [true, true, true, true]),
            (AllMulticast, [true, false, true, true]),
            (AllUnicast, [true, true, false, true]),
            (NoMulticast, [true, false, false, true]),
            (NoUnicast, [false, false, false, true]),
            (NoBroadcast, [true, false, false, false]),
        ];
        for (mode, wanted) in expected {
            let mut filter = strict();
            filter.set_mode(mode, true);
            assert_eq!(through(&filter), wanted, "{mode:?}");
            filter.set_mode(mode, false);
            assert_eq!(filter, strict(), "{mode:?} off again");
        }
    }

    #[test]
    fn no_wins_over_all() {
        use ReceiveMode::*;
        let mut filter = strict();
        for mode in [AllMulticast, AllUnicast, NoMulticast, NoUnicast] {
            filter.set_mode(mode, true);
        }
        assert_eq!(through(&filter), [false, false, false, true]);
    }

    #[test]
    fn tables_let_their_addresses_in() {
        let mut filter = strict();
        filter.set_addresses([OTHER].into_iter(), [].into_iter());
        assert_eq!(through(&filter), [true, true, false, true]);
        filter.set_addresses([].into_iter(), [GROUP].into_iter());
        assert_eq!(through(&filter), [true, false, true, true], "tables are replaced");
    }

    #[test]
    fn a_table_that_is_too_long_lets_all_of_its_kind_in() {
        let addresses = |n: u32| (0..n).map(|n| MacAddress::local(n + 100)).collect::<Vec<_>>();
        let most = u32::try_from(ADDRESSES_MAX).unwrap();
        for (n, wanted) in [(most, false), (most + 1, true)] {
            let mut filter = strict();
            filter.set_addresses(addresses(n).into_iter(), [].into_iter());
            assert_eq!(through(&filter), [true, wanted, false, true]);
            filter.set_addresses([].into_iter(), addresses(n).into_iter());
            assert_eq!(through(&filter), [true, false, wanted, true]);
        }
    }

    #[test]
    fn vlans_are_kept_out_until_they_are_added() {
        let mut filter = ReceiveFilter::new(true);
        filter.set_mode(ReceiveMode::Promiscuous, false);
        let tagged = |vlan: u16| {
            let [high, low] = vlan.to_be_bytes();
            head(OWN, [0x81, 0, 0x60 | high, low])
        };
        for vlan in [1, 63, 64, 4095] {
            assert!(!filter.accepts(OWN, &tagged(vlan)), "{vlan}");
            assert!(filter.set_vlan(vlan, true));
            assert!(filter.accepts(OWN, &tagged(vlan)), "{vlan}");
            assert!(filter.set_vlan(vlan, false));
            assert!(!filter.accepts(OWN, &tagged(vlan)), "{vlan}");
        }
        assert!(filter.accepts(OWN, &tagged(0)), "only a priority");
        assert!(!filter.set_vlan(4096, true), "there is no such VLAN");
        assert!(!ReceiveFilter::new(false).set_vlan(1, true), "not negotiated");
        assert!(strict().accepts(OWN, &tagged(7)), "not negotiated: not filtered");
    }
}
