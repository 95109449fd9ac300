//! Rows for people, as wide as they may be: a table if it fits, otherwise each row as a list.
//!
//! Limits: a word that is longer than a line, such as a path, is not broken.

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};

/// Columns of what is no terminal, and of terminals that do not say.
const WIDTH_DEFAULT: usize = 80;

/// Columns between a label and what it is about.
const GAP: usize = 2;

/// How wide output may be: as the terminal is.
pub fn width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| size.ws_col);
    let columns = columns.ok().filter(|&columns| columns > 0).map(usize::from);
    let said = || std::env::var("COLUMNS").ok()?.parse().ok();
    columns.or_else(said).unwrap_or(WIDTH_DEFAULT)
}

/// The rows below this header, ending with a newline; `right` are columns of numbers.
pub fn rows<const N: usize>(
    header: [&str; N],
    rows: &[[String; N]],
    right: &[usize],
    width: usize,
) -> String {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(header);
    table.add_rows(rows);
    for &column in right {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let text = table.to_string() + "\n";
    match text.lines().all(|line| line.chars().count() <= width) {
        true => text,
        false => list(header, rows, width),
    }
}

fn list<const N: usize>(header: [&str; N], rows: &[[String; N]], width: usize) -> String {
    let column = header.iter().map(|label| label.chars().count()).max().unwrap_or(0) + GAP;
    let mut text = String::new();
    for row in rows {
        text.push('\n');
        for (label, cell) in header.iter().zip(row) {
            let lines = cell.lines().flat_map(|line| wrapped(line, width.saturating_sub(column)));
            for (at, line) in lines.enumerate() {
                let label = if at == 0 { label } else { "" };
                text.push_str(format!("{label:<column$}{line}").trim_end());
                text.push('\n');
            }
        }
    }
    text
}

/// A line as several that are no longer than that, the further ones two columns further right.
pub fn wrapped(line: &str, width: usize) -> Vec<String> {
    let indent = line.len() - line.trim_start().len();
    let mut lines = Vec::new();
    let mut current = " ".repeat(indent);
    let mut is_empty = true;
    for word in line.split_whitespace() {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::replace(&mut current, " ".repeat(indent + 2)));
            is_empty = true;
        }
        if !std::mem::replace(&mut is_empty, false) {
            current.push(' ');
        }
        current.push_str(word);
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: [&str; 2] = ["port", "pacing"];

    fn row() -> [String; 2] {
        ["vm0".into(), "one two three\n  four five six".into()]
    }

    #[test]
    fn what_fits_is_a_table_and_what_does_not_is_a_list() {
        assert!(rows(HEADER, &[row()], &[], 80).contains('│'));
        let right = "\nport    vm0\npacing  one two\n          three\n          four\n\
                     \x20           five\n            six\n";
        assert_eq!(rows(HEADER, &[row()], &[], 16), right);
    }

    #[test]
    fn a_word_that_is_too_long_stays_whole() {
        assert_eq!(wrapped("/a/long/path and more", 8), ["/a/long/path", "  and", "  more"]);
        assert_eq!(wrapped("", 8), [""]);
    }
}
