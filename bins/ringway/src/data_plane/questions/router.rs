//! The view of a router: stations, forwards and flows.

use anyhow::{Context, ensure};
use ringway_host::{Worker, now};
use ringway_nat::{FlowLook, Protocol, Station};
use ringway_nat::{Forward, ListenAddress};
use ringway_switch::PortId;

use super::super::ports::Ports;
use super::super::workers::Workers;
use crate::config::PortKind;
use crate::control::{
    PROTOCOL_VERSION, PortShowQuestion, PortShowReply, ShownFlow, ShownForward, ShownGuest,
};

const NS_PER_S: u64 = 1_000_000_000;

/// Shows one.
pub fn show(
    question: &PortShowQuestion,
    ports: &Ports,
    workers: &Workers,
) -> anyhow::Result<PortShowReply> {
    let (name, id) = (&question.name, ports.called(&question.name)?);
    let port = ports.port(id).context("it is gone")?;
    let advice = "`ringway stats` shows what other ports do";
    ensure!(port.spec.kind == PortKind::Nat, "{name:?} is no router (nat:): {advice}");
    let guest = question.guest.clone();
    let look = move |worker: &mut Worker| Some(worker.nat(id)?.look(guest.as_deref(), now()));
    let look = workers.first().ask(look);
    let look = look.flatten().context("no worker answers")?;
    let guest = question.guest.as_ref();
    let is_asked = |it: &&Forward| guest.is_none_or(|name| *name == it.guest);
    let bound = port.nat.bound().filter(is_asked).map(|it| shown(it, None));
    let failed = port.nat.failed().filter(|(it, _)| is_asked(it));
    let failed = failed.map(|(it, why)| shown(it, Some(why.to_owned())));
    Ok(PortShowReply {
        version: PROTOCOL_VERSION,
        ok: true,
        guests: look.stations.into_iter().map(shown_guest).collect(),
        forwards: bound.chain(failed).collect(),
        flows: look.flows.into_iter().map(|flow| shown_flow(flow, ports)).collect(),
        flows_count: look.flows_count as u64,
    })
}

fn shown_flow(flow: FlowLook, ports: &Ports) -> ShownFlow {
    let (protocol, remote) = (flow.key.protocol, flow.key.to);
    ShownFlow {
        port: ports.name(PortId(flow.key.guest.0)).to_owned(),
        protocol: protocol_name(protocol).to_owned(),
        guest: flow.key.from.to_string(),
        remote: match protocol {
            Protocol::Echo => remote.ip().to_string(),
            Protocol::Tcp | Protocol::Udp => remote.to_string(),
        },
        state: flow.state.to_owned(),
        from_guest_bytes: flow.from_guest,
        to_guest_bytes: flow.to_guest,
        idle_s: flow.idle_ns / NS_PER_S,
    }
}

fn shown_guest(station: Station) -> ShownGuest {
    ShownGuest {
        port: station.port,
        mac: station.mac.to_string(),
        addresses: station.addresses.iter().map(ToString::to_string).collect(),
        leased_s: station.leased_ns.map(|ns| ns / NS_PER_S),
    }
}

fn shown(forward: &Forward, error: Option<String>) -> ShownForward {
    ShownForward {
        protocol: kind_name(forward).to_owned(),
        at: forward.at.to_string(),
        guest: forward.guest.clone(),
        to: forward.to,
        state: if error.is_none() { "bound" } else { "failed" }.to_owned(),
        error,
    }
}

/// The kind of a forward, in a word.
pub fn kind_name(forward: &Forward) -> &'static str {
    match forward.at {
        ListenAddress::Address(_) => protocol_name(forward.protocol),
        ListenAddress::Unix(_) => "unix",
    }
}

fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
        Protocol::Echo => "echo",
    }
}
