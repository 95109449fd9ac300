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
use ringway_switch::PortId;
use ringway_vhost_user::Session;

use super::super::wake::{Wake, Wakes};

/// A front-end that has sent nothing for so long has said all that it means to say: one that stops
/// a device sends its requests within a few milliseconds.
const QUIET: Duration = Duration::from_millis(100);

/// Most rings of a device.
const RINGS_MAX: usize = 256;

/// The queues whose kicks lead to something.
pub struct KickWatch {
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

/// Queues that were kicked.
#[derive(Debug, PartialEq, Eq)]
pub struct Kicked {
    pub queues: Vec<u16>,
    /// The front-end has sent nothing for a while.
    pub is_quiet: bool,
}

/// Queues that a front-end's guest has kicked and that do not run.
pub struct Kicks {
    pub watch: Option<KickWatch>,
    /// Kicked, and to be looked at when the front-end is quiet.
    early: Vec<u16>,
    /// To be looked at once more, at once.
    again: Vec<u16>,
    pub last_request: Instant,
}

impl Kicks {
    pub fn new() -> Self {
        let (watch, early, again) = (None, Vec::new(), Vec::new());
        Self { watch, early, again, last_request: Instant::now() }
    }

    /// A queue that was emptied holds more.
    pub fn look_again(&mut self, index: u16) {
        self.again.push(index);
    }

    fn next_look(&self) -> Option<Instant> {
        match (&self.again[..], &self.early[..]) {
            ([], []) => None,
            ([], _) => Some(self.last_request + QUIET),
            _ => Some(self.last_request),
        }
    }

    /// Kicks of these queues are watched, and no others.
    pub fn watch(
        &mut self,
        fds: Vec<(u16, UntrustedFd)>,
        port: PortId,
        wakes: &Wakes,
    ) -> io::Result<()> {
        self.early.clear();
        if let Some(old) = self.watch.take() {
            wakes.forget(&old);
        }
        if !fds.is_empty() {
            let watch = KickWatch::new(fds)?;
            wakes.watch(&watch, Wake::Kicks(port))?;
            self.watch = Some(watch);
        }
        Ok(())
    }

    /// The guest has kicked queues that are watched.
    pub fn take(&mut self, session: &Session) -> Option<Kicked> {
        let queues = self.watch.as_mut()?.take().ok()?;
        let is_quiet = self.last_request + QUIET <= Instant::now();
        if !is_quiet && session.waits_for_quiet() {
            self.early.extend(&queues);
            self.early.sort_unstable();
            self.early.dedup();
        }
        Some(Kicked { queues, is_quiet })
    }

    /// When the front-end will have been quiet for long enough.
    pub fn next(&self, session: &Session) -> Option<Instant> {
        let goes_on_at = session.goes_on_when_quiet().then_some(self.last_request + QUIET);
        [self.next_look(), goes_on_at].into_iter().flatten().min()
    }

    /// Kicks that waited for the front-end to be quiet lead to something now, and rings that need
    /// none go on.
    pub fn take_due(&mut self, now: Instant, session: &Session) -> Option<Kicked> {
        let goes_on = self.last_request + QUIET <= now && session.goes_on_when_quiet();
        let goes_on = || goes_on.then(|| Kicked { queues: Vec::new(), is_quiet: true });
        self.take_early(now).or_else(goes_on)
    }

    fn take_early(&mut self, now: Instant) -> Option<Kicked> {
        self.next_look().filter(|at| *at <= now)?;
        let is_quiet = self.last_request + QUIET <= now;
        let mut queues = std::mem::take(&mut self.again);
        if is_quiet {
            queues.append(&mut self.early);
            queues.sort_unstable();
            queues.dedup();
        }
        Some(Kicked { queues, is_quiet })
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
        assert_eq!((kicks.next_look(), kicks.take_early(now + QUIET)), (None, None));
        kicks.early = vec![0, 1];
        assert_eq!(kicks.take_early(now), None);
        let kicked = |queues, is_quiet| Some(Kicked { queues, is_quiet });
        assert_eq!(kicks.take_early(now + QUIET), kicked(vec![0, 1], true));
        kicks.early = vec![0];
        kicks.look_again(1);
        assert_eq!(kicks.take_early(now), kicked(vec![1], false));
        assert_eq!(kicks.next_look(), Some(now + QUIET));
    }
}
