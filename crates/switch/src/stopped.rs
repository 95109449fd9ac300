//! Guests that have stopped at their ports, and may go on there or elsewhere.

use ringway_net::MacAddress;

use crate::{PORTS_MAX, PortId, Switch, VlanId};

impl Switch {
    /// All queues of a port's guest have stopped, or one runs again; the port need not have been
    /// added yet. While they have, its stations may be anywhere: packets for them go to all ports
    /// as if they were unknown, also for those that are configured. They are remembered: when the
    /// guest goes on they are there at once, unless they were heard elsewhere.
    pub fn set_stopped(&mut self, port: PortId, is_stopped: bool) {
        if port.index() < PORTS_MAX {
            self.stopped.set(port, is_stopped);
        }
    }

    /// The port of a station, if packets for it are to go there and nowhere else.
    #[inline]
    pub(crate) fn place_of(&self, vlan: VlanId, address: MacAddress) -> Option<PortId> {
        let port = self.shared.macs.port_of(vlan, address, self.now)?;
        (!self.stopped.contains(port)).then_some(port)
    }

    /// Behind this port is a network, where guests may be that have stopped here.
    pub fn leads_to_a_network(&mut self, port: PortId) {
        if port.index() < PORTS_MAX {
            self.networks.insert(port);
        }
    }

    /// A station that is configured at a port whose guest has stopped may send from behind an
    /// uplink, or another network: the guest has moved. It is not learned there.
    pub(crate) fn may_be_behind(&self, port: PortId, vlan: VlanId, address: MacAddress) -> bool {
        let leads_there = self.uplinks.contains(port) || self.networks.contains(port);
        let known = || self.shared.macs.port_of(vlan, address, self.now);
        leads_there && known().is_some_and(|it| self.stopped.contains(it))
    }
}
