//! Forwards: connections and datagrams from outside, which lead into guests.

use std::net::{IpAddr, SocketAddr};

use ringway_net::Nanos;

use super::Nat;
use crate::actions::Actions;
use crate::datagrams::Client;
use crate::flows::FromOutside;
use crate::reach::{Reach, reach};
use crate::table::{FlowId, FlowKey, Guest, Protocol};

/// A port of a guest that clients outside may use.
#[derive(Debug, Clone, Copy)]
pub struct Destination {
    /// The port of the switch that the guest is behind.
    pub guest: Guest,
    /// Its port.
    pub port: u16,
}

/// The client of a connection from outside.
#[derive(Debug, Clone, Copy)]
pub struct Caller {
    /// Its address and port.
    pub from: SocketAddr,
    /// Bytes that the socket takes.
    pub room: u32,
}

impl Nat {
    /// A connection from outside to a guest.
    ///
    /// The actions are to be carried out before the flow gets its socket: it may have the place of
    /// another flow. `None`: the guest has no address, or no room for one more flow.
    pub fn accept(
        &mut self,
        to: Destination,
        caller: Caller,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let seen = self.seen_by_guest(to, Protocol::Tcp, caller.from, now)?;
        self.flows.accept(seen, caller.room, now, actions)
    }

    /// A datagram from outside waits for the guest's port: its flow, which is new if its client
    /// has none.
    ///
    /// `None`: the guest has no address, or no room for one more flow.
    pub fn accept_datagram(
        &mut self,
        to: Destination,
        client: Client,
        now: Nanos,
        actions: &mut Actions,
    ) -> Option<FlowId> {
        let seen = self.seen_by_guest(to, Protocol::Udp, client.from, now)?;
        self.flows.accept_datagram(seen, client, now, actions)
    }

    /// How the guest sees who comes, and its station.
    fn seen_by_guest(
        &self,
        to: Destination,
        protocol: Protocol,
        from: SocketAddr,
        now: Nanos,
    ) -> Option<FromOutside> {
        let Destination { guest, port } = to;
        let lease = self.services.leases().behind(self.guests.name_of(guest)?, now).next()?;
        let plan = self.services.plan();
        // A client whose answers would not come back through the router is shown as the router
        // itself.
        let shown = match from.ip().to_canonical() {
            IpAddr::V4(from) if reach(plan, from.into()) == Reach::Allowed => from,
            _ => plan.gateway4(),
        };
        let to = SocketAddr::from((shown, from.port()));
        let key = FlowKey { guest, protocol, from: (lease.address, port).into(), to };
        Some(FromOutside { key, mac: lease.mac })
    }
}
