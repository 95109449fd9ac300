//! Timers of the supervisor: each row says when something is due, and what is done then.

use std::time::Instant;

use super::Supervisor;

struct Timer {
    /// `None`: nothing is to be done at any time.
    at: fn(&Supervisor) -> Option<Instant>,
    act: fn(&mut Supervisor),
}

const fn timer(at: fn(&Supervisor) -> Option<Instant>, act: fn(&mut Supervisor)) -> Timer {
    Timer { at, act }
}

/// In the order in which they are looked at.
const TIMERS: [Timer; 9] = [
    timer(|it| it.restarts.next_release(), Supervisor::release_due_ports),
    timer(Supervisor::next_admission, Supervisor::tell_due_ports),
    timer(|it| it.control.backoff.until, Supervisor::accept_clients_again),
    timer(Supervisor::next_reopening, Supervisor::reopen_due_taps),
    timer(Supervisor::next_look_around, Supervisor::look_around),
    timer(|it| it.departed.due(), Supervisor::tidy_bridges),
    timer(Supervisor::next_leaving, Supervisor::finish_leaving_ports),
    timer(|it| it.control.next_deadline(), Supervisor::drop_slow_control_clients),
    timer(Supervisor::next_giving_up, Supervisor::give_up_questions),
];

/// These are looked at in each turn, whatever has woken it.
const LOOKED_AT: [fn(&Supervisor) -> Option<Instant>; 3] = [
    |it| it.neighbours.due(),
    Supervisor::next_look_at_planes,
    |it| it.fd_store.next_sign_of_life(),
];

impl Supervisor {
    /// Does everything that is due.
    pub(super) fn run_due(&mut self) {
        for Timer { at, act } in &TIMERS {
            // Asked behind it: what is to be done at once is due at the time of the question.
            if at(self).is_some_and(|at| at <= Instant::now()) {
                act(self);
            }
        }
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let timers = TIMERS.iter().map(|timer| &timer.at).chain(&LOOKED_AT);
        timers.filter_map(|at| at(self)).min()
    }
}
