//! Asking a guest to say where it is (`VIRTIO_NET_F_GUEST_ANNOUNCE`, virtio 1.2 §5.1.6.5.4).
//!
//! Its network may have changed while its link was down. A guest that is asked together with the
//! news that its link is up sends its packets before it believes that, and they are lost; so it is
//! asked a moment later. It answers through its controlq, and is not asked again.

use std::time::{Duration, Instant};

use ringway_net::Features;

use super::DataPlane;
use super::vm_port::VmPort;

/// From the link coming up to the request; a guest takes a few milliseconds to believe the news.
const DELAY: Duration = Duration::from_millis(100);

impl VmPort {
    /// The guest's link came up.
    pub(super) fn plan_announcement(&mut self) {
        let Some(link) = &mut self.link else { return };
        let features = link.negotiated.map_or(Features::empty(), |it| it.features);
        if features.contains(Features::GUEST_ANNOUNCE) {
            link.announcement.due = Some(Instant::now() + DELAY);
        }
    }

    fn ask_if_due(&mut self, now: Instant) {
        let Some(link) = &mut self.link else { return };
        if link.announcement.due.is_none_or(|due| due > now) {
            return;
        }
        link.announcement.due = None;
        link.announcement.is_asked = true;
        self.tell_config();
    }

    /// The guest has answered so often. It knows what its configuration is now, so it is not told.
    pub(super) fn on_answers(&mut self, answers: u64) {
        let Some(link) = &mut self.link else { return };
        if std::mem::replace(&mut link.announcement.answers, answers) == answers {
            return;
        }
        link.announcement.is_asked = false;
        let config = self.config(self.is_link_up);
        if let Some(link) = &mut self.link {
            let _ = link.session.set_config(config);
        }
    }
}

impl DataPlane {
    /// When the next guest is to be asked.
    pub(super) fn next_announcement(&self) -> Option<Instant> {
        let links = self.ports.values().filter_map(super::Port::link);
        links.filter_map(|link| link.announcement.due).min()
    }

    /// Asks all guests whose time has come.
    pub(super) fn ask_due_announcements(&mut self) {
        let now = Instant::now();
        for vm in self.ports.values_mut().filter_map(|port| port.vm.as_mut()) {
            vm.ask_if_due(now);
        }
    }
}
