//! What `ringway bench` measures with real peers: two User Mode Linux guests on the switch and on a
//! bridge, policies of notification, and DPDK's ends of a ring.
//!
//! Limits: that there are numbers is looked at, not what they are.

use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::console::Console;
use ringway_guests::stage::Stage;
use serde_json::Value;

use crate::bench::ringway_bench;
use crate::downloads::KERNEL_VARIABLE;
use crate::paths::Paths;

/// Longest time for any of them.
const LIMIT: Duration = Duration::from_secs(230);

/// Two guests on ringway's switch, beside a bridge.
pub fn guests(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "guest --here --quick --pairs uml-pair --json")?;
    check(&report["tables"][0], &["ringway's switch", "Linux bridge, two vector taps"], 9)
        .with_context(|| report["left_out"].to_string())
}

/// The same with a QEMU guest, beside QEMU's own tap.
pub fn qemu(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "guest --here --quick --pairs qemu --json")?;
    check(&report["tables"][0], &["ringway + tap", "QEMU's own tap"], 9)
        .with_context(|| report["left_out"].to_string())
}

/// Every policy has every figure.
pub fn pacing(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "pacing --here --quick --pairs uml --json")?;
    let names = "adaptive|adaptive again|timer:50us|timer:150us|timer:250us|every|on-empty|\
                 coalesce:16/50us";
    let names: Vec<&str> = names.split('|').collect();
    check(&report["tables"][0], &names, 7).with_context(|| report["left_out"].to_string())
}

/// Every row is there in both formats and directions, DPDK's, too.
pub fn rings(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "ring --seconds 0.02 --repeats 1 --sizes 64 --json")?;
    let names = "limit: plain ring|ringway × ringway|DPDK × ringway|DPDK × DPDK|\
                 ringway in place × DPDK|ringway × DPDK";
    let names: Vec<&str> = names.split('|').collect();
    let tables = report["tables"].as_array().context("no tables")?;
    ensure!(tables.len() == 4, "{} tables", tables.len());
    // Mpps and Gb/s.
    let checked = tables.iter().try_for_each(|table| check(table, &names, 2));
    checked.with_context(|| report["left_out"].to_string())
}

fn bench(stage: &Stage, words: &str) -> anyhow::Result<Value> {
    let mut command = ringway_bench(&Paths::new());
    command.args(words.split(' '));
    command.env(KERNEL_VARIABLE, &stage.programs.kernel);
    let (status, text) = Console::start(stage, "bench", command)?.wait_end(0, LIMIT)?;
    ensure!(status.success(), "ringway bench {words}: {status}:\n{text}");
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// A table has a row of each of these names, whose first numbers, so many, are above zero.
fn check(table: &Value, names: &[&str], numbers: usize) -> anyhow::Result<()> {
    let title = &table["title"];
    let rows = table["rows"].as_array().with_context(|| format!("{title}: no rows"))?;
    for name in names {
        let row =
            rows.iter().filter_map(Value::as_array).find(|row| row.iter().any(|it| it == name));
        let row = row.with_context(|| format!("{title}: no {name}"))?;
        let values = row.iter().filter_map(|cell| cell["median"].as_f64());
        let found = values.take(numbers).filter(|value| *value > 0.0).count();
        ensure!(found == numbers, "{title}, {name}: {row:?}");
    }
    Ok(())
}
