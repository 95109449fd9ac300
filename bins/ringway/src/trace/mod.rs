//! `ringway trace`: what the switch would do with a packet, rule by rule, without sending it.

mod fields;

use anyhow::ensure;

use crate::args::TraceArgs;
use crate::config::SpecError;
use crate::config::error::no_port;
use crate::control::client::ask;
use crate::control::{Request, TraceQuestion, TraceReply, request_stats};
use crate::outcome;
pub use fields::Fields;

/// Prints what would become of the packet; the outer error is a mistake in what was typed.
///
/// # Errors
/// Everything that is wrong with the fields.
pub fn trace(args: &TraceArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let fields = Fields::parse(&args.fields)?;
    Ok(run(args, &fields))
}

fn run(args: &TraceArgs, fields: &Fields) -> anyhow::Result<()> {
    let control = args.ask.control_or_default();
    let stats = request_stats(&control)?;
    let mac_of = |name: &str| {
        let port = stats.ports.iter().find(|port| port.name == name)?;
        port.mac.as_ref()?.parse().ok()
    };
    for name in [Some(&*args.port), fields.to_port()].into_iter().flatten() {
        ensure!(stats.names().any(|it| it == name), no_port(name, stats.names()));
    }
    let packet = fields.packet(&args.port, mac_of)?;
    let question = TraceQuestion::new(&args.port, &packet);
    let reply: TraceReply = ask(&control, &Request::Trace(question))?;
    let text = match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false => text(&args.port, &reply),
    };
    outcome::print(&text)
}

fn text(port: &str, reply: &TraceReply) -> String {
    let mut text = format!("from {port}: {}\n", reply.verdict);
    for step in &reply.steps {
        text += &format!("  {}: {}\n", step.rule, step.outcome);
    }
    for receiver in &reply.receivers {
        text += &format!("  → {}: {}\n", receiver.port, receiver.outcome);
    }
    text
}
