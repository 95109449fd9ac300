//! Bars in groups, as plain HTML: names and numbers are text, so they wrap where a page is narrow.
//!
//! How: all bars of a plot share one scale; a thin line on each shows its spread. The scale begins
//! at 0, or is logarithmic where the longest bar is more than [`EVEN_MAX`] times the shortest one:
//! then an axis in front of the bars has the powers of ten. Each bar has its name beside it, so
//! there is no legend. Of a plot with one series the groups are the bars.

use std::fmt::Write;

use super::verdict::is_ours;
use super::{Cell, Plot, Table};
use crate::spread::Spread;

/// The style sheet of a page with plots. Where there is no room beside the bars, names and numbers
/// stand above them.
pub(super) const STYLE: &str = "\
figure{margin:1.5rem 0}figcaption,figure h3{font-size:1rem;margin:.8rem 0 .3rem}figcaption{\
font-weight:bold}figure h3{font-weight:normal;border-bottom:1px solid var(--line)}.b{\
display:grid;grid-template-columns:12rem 1fr 11rem;gap:0 .6rem;align-items:center}\
.b>:last-child{text-align:right}.s{position:relative;height:1rem;background:var(--field)}\
.s *{position:absolute;height:100%}.s u{height:2px;top:calc(50% - 1px);\
background:var(--text)}.log .s{background:repeating-linear-gradient(90deg,var(--line) 0 1px,\
var(--field) 1px calc(100%/var(--decades)))}.log .a .s{background:none}\
@media(max-width:45rem){.b{grid-template-columns:1fr auto;\
margin-bottom:.3rem}.s{grid-row:2;grid-column:1/-1}}";

/// Told apart also by people who do not see all colours (after Okabe and Ito).
const COLORS: [&str; 7] =
    ["#808080", "#56b4e9", "#009e73", "#e69f00", "#cc79a7", "#0072b2", "#f0e442"];

/// Of ringway alone, in every plot.
const OURS: &str = "#d55e00";

/// The largest ratio of the longest bar to the shortest one on an even scale.
const EVEN_MAX: f64 = 100.0;

/// Names of powers of ten that stand beside each other on a telephone.
const LABELS_MAX: i32 = 6;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Scale {
    /// From 0 to this.
    Even(f64),
    /// From one power of ten to another one.
    Logarithmic(i32, i32),
}

impl Scale {
    // The logarithm of a number has few digits in front of the point.
    #[allow(clippy::cast_possible_truncation)]
    fn of(spreads: &[Spread]) -> Self {
        let highs = spreads.iter().map(|spread| spread.high);
        let top = highs.fold(0.0, f64::max).max(f64::MIN_POSITIVE);
        let shown = || spreads.iter().map(|spread| spread.median).filter(|median| *median > 0.0);
        let least = shown().fold(f64::INFINITY, f64::min);
        if shown().fold(0.0, f64::max) <= least * EVEN_MAX {
            return Self::Even(top);
        }
        // The shortest bar is seen, too.
        Self::Logarithmic((least.log10() - 0.1).floor() as i32, top.log10().ceil() as i32)
    }

    fn percent(self, value: f64) -> f64 {
        match self {
            Self::Even(top) => 100.0 * value / top,
            Self::Logarithmic(from, to) => {
                100.0 * (value.log10() - f64::from(from)).max(0.0) / f64::from(to - from)
            }
        }
    }

    /// The powers of ten along a logarithmic scale. A name moves to the left by its place in its
    /// own width, so that the first and the last one stay within.
    fn axis(self) -> String {
        let Self::Logarithmic(from, to) = self else { return String::new() };
        let label = |power: i32| {
            let digits = usize::try_from(-power).unwrap_or(0);
            let (at, value) = (100 * (power - from) / (to - from), 10_f64.powi(power));
            format!(
                "<small style=\"left:{at}%;transform:translateX(-{at}%)\">{value:.digits$}</small>"
            )
        };
        let step = usize::try_from((to - from) / LABELS_MAX + 1).unwrap_or(1);
        let labels: String = (from..=to).step_by(step).map(label).collect();
        format!(
            "<div class=\"b a\"><span></span><span class=\"s\">{labels}</span><span></span></div>\n"
        )
    }
}

pub(super) fn figure(table: &Table, plot: &Plot) -> String {
    let cells = table.rows.iter().flat_map(|row| plot.columns.iter().map(|&column| &row[column]));
    let scale = Scale::of(&cells.filter_map(Cell::spread).collect::<Vec<_>>());
    let (class, said) = match scale {
        Scale::Even(_) => (String::new(), ""),
        Scale::Logarithmic(from, to) => {
            (format!(" class=\"log\" style=\"--decades:{}\"", to - from), " (logarithmic)")
        }
    };
    let series = || plot.columns.iter().map(|&column| &*table.columns[column]);
    let (caption, axis) = (escape(&caption(table, plot)), scale.axis());
    let mut text = format!("<figure{class}><figcaption>{caption}{said}</figcaption>\n{axis}");
    for cells in &table.rows {
        let names = cells.iter().take_while(|cell| matches!(cell, Cell::Text(_)));
        let name = names.map(Cell::show).collect::<Vec<_>>().join(", ");
        if let [only] = plot.columns[..] {
            row(&mut text, &name, &cells[only], (0, scale));
            continue;
        }
        // Writing to a String does not fail.
        let _ = writeln!(text, "<h3>{}</h3>", escape(&name));
        for (at, (series, &column)) in series().zip(&plot.columns).enumerate() {
            row(&mut text, series, &cells[column], (at, scale));
        }
    }
    text.push_str("</figure>\n");
    text
}

/// The quantity that is shown, with its unit; of a single series, also its name.
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

/// One bar with its name and its number; `how` is its colour, and its scale.
fn row(text: &mut String, name: &str, cell: &Cell, how: (usize, Scale)) {
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

fn bar(spread: Spread, color: &str, scale: Scale) -> String {
    let [low, median, high] =
        [spread.low, spread.median, spread.high].map(|value| scale.percent(value));
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
    fn a_scale_over_more_than_two_decades_is_logarithmic() {
        let values = [0.5, 1.0, 50.0].map(|value| Cell::number(Spread::of([value]), 1));
        let even = drawn("ns", &["a", "b", "c"], "x", &values);
        assert!(even.contains("width:1.00%") && !even.contains("logarithmic"), "{even}");
        let values = [0.1, 1.0, 50.0].map(|value| Cell::number(Spread::of([value]), 1));
        let figure = drawn("ns", &["a", "b", "c"], "x", &values);
        for part in [
            "<figure class=\"log\" style=\"--decades:4\"><figcaption>the title, ns (logarithmic)",
            "<small style=\"left:0%;transform:translateX(-0%)\">0.01</small>",
            "<small style=\"left:100%;transform:translateX(-100%)\">100</small>",
            // One decade and two of four; of nothing there is no bar.
            "width:25.00%",
            "width:50.00%",
        ] {
            assert!(figure.contains(part), "{part}: {figure}");
        }
        let spreads = [1e-3, 1e9].map(|value| Spread::of([value]).expect("a value"));
        let scale = Scale::of(&spreads);
        assert_eq!((scale, scale.percent(0.0)), (Scale::Logarithmic(-4, 9), 0.0));
        assert!(scale.axis().matches("<small").count() <= 1 + LABELS_MAX as usize);
    }

    /// The axes on a page of this width, as a browser finds them: how many names an axis has, and
    /// whether they stand apart and within.
    fn looked(page: &str, width: u32) -> Option<String> {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("frame.html");
        let look = format!(
            "onload = () => {{ const all = [...frames[0].document.querySelectorAll('small')].map(
             it => it.getBoundingClientRect()); const apart = all.every((box, at) =>
             at == 0 || all[at - 1].right < box.left) && all.at(-1).right <= {width};
             document.body.dataset.found = all.length + ' ' + apart; }}"
        );
        let frame = format!("<iframe style=\"width:{width}px\" srcdoc=\"{}\">", escape(page));
        std::fs::write(&file, format!("{frame}</iframe><script>{look}</script>")).expect("written");
        let mut browser = std::process::Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
        browser.arg(format!("--user-data-dir={}", directory.path().join("browser").display()));
        let output = browser.arg(format!("file://{}", file.display())).output().ok()?;
        let dom = String::from_utf8(output.stdout).expect("text");
        Some(dom.split_once("data-found=\"")?.1.split('"').next()?.to_string())
    }

    #[test]
    fn names_of_an_axis_stand_apart_on_a_telephone_and_on_a_desk() {
        let values = [1e-3, 2e5].map(|value| Cell::number(Spread::of([value]), 1));
        let figure = drawn("ns", &["a", "b"], "x", &values);
        let page = format!("<meta charset=\"utf-8\"><style>{STYLE}</style>{figure}");
        for width in [390, 1280] {
            let Some(found) = looked(&page, width) else { return println!("skipped: no chromium") };
            assert_eq!(found, "6 true", "{width}");
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
