//! Choices of the person who watches: order, filter, port. Keys change it; nothing else does.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::rates::PortRates;

/// By what the ports are ordered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Order {
    /// As the report has them.
    #[default]
    Given,
    /// By name.
    Name,
    /// Bits per second in both directions, the most first.
    Rate,
    /// Packets dropped per second, the most first.
    Drops,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Self::Given => Self::Name,
            Self::Name => Self::Rate,
            Self::Rate => Self::Drops,
            Self::Drops => Self::Given,
        }
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "configuration",
            Self::Name => "name",
            Self::Rate => "rate",
            Self::Drops => "drops",
        }
    }
}

/// The effect of a key, apart from another choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    Go,
    End,
}

/// The choices.
#[derive(Debug, Default)]
pub struct DisplayState {
    pub order: Order,
    /// Ports whose name contains it are shown.
    pub filter: String,
    /// The filter is being typed.
    pub is_typing: bool,
    /// The index of the marked port among those that are shown.
    pub marked: usize,
    /// The marked port is shown with everything that is known.
    pub is_detailed: bool,
}

impl DisplayState {
    /// A key was pressed while so many ports were shown.
    pub fn press(&mut self, key: KeyEvent, shown: usize) -> Next {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Next::End;
        }
        if self.is_typing {
            self.edit(key.code);
            return Next::Go;
        }
        let last = shown.saturating_sub(1);
        match key.code {
            KeyCode::Char('q') => return Next::End,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => (self.is_typing, self.marked) = (true, 0),
            KeyCode::Up | KeyCode::Char('k') => {
                self.marked = self.marked.min(last).saturating_sub(1)
            }
            KeyCode::Down | KeyCode::Char('j') => self.marked = (self.marked + 1).min(last),
            KeyCode::Home => self.marked = 0,
            KeyCode::End => self.marked = last,
            KeyCode::Enter => self.is_detailed = !self.is_detailed,
            KeyCode::Esc if self.is_detailed => self.is_detailed = false,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        Next::Go
    }

    /// The name of the port that is shown with everything that is known, if one is.
    pub fn detailed<'a>(&self, rows: &'a [PortRates]) -> Option<&'a str> {
        let shown = self.shown(rows);
        let marked = shown.get(self.marked.min(shown.len().saturating_sub(1)));
        marked.filter(|_| self.is_detailed).map(|row| &*row.port.name)
    }

    /// Other rates have come, by which the order may be another one: that port stays marked.
    pub fn stay_at(&mut self, name: Option<&str>, rows: &[PortRates]) {
        let at = self.shown(rows).iter().position(|row| Some(&*row.port.name) == name);
        self.marked = at.unwrap_or(self.marked);
    }

    fn edit(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => (self.is_typing, self.filter) = (false, String::new()),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    /// The ports to show, in order.
    pub fn shown<'a>(&self, rows: &'a [PortRates]) -> Vec<&'a PortRates> {
        let is_wanted = |row: &&PortRates| row.port.name.contains(&self.filter);
        let mut shown: Vec<&PortRates> = rows.iter().filter(is_wanted).collect();
        match self.order {
            Order::Given => {}
            Order::Name => shown.sort_by(|a, b| a.port.name.cmp(&b.port.name)),
            Order::Rate => sort_by_most(&mut shown, |row| row.to.bits + row.from.bits),
            Order::Drops => sort_by_most(&mut shown, |row| row.to.drops + row.from.drops),
        }
        shown
    }
}

fn sort_by_most(rows: &mut [&PortRates], value: impl Fn(&PortRates) -> f64) {
    rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
}

#[cfg(test)]
mod tests {
    use super::super::rates::Rates;
    use super::*;
    use crate::control::examples::example;

    fn rows() -> Vec<PortRates> {
        let mut reply = example();
        for name in ["vm2", "up", "vm1"] {
            let mut port = reply.ports[0].clone();
            port.name = name.to_string();
            reply.ports.push(port);
        }
        let mut rates = Rates::default();
        rates.follow(reply.clone());
        reply.uptime_ms += 1000;
        reply.ports[2].from_guest.bytes += 1000;
        reply.ports[3].to_guest.drops.insert("no_room".to_string(), 99);
        rates.follow(reply);
        rates.rows
    }

    fn press(state: &mut DisplayState, keys: &[KeyCode]) -> Next {
        keys.iter().fold(Next::Go, |_, &code| state.press(KeyEvent::from(code), 4))
    }

    fn names(state: &DisplayState, rows: &[PortRates]) -> Vec<String> {
        state.shown(rows).iter().map(|row| row.port.name.clone()).collect()
    }

    #[test]
    fn s_goes_through_the_orders() {
        let (mut state, rows) = (DisplayState::default(), rows());
        let mut firsts = Vec::new();
        for _ in 0..4 {
            firsts.push(names(&state, &rows)[0].clone());
            press(&mut state, &[KeyCode::Char('s')]);
        }
        assert_eq!(firsts, ["vm0", "up", "up", "vm1"]);
        assert_eq!(state.order, Order::Given);
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let (mut state, rows) = (DisplayState::default(), rows());
        press(&mut state, &[KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Backspace]);
        press(&mut state, &[KeyCode::Char('u'), KeyCode::Char('p'), KeyCode::Enter]);
        assert_eq!(names(&state, &rows), ["up"]);
        press(&mut state, &[KeyCode::Esc]);
        assert_eq!(names(&state, &rows).len(), 4);
    }

    #[test]
    fn the_mark_stays_on_a_port() {
        let mut state = DisplayState::default();
        press(&mut state, &[KeyCode::Down; 9]);
        assert_eq!(state.marked, 3);
        state.press(KeyEvent::from(KeyCode::Up), 2);
        assert_eq!(state.marked, 0);
        press(&mut state, &[KeyCode::Enter]);
        assert!(state.is_detailed);
        assert_eq!(press(&mut state, &[KeyCode::Esc]), Next::Go);
        assert!(!state.is_detailed);
    }

    #[test]
    fn details_stay_those_of_a_port_when_the_order_changes() {
        let (mut state, mut rows) = (DisplayState::default(), rows());
        press(&mut state, &[KeyCode::Char('s'), KeyCode::Char('s'), KeyCode::Enter]);
        let before = state.detailed(&rows).map(str::to_owned);
        assert_eq!(before.as_deref(), Some("up"));
        rows[0].to.bits = 1e12;
        state.stay_at(before.as_deref(), &rows);
        assert_eq!((names(&state, &rows)[0].as_str(), state.detailed(&rows)), ("vm0", Some("up")));
        rows.retain(|row| row.port.name != "up");
        state.stay_at(Some("up"), &rows);
        assert!(state.detailed(&rows).is_some(), "another one, where it is gone");
    }

    #[test]
    fn q_and_control_c_end_it() {
        assert_eq!(press(&mut DisplayState::default(), &[KeyCode::Char('q')]), Next::End);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(
            DisplayState { is_typing: true, ..DisplayState::default() }.press(control_c, 0),
            Next::End
        );
    }
}
