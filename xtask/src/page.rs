//! The verdict of `docs/performance.md`: made from the tables beside it, so that it says what they
//! say.
//!
//! How: each [`Line`] names a cell of a table; its median becomes a bar. `./x bench docs` writes
//! them anew with the tables, and a test compares them.
//!
//! Limits: what a table does not have is left out.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Context;

/// The page, and where in it the verdict is.
pub const PAGE: &str = "docs/performance.md";
const STARTS: &str = "<!-- verdict -->\n";
const ENDS: &str = "<!-- end verdict -->";

/// Between these is the table of aims, whose marks are counted.
const AIMS_START: &str = "<!-- table aims -->";
const AIMS_END: &str = "<!-- end aims -->";

/// Ratios this close to 1 are level.
const LEVEL: f64 = 0.05;

/// Columns of one unit of a bar, and most of them.
const UNIT: f64 = 8.0;
const BAR_MAX: usize = 44;

/// A line of the verdict: its label, the file, the heading, the first cells of the row, and the
/// head of the column (its beginning).
struct Line(&'static str, &'static str, &'static str, &'static str, &'static str);

const QEMU: &str = "Linux under QEMU ↔ this machine: ratios";
const UML: &str = "User Mode Linux ↔ this machine: ratios";
const UML_PAIR: &str = "User Mode Linux ↔ User Mode Linux: ratios";
const QEMU_TAP: &str = "ringway + tap ÷ QEMU's own tap";
const DPDK_TAP: &str = "ringway + tap ÷ DPDK vhost + tap";
const UML_TAP: &str = "ringway + tap ÷ UML's vector tap";
const IN: &str = "host → guest, split ring";
const OUT: &str = "guest → host, split ring";
const DPDK_DRIVER: &str = "64 | DPDK × ringway";
const BY_DPDK: &str = "× DPDK × DPDK";
const BRIDGE: &str = "ringway's switch ÷ Linux bridge, two vector taps";

const LINES: [Line; 17] = [
    Line("TCP out, UML ÷ its own tap", "guest", UML, UML_TAP, "TCP out"),
    Line("TCP in, UML ÷ its own tap", "guest", UML, UML_TAP, "TCP in"),
    Line("TCP out, emulated guest ÷ QEMU's own tap", "guest", QEMU, QEMU_TAP, "TCP out"),
    Line("TCP in, emulated guest ÷ QEMU's own tap", "guest", QEMU, QEMU_TAP, "TCP in"),
    Line("TCP out, emulated guest ÷ DPDK vhost + tap", "guest", QEMU, DPDK_TAP, "TCP out"),
    Line("TCP in, emulated guest ÷ DPDK vhost + tap", "guest", QEMU, DPDK_TAP, "TCP in"),
    Line("TCP out, two UML guests ÷ Linux bridge", "guest", UML_PAIR, BRIDGE, "TCP out"),
    Line("TCP in, two UML guests ÷ Linux bridge", "guest", UML_PAIR, BRIDGE, "TCP in"),
    Line("64-byte UDP in, emulated guest ÷ QEMU's tap", "guest", QEMU, QEMU_TAP, "64-byte UDP"),
    Line("64 bytes in, DPDK's driver ÷ DPDK's device", "ring", IN, DPDK_DRIVER, BY_DPDK),
    Line("64 bytes out, the same", "ring", OUT, DPDK_DRIVER, BY_DPDK),
    Line("TCP out, nat: ÷ passt", "nat", QEMU, "ringway nat: ÷ passt, vhost-user", "TCP out"),
    Line("TCP in, nat: ÷ passt", "nat", QEMU, "ringway nat: ÷ passt, vhost-user", "TCP in"),
    Line("TCP out, nat: ÷ QEMU's own", "nat", QEMU, "ringway nat: ÷ QEMU user", "TCP out"),
    Line("TCP in, nat: ÷ QEMU's own", "nat", QEMU, "ringway nat: ÷ QEMU user", "TCP in"),
    Line("connections/s, nat: ÷ passt", "nat", QEMU, "ringway nat: ÷ passt, vhost", "connections"),
    Line("UDP in, nat: ÷ QEMU's own", "nat", QEMU, "ringway nat: ÷ QEMU user", "UDP in"),
];

/// Writes the verdict into the page of this tree, or with `must_be_so` says how it differs.
pub fn write(root: &Path, must_be_so: bool) -> anyhow::Result<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    let parts = page.split_once(STARTS).and_then(|(before, rest)| {
        let (verdict, after) = rest.split_once(ENDS)?;
        Some((before, verdict, after))
    });
    let (before, is, after) = parts.context("no place for the verdict")?;
    let verdict = verdict(root, after)?;
    anyhow::ensure!(!must_be_so || is == verdict, "{PAGE}: the verdict is now:\n{verdict}");
    fs::write(&path, format!("{before}{STARTS}{verdict}{ENDS}{after}")).context(PAGE)
}

fn verdict(root: &Path, behind_it: &str) -> anyhow::Result<String> {
    let mut found = Vec::new();
    for Line(label, kind, heading, row, head) in &LINES {
        let path = root.join(format!("docs/measurements/{kind}.md"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        found.extend(cell(&text, heading, row, head).map(|ratio| (*label, ratio)));
    }
    let count = |is: fn(f64) -> bool| found.iter().filter(|(_, ratio)| is(*ratio)).count();
    let (ahead, behind) = (count(|ratio| ratio > 1.0 + LEVEL), count(|ratio| ratio < 1.0 - LEVEL));
    let (all, level) = (found.len(), found.len() - ahead - behind);
    let aims = behind_it.split_once(AIMS_START).and_then(|(_, rest)| rest.split_once(AIMS_END));
    let (aims, _) = aims.context("no table of aims")?;
    let marks = ['✓', '~', '✗'].map(|mark| aims.matches(&format!(" {mark}")).count());
    let [reached, open, missed] = marks;
    let with_aim = reached + open + missed;
    let mut text = format!(
        "Of {all} comparisons with what users would have instead, ringway is ahead in {ahead}, \
         level (within 5 %)\nin {level}, and behind in {behind}. Of {with_aim} numbers with an aim \
         (below), {reached} reach it, {missed} miss it, and {open} lie on\nboth sides.\n\n```\n"
    );
    for (label, ratio) in found {
        writeln!(text, "{label:<46}{} {ratio:.2}", bar(ratio))?;
    }
    Ok(text + "```\n")
}

/// A bar that ends at 1 with a line, or crosses it.
// A ratio is small.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn bar(ratio: f64) -> String {
    let columns = (ratio * UNIT).round().max(0.0) as usize;
    let unit = UNIT as usize;
    let until = columns.min(unit);
    let beyond = columns.saturating_sub(unit);
    let more = if beyond > BAR_MAX { "…" } else { "" };
    let beyond = "█".repeat(beyond.min(BAR_MAX));
    format!("{}{}│{beyond}{more}", "█".repeat(until), "·".repeat(unit - until))
}

/// The median in a cell.
fn cell(text: &str, heading: &str, row: &str, head: &str) -> Option<f64> {
    let (_, rest) = text.split_once(&format!("### {heading}\n"))?;
    let table = rest.split("\n###").next()?;
    let mut lines = table.lines().filter(|line| line.starts_with('|')).map(cells);
    let at = lines.next()?.iter().position(|cell| cell.starts_with(head))?;
    let row = lines.find(|cells| cells.join(" | ").starts_with(row))?;
    row.get(at)?.split(' ').next()?.parse().ok()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paths::Paths;

    #[test]
    fn the_verdict_is_what_the_tables_say() {
        let accepts = std::env::var_os("RINGWAY_ACCEPT").is_some();
        write(&Paths::new().root, !accepts).expect("RINGWAY_ACCEPT=1 accepts it");
    }

    #[test]
    fn a_cell_is_found_by_its_row_and_head() {
        let text = "### one\n\n| of | TCP out, Gb/s | x |\n|---|---|---|\n\
                    | a ÷ b | 1.5 (1–2) | 2 |\n\n### two\n\n| of | x |\n|---|---|\n| a ÷ b | 7 |\n";
        assert_eq!(cell(text, "one", "a ÷ b", "TCP out"), Some(1.5));
        assert_eq!(cell(text, "two", "a ÷ b | 7", "x"), Some(7.0));
        assert_eq!(cell(text, "one", "b", "x"), None);
    }

    #[test]
    fn bars_cross_the_line_at_one() {
        assert_eq!(bar(0.5), "████····│");
        assert_eq!(bar(1.25), "████████│██");
        assert!(bar(30.0).ends_with('…'));
    }
}
