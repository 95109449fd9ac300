//! `ringway trace`: what the switch would do with a packet, rule by rule, without sending it.

mod fields;
mod file;
mod numbers;
mod packet;

use std::path::Path;

use anyhow::{Context, ensure};
use ringway_net::ETHERNET_HEADER_LEN;
use ringway_switch::PEEK_LEN;

use crate::args::TraceArgs;
use crate::config::SpecError;
use crate::control::client::ask;
use crate::control::{Request, TraceQuestion, TraceReply, TraceStep, request_stats};
use crate::outcome;
use crate::why::ends::AddressBook;
pub use fields::Fields;

/// Prints what would become of the packet; the outer error is a mistake in what was typed.
///
/// # Errors
/// Everything that is wrong with the fields.
pub fn trace(args: &TraceArgs) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let fields = Fields::parse(&args.fields)?;
    Ok(run(args, fields))
}

fn run(args: &TraceArgs, fields: Fields) -> anyhow::Result<()> {
    let control = args.ask.control_or_default();
    let (port, mut packet, notes) = question(args, fields, &control)?;
    // Nothing behind its head is looked at.
    packet.truncate(PEEK_LEN);
    let question = TraceQuestion::new(&port, &packet);
    let mut reply: TraceReply = ask(&control, &Request::Trace(question))?;
    reply.steps.splice(..0, notes);
    let text = match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false => text(&port, &reply),
    };
    outcome::print(&text)
}

/// The port, the packet, and what was assumed of it.
fn question(
    args: &TraceArgs,
    mut fields: Fields,
    control: &Path,
) -> anyhow::Result<(String, Vec<u8>, Vec<TraceStep>)> {
    let stats = request_stats(control)?;
    let book = AddressBook::ask(control, &stats.ports)?;
    let from = book.end(&args.port)?;
    let unknown = || format!("{}: no port is known to have it: write the port", args.port);
    let port = from.port.clone().with_context(unknown)?;
    let given = match (&args.packet, &args.pcap) {
        (Some(digits), _) => {
            let typed = TraceQuestion { packet: digits.clone(), ..TraceQuestion::default() };
            Some(typed.bytes().context("--packet: not pairs of hexadecimal digits")?)
        }
        (None, Some(place)) => Some(file::packet(place)?),
        (None, None) => None,
    };
    if let Some(packet) = given {
        ensure!(
            args.fields.is_empty(),
            "a packet that is given has all its fields: leave them out"
        );
        return Ok((port, packet, Vec::new()));
    }
    let to = fields.to_name().map(|name| book.end(name)).transpose()?;
    if let Some(ip) = to.as_ref().and_then(|to| to.ip) {
        fields.set_dst_ip(ip);
    }
    let mut notes = Vec::new();
    let mut note = |rule: &str, outcome: String| {
        notes.push(TraceStep { rule: rule.to_owned(), outcome });
    };
    if let Some(ip) = from.ip {
        fields.set_src_ip(ip);
    } else if fields.has_ip()
        && fields.ips()[0].is_none()
        && let Some((ip, whence)) = book.own_ip(&port, fields.is_v6().or(Some(false)))
    {
        fields.set_src_ip(ip);
        note("src_ip", format!("{ip}, {whence}"));
    }
    if let Some(what) = fields.open_question() {
        note("icmp_type", format!("depends on it; this is {what}"));
    }
    let mac_of = |name: &str| match &to {
        Some(to) if to.typed == name => to.mac,
        _ => from.mac,
    };
    ensure!(!fields.is_of_two_families(), "both addresses are to be of IPv4, or both of IPv6");
    let packet = fields.packet(&port, mac_of)?;
    ensure!(packet.len() >= ETHERNET_HEADER_LEN, "the packet: shorter than its header");
    Ok((port, packet, notes))
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
