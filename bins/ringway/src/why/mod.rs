//! `ringway why`: what holds a port or a flow back, from two looks at the statistics, a second
//! apart.

pub mod ends;
mod flow;
mod front_end;
mod look;
mod refusals;
mod router;
mod rules;
mod unanswered;
mod way;

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_switch::Vlan;
use serde_json::{Map, Value};

use crate::args::WhyArgs;
use crate::config::error::no_port;
use crate::config::{PortSpec, SpecError, json};
use crate::control::{
    Direction, ListedPort, PROTOCOL_VERSION, PortStats, StatsReply, request_stats,
};
use crate::port_command::{ports, spec_of};
use crate::{outcome, units};
use look::{Finding, Look};
use refusals::refusal;
use rules::{ALL, findings, nothing_passed};

/// Time between the two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Prints what holds a port or a flow back, the weightiest first; the outer error is a mistake in
/// what was typed.
///
/// # Errors
/// No ringway answers, or it has no such port.
pub fn why(args: &WhyArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let text = match &args.to {
        Some(to) => flow::flow(args, to)?,
        None => of_port(args),
    };
    Ok(text.and_then(|text| outcome::print(&text)))
}

fn of_port(args: &WhyArgs) -> anyhow::Result<String> {
    let control = args.ask.control_or_default();
    let begun = request_stats(&control)?;
    let known = begun.ports.iter().any(|port| port.name == args.port);
    ensure!(known, no_port(&args.port, begun.names()));
    sleep(PERIOD);
    let looks = Looks::end(&control, begun)?;
    let gone = || no_port(&args.port, looks.now.names());
    let mut found = looks.findings(&args.port, None).with_context(gone)?;
    if found.is_empty() && looks.gets_no_answer(&args.port) {
        found.extend(unanswered::finding(&control, &args.port));
    }
    match args.ask.json {
        true => {
            let reply = serde_json::json!({
                "version": PROTOCOL_VERSION, "ok": true, "port": args.port, "findings": found,
            });
            Ok(reply.to_string() + "\n")
        }
        false => Ok(text(&args.port, &looks, &found)),
    }
}

/// Two looks at the statistics, and how the ports were configured between them.
struct Looks {
    before: StatsReply,
    now: StatsReply,
    listed: Vec<ListedPort>,
}

impl Looks {
    fn end(control: &Path, before: StatsReply) -> anyhow::Result<Self> {
        let listed = ports(control)?.ports;
        Ok(Self { before, now: request_stats(control)?, listed })
    }

    /// Causes that hold a port back. Ports that share no VLAN with it do not count; of a flow, only
    /// its other end does.
    fn findings(&self, name: &str, other: Option<Option<&str>>) -> anyhow::Result<Vec<Finding>> {
        let is_listed = |listed: &&ListedPort| is_named(listed, name);
        let options = self.listed.iter().find(is_listed).map(|listed| listed.port.clone());
        let options: Map<String, Value> = options.unwrap_or_default();
        let own = self.vlan_of(name);
        let is_near = |port: &str| match other {
            Some(other) => other == Some(port),
            None => own.as_ref().zip(self.vlan_of(port)).is_none_or(|(a, b)| a.has_common(&b)),
        };
        let mut now = self.now.clone();
        now.ports.retain(|port| port.name == name || is_near(&port.name));
        let port = now.ports.iter().find(|port| port.name == name);
        let port = port.with_context(|| format!("{name}: the port was removed"))?;
        let look = Look { before: &self.before, now: &now, port, options: &options };
        let mut found = findings(&look);
        if other.is_none() {
            found.extend(self.no_uplink(name).or_else(|| nothing_passed(&look)));
            found.sort_by_key(|finding| std::cmp::Reverse(finding.weight));
        }
        Ok(found)
    }

    /// Whether it sends, and gets nothing.
    fn gets_no_answer(&self, name: &str) -> bool {
        let is_it = |port: &&PortStats| port.name == name;
        let ports = [&self.before, &self.now].map(|look| look.ports.iter().find(is_it));
        let [Some(before), Some(now)] = ports else { return false };
        now.from_guest.packets > before.from_guest.packets
            && now.to_guest.packets == before.to_guest.packets
    }

    /// An isolated port that reaches no other one at all.
    fn no_uplink(&self, name: &str) -> Option<Finding> {
        let specs: Vec<PortSpec> = self.listed.iter().filter_map(spec_of).collect();
        let own = specs.iter().find(|spec| spec.name == name)?.policy();
        let is_reached = |spec: &PortSpec| {
            let other = spec.policy();
            spec.name != name && other.is_uplink && other.vlan.has_common(&own.vlan)
        };
        (own.isolated && !own.is_uplink && !specs.iter().any(is_reached)).then(|| {
            let (what, advice) = refusal("isolated", name);
            let figure = "isolated=on, and no port of its VLAN has uplink=on".into();
            Finding { weight: ALL, what, figure, advice }
        })
    }

    fn vlan_of(&self, name: &str) -> Option<Vlan> {
        let listed = self.listed.iter().find(|listed| is_named(listed, name))?;
        let spec = PortSpec::resolve(&json::read_port(&listed.port).ok()?).ok()?;
        Some(spec.rules.policy().vlan)
    }

    /// How fast a port was between the looks.
    fn rate(&self, name: &str, direction: Direction) -> Option<String> {
        let bytes = |report: &StatsReply| {
            let port = report.ports.iter().find(|port| port.name == name)?;
            Some(match direction {
                Direction::ToGuest => port.to_guest.bytes,
                Direction::FromGuest => port.from_guest.bytes,
            })
        };
        let passed_ms = self.now.uptime_ms.saturating_sub(self.before.uptime_ms).max(1);
        let moved = bytes(&self.now)?.saturating_sub(bytes(&self.before)?);
        let bits = units::approximate(moved) * 8000.0;
        Some(units::bits_per_second(bits / units::approximate(passed_ms)))
    }
}

fn is_named(listed: &ListedPort, name: &str) -> bool {
    listed.port.get("name").and_then(|it| it.as_str()) == Some(name)
}

fn text(name: &str, looks: &Looks, found: &[Finding]) -> String {
    let rates = looks.rate(name, Direction::ToGuest).zip(looks.rate(name, Direction::FromGuest));
    let rates = rates.map(|(to, from)| format!(" ({to} to the guest, {from} from it)"));
    let rates = rates.unwrap_or_default();
    if found.is_empty() {
        return format!("{name}: nothing holds it back{rates}\n");
    }
    let mut text = format!("{name}: {}{rates}\n", units::counted(found.len() as u64, "finding"));
    for Finding { what, figure, advice, .. } in found {
        text += &format!("  {what}: {figure}\n    {advice}\n");
    }
    text
}
