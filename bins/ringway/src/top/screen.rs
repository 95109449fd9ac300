//! The screen, and the same table as plain lines: pure functions of rates and choices.
//!
//! Limits: below [`WIDTH_FULL`] columns, packets per second are left out.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Cell, Paragraph, Row as TableRow, Sparkline, Table, TableState};

use super::rates::{HISTORY_LEN, PortRates, Rates};
use super::state::DisplayState;
use crate::{stats_view, units};

/// Columns of a terminal that shows everything.
const WIDTH_FULL: u16 = 80;

/// Header and width of each column; between two there is one space.
const COLUMNS: [(&str, u16); 8] = [
    ("port", 14),
    ("state", 9),
    ("to b/s", 8),
    ("to pkt/s", 8),
    ("from b/s", 8),
    ("from pkt/s", 10),
    ("drops/s", 8),
    ("wake/s", 8),
];

/// The columns that narrow terminals leave out.
const LEFT_OUT: [usize; 2] = [3, 5];

/// Rows of the curves in the pane of a port.
const CURVE_HEIGHT: u16 = 4;

const KEYS: &str = "q end  s order  / filter  ↑↓ choose  ⏎ details";

/// Draws everything.
pub fn draw(frame: &mut Frame, state: &DisplayState, rates: &Rates, trouble: Option<&str>) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(3), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Line::from(headline(rates)).style(Modifier::BOLD), head);
    let shown = state.shown(&rates.rows);
    let marked = state.marked.min(shown.len().saturating_sub(1));
    match shown.get(marked).filter(|_| state.is_detailed) {
        Some(row) => detail(frame, body, row, rates),
        None => table(frame, body, &shown, marked),
    }
    frame.render_widget(footline(state, trouble), foot);
}

fn headline(rates: &Rates) -> String {
    let Some(report) = rates.report() else { return "waiting for the first report".to_string() };
    let sum = |of: fn(&PortRates) -> f64| rates.rows.iter().map(of).fold(0.0, |sum, one| sum + one);
    let polling = report.workers.iter().filter(|worker| worker.mode == "polling").count();
    format!(
        "ringway, {} s: {}, {} in, {}, {} of {} polling",
        units::count(report.uptime_ms / 1000),
        units::counted(report.ports.len() as u64, "port"),
        units::bits_per_second(sum(|row| row.from.bits)),
        units::packets_per_second(sum(|row| row.from.packets)),
        polling,
        units::counted(report.workers.len() as u64, "worker"),
    )
}

fn footline<'a>(state: &DisplayState, trouble: Option<&'a str>) -> Line<'a> {
    match trouble {
        Some(trouble) => Line::from(trouble).style(Color::Red),
        None if state.is_typing => Line::from(format!("show ports named: {}▏", state.filter)),
        None => {
            let filter = match state.filter.as_str() {
                "" => String::new(),
                filter => format!("  only {filter:?}"),
            };
            let order = state.order.name();
            Line::from(format!("{KEYS}  by {order}{filter}")).style(Modifier::DIM)
        }
    }
}

fn columns(width: u16) -> Vec<usize> {
    let is_narrow = width < WIDTH_FULL;
    (0..COLUMNS.len()).filter(|at| !is_narrow || !LEFT_OUT.contains(at)).collect()
}

fn table(frame: &mut Frame, area: Rect, shown: &[&PortRates], marked: usize) {
    let columns = columns(area.width);
    let header = TableRow::new(columns.iter().map(|&at| header(at)))
        .style(Style::from(Modifier::UNDERLINED));
    let rows = shown.iter().map(|row| {
        let cells = cells(row);
        let cells = columns.iter().map(|&at| Cell::from(aligned(at, &cells[at])));
        TableRow::new(cells.collect::<Vec<_>>()).style(color(row))
    });
    let widths = columns.iter().map(|&at| match at {
        0 => Constraint::Min(COLUMNS[at].1),
        _ => Constraint::Length(COLUMNS[at].1),
    });
    let table = Table::new(rows, widths)
        .header(header)
        .row_highlight_style(Style::from(Modifier::REVERSED));
    let mut position = TableState::new().with_selected(marked);
    frame.render_stateful_widget(table, area, &mut position);
}

fn detail(frame: &mut Frame, area: Rect, row: &PortRates, rates: &Rates) {
    let [to, from, rest] = Layout::vertical([
        Constraint::Length(CURVE_HEIGHT),
        Constraint::Length(CURVE_HEIGHT),
        Constraint::Min(1),
    ])
    .areas(area);
    let curves = rates.history.get(&row.port.name);
    for (at, (area, name, rate)) in
        [(to, "to", row.to), (from, "from", row.from)].into_iter().enumerate()
    {
        let title = format!("{name} {}: {}", row.port.name, units::bits_per_second(rate.bits));
        let newest = curves.map(|curves| &curves[at]);
        let skip = HISTORY_LEN.saturating_sub(usize::from(area.width));
        let data = newest.into_iter().flat_map(|curve| curve.iter().skip(skip).copied());
        let curve = Sparkline::default().data(data.collect::<Vec<u64>>());
        frame.render_widget(curve.block(Block::new().title(title)).style(Color::Cyan), area);
    }
    let text = stats_view::one_port(&row.port, usize::from(rest.width));
    frame.render_widget(Paragraph::new(text), rest);
}

fn color(row: &PortRates) -> Color {
    match row.port.state.as_str() {
        "broken" | "failed" | "quarantined" => Color::Red,
        _ if row.to.drops + row.from.drops > 0.0 => Color::Yellow,
        "running" | "migrating" => Color::Reset,
        _ => Color::DarkGray,
    }
}

/// The table as plain lines, for what is no terminal.
pub fn plain(state: &DisplayState, rates: &Rates, width: usize) -> String {
    let columns = columns(u16::try_from(width).unwrap_or(u16::MAX));
    let line = |cell: &dyn Fn(usize) -> String| {
        let cells: Vec<String> = columns.iter().map(|&at| cell(at)).collect();
        cells.join(" ").trim_end().to_string() + "\n"
    };
    let mut text = headline(rates) + "\n" + &line(&header);
    for row in state.shown(&rates.rows) {
        let cells = cells(row);
        text.push_str(&line(&|at| aligned(at, &cells[at])));
    }
    text
}

fn header(at: usize) -> String {
    aligned(at, COLUMNS[at].0)
}

fn aligned(at: usize, text: &str) -> String {
    let width = usize::from(COLUMNS[at].1);
    if at < 2 { format!("{text:<width$}") } else { format!("{text:>width$}") }
}

fn cells(row: &PortRates) -> [String; COLUMNS.len()] {
    let bits = |bits: f64| units::short(bits);
    [
        row.port.name.clone(),
        match row.port.link_up {
            Some(false) => "link down".to_owned(),
            _ => row.port.state.clone(),
        },
        bits(row.to.bits),
        units::short(row.to.packets),
        bits(row.from.bits),
        units::short(row.from.packets),
        units::short(row.to.drops + row.from.drops),
        units::short(units::approximate(row.wakeups)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::examples::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn rates(ports: usize) -> Rates {
        let mut reply = example();
        for at in 1..ports {
            let mut port = reply.ports[0].clone();
            port.name = format!("vm{at}");
            reply.ports.push(port);
        }
        let mut rates = Rates::default();
        rates.follow(reply.clone());
        reply.uptime_ms += 1000;
        reply.ports[0].to_guest.bytes += 1_250_000_000;
        rates.follow(reply);
        rates
    }

    fn seen(
        state: &DisplayState,
        rates: &Rates,
        size: (u16, u16),
        trouble: Option<&str>,
    ) -> String {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).expect("a terminal");
        terminal.draw(|frame| draw(frame, state, rates, trouble)).expect("drawn");
        terminal.backend().to_string()
    }

    #[test]
    fn a_line_for_each_port_fits_80_columns() {
        let seen = seen(&DisplayState::default(), &rates(2), (80, 10), None);
        assert!(seen.contains("2 ports, 0 b/s in"), "{seen}");
        assert!(seen.contains("vm0            running      10.0G"), "{seen}");
        assert!(seen.contains("wake/s"), "{seen}");
        let plain = plain(&DisplayState::default(), &rates(2), 80);
        assert!(plain.lines().all(|line| line.chars().count() <= 80), "{plain}");
        assert!(plain.contains("vm1            running"), "{plain}");
    }

    /// The sum of no numbers is -0 in the standard library.
    #[test]
    fn a_ringway_without_ports_moves_nothing() {
        let mut reply = example();
        reply.ports.clear();
        let mut rates = Rates::default();
        rates.follow(reply);
        let head = headline(&rates);
        assert!(head.contains("0 ports, 0 b/s in, 0 packets/s, "), "{head}");
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns() {
        let seen = seen(&DisplayState::default(), &rates(1), (60, 10), None);
        assert!(seen.contains("wake/s") && !seen.contains("pkt/s"), "{seen}");
    }

    #[test]
    fn the_marked_port_is_on_the_screen_however_many_there_are() {
        let state = DisplayState { marked: 255, ..DisplayState::default() };
        assert!(seen(&state, &rates(256), (80, 24), None).contains("vm255 "));
        let state = DisplayState { is_detailed: true, ..state };
        let seen = seen(&state, &rates(256), (100, 40), None);
        assert!(seen.contains("to vm255: 0 b/s") && seen.contains("receiveq1"), "{seen}");
    }

    #[test]
    fn a_ringway_that_does_not_answer_is_told() {
        let trouble = Some("no ringway is listening here");
        let seen = seen(&DisplayState::default(), &rates(1), (80, 10), trouble);
        assert!(seen.contains("no ringway is listening here"), "{seen}");
    }
}
