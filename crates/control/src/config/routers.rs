//! Several routers of one ringway.

use super::port::{PortKind, PortSpec};

/// The warning about a router that is in one VLAN with another one.
pub fn second_router<'a>(
    spec: &PortSpec,
    mut others: impl Iterator<Item = &'a PortSpec>,
) -> Option<String> {
    let vlan = spec.rules.policy().vlan;
    let is_one = |other: &&PortSpec| {
        let is_router = other.kind == PortKind::Nat && other.name != spec.name;
        is_router && vlan.has_common(&other.rules.policy().vlan)
    };
    let other = others.find(is_one).filter(|_| spec.kind == PortKind::Nat)?;
    let (port, other) = (&spec.name, &other.name);
    Some(format!(
        "ports {other} and {port} are routers in one VLAN, and both answer each guest: write \
         another vlan= at one of them"
    ))
}
