//! `ringway why`: what holds a port back, from two looks at the statistics, a second apart.

mod findings;
mod look;
mod rules;

use std::io::Write;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;

use crate::args::WhyArgs;
use crate::control::{PROTOCOL_VERSION, PortStats, StatsReply, request_stats};
use crate::port_command::ports;
use crate::units;
use findings::findings;
use look::{Finding, Look};

/// Time between the two looks.
const PERIOD: Duration = Duration::from_secs(1);

/// Prints what holds a port back, the weightiest first.
///
/// # Errors
/// No ringway answers, or it has no such port.
pub fn why(args: &WhyArgs) -> anyhow::Result<()> {
    let control = args.ask.control_or_default();
    let before = request_stats(&control)?;
    let listed = ports(&control)?.ports;
    let has_name = |name: &str| name == args.port;
    let is_it = |port: &&PortStats| has_name(&port.name);
    let known = before.ports.iter().any(|port| has_name(&port.name));
    let unknown = || format!("{}: there is no port called {:?}", control.display(), args.port);
    known.then_some(()).with_context(unknown)?;
    sleep(PERIOD);
    let now = request_stats(&control)?;
    let port = now.ports.iter().find(is_it).with_context(unknown)?;
    let is_listed = |listed: &&_| is_named(listed, &args.port);
    let options = listed.iter().find(is_listed).map(|listed| listed.port.clone());
    let look = Look { before: &before, now: &now, port, options: &options.unwrap_or_default() };
    let found = findings(&look);
    let text = match args.ask.json {
        true => {
            let reply = json!({
                "version": PROTOCOL_VERSION, "ok": true, "port": args.port, "findings": found,
            });
            reply.to_string() + "\n"
        }
        false => text(port, &before, &now, &found),
    };
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

fn is_named(listed: &crate::control::ListedPort, name: &str) -> bool {
    listed.port.get("name").and_then(|it| it.as_str()) == Some(name)
}

fn text(port: &PortStats, before: &StatsReply, now: &StatsReply, found: &[Finding]) -> String {
    let passed_ms = now.uptime_ms.saturating_sub(before.uptime_ms).max(1);
    let earlier = before.ports.iter().find(|earlier| earlier.name == port.name);
    let rate = |now: u64, before: u64| {
        let bits = units::approximate(now.saturating_sub(before)) * 8000.0;
        units::bits_per_second(bits / units::approximate(passed_ms))
    };
    let name = &port.name;
    let rates = earlier.map(|earlier| {
        let to = rate(port.to_guest.bytes, earlier.to_guest.bytes);
        let from = rate(port.from_guest.bytes, earlier.from_guest.bytes);
        format!(" ({to} to the guest, {from} from it)")
    });
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
