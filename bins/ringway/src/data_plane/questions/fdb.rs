//! The addresses that the switch knows.

use anyhow::Context;
use ringway_switch::{KnownAddress, PortId, Shared, VlanId};

use super::super::ports::uplinks::now_ms;
use super::super::ports::{Port, Ports};
use crate::control::{
    FDB_PAGE_MAX, FdbEntry, FdbFlushQuestion, FdbFlushReply, FdbQuestion, FdbReply,
    PROTOCOL_VERSION,
};

const MS_PER_S: u64 = 1000;

/// A port and a VLAN, where one is meant.
type Scope = (Option<PortId>, Option<VlanId>);

/// One page of them.
pub fn addresses(
    question: &FdbQuestion,
    ports: &Ports,
    shared: &Shared,
) -> anyhow::Result<FdbReply> {
    let (port, vlan) = scope(question.name.as_deref(), question.vlan, ports)?;
    let wanted = |known: &KnownAddress| {
        port.is_none_or(|port| known.port == port)
            && (vlan.is_none() || known.vlan == vlan)
            && ports.port(known.port).is_some_and(|port| is_there(known, port))
    };
    let page = shared.addresses(question.after, FDB_PAGE_MAX, now_ms(), wanted);
    Ok(FdbReply {
        version: PROTOCOL_VERSION,
        ok: true,
        addresses: page.addresses.iter().map(|known| entry(known, ports)).collect(),
        next: page.next,
    })
}

/// A station that a guest was heard from is there while the guest runs.
fn is_there(known: &KnownAddress, port: &Port) -> bool {
    known.age_ms.is_none() || !port.spec.kind.is_guest() || port.has_running_guest()
}

/// Forgets them.
pub fn flush(
    question: &FdbFlushQuestion,
    ports: &Ports,
    shared: &Shared,
) -> anyhow::Result<FdbFlushReply> {
    let (port, vlan) = scope(question.name.as_deref(), question.vlan, ports)?;
    let flushed = shared.flush(port, vlan);
    Ok(FdbFlushReply { version: PROTOCOL_VERSION, ok: true, flushed })
}

fn scope(name: Option<&str>, vlan: Option<u16>, ports: &Ports) -> anyhow::Result<Scope> {
    let port = name.map(|name| ports.called(name)).transpose()?;
    let vlan = vlan.map(|vlan| VlanId::new(vlan).context("there is no such VLAN"));
    Ok((port, vlan.transpose()?))
}

fn entry(known: &KnownAddress, ports: &Ports) -> FdbEntry {
    let locked = ports.port(known.port).and_then(|port| port.spec.rules.policy().locked_mac);
    let kind = match known.age_ms {
        None if locked == Some(known.address) => "locked",
        None => "static",
        Some(_) if known.is_own => "own",
        Some(_) => "learned",
    };
    FdbEntry {
        port: ports.name(known.port).to_owned(),
        vlan: known.vlan.map(VlanId::raw),
        mac: known.address.to_string(),
        age_s: known.age_ms.map(|age_ms| age_ms / MS_PER_S),
        kind: kind.to_owned(),
    }
}
