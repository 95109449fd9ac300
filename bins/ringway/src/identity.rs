//! The MAC addresses of ports that are given none: each port's own, the same after every start,
//! whatever other ports there are, and other ones for another ringway or on another machine.
//!
//! How: 52, and 40 bits of a hash of the machine's id, of where this ringway takes orders, and of
//! the port's name. 52 is even and has the second bit, so the address is one of a station and
//! locally administered.
//!
//! Limits: the hash is no secret. Two of 1,000 ports share an address once in 2 million networks.
//! Copies of a machine or a container with one id need `mac=`, or ids of their own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringway_nat::Prefix4;
use ringway_net::MacAddress;

use crate::config::{PortSpec, RunConfig};

/// Where the id of a machine is: 32 digits (machine-id(5)); or else its name.
const MACHINE: [&str; 3] =
    ["/etc/machine-id", "/var/lib/dbus/machine-id", "/proc/sys/kernel/hostname"];

/// The machine's id in an image that was not started yet (machine-id(5)).
const UNINITIALIZED: &str = "uninitialized";

/// This ringway, as told from others.
#[derive(Debug, Clone)]
pub struct Identity {
    machine: String,
    instance: Vec<u8>,
    /// Networks of routers that are given none, by their ports' names.
    networks: BTreeMap<String, Prefix4>,
}

impl Identity {
    /// The ringway of this machine whose control socket is there.
    pub fn here(control: &Path) -> Self {
        let control = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
        let read = |path| std::fs::read_to_string(path).ok().map(|text| text.trim().to_string());
        let mut machines = MACHINE.into_iter().filter_map(read);
        let machine = machines.find(|id| !id.is_empty() && id != UNINITIALIZED);
        let instance = control.into_os_string().into_encoded_bytes();
        Self { machine: machine.unwrap_or_default(), instance, networks: BTreeMap::new() }
    }

    /// Its parts: the machine's id, and where this ringway takes orders.
    pub fn parts(&self) -> (&str, &[u8]) {
        (&self.machine, &self.instance)
    }

    /// Its control socket at the start, beside which sockets without a path lie.
    pub fn control(&self) -> &Path {
        OsStr::from_bytes(&self.instance).as_ref()
    }

    /// The one of these [`parts`](Self::parts).
    pub fn of_parts(machine: String, instance: Vec<u8>) -> Self {
        Self { machine, instance, networks: BTreeMap::new() }
    }

    /// The address of a port's guest.
    pub fn mac_of(&self, spec: &PortSpec) -> MacAddress {
        spec.mac.unwrap_or_else(|| self.default_mac(&spec.name))
    }

    fn default_mac(&self, port: &str) -> MacAddress {
        let [_, _, _, a, b, c, d, e] = self.number_of(port).to_be_bytes();
        MacAddress([0x52, a, b, c, d, e])
    }

    /// A number of the port's own.
    pub fn number_of(&self, port: &str) -> u64 {
        // No part has a zero in it.
        let parts = [self.machine.as_bytes(), &self.instance, port.as_bytes()];
        hash(&parts.join(&0))
    }

    /// The network of a router that is given none, if one was chosen.
    pub fn network_of(&self, port: &str) -> Option<Prefix4> {
        self.networks.get(port).copied()
    }

    /// Chooses it; it stays.
    pub fn choose_network(&mut self, port: &str, network: Prefix4) {
        self.networks.insert(port.to_owned(), network);
    }

    /// The warning about a port whose guest has the address of another one's.
    pub fn shared_mac<'a>(
        &self,
        spec: &PortSpec,
        mut others: impl Iterator<Item = &'a PortSpec>,
    ) -> Option<String> {
        let mac = self.mac_of(spec);
        let has_it = |other: &&PortSpec| {
            other.kind.is_guest() && other.name != spec.name && self.mac_of(other) == mac
        };
        let other = others.find(has_it).filter(|_| spec.kind.is_guest())?;
        let (port, other) = (&spec.name, &other.name);
        Some(format!(
            "ports {other} and {port} have one MAC address, {mac}: every guest needs its own"
        ))
    }

    /// The same for each port of a configuration.
    pub fn shared_macs(&self, config: &RunConfig) -> Vec<String> {
        let before = |at: usize| config.ports[..at].iter();
        let ports = config.ports.iter().enumerate();
        ports.filter_map(|(at, spec)| self.shared_mac(spec, before(at))).collect()
    }
}

/// FNV-1a, and the last steps of SplitMix64, so that each bit depends on each byte.
fn hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let fnv = bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME));
    let mixed = (fnv ^ fnv >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::PortKind;
    use std::collections::BTreeSet;

    fn identity(machine: &str, instance: &str) -> Identity {
        Identity::of_parts(machine.into(), instance.into())
    }

    fn port(name: &str) -> PortSpec {
        PortSpec::new(name, PortKind::Vm { socket: name.into() })
    }

    #[test]
    fn an_address_follows_machine_instance_and_name_and_stays() {
        let mac = |machine, instance, name| identity(machine, instance).mac_of(&port(name));
        let here = mac("m", "/run/a.sock", "vm0");
        // The same in every version: guests know themselves, and others, by it.
        assert_eq!(here.to_string(), "52:78:da:5e:8e:e4");
        let others =
            [("n", "/run/a.sock", "vm0"), ("m", "/run/b.sock", "vm0"), ("m", "/run/a.sock", "vm1")];
        for (machine, instance, name) in others {
            assert_ne!(mac(machine, instance, name), here);
        }
    }

    #[test]
    fn many_ports_have_as_many_addresses_of_stations() {
        let here = identity("m", "/run/ringway.sock");
        let all: BTreeSet<_> = (0..10_000).map(|n| here.mac_of(&port(&format!("vm{n}")))).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|mac| mac.is_station() && mac.0[0] & 2 != 0));
    }

    #[test]
    fn a_port_with_the_address_of_another_is_named_with_it() {
        let here = identity("m", "/run/ringway.sock");
        let mut twin = port("vm1");
        twin.mac = Some(here.mac_of(&port("vm0")));
        let said =
            here.shared_mac(&twin, [port("up"), port("vm0")].iter()).expect("they are twins");
        assert!(said.starts_with("ports vm0 and vm1 have one MAC address, 52:"), "{said}");
        assert_eq!(here.shared_mac(&twin, [port("vm1"), port("vm2")].iter()), None);
    }
}
