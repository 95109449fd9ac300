//! Timers of the supervisor: each row says when something is due, and what is done then.

use std::time::Instant;

use super::Supervisor;

pub(super) struct Timer {
    /// `None`: nothing is to be done at any time.
    pub(super) at: fn(&Supervisor) -> Option<Instant>,
    pub(super) act: fn(&mut Supervisor),
}

const fn timer(at: fn(&Supervisor) -> Option<Instant>, act: fn(&mut Supervisor)) -> Timer {
    Timer { at, act }
}

/// In the order in which they are looked at.
pub(super) const TIMERS: [Timer; 9] = [
    timer(|it| it.planes.restarts.next_release(), Supervisor::release_due_ports),
    timer(|it| it.ports.next_admission(), Supervisor::tell_due_ports),
    timer(|it| it.control.next_accepting(), |it| it.control.accept_again()),
    timer(|it| it.ports.next_reopening(it.planes.is_holding()), Supervisor::reopen_due_taps),
    timer(|it| it.surroundings.next_look(&it.ports), Supervisor::look_around),
    timer(|it| it.bridges.departed.due(), |it| it.bridges.departed.tidy(&it.ports)),
    timer(|it| it.ports.next_leaving(), Supervisor::finish_leaving_ports),
    timer(|it| it.control.next_deadline(), |it| it.control.drop_slow_clients()),
    timer(|it| it.questions.next_giving_up(), |it| it.questions.give_up(&mut it.control)),
];

/// These are looked at in each turn, whatever has woken it.
const LOOKED_AT: [fn(&Supervisor) -> Option<Instant>; 3] = [
    |it| it.bridges.neighbours.due(),
    |it| it.planes.next_look(it.reloads.is_any()),
    |it| it.stores.fds.next_sign_of_life(),
];

/// When something is due next.
pub(super) fn next_due(all: &Supervisor) -> Option<Instant> {
    let timers = TIMERS.iter().map(|timer| &timer.at).chain(&LOOKED_AT);
    timers.filter_map(|at| at(all)).min()
}
