//! `ringway fdb`: which addresses a running ringway knows, page by page, and forgetting them.

use std::path::Path;

use anyhow::bail;

use crate::args::{FdbAction, FdbArgs};
use crate::control::client::ask;
use crate::control::{FdbEntry, FdbFlushQuestion, FdbFlushReply, FdbQuestion, FdbReply, Request};
use crate::{layout, outcome, units};

/// More pages than any table has: a ringway that always has another one is none.
const PAGES_MAX: usize = 1024;

/// Prints the addresses, by port, or has them forgotten.
///
/// # Errors
/// No ringway answers, or it refuses.
pub fn fdb(args: &FdbArgs) -> anyhow::Result<()> {
    match &args.action {
        Some(FdbAction::Flush) => flush(args),
        None => show(args),
    }
}

fn flush(args: &FdbArgs) -> anyhow::Result<()> {
    let question = FdbFlushQuestion { name: args.port.clone(), vlan: args.vlan };
    let request = Request::FdbFlush(question);
    let reply: FdbFlushReply = ask(&args.ask.control_or_default(), &request)?;
    let text = match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false => format!("{} addresses forgotten\n", units::count(reply.flushed as u64)),
    };
    outcome::print(&text)
}

fn show(args: &FdbArgs) -> anyhow::Result<()> {
    let reply = all(&args.ask.control_or_default(), args.port.as_deref(), args.vlan)?;
    let text = match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false if reply.addresses.is_empty() => {
            "no addresses (two ports without rules are a cable, which learns none)\n".to_owned()
        }
        false => table(&reply.addresses, layout::width()),
    };
    outcome::print(&text)
}

/// All addresses that a running ringway knows, of one port or VLAN or of all.
///
/// # Errors
/// No ringway answers, or it refuses.
pub fn all(control: &Path, port: Option<&str>, vlan: Option<u16>) -> anyhow::Result<FdbReply> {
    let mut question = FdbQuestion { name: port.map(str::to_owned), vlan, after: 0 };
    let mut addresses = Vec::new();
    for _ in 0..PAGES_MAX {
        let reply: FdbReply = ask(control, &Request::Fdb(question.clone()))?;
        addresses.extend(reply.addresses);
        let Some(next) = reply.next else {
            addresses.sort_unstable();
            return Ok(FdbReply { addresses, ..reply_of(reply.version) });
        };
        question.after = next;
    }
    bail!("{}: more than {PAGES_MAX} pages: this is not a ringway", control.display())
}

fn reply_of(version: u32) -> FdbReply {
    FdbReply { version, ok: true, addresses: Vec::new(), next: None }
}

fn table(addresses: &[FdbEntry], width: usize) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let row = |entry: &FdbEntry| {
        let vlan = or_dash(entry.vlan.map(|vlan| vlan.to_string()));
        let age = or_dash(entry.age_s.map(|age| format!("{age} s")));
        [entry.port.clone(), vlan, entry.mac.clone(), age, entry.kind.clone()]
    };
    let rows: Vec<_> = addresses.iter().map(row).collect();
    layout::rows(["port", "VLAN", "address", "age", "kind"], &rows, &[1, 3], width)
}
