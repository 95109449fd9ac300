//! Where a packet goes: learn its source, look its destination up.
//!
//! Only decides; whoever moves packets asks [`Switch::learn`] and [`Switch::route`] for each one
//! and sends copies to all other [`ports`](Switch::ports) when the answer is [`Route::Flood`].

use alloc::sync::Arc;

use ringway_net::MacAddress;

use crate::entry::Tick;
use crate::policy::{PolicyError, PortPolicy};
use crate::port::PortSet;
use crate::{Learned, PORTS_MAX, PortError, PortId, Shared, VlanId};

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To that port.
    One(PortId),
    /// To every port except the one it came from.
    Flood,
    /// Nowhere: its destination is on the port it came from.
    Drop,
}

/// A learning switch as one worker sees it; never more than [`PORTS_MAX`] ports.
///
/// What was learned is [`Shared`] with the switches of other workers. All of them are told of
/// ports and policies by themselves, and must read the same clock.
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
    shared: Arc<Shared>,
    ports: PortSet,
    snoops_multicast: bool,
    /// The time of the last packet.
    now: Tick,
}

impl Switch {
    /// A switch of its own, without ports. `seed` should be secret and different for each switch,
    /// so that no guest can choose addresses that collide in the table.
    pub fn new(seed: u64) -> Self {
        Self::over(Shared::new(seed))
    }

    /// A switch without ports that learns and looks up in the same table as others.
    pub fn over(shared: Arc<Shared>) -> Self {
        Self { shared, ports: PortSet::default(), snoops_multicast: false, now: Tick::default() }
    }

    /// What this switch shares: for [`over`](Self::over).
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
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

    /// Removes a port and forgets what was learned from it; returns whether there was one. Walks
    /// the whole table: not for the data path.
    pub fn remove_port(&mut self, port: PortId) -> bool {
        if !self.ports.contains(port) {
            return false;
        }
        self.ports.remove(port);
        self.shared.macs.leave(port);
        true
    }

    /// Gives a port, which must exist, another policy. Walks the whole table.
    ///
    /// # Errors
    /// [`PolicyError`] when the policy contradicts itself or is too long, or there is no such
    /// port: nothing has changed then. [`PolicyError::MacsTaken`] leaves only those addresses out.
    pub fn set_port(&mut self, port: PortId, policy: PortPolicy) -> Result<(), PolicyError> {
        policy.check()?;
        if !self.ports.contains(port) {
            return Err(PolicyError::NoPort(port));
        }
        let vlan = policy.vlan.of_untagged().unwrap_or(VlanId::NONE);
        match self.shared.macs.fix(port, vlan, &policy.static_macs) {
            0 => Ok(()),
            taken => Err(PolicyError::MacsTaken(taken)),
        }
    }

    /// Whether packets to a multicast group go only to ports that asked for it (IGMP and MLD
    /// snooping) and to multicast routers. Off at first: to all ports.
    pub fn snoop_multicast(&mut self, is_on: bool) {
        self.snoops_multicast = is_on;
    }

    /// See [`snoop_multicast`](Self::snoop_multicast).
    pub fn snoops_multicast(&self) -> bool {
        self.snoops_multicast
    }

    /// All ports, lowest number first. The iterator works on a copy of the set.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        self.ports.iter()
    }

    /// How many addresses are remembered for `port`, expired ones included.
    pub fn addresses_of(&self, port: PortId) -> usize {
        if self.ports.contains(port) { self.shared.macs.owned_by(port) } else { 0 }
    }

    /// Notes that a packet with that source address came in on port `from`. Addresses that no
    /// station can have (group addresses, all zeros) are not learned.
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

    /// Where a packet that came in on port `from` goes. Group addresses and addresses that are not
    /// known (any more) are flooded.
    #[inline]
    pub fn route(&self, from: PortId, destination: MacAddress) -> Route {
        if destination.is_multicast() {
            return Route::Flood;
        }
        match self.shared.macs.port_of(VlanId::NONE, destination, self.now) {
            Some(port) if port == from => Route::Drop,
            Some(port) => Route::One(port),
            None => Route::Flood,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::AGE_MAX_MS;

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
}
