//! The state of groups as words, for a table that comes after this one.
//!
//! How: a word is laid out as a membership is, with the time at which it was last heard of. Of what
//! is no membership, a kind is in the place of the group.

use core::sync::atomic::AtomicU32;
use core::sync::atomic::Ordering::Relaxed;

use super::{
    AGE_MAX_TICKS, GROUP_SHIFT, GROUPS_PER_PORT_MAX, GroupTable, GroupTick, PORT_SHIFT, TICK_MASK,
    USED, V6, VLAN_SHIFT, VLANS, port_in,
};
use crate::{PORTS_MAX, PortId};

/// Most notes that a table makes: memberships and two more of each port, and two of each VLAN.
pub const GROUP_NOTES_MAX: usize = PORTS_MAX * (GROUPS_PER_PORT_MAX + 2) + 2 * VLANS;

/// The port has had a membership too many; a router is behind it; the VLAN has a querier.
const OVERFLOW: u64 = 1 << GROUP_SHIFT;
const ROUTER: u64 = 2 << GROUP_SHIFT;
const QUERIER: u64 = 3 << GROUP_SHIFT;
const KIND_MASK: u64 = V6 - (1 << GROUP_SHIFT);

/// One thing that is known of multicast groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupNote(u64);

impl GroupNote {
    /// Any word is a note.
    pub fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// All of it.
    pub fn word(self) -> u64 {
        self.0
    }

    /// The port that it is about; `None`: a VLAN.
    pub fn port(self) -> Option<PortId> {
        let is_of_vlan = self.0 & USED == 0 && self.0 & KIND_MASK == QUERIER;
        (!is_of_vlan).then(|| port_in(self.0))
    }
}

impl GroupTick {
    /// The last time that a word was heard of, unless that is too long ago.
    fn last(self, word: u64) -> Option<Self> {
        let age = (self.stamp().wrapping_sub(word) & TICK_MASK) as u32;
        // Another worker's clock may be a little ahead.
        let age = if u64::from(age) == TICK_MASK { 0 } else { age };
        (age < AGE_MAX_TICKS).then(|| Self(self.0.saturating_sub(age).max(1)))
    }

    /// A note of what was last so at that time, if that was lately.
    fn note_of(self, what: u64, at: &AtomicU32) -> Option<GroupNote> {
        self.is_lately(at).then(|| GroupNote(what | Self(at.load(Relaxed)).stamp()))
    }
}

impl GroupTable {
    /// All that is known now.
    pub fn notes(&self, now: GroupTick) -> impl Iterator<Item = GroupNote> {
        let words = self.buckets.iter().flatten().map(|slot| slot.load(Relaxed));
        let memberships = words.filter(move |word| *word != 0 && now.is_young(*word));
        let ports = (0..PORTS_MAX).flat_map(move |port| {
            let of_port = |kind: u64| kind | (port as u64) << PORT_SHIFT;
            let overflow = now.note_of(of_port(OVERFLOW), &self.overflows[port]);
            [overflow, now.note_of(of_port(ROUTER), &self.routers[port])]
        });
        let vlans = self.queriers.iter().enumerate().flat_map(move |(vlan, [v4, v6])| {
            let querier = QUERIER | (vlan as u64) << VLAN_SHIFT;
            [now.note_of(querier, v4), now.note_of(querier | V6, v6)]
        });
        memberships.map(GroupNote).chain(ports.chain(vlans).flatten())
    }

    /// That is known from now on, unless it is known better, or too old.
    pub fn remember(&self, GroupNote(note): GroupNote, now: GroupTick) {
        let Some(seen) = now.last(note) else { return };
        let port = port_in(note);
        if note & USED != 0 {
            let is_there = self.is_member(note & !TICK_MASK, now) || self.insert(note, now);
            if !is_there {
                self.overflow(port, now);
            }
            return;
        }
        let vlan = (note >> VLAN_SHIFT) as usize % VLANS;
        let at = match note & KIND_MASK {
            OVERFLOW => &self.overflows[port.index()],
            ROUTER => &self.routers[port.index()],
            QUERIER => &self.queriers[vlan][usize::from(note & V6 != 0)],
            _ => return,
        };
        at.fetch_max(seen.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::{Family, Group};
    use super::*;
    use crate::VlanId;

    const VLAN: VlanId = VlanId::NONE;

    fn group(n: u32) -> Group {
        let [a, b, c, d] = (n + 256).to_be_bytes();
        Group::of_v4(VLAN, [a, b, c, d]).unwrap()
    }

    #[test]
    fn the_next_table_knows_what_was_noted_and_when_it_was_heard() {
        let at_ms = |ms: u64| GroupTick::of_ms(70_000_000 + ms);
        let (table, next) = (GroupTable::new(1), GroupTable::new(2));
        let [member, greedy, router] = [PortId(3), PortId(255), PortId(0)];
        let tagged = VlanId::new(4094).unwrap();
        assert!(table.join(member, group(1), at_ms(0)) && !table.join(member, group(1), at_ms(9)));
        assert!(table.join(member, group(2), at_ms(100_000)));
        let news = (0..40).filter(|n| table.join(greedy, group(*n), at_ms(100_000))).count();
        assert_eq!(news, GROUPS_PER_PORT_MAX + 1, "the first one too many");
        assert!(table.hear_query(router, tagged, Family::V6, at_ms(100_000)));
        assert!(!table.hear_query(router, tagged, Family::V6, at_ms(110_000)));

        let notes: Vec<GroupNote> = table.notes(at_ms(200_000)).collect();
        assert_eq!(notes.len(), 2 + GROUPS_PER_PORT_MAX + 3);
        assert_eq!(notes.iter().filter(|note| note.port().is_none()).count(), 1);
        notes.iter().for_each(|note| next.remember(*note, at_ms(200_000)));
        assert_eq!(next.owned_by(member), 2);
        assert!(next.wants(member, group(1), at_ms(250_000)));
        assert!(!next.wants(member, group(1), at_ms(280_000)), "its age goes on");
        assert!(next.wants(member, group(2), at_ms(280_000)));
        assert!(!next.wants(member, group(3), at_ms(200_000)));
        assert!(next.wants(greedy, group(1000), at_ms(200_000)), "it gets everything");
        assert!(next.has_router(router, at_ms(200_000)) && !next.has_router(member, at_ms(0)));
        assert!(next.has_querier(tagged, Family::V6, at_ms(370_000)));
        assert!(!next.has_querier(tagged, Family::V6, at_ms(380_000)));
        assert!(!next.has_querier(VLAN, Family::V6, at_ms(200_000)));
        assert!(!next.has_querier(tagged, Family::V4, at_ms(200_000)));
    }

    #[test]
    fn what_is_known_stays_and_any_word_is_harmless() {
        let now = GroupTick::of_ms(1 << 40);
        let (table, old) = (GroupTable::new(1), GroupTable::new(1));
        old.join(PortId(1), group(1), GroupTick::of_ms((1 << 40) - 250_000));
        let notes: Vec<GroupNote> = old.notes(now).collect();
        table.join(PortId(1), group(1), now);
        notes.iter().for_each(|note| table.remember(*note, now));
        assert!(table.wants(PortId(1), group(1), GroupTick::of_ms((1 << 40) + 200_000)));
        let mut word = 1_u64;
        for _ in 0..100_000 {
            word = crate::mac_table::mix(word);
            table.remember(GroupNote::from_word(word), now);
        }
        let most = (0..256).map(|port| table.owned_by(PortId(port))).max();
        assert!(most <= Some(GROUPS_PER_PORT_MAX), "{most:?}");
        assert!(table.notes(now).count() <= GROUP_NOTES_MAX);
    }
}
