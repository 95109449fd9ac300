//! VLANs: numbers, sets of numbers, and what a port makes of them (IEEE 802.1Q).

use alloc::boxed::Box;
use core::fmt;

/// The number of a VLAN, 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VlanId(u16);

impl VlanId {
    /// Not a VLAN: the packets among ports that have [`Vlan::None`].
    pub(crate) const NONE: Self = Self(0);
    /// The highest number.
    pub const MAX: u16 = 4094;

    /// That VLAN, or `None` if there is no such number.
    pub const fn new(number: u16) -> Option<Self> {
        if number >= 1 && number <= Self::MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn raw(self) -> u16 {
        self.0
    }
}

impl fmt::Display for VlanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = 4096 / WORD_BITS;

/// A set of VLANs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VlanSet {
    words: Box<[u64; WORDS]>,
}

impl VlanSet {
    /// No VLAN.
    pub fn none() -> Self {
        Self { words: Box::new([0; WORDS]) }
    }

    /// All VLANs, 1 to 4094.
    pub fn all() -> Self {
        (1..=VlanId::MAX).filter_map(VlanId::new).collect()
    }

    /// Puts `vlan` in.
    pub fn insert(&mut self, vlan: VlanId) {
        self.words[usize::from(vlan.0) / WORD_BITS] |= 1 << (usize::from(vlan.0) % WORD_BITS);
    }

    /// Whether `vlan` is in the set.
    #[inline]
    pub fn contains(&self, vlan: VlanId) -> bool {
        let word = self.words[usize::from(vlan.0) / WORD_BITS];
        word & 1 << (usize::from(vlan.0) % WORD_BITS) != 0
    }

    /// All of them, lowest first.
    pub fn iter(&self) -> impl Iterator<Item = VlanId> {
        (1..=VlanId::MAX).filter_map(VlanId::new).filter(|vlan| self.contains(*vlan))
    }
}

impl FromIterator<VlanId> for VlanSet {
    fn from_iter<I: IntoIterator<Item = VlanId>>(vlans: I) -> Self {
        let mut set = Self::none();
        vlans.into_iter().for_each(|vlan| set.insert(vlan));
        set
    }
}

/// The VLANs that a port is part of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Vlan {
    /// None: its packets go, whatever tags they have, to other ports without VLAN, and only there.
    #[default]
    None,
    /// One: it sends and receives without tags and knows nothing of the VLAN. What it sends with a
    /// tag is dropped.
    Access(VlanId),
    /// Several, told apart by tags.
    Trunk {
        /// The VLANs whose packets have a tag.
        tagged: VlanSet,
        /// The VLAN of packets without a tag, not to be one of those; without one, such packets
        /// are dropped.
        native: Option<VlanId>,
    },
}

impl Vlan {
    /// The VLAN of packets that the port sends without a tag: number 0 if it knows no VLANs,
    /// nothing if it may send none.
    pub fn of_untagged(&self) -> Option<VlanId> {
        match self {
            Self::None => Some(VlanId::NONE),
            Self::Access(vlan) => Some(*vlan),
            Self::Trunk { native, .. } => *native,
        }
    }

    /// Whether packets of one may come to the other.
    pub fn has_common(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::None, Self::None) => true,
            (Self::Access(vlan), Self::Access(other)) => vlan == other,
            (Self::Access(vlan), Self::Trunk { tagged, native })
            | (Self::Trunk { tagged, native }, Self::Access(vlan)) => {
                tagged.contains(*vlan) || *native == Some(*vlan)
            }
            (Self::Trunk { tagged, native }, Self::Trunk { tagged: others, native: other }) => {
                let own = tagged.iter().chain(*native);
                own.into_iter().any(|vlan| others.contains(vlan) || *other == Some(vlan))
            }
            _ => false,
        }
    }

    /// How a packet of `vlan`, which came with that tag, goes out at this port; `None`: not at
    /// all.
    pub(crate) fn deliver(&self, vlan: VlanId, tci: Option<u16>) -> Option<TagChange> {
        let untagged = if tci.is_some() { TagChange::Strip } else { TagChange::Keep };
        match self {
            Self::None => (vlan == VlanId::NONE).then_some(TagChange::Keep),
            Self::Access(own) => (vlan == *own).then_some(untagged),
            Self::Trunk { native: Some(native), .. } if vlan == *native => Some(untagged),
            Self::Trunk { tagged, .. } if tagged.contains(vlan) => Some(match tci {
                None => TagChange::Insert(vlan.raw()),
                Some(tci) if tci & VLAN_MASK == vlan.raw() => TagChange::Keep,
                Some(tci) => TagChange::Replace(tci & !VLAN_MASK | vlan.raw()),
            }),
            Self::Trunk { .. } => None,
        }
    }
}

const VLAN_MASK: u16 = 0x0fff;

/// The change of the first tag of a packet on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagChange {
    /// Nothing.
    Keep,
    /// A tag with this content (priority and VLAN) goes in behind the addresses.
    Insert(u16),
    /// The tag goes.
    Strip,
    /// The tag gets this content.
    Replace(u16),
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn numbers_have_limits_and_sets_keep_them() {
        for number in [0, 4095, u16::MAX] {
            assert_eq!(VlanId::new(number), None);
        }
        let numbers = [1, 63, 64, 4094];
        let set: VlanSet = numbers.into_iter().filter_map(VlanId::new).collect();
        assert_eq!(set.iter().map(VlanId::raw).collect::<Vec<_>>(), numbers);
        assert_eq!(VlanSet::all().iter().count(), 4094);
        assert!(!VlanSet::all().contains(VlanId::NONE));
    }
}
