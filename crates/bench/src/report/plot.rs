//! Bars in groups, as plain HTML: names and numbers are text, so they wrap where a page is narrow.
//!
//! How: all bars of a plot share one scale that begins at 0; a thin line on each shows its spread.
//! Each bar has its name beside it, so there is no legend. Of a plot with one
//! series the groups are the bars.

use std::fmt::Write;

use super::verdict::is_ours;
use super::{Cell, Plot, Table};
use crate::spread::Spread;

/// What a page with plots needs. Where there is no room beside the bars, names and numbers stand
/// above them.
pub(super) const STYLE: &str = "\
figure{margin:1.5rem 0}figcaption,figure h3{font-size:1rem;margin:.8rem 0 .3rem}figcaption{\
font-weight:bold}figure h3{font-weight:normal;border-bottom:1px solid var(--line)}.b{\
display:grid;grid-template-columns:12rem 1fr 11rem;gap:0 .6rem;align-items:center}\
.b>:last-child{text-align:right}.s{position:relative;height:1rem;background:var(--field)}\
.s *{position:absolute;height:100%}.s u{height:2px;top:calc(50% - 1px);\
background:var(--text)}@media(max-width:45rem){.b{grid-template-columns:1fr auto;\
margin-bottom:.3rem}.s{grid-row:2;grid-column:1/-1}}";

/// Told apart also by people who do not see all colours (after Okabe and Ito).
const COLORS: [&str; 7] =
    ["#808080", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#0072b2", "#f0e442"];

/// Of ringway alone, in every plot.
const OURS: &str = "#d55e00";

pub(super) fn figure(table: &Table, plot: &Plot) -> String {
    let cells = table.rows.iter().flat_map(|row| plot.columns.iter().map(|&column| &row[column]));
    let highs = cells.filter_map(|cell| Some(cell.spread()?.high));
    let top = highs.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let series = || plot.columns.iter().map(|&column| &*table.columns[column]);
    let mut text = format!("<figure><figcaption>{}</figcaption>\n", escape(&caption(table, plot)));
    for cells in &table.rows {
        let names = cells.iter().take_while(|cell| matches!(cell, Cell::Text(_)));
        let name = names.map(Cell::show).collect::<Vec<_>>().join(", ");
        if let [only] = plot.columns[..] {
            row(&mut text, &name, &cells[only], (0, top));
            continue;
        }
        // Writing to a String does not fail.
        let _ = writeln!(text, "<h3>{}</h3>", escape(&name));
        for (at, (series, &column)) in series().zip(&plot.columns).enumerate() {
            row(&mut text, series, &cells[column], (at, top));
        }
    }
    text.push_str("</figure>\n");
    text
}

/// What is shown, with its unit; of a single series, also which.
pub(super) fn caption(table: &Table, Plot { unit, columns }: &Plot) -> String {
    let title = &table.title;
    let shown = if title.ends_with(unit) { String::new() } else { format!(", {unit}") };
    match columns[..] {
        [only] if table.columns[only] != *unit => {
            format!("{title}{shown}: {}", table.columns[only])
        }
        _ => format!("{title}{shown}"),
    }
}

/// One bar with its name and its number; `how` is its colour, and the end of the scale.
fn row(text: &mut String, name: &str, cell: &Cell, how: (usize, f64)) {
    let color = if is_ours(name) { OURS } else { COLORS[how.0 % COLORS.len()] };
    let value = cell.spread();
    let bar = value.map_or(String::new(), |spread| bar(spread, color, how.1));
    let digits = value.map_or(0, |spread| digits(spread.median));
    let (name, number) = (escape(name), Cell::number(value, digits).show());
    let _ = writeln!(
        text,
        "<div class=\"b\"><span>{name}</span><span class=\"s\">{bar}</span>\
         <span>{number}</span></div>"
    );
}

/// The bar, and the line of its spread, in percent of the scale.
fn bar(spread: Spread, color: &str, top: f64) -> String {
    let [low, median, high] =
        [spread.low, spread.median, spread.high].map(|value| 100.0 * value / top);
    format!(
        "<i style=\"width:{median:.2}%;background:{color}\"></i>\
         <u style=\"left:{low:.2}%;width:{:.2}%\"></u>",
        high - low
    )
}

/// Digits behind the point, so that three or more tell something.
fn digits(value: f64) -> usize {
    match value {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    }
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(unit: &'static str, columns: &[&str], name: &str, values: &[Cell]) -> String {
        let plot = Plot { unit, columns: (1..=columns.len()).collect() };
        let columns = ["what"].iter().chain(columns).map(ToString::to_string).collect();
        let rows = vec![[&[Cell::text(name)], values].concat()];
        figure(&Table { title: "the title".into(), columns, rows, plots: vec![] }, &plot)
    }

    #[test]
    fn every_bar_is_drawn_and_named() {
        let values = [Cell::number(Spread::of([1.0, 2.0]), 1), Cell::Missing];
        let figure = drawn("Mpps", &["limit", "ringway"], "64 < 65 bytes", &values);
        for part in [
            "<figcaption>the title, Mpps</figcaption>",
            "<h3>64 &lt; 65 bytes</h3>",
            "<span>limit</span><span class=\"s\"><i style=\"width:75.00%;background:#808080\">",
            "<u style=\"left:50.00%;width:50.00%\">",
            "<span>ringway</span><span class=\"s\"></span><span>–</span>",
        ] {
            assert!(figure.contains(part), "{part}: {figure}");
        }
    }

    #[test]
    fn groups_of_one_series_are_the_bars() {
        let value = Cell::number(Spread::of([300.0]), 1);
        let figure = drawn("ns", &["64 bytes"], "2 × 1", &[value]);
        assert!(figure.contains("<figcaption>the title, ns: 64 bytes</figcaption>"), "{figure}");
        assert!(figure.contains("<span>2 × 1</span>") && !figure.contains("<h3>"), "{figure}");
        assert!(figure.contains("<span>300</span>"), "{figure}");
    }
}
