//! Kicks of queues that do not run: the control thread watches their kick fds, the session says
//! what a kick leads to.
//!
//! How: the kick fds are watched by a poller of the front-end's own, edge-triggered as the workers
//! watch them, and that poller is watched by the control thread's. What was kicked before the watch
//! began does not count. Limits: a queue that runs may be among them; its worker gets the same
//! kicks.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use ringway_foreign::UntrustedFd;
use ringway_host::{Events, KickFd, Poller};
use ringway_supervisor::wire::{List, ToSupervisor};
use ringway_switch::PortId;
use tracing::info;

use super::{DataPlane, Wake};

/// A front-end that has sent nothing for so long has said all that it means to say: one that stops
/// a device sends its requests within a few milliseconds.
const QUIET: Duration = Duration::from_millis(100);

/// Most rings of a device.
const RINGS_MAX: usize = 256;

/// The queues whose kicks lead to something.
pub(super) struct KickWatch {
    poller: Poller,
    events: Events,
    /// Open as long as they are watched.
    _fds: Vec<KickFd>,
}

impl KickWatch {
    /// Kicks of these queues count from now on.
    fn new(fds: Vec<(u16, UntrustedFd)>) -> io::Result<Self> {
        let poller = Poller::new()?;
        let mut kicks = Vec::with_capacity(fds.len());
        for (index, fd) in fds {
            let kick = KickFd::new(fd)?;
            poller.add_edge(kick.as_fd(), index.into())?;
            kicks.push(kick);
        }
        let mut watch = Self { poller, events: Events::with_capacity(RINGS_MAX), _fds: kicks };
        watch.take()?;
        Ok(watch)
    }

    /// The queues that were kicked since the last time asked.
    fn take(&mut self) -> io::Result<Vec<u16>> {
        self.poller.wait(&mut self.events, Some(Duration::ZERO))?;
        let indexes = self.events.iter().filter_map(|event| u16::try_from(event.token).ok());
        Ok(indexes.collect())
    }
}

impl AsFd for KickWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }
}

/// Queues that a front-end's guest has kicked and that do not run.
pub(super) struct Kicks {
    pub(super) watch: Option<KickWatch>,
    /// Kicked, and to be looked at when the front-end is quiet.
    early: Vec<u16>,
    /// To be looked at once more, at once.
    again: Vec<u16>,
    pub(super) last_request: Instant,
}

impl Kicks {
    pub(super) fn new() -> Self {
        let (watch, early, again) = (None, Vec::new(), Vec::new());
        Self { watch, early, again, last_request: Instant::now() }
    }

    /// A queue that was emptied holds more.
    pub(super) fn look_again(&mut self, index: u16) {
        self.again.push(index);
    }

    fn next_look(&self) -> Option<Instant> {
        match (&self.again[..], &self.early[..]) {
            ([], []) => None,
            ([], _) => Some(self.last_request + QUIET),
            _ => Some(self.last_request),
        }
    }

    /// The queues that are due, and whether the front-end is quiet.
    fn take_due(&mut self, now: Instant) -> Option<(Vec<u16>, bool)> {
        self.next_look().filter(|at| *at <= now)?;
        let is_quiet = self.last_request + QUIET <= now;
        let mut due = std::mem::take(&mut self.again);
        if is_quiet {
            due.append(&mut self.early);
            due.sort_unstable();
            due.dedup();
        }
        Some((due, is_quiet))
    }
}

impl DataPlane {
    /// Kicks of these queues are watched, and no others.
    pub(super) fn watch_kicks(&mut self, id: PortId, fds: Vec<(u16, UntrustedFd)>) {
        let Some(link) = self.link_of(id) else { return };
        let old = link.kicks.watch.take();
        link.kicks.early.clear();
        if let Some(old) = old {
            self.wakes.forget(&old);
        }
        if fds.is_empty() {
            return;
        }
        let watched = KickWatch::new(fds).and_then(|watch| {
            self.wakes.watch(&watch, Wake::Kicks(id))?;
            Ok(watch)
        });
        match watched {
            Ok(watch) => {
                if let Some(link) = self.link_of(id) {
                    link.kicks.watch = Some(watch);
                }
            }
            Err(why) => {
                self.complain(id, format_args!("cannot watch the kicks of stopped queues: {why}"))
            }
        }
    }

    /// The guest has kicked queues that are watched.
    pub(super) fn on_kicks(&mut self, id: PortId) {
        if self.waits_for_closing(id) {
            return;
        }
        let now = Instant::now();
        let Some(link) = self.link_of(id) else { return };
        let Some(Ok(kicked)) = link.kicks.watch.as_mut().map(KickWatch::take) else { return };
        let is_quiet = link.kicks.last_request + QUIET <= now;
        if !is_quiet && link.session.waits_for_quiet() {
            link.kicks.early.extend(&kicked);
            link.kicks.early.sort_unstable();
            link.kicks.early.dedup();
        }
        self.go_on(id, &kicked, is_quiet);
    }

    /// When the next front-end will have been quiet for long enough.
    pub(super) fn next_look_at_kicks(&self) -> Option<Instant> {
        let links = self.ports.values().filter_map(super::Port::link);
        let looks = links.filter_map(|link| {
            let quiet_at = link.kicks.last_request + QUIET;
            let goes_on_at = link.session.goes_on_when_quiet().then_some(quiet_at);
            [link.kicks.next_look(), goes_on_at].into_iter().flatten().min()
        });
        looks.min()
    }

    /// Kicks that waited for their front-end to be quiet lead to something now, and rings that need
    /// none go on.
    pub(super) fn look_at_kicks(&mut self) {
        let now = Instant::now();
        for id in self.ids() {
            let due = self.link_of(id).and_then(|link| {
                let is_quiet = link.kicks.last_request + QUIET <= now;
                let goes_on = is_quiet && link.session.goes_on_when_quiet();
                link.kicks.take_due(now).or_else(|| goes_on.then(|| (Vec::new(), true)))
            });
            if let Some((kicked, is_quiet)) = due {
                self.go_on(id, &kicked, is_quiet);
            }
        }
    }

    fn go_on(&mut self, id: PortId, kicked: &[u16], is_quiet: bool) {
        let Some(link) = self.link_of(id) else { return };
        let running = link.session.running().count();
        let outcome = link.session.kicked(kicked, is_quiet);
        if let Some(why) = &outcome.refused {
            self.complain(id, format_args!("a stopped queue was kicked and cannot start: {why}"));
        }
        let applied = self.apply(id, outcome.effects);
        let Some(link) = self.link_of(id) else { return };
        // Nothing is to be replied to a kick.
        let _ = link.session.complete(outcome.pending, applied);
        let went_on = link.session.running().count().saturating_sub(running);
        let (link, drops) = (link.number, link.keeper.went_on(&link.session));
        if !drops.is_empty() {
            let drops = List::new(drops).unwrap_or_default();
            self.supervisor.tell(&ToSupervisor::Forget { link, drops });
        }
        let why = match kicked {
            [] => "the front-end has only asked where they stand",
            _ => "the guest kicked them",
        };
        if let Some(port) = self.ports.get_mut(&id).filter(|_| went_on > 0) {
            let name = &port.spec.name;
            port.chatter.say(name, || {
                info!(port = name, "{went_on} stopped queues run again: {why}");
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use ringway_host::EventFd;

    use super::*;

    fn copy(bell: &EventFd) -> UntrustedFd {
        bell.as_fd().try_clone_to_owned().unwrap().into()
    }

    #[test]
    fn only_what_is_kicked_behind_the_begin_counts() {
        let bells = [EventFd::new().unwrap(), EventFd::new().unwrap()];
        bells[0].notify();
        let mut watch = KickWatch::new(vec![(0, copy(&bells[0])), (3, copy(&bells[1]))]).unwrap();
        assert_eq!(watch.take().unwrap(), [0; 0]);
        // The eventfds are not read meanwhile.
        for bell in [0, 1, 0] {
            bells[bell].notify();
            assert_eq!(watch.take().unwrap(), [[0, 3][bell]]);
            assert_eq!(watch.take().unwrap(), [0; 0]);
        }
    }

    #[test]
    fn what_comes_early_waits_until_it_is_quiet_and_what_is_left_does_not() {
        let mut kicks = Kicks::new();
        let now = kicks.last_request;
        assert_eq!((kicks.next_look(), kicks.take_due(now + QUIET)), (None, None));
        kicks.early = vec![0, 1];
        assert_eq!(kicks.take_due(now), None);
        assert_eq!(kicks.take_due(now + QUIET), Some((vec![0, 1], true)));
        kicks.early = vec![0];
        kicks.look_again(1);
        assert_eq!(kicks.take_due(now), Some((vec![1], false)));
        assert_eq!(kicks.next_look(), Some(now + QUIET));
    }
}
