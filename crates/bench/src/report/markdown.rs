//! A report as a section of a Markdown document.

use std::fmt::Write;

use super::{Report, Table, terminal};

/// The whole report, its title as a heading of the second level.
pub fn render(report: &Report) -> String {
    let mut text = format!("## {}\n\n{}: `{}`\n\n", report.title, report.date, report.command);
    for line in terminal::about(report) {
        // Writing to a String does not fail.
        let _ = writeln!(text, "- {line}");
    }
    for table in &report.tables {
        let _ = write!(text, "\n### {}\n\n{}", table.title, lines(table));
    }
    if !report.commands.is_empty() {
        let _ = write!(text, "\nCommands:\n\n```\n{}\n```\n", report.commands.join("\n"));
    }
    text
}

fn lines(table: &Table) -> String {
    let mut text = format!("| {} |\n", table.columns.join(" | "));
    text.push_str(&"|---".repeat(table.columns.len()));
    text.push_str("|\n");
    for row in &table.rows {
        let cells: Vec<String> = row.iter().map(|cell| cell.show().replace('|', "\\|")).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Cell;

    #[test]
    fn a_table_has_one_line_for_each_row() {
        let table = Table {
            title: "t".into(),
            columns: vec!["what".into(), "Mpps".into()],
            rows: vec![vec![Cell::text("a|b"), Cell::Missing]],
        };
        assert_eq!(lines(&table), "| what | Mpps |\n|---|---|\n| a\\|b | – |\n");
    }
}
