//! The end of a data plane: what is blamed, what its clients are answered, when the next one is
//! started.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_supervisor::front_ends;
use ringway_supervisor::restart::{Busy, End, Verdict};
use ringway_supervisor::succession::{Event, PlaneNumber};
use ringway_switch::PortId;
use tracing::{error, info};

use super::Supervisor;
use super::order::Order;
use super::plane::Plane;
use super::ports::Port;
use super::system_calls;

/// A front-end that has waited so long for an answer, while there is no data plane, is
/// disconnected: QEMU stands still meanwhile, and connects again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

/// Until it is tried again to serve ports that were held back, if no other data plane has come.
const RENEWED_EVERY: Duration = Duration::from_secs(5);

/// The signal by which a forbidden system call ends a process (Linux's number on all machines that
/// this builds for).
const SIGSYS: i32 = 31;

impl Supervisor {
    /// A data plane has ended.
    pub(super) fn on_plane_end(&mut self, number: PlaneNumber) {
        let Some(end) = self.planes.get(number).and_then(|plane| plane.end()) else { return };
        let was_serving = self.planes.is_serving(number);
        let Some(mut plane) = self.planes.remove(number) else { return };
        let _ = self.poller.remove(plane.pidfd.as_fd());
        plane.hear_last_words();
        let how = self.shown(end, &plane);
        let now = Instant::now();
        if let Some((busy, in_hand)) = plane.suspects {
            error!("the data plane ended: {how}: a new one was started at once");
            let verdict = self.restarts.died(now, end, &busy, &in_hand);
            self.happens(Event::Ended { plane: number, how, start_at: now });
            return self.follow(verdict);
        }
        if !was_serving || !self.planes.is_begun() {
            if was_serving {
                let refusal = plane.refusal.take();
                let why = refusal.unwrap_or_else(|| format!("the data plane ended: {how}"));
                self.planes.why_ended.get_or_insert(why);
            }
            return self.happens(Event::Ended { plane: number, how, start_at: now });
        }
        let (busy, in_hand) = (self.note_death(), self.requests.take_back());
        let verdict = self.restarts.died(now, end, &busy, &in_hand);
        let start_at = verdict.start_at;
        let again = match start_at - now {
            Duration::ZERO => "at once".to_owned(),
            wait => format!("in {wait:?}"),
        };
        error!("the data plane ended: {how}: a new one is started {again}");
        self.settle_orders(plane.orders);
        self.happens(Event::Ended { plane: number, how, start_at });
        self.follow(verdict);
    }

    /// Visits that its workers were in. The process that has ended does not share the next journal.
    pub(super) fn note_death(&mut self) -> Vec<Busy> {
        self.counts.deaths += 1;
        self.counts.down_since.get_or_insert_with(Instant::now);
        let busy = self.journal.busy();
        self.journal.renew();
        for Busy { visited, .. } in &busy {
            if let Some(port) = self.ports.get_mut(&PortId(*visited)) {
                port.replayed += 1;
            }
        }
        busy
    }

    /// Workers have ended: the rest of the process follows when the memory of all guests is
    /// unmapped. The first one is not waited for; after others it is known only then how it ended,
    /// and so when the next one may start.
    pub(super) fn on_worker_end(&mut self) {
        self.journal.drain();
        if !(self.planes.is_running() && self.journal.is_dead()) {
            return;
        }
        let Some(plane) = self.planes.succession.serving() else { return };
        let may_start = self.planes.is_begun()
            && self.restarts.is_first(Instant::now())
            && self.journal.all_have_ended();
        self.happens(Event::WorkersEnded { plane, may_start });
    }

    /// Carries out a verdict about front-ends and ports.
    fn follow(&mut self, verdict: Verdict) {
        for (link, _) in verdict.refuse {
            self.let_go(link, None, "its request has ended the data plane twice");
        }
        for port in verdict.release {
            self.release(PortId(port));
        }
        for port in verdict.quarantine {
            self.quarantine(PortId(port));
        }
    }

    /// The data plane has ended three times while it served this port. No front-end is served there
    /// for some time, or until a user says so.
    fn quarantine(&mut self, id: PortId) {
        let until = self.restarts.quarantined_until(id.0);
        let pause = until.map_or(Duration::ZERO, |until| until - Instant::now());
        let Some(port) = self.ports.get_mut(&id) else { return };
        let name = port.spec.name.clone();
        if port.vm.is_none() {
            error!(port = name, "the data plane ended three times while it served this port");
            return;
        }
        let why = format!(
            "quarantined for {} minutes: the data plane ended three times while it served this \
             port: \"ringway port set {name} link=up\" tries again now",
            pause.as_secs().div_ceil(60)
        );
        error!(port = name, "{why}");
        self.happens_at(id, front_ends::Event::Quarantine { why });
    }

    /// A user wants it to be tried again.
    pub(super) fn release(&mut self, id: PortId) {
        self.restarts.release(id.0);
        self.serve_again(id);
    }

    /// Ports whose quarantine is over are tried again.
    pub(super) fn release_due_ports(&mut self) {
        for id in self.restarts.take_released(Instant::now()).into_iter().map(PortId) {
            if self.serve_again(id) {
                let name = self.ports.get(&id).map(|port| &port.spec.name);
                info!(port = name, "its quarantine is over: it is tried again");
            }
        }
    }

    /// `false`: it was served already, or is no port for virtual machines.
    fn serve_again(&mut self, id: PortId) -> bool {
        let is_released = self.vm(id).is_some_and(|vm| vm.admission.is_quarantined());
        self.happens_at(id, front_ends::Event::Release);
        is_released
    }

    /// Ports that were held back are served again when their time has come: another data plane gets
    /// everything that there is.
    pub(super) fn serve_held_ports(&mut self, now: Instant) {
        let restarts = &self.restarts;
        let Some(plane) = self.planes.running() else { return };
        let is_due = plane.without.iter().any(|port| !restarts.is_held(port.0, now));
        let is_soon = plane.renew_at.is_some_and(|at| at > now);
        if !is_due || is_soon {
            return;
        }
        plane.renew_at = Some(now + RENEWED_EVERY);
        if let Err(why) = self.renew_plane() {
            info!("ports that are held back wait: {why:#}");
        }
    }

    /// When that is to be done.
    pub(super) fn next_serving_held_ports(&self, now: Instant) -> Option<Instant> {
        let plane = self.planes.current().filter(|plane| !plane.without.is_empty())?;
        plane
            .renew_at
            .into_iter()
            .chain(self.restarts.next_unheld(now))
            .filter(|at| *at > now)
            .min()
    }

    /// Settles orders: the next data plane is told of them with everything else.
    pub(super) fn settle_orders(&mut self, orders: BTreeMap<u32, Order>) {
        for order in orders.into_values() {
            match order {
                Order::Open { port, asked } => {
                    if let Some(port) = self.ports.get_mut(&port) {
                        port.asked = Some(asked);
                    }
                }
                Order::Change { asked, .. } | Order::Remove { asked, .. } => {
                    self.changed(&asked, false);
                }
                Order::Unlink { .. } | Order::Link { .. } => {}
                Order::LinksDown => self.links_down = Some(false),
            }
        }
        for id in self.ids() {
            self.happens_at(id, front_ends::Event::PlaneCloses(false));
            self.close_other_sockets(id);
            if self.ports.get(&id).is_some_and(Port::is_leaving) {
                self.finish_leaving(id);
            }
        }
    }

    /// Front-ends that have waited for too long while there was no data plane.
    pub(super) fn drop_links_that_waited(&mut self, now: Instant) {
        let Some(since) = self.counts.down_since else { return };
        if since + ANSWERED_WITHIN > now {
            return;
        }
        for id in self.ids() {
            let link = self.ports.get(&id).and_then(Port::link);
            if link.is_some_and(|link| link.kept.framer.outstanding().is_some()) {
                self.complain(id, "disconnected: there is no data plane to answer its request");
                self.drop_link(id, None);
            }
        }
    }

    /// Whether it fails again and again.
    pub(super) fn is_failing(&self) -> bool {
        self.restarts.is_failing(Instant::now())
    }

    /// How it ended; a system call that the sandbox forbids is noted.
    fn shown(&mut self, end: End, plane: &Plane) -> String {
        match end {
            End::Exit(status) => format!("exit status {status}"),
            End::Signal(signal) => {
                let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
                let forbidden = plane.forbidden.filter(|_| signal == SIGSYS);
                self.counts.forbidden_call = forbidden.or(self.counts.forbidden_call);
                let call = forbidden.map(system_calls::shown).map_or_else(String::new, |call| {
                    format!(": the sandbox forbids system call {call}")
                });
                format!("{name} ({signal}){call}")
            }
            End::Hung => "it did not answer".to_owned(),
            End::Condemned => "the supervisor has killed it".to_owned(),
        }
    }
}
