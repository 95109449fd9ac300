//! The state that the switches of all workers share.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;

use ringway_net::MacAddress;

use crate::copy::Copied;
use crate::entry::Tick;
use crate::groups::{GROUP_NOTES_MAX, GroupNote, GroupTable, GroupTick};
use crate::ip_table::IpTable;
use crate::mac_table::MacTable;
use crate::meter::PortMeters;
use crate::{AddressPage, KnownAddress, PORTS_MAX, PortId, SeenIp, VlanId};

/// Learned addresses, multicast memberships and the state of rate limits, for as many
/// [`Switch`](crate::Switch)es as there are workers.
pub struct Shared {
    pub(crate) macs: MacTable,
    pub(crate) groups: GroupTable,
    pub(crate) ips: IpTable,
    pub(crate) meters: Box<[PortMeters]>,
    /// Packets of each port for all others.
    pub(crate) heard: Box<[AtomicU64]>,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    /// Nothing learned yet. `seed` should be secret and different for each.
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            macs: MacTable::new(seed),
            groups: GroupTable::new(seed),
            ips: IpTable::new(),
            meters: (0..PORTS_MAX).map(|_| PortMeters::default()).collect(),
            heard: (0..PORTS_MAX).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// A copy of it as it is now, for [`Switch::copy_over`](crate::Switch::copy_over). Not for the
    /// data path.
    pub fn copy(&self) -> Arc<Self> {
        Arc::new(Self {
            macs: self.macs.copied(),
            groups: self.groups.copied(),
            ips: self.ips.copied(),
            meters: self.meters.copied(),
            heard: self.heard.copied(),
        })
    }

    /// How many packets of a port have gone to all others of its VLAN, and so to all uplinks:
    /// broadcasts, multicasts, and packets to unknown stations. What goes through a cable is not
    /// counted.
    pub fn heard(&self, port: PortId) -> u64 {
        self.heard.get(port.index()).map_or(0, |count| count.load(Relaxed))
    }

    /// Counts one. Of workers that count at the same time one may be lost: only whether there are
    /// more is ever asked.
    #[inline]
    pub(crate) fn hear(&self, port: PortId) {
        let count = &self.heard[port.index()];
        count.store(count.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Whether addresses or memberships have come, moved or gone since this was asked last.
    pub fn take_change(&self) -> bool {
        self.macs.take_change()
    }

    /// Adds a station that was heard at a port before this table was made, at `seen_ms` of the
    /// switches' clock; what is known already, or configured, stays. Not for the data path.
    pub fn remember(&self, port: PortId, vlan: Option<VlanId>, address: MacAddress, seen_ms: u64) {
        let (vlan, seen) = (vlan.unwrap_or(VlanId::NONE), Tick::of_ms(seen_ms));
        if port.index() < PORTS_MAX && self.macs.port_of(vlan, address, seen).is_none() {
            self.macs.learn(port, vlan, address, seen);
        }
    }

    /// A station that was seen at `from` has moved to `to` unheard, if it is still there, and no
    /// other port has claimed it. Not for the data path.
    pub fn follow(&self, to: PortId, vlan: VlanId, address: MacAddress, from: PortId) {
        if to.index() < PORTS_MAX {
            self.macs.follow(to, vlan, address, |at| at == from);
        }
    }

    /// Stations that were not heard for so long are forgotten; [`AGE_MAX_MS`](crate::AGE_MAX_MS) if
    /// nothing else is said.
    pub fn set_age_max(&self, age_max_ms: u64) {
        self.macs.set_age_max(age_max_ms);
    }

    /// Forgets stations that were learned, behind one port or in one VLAN or all; how many there
    /// were. What is configured stays. Not for the data path.
    pub fn flush(&self, port: Option<PortId>, vlan: Option<VlanId>) -> usize {
        self.macs.flush(port, vlan)
    }

    /// All that is known of multicast groups at that time of the switches' clock, as notes for a
    /// table that comes after this one. Not for the data path.
    pub fn group_notes(&self, now_ms: u64) -> Vec<GroupNote> {
        self.groups.notes(GroupTick::of_ms(now_ms)).take(GROUP_NOTES_MAX).collect()
    }

    /// Adds what an earlier table has noted; what is known already stays. `now_ms`: the switches'
    /// clock. Not for the data path.
    pub fn remember_group(&self, note: GroupNote, now_ms: u64) {
        self.groups.remember(note, GroupTick::of_ms(now_ms));
    }

    /// IP addresses that stations were seen to use where a policy asks for that, each with the
    /// station that has it. `now_ms`: the switches' clock. Not for the data path.
    pub fn seen_ips(&self, now_ms: u64) -> Vec<SeenIp> {
        self.ips.list(now_ms)
    }

    /// At most `max` addresses that are `wanted`, from place `from` on, which is 0 or `next` of the
    /// page before. `now_ms`: the switches' clock. Not for the data path.
    pub fn addresses(
        &self,
        from: usize,
        max: usize,
        now_ms: u64,
        wanted: impl Fn(&KnownAddress) -> bool,
    ) -> AddressPage {
        self.macs.list(from, max, Tick::of_ms(now_ms), wanted)
    }

    /// At most `max` addresses of that port that are `wanted`. Walks the whole table, if there is
    /// any. `now_ms`: the switches' clock. Not for the data path.
    pub fn addresses_at(
        &self,
        port: PortId,
        max: usize,
        now_ms: u64,
        wanted: impl Fn(&KnownAddress) -> bool,
    ) -> Vec<KnownAddress> {
        let max = max.min(self.macs.entries_of(port));
        let is_it = |known: &KnownAddress| known.port == port && wanted(known);
        self.macs.list(0, max, Tick::of_ms(now_ms), is_it).addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AGE_MAX_MS;

    #[test]
    fn stations_are_forgotten_when_it_was_said() {
        let (shared, station) = (Shared::new(3), MacAddress::local(1));
        shared.remember(PortId(1), None, station, 10_000);
        let is_known = |now_ms| !shared.addresses(0, 1, now_ms, |_| true).addresses.is_empty();
        assert!(is_known(10_000 + AGE_MAX_MS) && !is_known(13_000 + AGE_MAX_MS));
        shared.set_age_max(20_000);
        assert!(is_known(30_000) && !is_known(33_000));
        assert!(!shared.copy().addresses(0, 1, 33_000, |_| true).addresses.iter().any(|_| true));
        shared.set_age_max(u64::MAX);
        assert!(is_known(10_000_000));
    }

    #[test]
    fn a_station_follows_its_guest_unless_it_is_elsewhere_by_now() {
        let shared = Shared::new(3);
        let ([from, to, other], station) = ([1, 2, 3].map(PortId), MacAddress::local(1));
        shared.remember(from, None, station, 1000);
        let place = || shared.addresses(0, 1, 1000, |_| true).addresses[0].port;
        for (source, is_at) in [(other, from), (from, to), (from, to)] {
            shared.follow(to, VlanId::NONE, station, source);
            assert_eq!(place(), is_at);
        }
        assert_eq!(shared.macs.moved_to(to), 1);
        shared.follow(PortId(256), VlanId::NONE, station, to);
        assert_eq!(place(), to, "there is no such port");
    }

    #[test]
    fn a_flush_forgets_stations_of_a_port_and_of_a_vlan_and_leaves_the_others() {
        let shared = Shared::new(3);
        let (ports, vlan) = ([1, 2].map(PortId), VlanId::new(7));
        for (number, (port, vlan)) in
            (1..).zip([(ports[0], None), (ports[0], vlan), (ports[1], vlan), (ports[1], None)])
        {
            shared.remember(port, vlan, MacAddress::local(number), 1000);
        }
        let known = || shared.addresses(0, 10, 1000, |_| true).addresses.len();
        assert_eq!((shared.flush(Some(ports[0]), vlan), known()), (1, 3));
        assert_eq!((shared.flush(None, vlan), known()), (1, 2));
        assert_eq!((shared.flush(Some(ports[0]), None), known()), (1, 1));
        assert!(shared.take_change());
        assert_eq!((shared.flush(None, None), known(), shared.flush(None, None)), (1, 0, 0));
        assert!(shared.take_change() && !shared.take_change());
        shared.remember(ports[0], None, MacAddress::local(1), 1000);
        assert_eq!(known(), 1, "it can be learned again");
    }

    #[test]
    fn what_was_heard_before_is_known_and_changes_are_told_once() {
        let shared = Shared::new(3);
        let [known, old] = [1, 2].map(MacAddress::local);
        let seen_ms = 10 * AGE_MAX_MS;
        assert!(!shared.take_change());
        shared.remember(PortId(1), None, known, seen_ms);
        assert!(shared.take_change() && !shared.take_change());
        shared.remember(PortId(2), None, known, seen_ms + 5000);
        shared.remember(PortId(1), VlanId::new(7), old, seen_ms - 2 * AGE_MAX_MS);
        shared.remember(PortId(256), None, MacAddress::local(3), seen_ms);
        let page = shared.addresses(0, 10, seen_ms + 10_000, |_| true);
        let found: Vec<_> = page.addresses.iter().map(|it| (it.address, it.port)).collect();
        assert_eq!(found, [(known, PortId(1))], "what is known stays, what is old is not");
        assert!(page.addresses[0].age_ms.is_some_and(|age_ms| age_ms >= 9000));
    }
}
