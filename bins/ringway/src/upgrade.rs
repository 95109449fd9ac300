//! `ringway upgrade`: asks a running ringway to go on as another program.

use std::time::Duration;

use crate::args::UpgradeArgs;
use crate::control::client::ask;
use crate::control::{Request, UpgradeReply};
use crate::outcome;

/// Replaces both processes of a running ringway, and says for how long packets waited.
///
/// # Errors
/// No ringway answers, or the old program goes on, and why.
pub fn upgrade(args: &UpgradeArgs) -> anyhow::Result<()> {
    let program = args.program.as_ref().map(std::path::absolute).transpose()?;
    let program = program.map(|path| path.display().to_string());
    let reply: UpgradeReply = ask(&args.ask.control_or_default(), &Request::Upgrade { program })?;
    let waited = Duration::from_micros(reply.stall_us);
    outcome::print(&match args.ask.json {
        true => serde_json::to_string(&reply)? + "\n",
        false => format!("upgraded: packets waited {waited:.1?}\n"),
    })
}
