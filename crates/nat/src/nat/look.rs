//! The view of the flows and of the stations behind ports, at one moment.

use std::net::IpAddr;

use ringway_net::{MacAddress, Nanos};

use super::guests::Seen;
use super::{Nat, State};
use crate::table::{FlowId, FlowKey, Guest};

/// A flow, as it is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowLook {
    /// Its guest, its protocol, and its two ends.
    pub key: FlowKey,
    /// Where it stands, in a word or two.
    pub state: &'static str,
    /// Bytes of data from the guest that the socket took.
    pub from_guest: u64,
    /// Bytes of data that the guest has; of a connection: that it has acknowledged.
    pub to_guest: u64,
    /// How long ago it was used last.
    pub idle_ns: u64,
}

/// A station behind a port, with what it is known to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Station {
    /// The name of the port.
    pub port: String,
    /// Its MAC address.
    pub mac: MacAddress,
    /// The address leased to it, and those that it was seen to use.
    pub addresses: Vec<IpAddr>,
    /// How long it has had its lease; `None`: it has none.
    pub leased_ns: Option<u64>,
}

impl Nat {
    /// The flows of a guest, in no particular order.
    pub fn flows(&self, guest: Guest, now: Nanos) -> impl Iterator<Item = FlowLook> {
        self.table.of_guest(guest).map(move |(_, entry)| FlowLook {
            key: entry.key,
            state: match &entry.state {
                State::Tcp(tcp) => tcp.name(),
                State::Datagrams(datagrams) => datagrams.name(),
            },
            from_guest: entry.from_guest,
            to_guest: entry.to_guest,
            idle_ns: now.since(entry.used),
        })
    }

    /// All stations, first those with the oldest leases. Behind a port that is gone there are
    /// leases too.
    pub fn stations(&self, now: Nanos) -> Vec<Station> {
        let leases = self.services.leases().owned().map(|lease| Station {
            port: lease.port.to_owned(),
            mac: lease.mac,
            addresses: vec![lease.address.into()],
            leased_ns: Some(now.since(lease.since)),
        });
        let mut all: Vec<Station> = leases.collect();
        for guest in self.guests.iter().flatten() {
            for Seen { address, mac, .. } in guest.seen().iter().copied() {
                let is_it = |it: &&mut Station| it.port == guest.name && it.mac == mac;
                let port = guest.name.clone();
                match all.iter_mut().find(is_it) {
                    Some(station) if station.addresses.contains(&address) => {}
                    Some(station) => station.addresses.push(address),
                    None => {
                        all.push(Station { port, mac, addresses: vec![address], leased_ns: None })
                    }
                }
            }
        }
        all
    }

    pub(super) fn count_from_guest(&mut self, flow: FlowId, len: u32) {
        if let Some(entry) = self.table.entry_mut(flow) {
            entry.from_guest += u64::from(len);
        }
    }
}
