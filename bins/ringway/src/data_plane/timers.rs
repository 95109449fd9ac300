//! Timers of the control thread, while its data plane serves: each row says when something is due,
//! and what is done then.

use std::time::Instant;

use super::DataPlane;

struct Timer {
    /// `None`: nothing is to be done at any time.
    at: fn(&DataPlane) -> Option<Instant>,
    act: fn(&mut DataPlane),
    /// It is done in each turn, whatever has woken the thread: it may depend on that.
    is_of_each_turn: bool,
}

const fn timer(at: fn(&DataPlane) -> Option<Instant>, act: fn(&mut DataPlane)) -> Timer {
    Timer { at, act, is_of_each_turn: false }
}

const fn each_turn(at: fn(&DataPlane) -> Option<Instant>, act: fn(&mut DataPlane)) -> Timer {
    Timer { at, act, is_of_each_turn: true }
}

/// In the order in which they are looked at.
const TIMERS: [Timer; 7] = [
    timer(DataPlane::next_belief, DataPlane::open_links),
    each_turn(DataPlane::next_announcing, DataPlane::announce_due),
    each_turn(DataPlane::next_look_at_kicks, DataPlane::look_at_kicks),
    timer(DataPlane::next_look_around, DataPlane::look_around),
    timer(|it| it.notes.next(), DataPlane::note_learned),
    timer(|it| it.told_ips.next(), DataPlane::tell_due_ips),
    timer(|it| it.station_news.next(), DataPlane::tell_due_stations),
];

impl DataPlane {
    /// Does everything that is due; nothing is unless it serves.
    pub(super) fn run_due(&mut self) {
        for Timer { at, act, is_of_each_turn } in &TIMERS {
            let is_due = |it: &Self| at(it).is_some_and(|at| at <= Instant::now());
            if self.is_serving() && (*is_of_each_turn || is_due(self)) {
                act(self);
            }
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        TIMERS.iter().filter(|_| self.is_serving()).filter_map(|timer| (timer.at)(self)).min()
    }

    fn is_serving(&self) -> bool {
        !self.is_frozen && self.replay.is_none()
    }
}
