//! Traces a packet through the switch. A copy of a worker's switch decides, with the code that
//! decides for packets, so that nothing is learned or counted.

use anyhow::{Context, ensure};
use ringway_host::SwitchCopy;
use ringway_net::ETHERNET_HEADER_LEN;
use ringway_switch::{
    Decision, Learned, PEEK_LEN, PortId, Room, Route, Step, Switch, TagChange, VlanId,
};

use super::super::mirrors::Mirrors;
use super::super::ports::{Port, Ports};
use super::super::workers::Workers;
use super::trace_reasons::{Head, refused_claim, refused_tag, vlan_text};
use crate::config::PortKind;
use crate::control::{PROTOCOL_VERSION, TraceQuestion, TraceReceiver, TraceReply, TraceStep};

const NS_PER_MS: u64 = 1_000_000;

/// The steps and receivers that were found so far.
#[derive(Default)]
struct Found {
    steps: Vec<TraceStep>,
    receivers: Vec<TraceReceiver>,
}

impl Found {
    fn step(&mut self, rule: &str, outcome: impl Into<String>) {
        self.steps.push(TraceStep { rule: rule.to_owned(), outcome: outcome.into() });
    }

    fn end(self, verdict: impl Into<String>) -> TraceReply {
        let Self { steps, receivers } = self;
        let verdict = verdict.into();
        TraceReply { version: PROTOCOL_VERSION, ok: true, steps, verdict, receivers }
    }
}

/// Traces a packet.
pub fn trace(
    question: &TraceQuestion,
    ports: &Ports,
    mirrors: &Mirrors,
    workers: &Workers,
) -> anyhow::Result<TraceReply> {
    let from = ports.called(&question.name)?;
    let packet = question.bytes().context("the packet: not in hexadecimal digits")?;
    ensure!(packet.len() >= ETHERNET_HEADER_LEN, "the packet: shorter than its header");
    let head = &packet[..packet.len().min(PEEK_LEN)];
    let shared = workers.shared().copy();
    let copy = workers.first().ask(move |worker| worker.copy_switch(shared.clone()));
    let tracer = Tracer { ports, mirrors, from, head, now_ns: ringway_host::now().0 };
    let mut reply = tracer.traced(copy.context("no worker answers")?);
    tracer.add_routers(&mut reply);
    tracer.add_mirrors(&mut reply);
    Ok(reply)
}

/// A packet, and where it goes.
struct Tracer<'a> {
    ports: &'a Ports,
    mirrors: &'a Mirrors,
    from: PortId,
    head: &'a [u8],
    now_ns: u64,
}

impl Tracer<'_> {
    fn traced(&self, SwitchCopy { mut switch, cable }: SwitchCopy) -> TraceReply {
        let mut found = Found::default();
        if self.ports.port(self.from).is_some_and(|port| !port.spec.is_link_up) {
            found.step("link", "down");
            return found.end("dropped: no_route");
        }
        if let Some((one, other)) = cable {
            let to = if one == self.from { other } else { one };
            found.step("cable", "two ports without rules: no packet is looked at");
            found.receivers.push(self.receiver(&switch, to, TagChange::Keep));
            return found.end(format!("goes to {}", self.ports.name(to)));
        }
        let header = self.head.first_chunk();
        let now_ms = self.now_ns / NS_PER_MS;
        match header.and_then(|header| switch.route_plain(self.from, header, now_ms)) {
            Some(route) => self.plain(found, &switch, route),
            None => self.judged(found, &mut switch),
        }
    }

    /// Adds the verdict of each router that gets the packet.
    fn add_routers(&self, reply: &mut TraceReply) {
        let Some(to) = Head::of(self.head).and_then(|head| head.destination()) else { return };
        for receiver in reply.receivers.iter_mut().filter(|it| it.outcome.starts_with("gets it")) {
            let is_it = |port: &&Port| {
                port.spec.name == receiver.port && matches!(port.spec.kind, PortKind::Nat)
            };
            if let Some(port) = self.ports.iter().find(is_it)
                && port.spec.nat.denies(to)
            {
                receiver.outcome +=
                    &format!(", and refuses it: no guest reaches {to} (deny=, allow=)");
            }
        }
    }

    /// Ports that get copies of what the sender or a receiver has.
    fn add_mirrors(&self, reply: &mut TraceReply) {
        for (of, to) in self.mirrors.iter() {
            let name = self.ports.name(of);
            let gets = |receiver: &TraceReceiver| {
                receiver.port == name && receiver.outcome.starts_with("gets it")
            };
            if of == self.from || reply.receivers.iter().any(gets) {
                let outcome = format!("gets a copy: it is the mirror of {name}");
                reply
                    .receivers
                    .push(TraceReceiver { port: self.ports.name(to).to_owned(), outcome });
            }
        }
    }

    /// No rule has a say.
    fn plain(&self, mut found: Found, switch: &Switch, route: Route) -> TraceReply {
        found.step("rules", "none has a say in it");
        match route {
            Route::One(to) => {
                found.step("destination", format!("seen at {}", self.ports.name(to)));
                found.receivers.push(self.receiver(switch, to, TagChange::Keep));
                found.end(format!("goes to {}", self.ports.name(to)))
            }
            Route::Flood => {
                found.step("destination", "a group, or a station that was not seen");
                let others = switch.ports().filter(|to| *to != self.from && !self.is_mirror(*to));
                found.receivers =
                    others.map(|to| self.receiver(switch, to, TagChange::Keep)).collect();
                let verdict = flood_verdict(&found.receivers, None);
                found.end(verdict)
            }
            Route::Drop => {
                found.step("destination", "at this port itself, or for the next bridge only");
                found.end("dropped: no_route")
            }
        }
    }

    fn judged(&self, mut found: Found, switch: &mut Switch) -> TraceReply {
        let mut steps = Vec::new();
        let decision = switch.decide_noted(self.from, self.head, self.now_ns, &mut steps);
        for step in &steps {
            let (rule, outcome) = self.said(step);
            found.step(rule, outcome);
        }
        let vlan = steps.iter().find_map(|step| match step {
            Step::Vlan(Ok(vlan)) => Some(*vlan),
            _ => None,
        });
        match decision {
            Decision::One(to, change) => {
                found.receivers.push(self.receiver(switch, to, change));
                found.end(format!("goes to {}", self.ports.name(to)))
            }
            Decision::Flood(flood) => {
                for to in switch.ports().filter(|to| !self.is_mirror(*to)) {
                    match switch.way_to(&flood, to) {
                        Some(Step::Way(to, Ok(change))) => {
                            found.receivers.push(self.receiver(switch, to, change));
                        }
                        Some(Step::Way(to, Err(reason))) => {
                            let port = self.ports.name(to).to_owned();
                            let outcome = format!("not: {}", reason.name());
                            found.receivers.push(TraceReceiver { port, outcome });
                        }
                        _ => {}
                    }
                }
                let verdict = flood_verdict(&found.receivers, vlan.flatten());
                found.end(verdict)
            }
            Decision::Drop(reason) => found.end(format!("dropped: {}", reason.name())),
            Decision::Wait(at_ns) => {
                found.end(format!("waits for {} µs", micros(at_ns, self.now_ns)))
            }
        }
    }

    fn said(&self, step: &Step) -> (&'static str, String) {
        let policy = self.ports.port(self.from).map(|port| port.spec.policy()).unwrap_or_default();
        let head = Head::of(self.head);
        let vlan = |vlan: Option<VlanId>| vlan.map_or("none".into(), |vlan| vlan.to_string());
        match step {
            Step::Rate(Ok(())) => ("rate from the guest", "has room".into()),
            Step::Rate(Err(_)) => ("rate from the guest", "used up".into()),
            Step::Vlan(Ok(of)) => ("VLAN", vlan(*of)),
            Step::Vlan(Err(_)) => {
                ("VLAN", refused_tag(&policy.vlan, head.and_then(|head| head.tag)))
            }
            Step::Addresses(Ok(())) => ("locked addresses", "allow it".into()),
            Step::Addresses(Err(claim)) => {
                let (name, figure) = (claim.reason().name(), refused_claim(*claim, &policy));
                ("locked addresses", format!("do not allow it ({name}): {figure}"))
            }
            Step::Source(learned) => ("source", learned_text(*learned).into()),
            Step::Reserved => ("destination", "for the next bridge only".into()),
            Step::Group { is_snooped: false } => ("destination", "a group, so everybody".into()),
            Step::Group { is_snooped: true } => ("destination", "members and routers".into()),
            Step::Station(Some(at)) => ("destination", format!("seen at {}", self.ports.name(*at))),
            Step::Station(None) => ("destination", "not seen, so everybody".into()),
            Step::Way(to, Ok(change)) => {
                ("way", format!("to {}{}", self.ports.name(*to), tag(*change)))
            }
            Step::Way(to, Err(reason)) => {
                ("way", format!("not to {} ({})", self.ports.name(*to), reason.name()))
            }
            Step::Storm(Ok(())) => ("storm limit", "has room".into()),
            Step::Storm(Err(_)) => ("storm limit", "used up".into()),
        }
    }

    fn receiver(&self, switch: &Switch, to: PortId, change: TagChange) -> TraceReceiver {
        let now_ns = ringway_host::now().0;
        let port = self.ports.port(to);
        let is_waiting =
            port.is_some_and(|port| port.vm.as_ref().is_some_and(|vm| !vm.is_linked()));
        let outcome = if port.is_none_or(|port| !port.spec.is_link_up) {
            "not: its link is down".into()
        } else if is_waiting {
            "not: no front-end is connected".into()
        } else if let Room::At(at_ns) = switch.room_at(to, now_ns) {
            format!("its rate is used up for {} µs", micros(at_ns, now_ns))
        } else {
            format!("gets it{}", tag(change))
        };
        TraceReceiver { port: self.ports.name(to).to_owned(), outcome }
    }

    fn is_mirror(&self, port: PortId) -> bool {
        self.mirrors.iter().any(|(_, to)| to == port)
    }
}

fn flood_verdict(receivers: &[TraceReceiver], vlan: Option<VlanId>) -> String {
    let all = |is_it: fn(&str) -> bool| receivers.iter().all(|it| is_it(&it.outcome));
    let none = "flooded, and no port gets it";
    match () {
        () if all(|it| it == "not: vlan") => {
            format!("{none}: no other one is in {}", vlan_text(vlan))
        }
        () if all(|it| it.starts_with("not: ")) => none.into(),
        () => "flooded".into(),
    }
}

fn micros(at_ns: u64, now_ns: u64) -> u64 {
    at_ns.saturating_sub(now_ns) / 1000
}

fn tag(change: TagChange) -> String {
    let vlan = |tci: u16| tci & 0x0fff;
    match change {
        TagChange::Keep => String::new(),
        TagChange::Insert(tci) => format!(", with a tag for VLAN {}", vlan(tci)),
        TagChange::Strip => ", without its tag".into(),
        TagChange::Replace(tci) => format!(", with a tag for VLAN {} instead", vlan(tci)),
    }
}

fn learned_text(learned: Learned) -> &'static str {
    match learned {
        Learned::Known => "known here",
        Learned::New => "new, learned here",
        Learned::Moved => "moves here from another port",
        Learned::Fixed => "belongs to another port",
        Learned::Flapping => "stays at another port: it has moved too often",
        Learned::Refused => "not learned",
    }
}
