//! A report as tables for a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, presets};

use super::{Cell, Report, Table};

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = format!("{}, {}\n{}\n", report.title, report.date, report.command);
    for line in about(report) {
        text.push_str(&line);
        text.push('\n');
    }
    for table in &report.tables {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{}\n{}\n", table.title, draw(table));
    }
    text
}

/// Machine, versions, method and gaps: one line each.
pub(super) fn about(report: &Report) -> Vec<String> {
    let machine = &report.machine;
    let mut lines = vec![format!(
        "{}, {} processors, {} MiB; {} (TCP: {}), {}; load {}",
        machine.processor,
        machine.processors,
        machine.memory_bytes >> 20,
        machine.kernel,
        machine.congestion_control,
        machine.distribution,
        machine.load
    )];
    let versions = machine.versions.iter().map(|(name, version)| format!("{name} {version}"));
    lines.push(versions.collect::<Vec<_>>().join("; "));
    lines.extend(report.method.iter().cloned());
    lines.extend(report.left_out.iter().map(|line| format!("left out: {line}")));
    lines
}

fn draw(table: &Table) -> comfy_table::Table {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(presets::UTF8_FULL_CONDENSED);
    // Tables are read again later: lines are never broken to fit the window of today.
    drawn.set_content_arrangement(ContentArrangement::Disabled);
    drawn.set_header(table.columns.clone());
    for row in &table.rows {
        drawn.add_row(row.iter().map(|cell| {
            let is_text = matches!(cell, Cell::Text(_));
            let alignment = if is_text { CellAlignment::Left } else { CellAlignment::Right };
            comfy_table::Cell::new(cell.show()).set_alignment(alignment)
        }));
    }
    drawn
}
