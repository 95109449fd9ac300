//! `ringway bench guest` measures: two User Mode Linux guests on the switch, and on a bridge.
//!
//! Limits: that there are numbers is looked at, not what they are.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::console::Console;
use super::stage::Stage;
use crate::shell;

/// One second for each of six numbers of two rigs, and the boot of four guests.
const LIMIT: Duration = Duration::from_secs(150);

/// Columns with rates and times, behind the one with the name.
const COLUMNS: usize = 10;

/// Once, quickly.
///
/// # Errors
/// What does not come out.
pub fn guests(stage: &Stage) -> anyhow::Result<()> {
    let mut command = shell::command(&[&stage.programs.ringway]);
    command.args("bench guest --here --quick --pairs uml-pair --json".split(' '));
    let (status, text) = Console::start(stage, "bench", command)?.wait_end(0, LIMIT)?;
    ensure!(status.success(), "ringway bench guest: {status}:\n{text}");
    let report: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    let rows = report["tables"][0]["rows"].as_array().with_context(|| text.clone())?;
    let names: Vec<&str> = rows.iter().filter_map(|row| row[0].as_str()).collect();
    ensure!(names.first() == Some(&"ringway's switch"), "rows: {names:?}: {}", report["left_out"]);
    for column in 1..=COLUMNS {
        let number = rows[0][column]["median"].as_f64();
        let name = &report["tables"][0]["columns"][column];
        ensure!(number.is_some_and(|number| number > 0.0), "{name}: {number:?}: {text}");
    }
    stage.note(&format!("{} rows, left out: {}", rows.len(), report["left_out"]));
    Ok(())
}
