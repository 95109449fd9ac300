//! Announcements and packets that wait until a guest believes that its link has come up.
//!
//! The news takes its time in the guest. An answer that it sends before, or a question whose answer
//! it needs to send anything, are lost in its own kernel, which asks again after a second. So what
//! it sends is taken at once, and nothing is handed to it for a moment. And its network may have
//! changed while its link was down: it is asked then to say where it is
//! (`VIRTIO_NET_F_GUEST_ANNOUNCE`, virtio 1.2 §5.1.6.5.4). It answers through its controlq, and is
//! not asked again.

use std::time::{Duration, Instant};

use ringway_net::Features;

use super::vm_port::VmPort;

/// A guest takes a few milliseconds to believe the news.
const DELAY: Duration = Duration::from_millis(100);

impl VmPort {
    /// The guest's link came up, or went down.
    pub fn plan_belief(&mut self, is_up: bool) {
        self.believes = (is_up && self.is_linked()).then(|| Instant::now() + DELAY);
    }

    /// `true`: the guest believes it from now on, and is asked to say where it is.
    pub fn is_believed(&mut self, now: Instant) -> bool {
        if self.believes.is_none_or(|at| at > now) {
            return false;
        }
        self.believes = None;
        if let Some(link) = &mut self.link
            && link.negotiated.is_some_and(|it| it.features.contains(Features::GUEST_ANNOUNCE))
        {
            link.announcement.is_asked = true;
            self.tell_config();
        }
        true
    }

    /// The guest has answered so often. It knows what its configuration is now, so it is not told.
    pub fn on_answers(&mut self, answers: u64) {
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
