//! A report as text: tables for a terminal, or a section of a Markdown document.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, TableStyle, presets};

use super::{Cell, Report, Table};

pub fn terminal(report: &Report) -> String {
    let mut text = format!("{}, {}\n{}\n", report.title, report.date, report.command);
    for line in about(report) {
        text += &(line + "\n");
    }
    for table in &report.tables {
        // Writing to a String does not fail.
        let _ = write!(text, "\n{}\n{}\n", table.title, draw(table, presets::UTF8_FULL_CONDENSED));
    }
    text
}

pub fn markdown(report: &Report) -> String {
    let mut text = format!("## {}\n\n{}: `{}`\n\n", report.title, report.date, report.command);
    for line in about(report) {
        text += &format!("- {line}\n");
    }
    for table in &report.tables {
        let _ = write!(text, "\n### {}\n\n{}\n", table.title, draw(table, presets::ASCII_MARKDOWN));
    }
    if !report.commands.is_empty() {
        let _ = write!(text, "\nCommands:\n\n```\n{}\n```\n", report.commands.join("\n"));
    }
    text
}

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

fn draw(table: &Table, style: TableStyle) -> comfy_table::Table {
    let mut drawn = comfy_table::Table::new();
    drawn.load_style(style);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_one_line_for_each_row() {
        let table = Table {
            title: "t".into(),
            columns: vec!["what".into(), "Mpps".into()],
            rows: vec![vec![Cell::text("a"), Cell::Missing]],
            plots: vec![],
        };
        let text = draw(&table, presets::ASCII_MARKDOWN).to_string();
        assert_eq!(text, "| what | Mpps |\n|------|------|\n| a    |    – |");
    }
}
