//! A report as one page that needs nothing else: style, plots and numbers are in it. What came out
//! is in front, how it was measured behind.

use std::fmt::Write;

use super::plot::{self, escape};
use super::{Cell, Report, Table, text, verdict};

const STYLE: &str = "\
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;\
color:var(--text);background:var(--page);overflow-wrap:anywhere}:root{\
color-scheme:light dark;--text:#222;--page:#fff;--line:#ddd;--field:#f2f2f2}\
@media(prefers-color-scheme:dark){:root{--text:#ddd;--page:#16181c;--line:#444;\
--field:#282b31}}#verdict{font-weight:bold}table{border-collapse:collapse;margin:1rem 0}th,\
td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:right;\
overflow-wrap:normal}td{white-space:nowrap}td.t{white-space:normal}th{vertical-align:bottom}\
th:first-child,td.t{text-align:left}pre{background:var(--field);padding:.6rem;\
white-space:pre-wrap}div.w{overflow-x:auto}";

pub fn render(report: &Report) -> String {
    let title = escape(&report.title);
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\
         <style>{STYLE}{}</style></head><body>\n<h1>{title}</h1>\n",
        plot::STYLE
    );
    page += &verdicts(report);
    for table in &report.tables {
        page.extend(table.plots.iter().map(|plot| plot::figure(table, plot)));
    }
    for table in &report.tables {
        let (title, rows) = (escape(&table.title), rows(table));
        page += &format!("<h2>{title}</h2>\n<div class=\"w\">{rows}</div>\n");
    }
    page += &format!(
        "<h2>How it was measured</h2>\n<p>{}</p>\n<pre>{}</pre>\n<ul>\n",
        escape(&report.date),
        escape(&report.command)
    );
    for line in text::about(report) {
        page += &format!("<li>{}</li>\n", escape(&line));
    }
    page.push_str("</ul>\n");
    if !report.commands.is_empty() {
        let commands = escape(&report.commands.join("\n"));
        page += &format!("<h2>Commands</h2>\n<pre>{commands}</pre>\n");
    }
    page += "</body></html>\n";
    page
}

fn verdicts(report: &Report) -> String {
    let plots = report.tables.iter().flat_map(|table| {
        let line = |plot| Some((plot::caption(table, plot), verdict::verdict(table, plot)?));
        table.plots.iter().filter_map(line).collect::<Vec<_>>()
    });
    let lines =
        plots.map(|(what, said)| format!("<li>{}: {}</li>\n", escape(&what), escape(&said)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("<ul id=\"verdict\">\n{lines}</ul>\n") }
}

fn rows(table: &Table) -> String {
    let heads = table.columns.iter().map(|column| format!("<th>{}</th>", escape(column)));
    let mut text = format!("<table>\n<tr>{}</tr>\n", heads.collect::<String>());
    for row in &table.rows {
        let cells = row.iter().map(|cell| {
            let class = if matches!(cell, Cell::Text(_)) { " class=\"t\"" } else { "" };
            format!("<td{class}>{}</td>", escape(&cell.show()))
        });
        // Writing to a String does not fail.
        let _ = writeln!(text, "<tr>{}</tr>", cells.collect::<String>());
    }
    text.push_str("</table>");
    text
}
