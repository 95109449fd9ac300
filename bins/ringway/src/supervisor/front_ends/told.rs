//! Port options that the data plane is told when a front-end comes, with what only the supervisor
//! finds out at that moment.

use ringway_supervisor::wire::{Bytes, SPEC_LEN_MAX};
use tracing::warn;

use crate::bridge_fdb::{self, Netlink};
use crate::config::PortSpec;
use crate::identity::Identity;
use crate::spec_text;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;

/// The options of a guest's port, for this front-end.
///
/// # Errors
/// They are too many.
pub fn told(
    spec: &PortSpec,
    ports: &Ports,
    identity: &Identity,
) -> anyhow::Result<Bytes<SPEC_LEN_MAX>> {
    if !spec.has_mtu_of_uplinks {
        return spec_text::port(spec, None, identity);
    }
    let mtu = mtu_of_uplinks(spec, ports);
    let told = PortSpec { mtu, has_mtu_of_uplinks: false, ..spec.clone() };
    spec_text::port(&told, None, identity)
}

/// `None`: there is no tap in its VLAN.
fn mtu_of_uplinks(spec: &PortSpec, ports: &Ports) -> Option<u16> {
    let vlan = spec.rules.policy().vlan;
    let taps = ports
        .values()
        .filter(|port| !port.is_leaving() && vlan.has_common(&port.spec.rules.policy().vlan));
    let interface = |port: &SupervisedPort| bridge_fdb::interface(port.tap.name()?).ok();
    let taps: Vec<u32> = taps.filter_map(interface).collect();
    if taps.is_empty() {
        return None;
    }
    let links = Netlink::open().and_then(|mut netlink| netlink.links());
    let links = links.inspect_err(|why| warn!("the MTU of uplinks is not known: {why:#}"));
    let mtu = bridge_fdb::smallest_mtu(&links.ok()?, &taps)?;
    Some(u16::try_from(mtu).unwrap_or(u16::MAX))
}
