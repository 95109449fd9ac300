//! The ports, their policies, and the short way of packets that no policy has a say in.
//!
//! Only decides; the code that moves packets asks [`Switch::route_plain`] for each one, and
//! [`Switch::decide`] when that has no answer.

use alloc::boxed::Box;
use alloc::sync::Arc;

use ringway_net::{ETHERNET_HEADER_LEN, MacAddress, destination, source};

use crate::entry::Tick;
use crate::meter::Pace;
use crate::policy::{PolicyError, PortPolicy};
use crate::port::PortSet;
use crate::{AddressNews, Learned, PORTS_MAX, PortError, PortId, Shared, Vlan, VlanId};

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To that port.
    One(PortId),
    /// To every port except the one it came from.
    Flood,
    /// Nowhere: its destination is on the port it came from, or is not passed on by bridges.
    Drop,
}

/// A learning switch as one worker sees it; never more than [`PORTS_MAX`] ports.
///
/// The learned addresses are [`Shared`] with the switches of other workers. All of them are told of
/// ports and policies by themselves, and must be given the same clock.
///
/// ```
/// use ringway_net::MacAddress;
/// use ringway_switch::{PortId, Route, Switch};
///
/// let (a, b) = (PortId(0), PortId(1));
/// let (station_a, station_b) = (MacAddress::local(1), MacAddress::local(2));
/// let mut switch = Switch::new(0x1234_5678);
/// switch.add_port(a)?;
/// switch.add_port(b)?;
///
/// switch.learn(a, station_a, 0);
/// assert_eq!(switch.route(a, station_b), Route::Flood);
/// assert_eq!(switch.route(b, station_a), Route::One(a));
/// # Ok::<(), ringway_switch::PortError>(())
/// ```
pub struct Switch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ports: PortSet,
    /// Those with a policy that is not the default.
    pub(crate) special: PortSet,
    pub(crate) has_special: bool,
    pub(crate) snoops_multicast: bool,
    /// The time of the last packet.
    pub(crate) now: Tick,
    pub(crate) uplinks: PortSet,
    /// Ports for which IP addresses are noted.
    pub(crate) noting: PortSet,
    pub(crate) notes_ips: bool,
    /// Ports whose links are down: no station is there, a configured one neither.
    pub(crate) links_down: PortSet,
    /// Ports whose guests have stopped: packets for their stations go everywhere.
    pub(crate) stopped: PortSet,
    /// Ports with a network behind them, where guests of other hosts are.
    pub(crate) networks: PortSet,
    pub(crate) rules: Box<[Rules]>,
}

/// A policy, and what follows from it for one packet.
#[derive(Default, Clone)]
pub(crate) struct Rules {
    pub policy: PortPolicy,
    pub to_guest: Pace,
    pub from_guest: Pace,
    pub storm: Pace,
}

impl Switch {
    /// A switch of its own, without ports. `seed` should be secret and different for each switch,
    /// so that no guest can choose addresses that collide in the table.
    pub fn new(seed: u64) -> Self {
        Self::over(Shared::new(seed))
    }

    /// A switch without ports that learns and looks up in the same table as others.
    pub fn over(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            ports: PortSet::default(),
            special: PortSet::default(),
            has_special: false,
            snoops_multicast: false,
            now: Tick::default(),
            uplinks: PortSet::default(),
            noting: PortSet::default(),
            notes_ips: false,
            links_down: PortSet::default(),
            stopped: PortSet::default(),
            networks: PortSet::default(),
            rules: alloc::vec![Rules::default(); PORTS_MAX].into_boxed_slice(),
        }
    }

    /// The state that this switch shares: for [`over`](Self::over).
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// A switch with the same ports and policies over a copy of what this one shares.
    #[must_use]
    pub fn copy_over(&self, shared: Arc<Shared>) -> Self {
        Self {
            shared,
            ports: self.ports,
            special: self.special,
            has_special: self.has_special,
            snoops_multicast: self.snoops_multicast,
            now: self.now,
            uplinks: self.uplinks,
            noting: self.noting,
            notes_ips: self.notes_ips,
            links_down: self.links_down,
            stopped: self.stopped,
            networks: self.networks,
            rules: self.rules.clone(),
        }
    }

    /// Adds a port. The more ports there are, the fewer addresses each may own: at most
    /// `MACS_MAX` divided by their number, and never more than `MACS_PER_PORT_MAX`.
    ///
    /// # Errors
    /// [`PortError`] when its number is not below [`PORTS_MAX`] or taken already.
    pub fn add_port(&mut self, port: PortId) -> Result<(), PortError> {
        if port.index() >= PORTS_MAX {
            return Err(PortError::TooHigh(port));
        }
        if self.ports.contains(port) {
            return Err(PortError::Exists(port));
        }
        self.ports.insert(port);
        self.shared.macs.join(port);
        Ok(())
    }

    /// Removes a port, forgets what was learned from it, and its policy; returns whether there was
    /// one. Walks the whole table: not for the data path.
    pub fn remove_port(&mut self, port: PortId) -> bool {
        if !self.ports.contains(port) {
            return false;
        }
        self.ports.remove(port);
        self.shared.macs.leave(port);
        self.shared.groups.forget(port);
        self.shared.ips.forget(port);
        self.follow(port, PortPolicy::default());
        self.links_down.remove(port);
        self.set_stopped(port, false);
        self.networks.remove(port);
        true
    }

    /// A port's link goes up or down. While it is down, its stations may turn up elsewhere, also
    /// those that are configured; when it comes up, these are there at once. Walks the whole table.
    pub fn set_link(&mut self, port: PortId, is_up: bool) {
        if port.index() >= PORTS_MAX {
            return;
        }
        self.links_down.set(port, !is_up);
        self.fix_stations(port);
        if !is_up {
            self.forget(port);
        }
    }

    /// Enters the configured stations of a port, unless another port has them; gives how many are
    /// left out.
    fn fix_stations(&self, port: PortId) -> usize {
        let policy = &self.rules[port.index()].policy;
        let macs = policy.static_macs.iter().chain(&policy.locked_mac).copied();
        match policy.vlan.of_untagged().filter(|_| !self.links_down.contains(port)) {
            Some(vlan) => self.shared.macs.fix(port, vlan, macs),
            None => self.shared.macs.fix(port, VlanId::NONE, core::iter::empty()),
        }
    }

    /// Forgets what was learned from a port, because its guest has gone: its stations may turn up
    /// elsewhere. Walks the whole table.
    pub fn forget(&mut self, port: PortId) {
        if self.ports.contains(port) {
            self.shared.macs.forget(port);
            self.shared.groups.forget(port);
            self.shared.ips.forget(port);
        }
    }

    /// This address belongs to a port from now on, in the port's VLANs: packets of other ports
    /// there that claim to come from it are dropped, unless a policy has fixed it to one of them. A
    /// port has one such address at most; `false`: it belongs to another port. May walk the whole
    /// table. A station that was seen at a port whose guest has stopped since has moved here.
    pub fn claim(&mut self, port: PortId, address: MacAddress) -> bool {
        if !self.ports.contains(port) {
            return false;
        }
        let vlan = match &self.rules[port.index()].policy.vlan {
            Vlan::Trunk { .. } => None,
            vlan => vlan.of_untagged(),
        };
        let is_locked = self.rules[port.index()].policy.locked_mac.is_some();
        if let Some(vlan) = vlan.filter(|_| !is_locked) {
            let is_stopped = |at| self.stopped.contains(at);
            self.shared.macs.follow(port, vlan, address, is_stopped);
        }
        self.shared.macs.claim(port, vlan, address)
    }

    /// No address belongs to the port any more: its station may turn up elsewhere.
    pub fn release(&mut self, port: PortId) {
        if self.ports.contains(port) {
            self.shared.macs.release(port);
        }
    }

    /// How many addresses have moved to `port` from another one.
    pub fn moved_to(&self, port: PortId) -> u64 {
        if self.ports.contains(port) { self.shared.macs.moved_to(port) } else { 0 }
    }

    /// Adds addresses that had moved there before this switch was made.
    pub fn have_moved_to(&self, port: PortId, count: u64) {
        if self.ports.contains(port) {
            self.shared.macs.have_moved_to(port, count);
        }
    }

    /// Whether [`take_news`](Self::take_news) or [`Shared::take_change`] has something to tell.
    #[inline]
    pub fn has_news(&self) -> bool {
        self.shared.macs.has_news()
    }

    /// The latest news of an address, on any worker; `None`: nothing new.
    pub fn take_news(&mut self) -> Option<AddressNews> {
        self.shared.macs.take_news()
    }

    /// Gives a port another policy; it need not have been added yet. Walks the whole table.
    ///
    /// Addresses that were learned stay, unless the port is now in other VLANs. The port's locked
    /// address is treated as a static one.
    ///
    /// # Errors
    /// [`PolicyError`] when the policy contradicts itself or is too long, or there is no such
    /// port: nothing has changed then. [`PolicyError::MacsTaken`] leaves only those addresses out.
    pub fn set_port(&mut self, port: PortId, policy: PortPolicy) -> Result<(), PolicyError> {
        policy.check()?;
        if port.index() >= PORTS_MAX {
            return Err(PolicyError::NoPort(port));
        }
        let old = &self.rules[port.index()].policy;
        if old.vlan != policy.vlan {
            self.shared.macs.forget(port);
            self.shared.groups.forget(port);
            self.shared.ips.forget(port);
        }
        let meters = &self.shared.meters[port.index()];
        if old.rate_to_guest != policy.rate_to_guest {
            meters.to_guest.reset();
        }
        if old.rate_from_guest != policy.rate_from_guest {
            meters.from_guest.reset();
        }
        self.follow(port, policy);
        let left_out = self.fix_stations(port);
        if let Some(address) = self.shared.macs.claim_of(port) {
            self.claim(port, address);
        }
        if left_out == 0 { Ok(()) } else { Err(PolicyError::MacsTaken(left_out)) }
    }

    fn follow(&mut self, port: PortId, policy: PortPolicy) {
        self.special.set(port, policy != PortPolicy::default());
        self.has_special = !self.special.is_empty();
        self.uplinks.set(port, policy.is_uplink);
        self.noting.set(port, policy.notes_ips);
        self.notes_ips = !self.noting.is_empty();
        self.rules[port.index()] = Rules {
            to_guest: Pace::new(&policy.limit_to_guest()),
            from_guest: Pace::new(&policy.rate_from_guest),
            storm: Pace::storm(policy.storm_packets_per_second),
            policy,
        };
    }

    /// The policy of a port.
    pub fn policy(&self, port: PortId) -> Option<&PortPolicy> {
        self.rules.get(port.index()).map(|rules| &rules.policy)
    }

    /// Whether packets to a multicast group go only to ports that asked for it (IGMP and MLD
    /// snooping) and to multicast routers. Off at first: to all ports.
    pub fn snoop_multicast(&mut self, is_on: bool) {
        self.snoops_multicast = is_on;
    }

    /// Whether no port has a policy and multicast is not snooped: two ports are then a cable.
    pub fn is_plain(&self) -> bool {
        !self.has_special && !self.snoops_multicast
    }

    /// All ports, lowest number first. The iterator works on a copy of the set.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        self.ports.iter()
    }

    /// How many addresses are remembered for `port`, expired ones included, static ones not.
    pub fn addresses_of(&self, port: PortId) -> usize {
        if self.ports.contains(port) { self.shared.macs.owned_by(port) } else { 0 }
    }

    /// The short way, for packets that no policy has a say in: learns the source, and looks the
    /// destination up. `None`: ask [`decide`](Self::decide).
    ///
    /// `now_ms` counts milliseconds from any start and does not go backwards.
    ///
    /// # Panics
    /// When `from` is not one of the ports.
    #[inline]
    pub fn route_plain(
        &mut self,
        from: PortId,
        header: &[u8; ETHERNET_HEADER_LEN],
        now_ms: u64,
    ) -> Option<Route> {
        let destination = destination(header);
        if self.special.contains(from) || destination.is_multicast() && self.snoops_multicast {
            return None;
        }
        if self.learn(from, source(header), now_ms) == Learned::Fixed {
            return None;
        }
        match self.route(from, destination) {
            Route::One(to) if self.special.contains(to) => None,
            Route::Flood if self.has_special => None,
            Route::Flood => {
                self.shared.hear(from);
                Some(Route::Flood)
            }
            route => Some(route),
        }
    }

    /// Notes that a packet with that source address and without a VLAN came in on port `from`.
    /// Addresses that no station can have (group addresses, all zeros) are not learned.
    ///
    /// `now_ms` counts milliseconds from any start and does not go backwards; it is also the time
    /// against which the next [`route`](Self::route) judges ages.
    ///
    /// # Panics
    /// When `from` is not one of the ports.
    #[inline]
    pub fn learn(&mut self, from: PortId, source: MacAddress, now_ms: u64) -> Learned {
        assert!(self.ports.contains(from), "learn from port {from}, which was not added");
        self.now = Tick::of_ms(now_ms);
        self.shared.macs.learn(from, VlanId::NONE, source, self.now)
    }

    /// Where a packet without a VLAN that came in on port `from` goes, policies aside. Group
    /// addresses and addresses that are not known (any more) are flooded; what is meant for the
    /// next bridge only ends here.
    #[inline]
    pub fn route(&self, from: PortId, destination: MacAddress) -> Route {
        if destination.is_multicast() {
            return if destination.is_for_bridges() { Route::Drop } else { Route::Flood };
        }
        match self.place_of(VlanId::NONE, destination) {
            Some(port) if port == from => Route::Drop,
            Some(port) => Route::One(port),
            None => Route::Flood,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use ringway_net::DropReason;

    use super::*;
    use crate::{AGE_MAX_MS, Decision};

    const A: PortId = PortId(3);
    const B: PortId = PortId(200);
    const STATION: MacAddress = MacAddress::local(1);

    fn two_ports() -> Switch {
        let mut switch = Switch::new(1);
        switch.add_port(B).unwrap();
        switch.add_port(A).unwrap();
        switch
    }

    #[test]
    fn floods_until_it_has_learned_and_after_the_age() {
        let mut switch = two_ports();
        assert_eq!(switch.route(B, STATION), Route::Flood);
        assert_eq!(switch.learn(A, STATION, 7), Learned::New);
        assert_eq!(switch.route(B, STATION), Route::One(A));
        switch.learn(B, MacAddress::local(2), 7 + AGE_MAX_MS);
        assert_eq!(switch.route(B, STATION), Route::One(A));
        switch.learn(B, MacAddress::local(2), 7 + AGE_MAX_MS + 1100);
        assert_eq!(switch.route(B, STATION), Route::Flood);
    }

    #[test]
    fn a_packet_does_not_go_back_to_its_port() {
        let mut switch = two_ports();
        switch.learn(A, STATION, 0);
        assert_eq!(switch.route(A, STATION), Route::Drop);
    }

    #[test]
    fn a_station_that_moves_is_followed() {
        let mut switch = two_ports();
        switch.learn(A, STATION, 0);
        assert_eq!(switch.learn(B, STATION, 0), Learned::Moved);
        assert_eq!(switch.route(A, STATION), Route::One(B));
        assert_eq!((switch.addresses_of(A), switch.addresses_of(B)), (0, 1));
        assert_eq!(switch.learn(B, STATION, 0), Learned::Known);
    }

    #[test]
    fn group_and_zero_sources_are_not_learned() {
        let mut switch = two_ports();
        for source in [MacAddress::BROADCAST, MacAddress([1; 6]), MacAddress::ZERO] {
            assert_eq!(switch.learn(A, source, 0), Learned::Refused);
            assert_eq!(switch.route(B, source), Route::Flood);
            assert_eq!(switch.route(A, source), Route::Flood);
        }
    }

    #[test]
    fn what_is_meant_for_the_next_bridge_ends_here() {
        let mut switch = two_ports();
        let address = |last| MacAddress([1, 0x80, 0xc2, 0, 0, last]);
        for last in 0..=0x0f {
            assert_eq!(switch.route(A, address(last)), Route::Drop, "{last:#x}");
        }
        assert_eq!(switch.route(A, address(0x10)), Route::Flood);
        let head = [&address(0x0e).0[..], &STATION.0, &[0x88, 0xcc]].concat();
        assert_eq!(switch.decide(A, &head, 0), Decision::Drop(DropReason::NoRoute));
        assert_eq!(switch.route(B, STATION), Route::One(A), "its sender is learned");
    }

    #[test]
    fn a_removed_port_is_forgotten() {
        let mut switch = two_ports();
        switch.learn(A, STATION, 0);
        assert!(switch.remove_port(A));
        assert!(!switch.remove_port(A));
        assert_eq!(switch.route(B, STATION), Route::Flood);
        switch.add_port(A).unwrap();
        assert_eq!(switch.route(B, STATION), Route::Flood);
        assert_eq!(switch.addresses_of(A), 0);
    }

    #[test]
    fn a_port_whose_link_went_down_is_forgotten_and_stays() {
        let mut switch = two_ports();
        switch.learn(A, STATION, 0);
        switch.forget(A);
        assert_eq!(switch.route(B, STATION), Route::Flood);
        assert_eq!(switch.addresses_of(A), 0);
        assert_eq!(switch.learn(A, STATION, 0), Learned::New);
        switch.forget(PortId(77));
    }

    #[test]
    fn a_configured_station_may_be_elsewhere_while_the_link_is_down() {
        let mut switch = two_ports();
        let policy = PortPolicy { locked_mac: Some(STATION), ..PortPolicy::default() };
        switch.set_port(A, policy.clone()).unwrap();
        assert_eq!(switch.learn(B, STATION, 0), Learned::Fixed);
        switch.set_link(A, false);
        assert_eq!(switch.route(B, STATION), Route::Flood);
        assert_eq!(switch.learn(B, STATION, 0), Learned::New);
        switch.set_port(A, policy.clone()).unwrap();
        assert_eq!(switch.route(A, STATION), Route::One(B), "still down");
        switch.set_link(A, true);
        assert_eq!(switch.route(B, STATION), Route::One(A));
        switch.set_link(A, false);
        assert!(switch.remove_port(A));
        switch.add_port(A).unwrap();
        switch.set_port(A, policy).unwrap();
        assert_eq!(switch.route(B, STATION), Route::One(A), "a new port's link is up");
        switch.set_link(PortId(u16::MAX), false);
    }

    #[test]
    fn what_all_others_get_is_counted() {
        let mut switch = two_ports();
        let frame = |destination: MacAddress, source: MacAddress| {
            let mut frame = [0; ETHERNET_HEADER_LEN];
            frame[..6].copy_from_slice(&destination.0);
            frame[6..12].copy_from_slice(&source.0);
            frame
        };
        switch.route_plain(A, &frame(MacAddress::BROADCAST, STATION), 0);
        switch.route_plain(A, &frame(MacAddress::local(9), STATION), 0);
        switch.route_plain(B, &frame(STATION, MacAddress::local(9)), 0);
        assert_eq!([A, B].map(|port| switch.shared().heard(port)), [2, 0]);
        let decision = switch.decide(B, &frame(MacAddress::BROADCAST, MacAddress::local(9)), 0);
        switch.taken(B, 60, &decision, 0);
        switch.charge(B, 60, &decision, 0);
        assert_eq!([A, B].map(|port| switch.shared().heard(port)), [2, 1]);
        assert_eq!(switch.shared().heard(PortId(u16::MAX)), 0);
    }

    #[test]
    fn ports_have_limits() {
        let mut switch = two_ports();
        let too_high = PortId(u16::try_from(PORTS_MAX).unwrap());
        assert_eq!(switch.add_port(too_high), Err(PortError::TooHigh(too_high)));
        assert_eq!(switch.add_port(PortId(u16::MAX)), Err(PortError::TooHigh(PortId(u16::MAX))));
        assert_eq!(switch.add_port(A), Err(PortError::Exists(A)));
        assert!(!switch.remove_port(PortId(u16::MAX)));
        assert_eq!(switch.ports().collect::<Vec<_>>(), [A, B]);
        for port in (0..256).map(PortId).filter(|port| ![A, B].contains(port)) {
            switch.add_port(port).unwrap();
        }
        assert!(switch.ports().eq((0..256).map(PortId)));
    }

    #[test]
    #[should_panic(expected = "which was not added")]
    fn learning_from_nowhere_is_a_mistake_of_the_caller() {
        two_ports().learn(PortId(4), STATION, 0);
    }

    #[test]
    fn what_is_tried_on_a_copy_changes_nothing() {
        let mut switch = Switch::new(3);
        let (one, other) = (PortId(0), PortId(1));
        switch.add_port(one).unwrap();
        switch.add_port(other).unwrap();
        switch.learn(one, MacAddress::local(1), 0);
        let mut copied = switch.copy_over(switch.shared().copy());
        assert_eq!(copied.route(other, MacAddress::local(1)), Route::One(one));
        copied.learn(other, MacAddress::local(1), 5000);
        copied.learn(other, MacAddress::local(2), 5000);
        assert_eq!(copied.route(one, MacAddress::local(2)), Route::One(other));
        assert_eq!(switch.route(one, MacAddress::local(2)), Route::Flood);
        assert_eq!(switch.route(other, MacAddress::local(1)), Route::One(one));
    }
}
