//! `ringway why FROM TO`: what holds a flow back, from the findings of both ports and from what the
//! switch would do with a packet each way.

use std::path::Path;

use ringway_switch::Vlan;
use serde::Serialize;

use super::ends::{AddressBook, End};
use super::look::Finding;
use super::rules::ALL;
use super::way::on_the_way;
use super::{Looks, PERIOD};
use crate::args::WhyArgs;
use crate::config::SpecError;
use crate::control::client::ask;
use crate::control::{Direction, Request, TraceQuestion, TraceReply, request_stats};
use crate::trace::Fields;
use crate::units;

/// Findings that both ends have in common are said once.
const OF_BOTH: [&str; 3] =
    ["a worker is saturated", "the MTUs differ", "another port has the same MAC address"];

/// Findings that follow where two ports share no VLAN.
const OF_VLANS: [&str; 3] = ["the VLAN", "the address is not known", "an address is not known"];

/// A finding, and the port at which it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct FlowFinding {
    port: String,
    #[serde(flatten)]
    finding: Finding,
}

/// The findings about a flow.
#[derive(Debug, Serialize)]
struct FlowReply {
    version: u32,
    ok: bool,
    from: String,
    to: String,
    findings: Vec<FlowFinding>,
}

/// Looks at both ends, and asks what the switch would do with a packet each way.
///
/// # Errors
/// No ringway answers, or an end is not known. The outer error is a mistake in what was typed.
pub fn flow(args: &WhyArgs, to: &str) -> Result<anyhow::Result<String>, Vec<SpecError>> {
    let packets = Fields::parse(&args.fields)?;
    Ok(run(args, to, &packets))
}

fn run(args: &WhyArgs, to: &str, packets: &Fields) -> anyhow::Result<String> {
    let control = args.ask.control_or_default();
    let begun = request_stats(&control)?;
    let book = AddressBook::ask(&control, &begun.ports)?;
    let ends = book.ends(&args.port, to, packets)?;
    anyhow::ensure!(
        ends[0].port.is_none() || ends[0].port != ends[1].port,
        "{} and {to} are behind the same port: their packets do not come by ringway",
        args.port
    );
    std::thread::sleep(PERIOD);
    let looks = Looks::end(&control, begun)?;
    let there = traced(&control, &ends, &args.fields)?;
    let fields = fields_back(&args.fields, &ends[1], there.as_ref());
    let back = traced(&control, &[ends[1].clone(), ends[0].clone()], &fields)?;
    let mut found = Vec::new();
    for (end, other, reply) in [(&ends[0], &ends[1], there), (&ends[1], &ends[0], back)] {
        let Some(port) = &end.port else { continue };
        let way = reply.map_or_else(|| vec![unknown(other)], |it| on_the_way(other, port, &it));
        let at_port = looks.findings(port, Some(other.port.as_deref()))?;
        add(&mut found, port, way.into_iter().chain(at_port));
    }
    if let Some(finding) = looks.vlans(&ends) {
        // All of these follow from it.
        found.retain(|it| !OF_VLANS.contains(&it.finding.what));
        let port = ends[0].port.clone().unwrap_or_default();
        found.insert(0, FlowFinding { port, finding });
    }
    found.sort_by_key(|it| std::cmp::Reverse(it.finding.weight));
    let [from, to] = ends.map(|end| end.port.clone().unwrap_or(end.typed));
    match args.ask.json {
        true => {
            let version = crate::control::PROTOCOL_VERSION;
            let reply = FlowReply { version, ok: true, from, to, findings: found };
            Ok(serde_json::to_string(&reply)? + "\n")
        }
        false => Ok(text([&from, &to], &looks, &found)),
    }
}

/// Adds findings: one that two looks have found at a port is said once, with both figures.
fn add(found: &mut Vec<FlowFinding>, port: &str, more: impl Iterator<Item = Finding>) {
    for finding in more {
        let is_it = |old: &&mut FlowFinding| {
            old.finding.what == finding.what
                && (old.port == port || OF_BOTH.contains(&finding.what))
        };
        match found.iter_mut().find(is_it) {
            Some(old) if old.port == port => {
                old.finding.figure += &format!("; {}", finding.figure);
                old.finding.weight = old.finding.weight.max(finding.weight);
            }
            Some(_) => {}
            None => found.push(FlowFinding { port: port.to_owned(), finding }),
        }
    }
}

impl Looks {
    /// Two ports that share no VLAN.
    fn vlans(&self, [from, to]: &[End; 2]) -> Option<Finding> {
        let (from, to) = (from.port.as_deref()?, to.port.as_deref()?);
        let (own, other) = (self.vlan_of(from)?, self.vlan_of(to)?);
        (!own.has_common(&other)).then(|| Finding {
            weight: ALL,
            what: "the VLAN",
            figure: format!("{from} has {}, {to} has {}", vlan_text(&own), vlan_text(&other)),
            advice: match &other {
                Vlan::Access(vlan) => format!("ringway port set {from} vlan={vlan}"),
                _ => format!("give both the same: vlan=, trunk= or native= of {from} or {to}"),
            },
        })
    }
}

/// As it is configured.
fn vlan_text(vlan: &Vlan) -> String {
    match vlan {
        Vlan::None => "no VLAN".into(),
        Vlan::Access(vlan) => format!("vlan={vlan}"),
        Vlan::Trunk { tagged, native } => {
            let all: Vec<String> = tagged.iter().map(|vlan| vlan.to_string()).collect();
            let trunk = format!("trunk={}", all.join("+"));
            native.map_or(trunk.clone(), |native| format!("{trunk},native={native}"))
        }
    }
}

fn unknown(end: &End) -> Finding {
    Finding {
        weight: 1,
        what: "an address is not known",
        figure: format!("no packet came from {}", end.typed),
        advice: "write the MAC address of the station in place of the port".into(),
    }
}

/// The trace of a packet; `None`: its addresses are not known.
fn traced(
    control: &Path,
    [from, to]: &[End; 2],
    more: &[String],
) -> anyhow::Result<Option<TraceReply>> {
    let (Some(port), Some(source), Some(destination)) = (&from.port, from.mac, to.mac) else {
        return Ok(None);
    };
    let mut typed = vec![format!("src={source}"), format!("dst={destination}")];
    for (side, end) in [("src", from), ("dst", to)] {
        typed.extend(end.ip.map(|ip| format!("{side}_ip={ip}")));
        typed.extend(end.number.map(|number| format!("{side}_port={number}")));
    }
    typed.extend_from_slice(more);
    let wrong = |errors: Vec<SpecError>| anyhow::anyhow!("{}", errors[0]);
    let packet = Fields::parse(&typed).map_err(wrong)?.packet(port, |_| None)?;
    Ok(Some(ask(control, &Request::Trace(TraceQuestion::new(port, &packet)))?))
}

/// Of the answer to such a packet: its own addresses are the other's, and its tag is the one with
/// which the packet came.
fn fields_back(fields: &[String], to: &End, there: Option<&TraceReply>) -> Vec<String> {
    let receivers = there.into_iter().flat_map(|reply| &reply.receivers);
    let mut to = receivers.filter(|receiver| to.port.as_ref() == Some(&receiver.port));
    let outcome = to.next().map_or("", |receiver| &receiver.outcome);
    let tag = outcome.split_once(", with a tag for VLAN ").map(|(_, rest)| rest);
    let tag = tag.and_then(|rest| rest.split(' ').next()).map(|vlan| format!("vlan={vlan}"));
    let is_changed = tag.is_some() || outcome.ends_with(", without its tag");
    let fields = fields.iter().filter(|typed| !(is_changed && typed.starts_with("vlan=")));
    let turned = fields.map(|typed| match typed.split_once('_') {
        Some(("src", rest)) => format!("dst_{rest}"),
        Some(("dst", rest)) => format!("src_{rest}"),
        _ => typed.clone(),
    });
    turned.chain(tag).collect()
}

fn text(ends: [&str; 2], looks: &Looks, found: &[FlowFinding]) -> String {
    let rate =
        |name: &str, direction| looks.rate(name, direction).unwrap_or_else(|| "nothing".to_owned());
    let [from, to] = ends;
    let rates = format!(
        "{} from {from}, {} to {to}",
        rate(from, Direction::FromGuest),
        rate(to, Direction::ToGuest),
    );
    if found.is_empty() {
        return format!("{from} → {to}: nothing holds it back ({rates})\n");
    }
    let counted = units::counted(found.len() as u64, "finding");
    let mut text = format!("{from} → {to}: {counted} ({rates})\n");
    for FlowFinding { port, finding } in found {
        let Finding { what, figure, advice, .. } = finding;
        text += &format!("  {port}: {what}: {figure}\n    {advice}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::TraceReceiver;

    #[test]
    fn the_answer_has_the_ends_turned_and_the_tag_of_its_sender() {
        let typed = ["vlan=7", "proto=tcp", "dst_port=80"].map(str::to_owned);
        let to = End { port: Some("b".into()), ..End::default() };
        let reply = |outcome: &str| TraceReply {
            version: 1,
            ok: true,
            steps: Vec::new(),
            verdict: "goes to b".into(),
            receivers: vec![TraceReceiver { port: "b".into(), outcome: outcome.into() }],
        };
        for (outcome, wanted) in [
            ("gets it", "vlan=7 proto=tcp src_port=80"),
            ("gets it, without its tag", "proto=tcp src_port=80"),
            ("gets it, with a tag for VLAN 9 instead", "proto=tcp src_port=80 vlan=9"),
        ] {
            assert_eq!(fields_back(&typed, &to, Some(&reply(outcome))).join(" "), wanted);
        }
    }
}
