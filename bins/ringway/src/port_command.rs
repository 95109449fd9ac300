//! `ringway port`: asks a running ringway to add, remove, change and list its ports.
//!
//! Options are checked here first, so that their mistakes are told as those of `ringway run` are;
//! the daemon checks again.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Serialize;

use crate::args::{AskArgs, PortCommand, StatsArgs};
use crate::config::error::no_port;
use crate::config::literal::Literal;
use crate::config::options::find;
use crate::config::{LowOption, PortKind, PortSpec, SpecError, file, flags, json, labels};
use crate::control::client::{ControlError, ask};
use crate::control::{
    ChangeReply, ListedPort, PortListReply, PortShowQuestion, PortShowReply, PortStats, Request,
    request_stats,
};
use crate::{layout, outcome, place_users, router_view, stats};

/// Carries out one command; the outer error is a mistake in what was typed.
///
/// # Errors
/// Everything that is wrong with what was typed.
pub fn port(command: &PortCommand) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    match command {
        PortCommand::List { name, toml, label, ask } => {
            Ok(list(ask, *toml, name.as_deref(), label))
        }
        PortCommand::Add { port, until_restart, ask } => {
            let low = flags::parse_port(port).map_err(|error| vec![error])?;
            let spec = absolute(PortSpec::resolve(&low)?);
            let mut port = json::write_port(&spec);
            // Where sockets are by default is for the ringway that makes them to say.
            let unsaid = low.kinds.iter().find(|kind| kind.key == "vm" && kind.value.is_empty());
            port.extend(unsaid.map(|kind| (kind.key.clone(), String::new().into())));
            let request = Request::PortAdd { port, until_restart: *until_restart };
            Ok(change(ask, &request, &spec.name, "added"))
        }
        PortCommand::Remove { name, ask } => {
            Ok(change(ask, &Request::PortRemove(name.clone()), name, "removed"))
        }
        PortCommand::Show { name, guest, ask } => Ok(show(ask, name, guest.as_deref())),
        PortCommand::Set { name, options, ask } => set(name, options, ask),
    }
}

fn list(
    args: &AskArgs,
    as_file: bool,
    name: Option<&str>,
    wanted: &[String],
) -> anyhow::Result<()> {
    let mut reply = ports(&args.control_or_default())?;
    if let Some(name) = name {
        ensure!(names(&reply).any(|it| it == name), no_port(name, names(&reply)));
        reply.ports.retain(|port| port.name() == name);
    }
    let wanted: Vec<_> = wanted.iter().map(|text| label(text)).collect::<Result<_, _>>()?;
    reply.ports.retain(|port| has_labels(port, &wanted));
    print(args, &reply, || {
        if as_file {
            let specs = reply.ports.iter().filter_map(spec_of);
            return specs.map(|spec| file::write_port(&spec)).collect::<Vec<_>>().join("\n");
        }
        let rows = reply.ports.iter().map(|port| {
            let (name, options) = shown(port);
            let mac = port.mac.clone().unwrap_or_else(|| "–".to_string());
            [name, port.state.clone(), mac, options]
        });
        let header = ["port", "state", "guest's MAC address", "options"];
        layout::rows(header, &rows.collect::<Vec<_>>(), &[], layout::width())
    })
}

/// A router with its guests and flows; another port as `ringway stats` has it.
fn show(args: &AskArgs, name: &str, guest: Option<&str>) -> anyhow::Result<()> {
    let is_router = |port: &PortStats| port.kind == PortKind::Nat.name() || port.name != name;
    let stats = request_stats(&args.control_or_default())?;
    if guest.is_none() && !stats.ports.iter().all(is_router) {
        return stats::stats(&StatsArgs::of(name, args));
    }
    let question = PortShowQuestion { name: name.to_owned(), guest: guest.map(str::to_owned) };
    let control = args.control_or_default();
    let mut reply: PortShowReply = ask(&control, &Request::PortShow(question))?;
    place_users::name_in(&mut reply.forwards, &control);
    print(args, &reply, || router_view::text(&reply, layout::width()))
}

/// `KEY:VALUE`, or `KEY=VALUE` as other programs have it.
fn label(text: &str) -> anyhow::Result<(String, String)> {
    let colon = if text.contains(':') { text.to_owned() } else { text.replacen('=', ":", 1) };
    let (key, value) = labels::parse_one(&colon)
        .with_context(|| format!("--label {text}: write KEY:VALUE, such as tenant:blue"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn has_labels(port: &ListedPort, wanted: &[(String, String)]) -> bool {
    let labels = if wanted.is_empty() { None } else { spec_of(port).map(|spec| spec.labels) };
    let labels = labels.unwrap_or_default();
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

/// Changes options of a port; what lists lose is said. The outer error is a mistake in what was
/// typed.
///
/// # Errors
/// Everything that is wrong with what was typed.
pub fn set(
    name: &str,
    typed: &[String],
    args: &AskArgs,
) -> Result<anyhow::Result<()>, Vec<SpecError>> {
    let reply = match ports(&args.control_or_default()) {
        Ok(reply) => reply,
        Err(why) => return Ok(Err(why.into())),
    };
    let options = flags::parse_options(typed);
    // A port that is not there is refused by the ringway that is asked, as for all other commands.
    let mut wanted = reply.ports.iter().filter_map(spec_of).find(|spec| spec.name == name);
    let mut gone = String::new();
    if let Some(spec) = &mut wanted {
        let before = spec.clone();
        let errors = spec.change(&options);
        if !errors.is_empty() {
            return Err(errors);
        }
        gone = lost(&options, &before, spec);
    }
    let options = json::write_options(&options);
    let done = format!("changed{gone}");
    let done = change(args, &Request::PortSet { name: name.into(), options }, name, &done);
    Ok(done.map_err(|why| match (why.downcast(), wanted) {
        (Ok(ControlError::Refused(control, why)), Some(spec)) => {
            let why = place_users::named_in(&why, &spec, &args.control_or_default());
            ControlError::Refused(control, why).into()
        }
        (Ok(why), _) => why.into(),
        (Err(why), _) => why,
    }))
}

/// Entries that were in lists and are not any more: who sets one perhaps means to add to it.
fn lost(options: &[LowOption], before: &PortSpec, now: &PortSpec) -> String {
    let mut text = String::new();
    for known in options.iter().filter_map(|option| find(&option.key)) {
        let items = |spec| match known.value_of(spec) {
            Some(Literal::List(items)) => items,
            _ => vec![],
        };
        let left = items(now);
        for item in items(before).iter().filter(|item| !left.contains(item)) {
            let _ = write!(text, "; {}: {item} removed", known.key);
        }
    }
    text
}

fn change(args: &AskArgs, request: &Request, name: &str, done: &str) -> anyhow::Result<()> {
    let reply: ChangeReply = ask(&args.control_or_default(), request)?;
    print(args, &reply, || {
        let mut text = format!("{name}: {done}");
        if reply.guest_told {
            text.push_str(", and its guest was told");
        }
        if !reply.at_next_connection.is_empty() {
            let late = reply.at_next_connection.join(" ");
            let _ = write!(text, "; for the next guest that connects: {late}");
        }
        let warnings = reply.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        text + "\n" + &warnings.collect::<String>()
    })
}

/// How the ports of a running ringway are configured.
///
/// # Errors
/// It does not answer.
pub fn ports(control: &Path) -> Result<PortListReply, ControlError> {
    ask(control, &Request::PortList)
}

/// Their names.
pub fn names(reply: &PortListReply) -> impl Iterator<Item = &str> {
    reply.ports.iter().map(ListedPort::name)
}

/// The configuration of a listed port.
pub fn spec_of(port: &ListedPort) -> Option<PortSpec> {
    PortSpec::resolve(&json::read_port(&port.port).ok()?).ok()
}

/// Name with kind and place, and options, one to a line.
fn shown(port: &ListedPort) -> (String, String) {
    let Some(spec) = spec_of(port) else { return Default::default() };
    let typed = flags::write_port(&spec);
    let kind = format!("{}={}", spec.name, spec.kind).replace(',', ",,");
    let options = typed.strip_prefix(&kind).unwrap_or_default().trim_start_matches(',');
    (format!("{}\n{}", spec.name, spec.kind), options.replace(',', "\n"))
}

/// As the question wants it.
///
/// # Errors
/// It cannot be printed.
pub fn print(
    args: &AskArgs,
    reply: &impl Serialize,
    text: impl Fn() -> String,
) -> anyhow::Result<()> {
    let text = match args.json {
        true => serde_json::to_string(reply)? + "\n",
        false => text(),
    };
    outcome::print(&text)
}

/// The daemon may have been started in another directory.
fn absolute(mut spec: PortSpec) -> PortSpec {
    if let PortKind::Vm { socket } | PortKind::VmConnect { socket } = &mut spec.kind
        && let Ok(path) = std::path::absolute(&*socket)
    {
        *socket = path;
    }
    spec
}
