//! `ringway reload`, `log` and `stop`: what is otherwise with a running ringway from now on.

use serde::Serialize;

use crate::args::{AskArgs, LogArgs, ReloadArgs, StopArgs};
use crate::control::client::{self, ask};
use crate::control::{ConfigChange, LogQuestion, LogReply, ReloadReply, Request};
use crate::outcome;

/// Lets a ringway read its file again.
///
/// # Errors
/// No ringway answers, the file is wrong, or not all that it says can be carried out.
pub fn reload(args: &ReloadArgs) -> anyhow::Result<()> {
    let reply: ReloadReply = ask(&args.ask.control_or_default(), &Request::Reload)?;
    print(&args.ask, &reply, || {
        let changes: String = match reply.changes.as_slice() {
            [] => "read again: it says the same as before\n".to_owned(),
            changes => changes.iter().map(line).collect(),
        };
        let warnings = reply.warnings.iter().map(|warning| format!("warning: {warning}\n"));
        changes + &warnings.collect::<String>()
    })
}

fn line(change: &ConfigChange) -> String {
    let ConfigChange { port, key, from, to } = change;
    let port = port.as_ref().map_or(String::new(), |port| format!("{port}: "));
    let shown = |value: &Option<String>, otherwise: &str| {
        value.clone().unwrap_or_else(|| otherwise.to_owned())
    };
    let otherwise = if key == "kind" { "no port" } else { "default" };
    format!("{port}{key}: {} → {}\n", shown(from, otherwise), shown(to, otherwise))
}

/// Lets both processes of a ringway log more or less.
///
/// # Errors
/// No ringway answers, or there is no such level.
pub fn log(args: &LogArgs) -> anyhow::Result<()> {
    let request = Request::Log(LogQuestion { level: args.level.clone() });
    let reply: LogReply = ask(&args.ask.control_or_default(), &request)?;
    print(&args.ask, &reply, || format!("log: {} → {}\n", reply.before, reply.level))
}

/// Ends a ringway.
///
/// # Errors
/// No ringway answers, a service manager would start it again, or it does not end.
pub fn stop(args: &StopArgs) -> anyhow::Result<()> {
    let reply = client::stop(&args.ask.control_or_default())?;
    print(&args.ask, &reply, || format!("stopped (process {})\n", reply.pid))
}

fn print(args: &AskArgs, reply: &impl Serialize, text: impl Fn() -> String) -> anyhow::Result<()> {
    let text = match args.json {
        true => serde_json::to_string(reply)? + "\n",
        false => text(),
    };
    outcome::print(&text)
}
