//! Numbers out of the tables of a measured section: found by the words around them.
//!
//! Limits: a row is known by its first cells; of two tables of one name the first one counts.

/// Where a number is: under which heading, in which row, in which column.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// The heading of the table, without its hashes.
    pub table: String,
    /// The row's first cells.
    pub row: Vec<&'static str>,
    /// What stands above the number.
    pub column: &'static str,
}

/// A number as the tables write it: `1.60 (1.36–2.06)`, or without a spread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    pub median: f64,
    pub lowest: f64,
    pub highest: f64,
}

impl Number {
    /// Reads a cell; none of a dash or of words.
    pub fn of(cell: &str) -> Option<Number> {
        let (median, spread) = cell.split_once(' ').unwrap_or((cell, ""));
        let median = median.parse().ok()?;
        if spread.is_empty() {
            return Some(Number { median, lowest: median, highest: median });
        }
        let spread = spread.strip_prefix('(')?.strip_suffix(')')?;
        let (lowest, highest) = spread.split_once('–')?;
        Some(Number { median, lowest: lowest.parse().ok()?, highest: highest.parse().ok()? })
    }
}

/// The cell at a place of a section.
pub fn cell<'a>(section: &'a str, place: &Place) -> Option<&'a str> {
    let heading = format!("### {}", place.table);
    let behind = section.lines().skip_while(|line| *line != heading).skip(1);
    let table = behind.take_while(|line| !line.starts_with('#'));
    let mut rows = table.filter(|line| line.starts_with('|')).map(cells);
    let column = rows.next()?.iter().position(|name| *name == place.column)?;
    let row = rows.find(|row| row.starts_with(&place.row))?;
    row.get(column).copied()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTION: &str = "## ringway bench ring

### split

| bytes | what | × limit |
|---|---|---|
| 64 | a | 0.84 (0.48–1.11) |
| 64 | b | 9.00 |

### packed

| bytes | what | × limit |
|---|---|---|
| 64 | a | – |
";

    fn found(table: &str, row: &[&'static str], column: &'static str) -> Option<&'static str> {
        cell(SECTION, &Place { table: table.to_string(), row: row.to_vec(), column })
    }

    #[test]
    fn a_cell_is_found_by_its_table_row_and_column_and_nothing_else_is() {
        assert_eq!(found("split", &["64", "b"], "× limit"), Some("9.00"));
        assert_eq!(found("packed", &["64", "a"], "× limit"), Some("–"));
        assert_eq!(found("packed", &["64", "b"], "× limit"), None);
        assert_eq!(found("split", &["64"], "what"), Some("a"));
        assert_eq!(found("split", &["64", "a"], "Mpps"), None);
        assert_eq!(found("spli", &["64", "a"], "what"), None);
    }

    #[test]
    fn numbers_are_read_with_their_spread() {
        let spread = Number { median: 0.84, lowest: 0.48, highest: 1.11 };
        assert_eq!(Number::of("0.84 (0.48–1.11)"), Some(spread));
        assert_eq!(Number::of("66"), Some(Number { median: 66.0, lowest: 66.0, highest: 66.0 }));
        assert_eq!(Number::of("–"), None);
        assert_eq!(Number::of("1.0 (2.0)"), None);
    }
}
