//! What `ringway bench` measures with real peers: two User Mode Linux guests on the switch and on a
//! bridge, policies of notification, and DPDK's ends of a ring.
//!
//! Limits: that there are numbers is looked at, not what they are.

use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::paths::Paths;
use ringway_guests::console::Console;
use ringway_guests::shell;
use ringway_guests::stage::Stage;

/// One second for each of six numbers of two rigs, and the boot of four guests.
const GUESTS_LIMIT: Duration = Duration::from_secs(150);

/// One round of each of nine figures, and the boot of a guest.
const PACING_LIMIT: Duration = Duration::from_secs(220);

/// A moment for each row, in both formats and directions, and to start DPDK's programs for most.
const RINGS_LIMIT: Duration = Duration::from_secs(160);

/// Columns with rates and times, behind the one with the name.
const COLUMNS: usize = 10;

/// Driver and device of each row, with one that stands for the limit.
const RINGS: [&str; 6] = [
    "limit: plain ring",
    "ringway × ringway",
    "DPDK × ringway",
    "ringway × DPDK",
    "ringway in place × DPDK",
    "DPDK × DPDK",
];

/// Tables of throughput: two directions, two formats.
const RING_TABLES: usize = 4;

/// Figures whose policies are told by their least, mean and greatest value.
const PACING_TABLES: usize = 9;

/// Policies of each, one of them twice.
const POLICIES: usize = 8;

/// Once, quickly.
///
/// # Errors
/// What does not come out.
pub fn guests(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "guest --here --quick --pairs uml-pair --json", GUESTS_LIMIT)?;
    let rows = rows(&report["tables"][0])?;
    let names: Vec<&str> = rows.iter().filter_map(|row| row[0].as_str()).collect();
    ensure!(names.first() == Some(&"ringway's switch"), "rows: {names:?}: {}", report["left_out"]);
    for column in 1..=COLUMNS {
        measured(&report["tables"][0], &rows[0], column)?;
    }
    stage.note(&format!("{} rows, left out: {}", rows.len(), report["left_out"]));
    Ok(())
}

/// Every policy has every figure.
///
/// # Errors
/// What does not come out.
pub fn pacing(stage: &Stage) -> anyhow::Result<()> {
    let report = bench(stage, "pacing --here --quick --pairs uml --json", PACING_LIMIT)?;
    let tables = report["tables"].as_array().context("no tables")?;
    let figures = tables.iter().filter(|table| table["columns"][0] == "policy");
    let mut seen = 0;
    for table in figures {
        let rows = rows(table)?;
        ensure!(rows.len() == POLICIES, "{}: {} rows", table["title"], rows.len());
        for row in rows {
            // Least, mean, greatest.
            (1..=3).try_for_each(|column| measured(table, row, column))?;
        }
        seen += 1;
    }
    ensure!(seen == PACING_TABLES, "{seen} figures, left out: {}", report["left_out"]);
    Ok(())
}

/// Every row is there, DPDK's, too.
///
/// # Errors
/// What does not come out.
pub fn rings(stage: &Stage) -> anyhow::Result<()> {
    let words = "ring --seconds 0.02 --repeats 1 --sizes 64 --json";
    let report = bench(stage, words, RINGS_LIMIT)?;
    let tables = report["tables"].as_array().context("no tables")?;
    let is_throughput = |table: &&Value| table["columns"][3] == "Mpps";
    let mut seen = 0;
    for table in tables.iter().filter(is_throughput) {
        let rows = rows(table)?;
        let names: Vec<&str> = rows.iter().filter_map(|row| row[1].as_str()).collect();
        ensure!(names == RINGS, "{}: {names:?}: {}", table["title"], report["left_out"]);
        rows.iter().try_for_each(|row| measured(table, row, 3))?;
        seen += 1;
    }
    ensure!(seen == RING_TABLES, "{seen} tables of throughput");
    Ok(())
}

fn bench(stage: &Stage, words: &str, limit: Duration) -> anyhow::Result<Value> {
    let mut command = shell::command(&[Paths::new().ringway_bench()]);
    command.args(words.split(' ')).env("RINGWAY_BIN", &stage.programs.ringway);
    let (status, text) = Console::start(stage, "bench", command)?.wait_end(0, limit)?;
    ensure!(status.success(), "ringway bench {words}: {status}:\n{text}");
    serde_json::from_str(&text).with_context(|| text.clone())
}

fn rows(table: &Value) -> anyhow::Result<&Vec<Value>> {
    table["rows"].as_array().with_context(|| format!("no rows: {table}"))
}

fn measured(table: &Value, row: &Value, column: usize) -> anyhow::Result<()> {
    let number = row[column]["median"].as_f64();
    let (title, name) = (&table["title"], &table["columns"][column]);
    ensure!(number.is_some_and(|number| number > 0.0), "{title}, {name}: {number:?}: {row}");
    Ok(())
}
