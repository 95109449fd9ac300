//! The plugin that gives addresses: found in `CNI_PATH`, asked with what we were asked.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::answer::{Code, Failure};

/// Asks it; `verb` is what it is to do.
///
/// # Errors
/// It is not there, or fails.
pub fn ask(kind: &str, verb: &str, input: &str) -> Result<Value, Failure> {
    let failure = |why: String| Failure::new(Code::Ipam, format!("ipam {kind}, {verb}: {why}"));
    let program = find(kind).ok_or_else(|| failure("not in CNI_PATH".to_string()))?;
    let mut child = Command::new(program)
        .env("CNI_COMMAND", verb)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|why| failure(why.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that reads nothing may be right all the same.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|why| failure(why.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(failure(text.trim().to_string()));
    }
    match text.trim() {
        "" => Ok(Value::Null),
        text => serde_json::from_str(text).map_err(|why| failure(why.to_string())),
    }
}

fn find(kind: &str) -> Option<PathBuf> {
    let is_name = !kind.is_empty() && !kind.contains('/') && !kind.starts_with('.');
    let path = std::env::var_os("CNI_PATH").filter(|_| is_name)?;
    std::env::split_paths(&path).map(|directory| directory.join(kind)).find(|at| at.is_file())
}
