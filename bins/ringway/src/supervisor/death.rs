//! The end of a data plane: what is blamed, what its clients are answered, when the next one is
//! started.

use std::time::{Duration, Instant};

use ringway_supervisor::restart::{End, Verdict};
use tracing::error;

use super::Supervisor;
use super::order::Order;
use super::plane::Plane;

/// A front-end that has waited so long for an answer, while there is no data plane, is
/// disconnected: QEMU stands still meanwhile, and connects again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

impl Supervisor {
    /// A data plane has ended.
    pub(super) fn on_plane_end(&mut self, number: u32) {
        let Some(end) = self.planes.get(number).and_then(Plane::end) else { return };
        let (was_serving, was_coming) =
            (self.planes.is_serving(number), self.planes.is_coming(number));
        let Some(plane) = self.planes.remove(number) else { return };
        let _ = self.poller.remove(std::os::fd::AsFd::as_fd(&plane.pidfd));
        if was_coming {
            return self.upgrade_fails(&format!("it ended: {}", shown(end)));
        }
        if !was_serving {
            return;
        }
        if !self.planes.is_begun() {
            let why = format!("the data plane ended: {}", shown(end));
            self.planes.why_ended.get_or_insert(why);
            return;
        }
        self.counts.deaths += 1;
        self.counts.down_since.get_or_insert_with(Instant::now);
        let in_hand = self.take_back_frames();
        let now = Instant::now();
        let verdict = self.restarts.died(now, end, &[], &in_hand);
        let again = match verdict.start_at - now {
            Duration::ZERO => "at once".to_owned(),
            wait => format!("in {wait:?}"),
        };
        error!("the data plane ended: {}: a new one is started {again}", shown(end));
        self.settle_orders(plane);
        self.upgrade_is_void();
        self.follow(verdict);
    }

    fn follow(&mut self, verdict: Verdict) {
        for (link, _) in verdict.refuse {
            self.let_go(link, None, "its request has ended the data plane twice");
        }
        self.start_at = Some(verdict.start_at);
    }

    /// What was ordered is told to the next one with everything else.
    fn settle_orders(&mut self, plane: Plane) {
        for (order, _) in plane.orders.into_values() {
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
            self.plane_has_closed(id);
            if self.ports.get(&id).is_some_and(super::ports::Port::is_leaving) {
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
            let link = self.ports.get(&id).and_then(|port| port.vm.as_ref()?.link.as_ref());
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
}

fn shown(end: End) -> String {
    match end {
        End::Exit(status) => format!("exit status {status}"),
        End::Signal(signal) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("a signal");
            format!("{name} ({signal})")
        }
        End::Hung => "it did not answer".to_owned(),
    }
}
