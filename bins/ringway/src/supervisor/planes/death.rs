//! The end of a data plane: what is blamed, and when ports that were held back are served again.

use std::time::{Duration, Instant};

use ringway_supervisor::restart::{Busy, PlaneExit};
use ringway_switch::PortId;
use tracing::info;

use super::Planes;
use super::plane::Plane;
use crate::supervisor::ports::Ports;
use crate::supervisor::processes::system_calls;

/// Until it is tried again to serve ports that were held back, if no other data plane has come.
const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// The signal by which a forbidden system call ends a process (Linux's number on all machines that
/// this builds for).
const SIGSYS: i32 = 31;

impl Planes {
    /// Visits that its workers were in. The process that has ended does not share the next journal.
    pub fn note_death(&mut self, ports: &mut Ports) -> Vec<Busy> {
        self.counts.deaths += 1;
        self.counts.down_since.get_or_insert_with(Instant::now);
        let busy = self.journal.busy();
        self.journal.renew();
        for Busy { visited, .. } in &busy {
            if let Some(port) = ports.get_mut(&PortId(*visited)) {
                port.replayed += 1;
            }
        }
        busy
    }

    /// Whether it is time for another data plane, which gets ports that were held back, too.
    pub fn is_held_port_due(&mut self, now: Instant) -> bool {
        let serving = self.succession.serving().filter(|_| self.is_running());
        let Some(plane) = serving.and_then(|number| self.all.get_mut(&number)) else {
            return false;
        };
        let is_due = plane.debts.without.iter().any(|port| !self.restarts.is_held(port.0, now));
        if !is_due || plane.debts.renew_at.is_some_and(|at| at > now) {
            return false;
        }
        plane.debts.renew_at = Some(now + RENEWED_EVERY);
        true
    }

    /// When that is to be done.
    pub fn next_serving_held_ports(&self, now: Instant) -> Option<Instant> {
        let plane = self.current().filter(|plane| !plane.debts.without.is_empty())?;
        plane
            .debts
            .renew_at
            .into_iter()
            .chain(self.restarts.next_unheld(now))
            .filter(|at| *at > now)
            .min()
    }

    /// Whether it fails again and again.
    pub fn is_failing(&self) -> bool {
        self.restarts.is_failing(Instant::now())
    }

    /// How it ended; a system call that the sandbox forbids is noted.
    pub fn shown(&mut self, end: PlaneExit, plane: &Plane) -> String {
        match end {
            PlaneExit::Exit(status) => format!("exit status {status}"),
            PlaneExit::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                let forbidden = plane.process.forbidden.filter(|_| signal == SIGSYS);
                self.counts.forbidden_call = forbidden.or(self.counts.forbidden_call);
                let call = forbidden.map(system_calls::shown).map_or_else(String::new, |call| {
                    format!(": the sandbox forbids system call {call}")
                });
                format!("{name} ({signal}){call}")
            }
            PlaneExit::Hung => "it did not answer".to_owned(),
            PlaneExit::Condemned => "the supervisor has killed it".to_owned(),
        }
    }

    /// One serves again.
    pub fn note_serving(&mut self) {
        if let Some(since) = self.counts.down_since.take() {
            let ms = since.elapsed().as_millis();
            info!("a new data plane serves, {ms} ms after the end of the last one");
        }
    }
}
