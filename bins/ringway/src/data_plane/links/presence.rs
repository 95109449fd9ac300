//! Whether a guest is here: its queues run, have stopped, or stopped while its front-end copied its
//! memory.
//!
//! A guest leaves when all its rings were told to stop, and comes back when one runs again. A
//! driver that is reset does the same within milliseconds. Rings that `GET_VRING_BASE` has stopped
//! may go on by themselves: their guest leaves a little later, unless its memory is copied. A guest
//! whose rings wait for a log, or for memory, stays.

use std::time::{Duration, Instant};

use ringway_host::GuestMemory;
use ringway_net::MacAddress;

use super::Link;

/// Rings that may go on by themselves do so within 100 ms.
const GOES_ON_WITHIN: Duration = Duration::from_millis(200);

/// Addresses that a front-end wants to be announced before its guest runs.
const LATER_MAX: usize = 8;

/// The part of a link that says whether its guest is here.
#[derive(Debug, Default)]
pub struct Presence {
    /// A ring runs, or all are about to go on.
    pub runs: bool,
    /// One has run on this connection.
    pub has_run: bool,
    /// When a guest leaves whose rings may go on by themselves until then.
    pub leaves_at: Option<Instant>,
    migration: Migration,
    goes_on_at: Option<RingBase>,
    /// Announced when the guest runs.
    later: Vec<MacAddress>,
}

/// The first ring of a connection that does not begin as a new one, and where it goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingBase {
    pub index: u16,
    /// As `SET_VRING_BASE` tells it.
    pub base: u32,
}

/// How far the migration of a guest is.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Migration {
    #[default]
    No,
    /// Its memory is copied.
    Copying,
    /// It has stopped, and may go on elsewhere or here.
    Stopped,
}

/// A session, as far as a presence depends on it.
#[derive(Debug, Clone, Copy, Default)]
pub struct View {
    /// A ring runs.
    pub runs: bool,
    /// All were told to stop.
    pub is_stopped: bool,
    /// Without a word of the front-end one may go on.
    pub may_go_on: bool,
    pub is_logging: bool,
    /// Before the last request.
    pub was_logging: bool,
}

/// A change that others are to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum News {
    /// Its front-end begins to copy its memory.
    Begins,
    /// The guest is here.
    Runs { goes_on_at: Option<RingBase> },
    /// The guest is not here any more.
    Stopped { is_migrating: bool },
    /// Its migration is over, and it is here.
    Stays,
}

/// The state of a link in front of a request.
#[derive(Debug, Default)]
pub struct Before {
    pub was_logging: bool,
    /// With the log in which pages were marked.
    pub memory: Option<GuestMemory>,
}

impl Link {
    /// To be asked before its session has a request.
    pub fn before(&self) -> Before {
        let was_logging = self.session.is_logging();
        Before { was_logging, memory: was_logging.then(|| self.memory.clone()) }
    }

    pub fn view(&self, was_logging: bool) -> View {
        let session = &self.session;
        View {
            runs: session.running().next().is_some(),
            is_stopped: session.is_stopped(),
            may_go_on: session.may_go_on(),
            is_logging: session.is_logging(),
            was_logging,
        }
    }
}

impl Presence {
    /// The link is one that the data plane before had; whether a guest that has stopped ever ran is
    /// not known.
    pub fn resume(&mut self, view: View) {
        (self.runs, self.has_run) = (!view.is_stopped, !view.is_stopped);
        self.migration = if view.is_logging { Migration::Copying } else { Migration::No };
    }

    /// A ring is about to start, where its front-end has said.
    pub fn starts_at(&mut self, at: RingBase, is_fresh: bool) {
        if !self.has_run && !is_fresh {
            self.goes_on_at.get_or_insert(at);
        }
    }

    /// The guest has stopped while its memory was copied, and may go on elsewhere.
    pub fn may_be_elsewhere(&self) -> bool {
        self.migration == Migration::Stopped
    }

    /// Announces that address when the guest runs. Limits: the first eight.
    pub fn announce_later(&mut self, mac: MacAddress) {
        if self.later.len() < LATER_MAX && !self.later.contains(&mac) {
            self.later.push(mac);
        }
    }

    /// Addresses that are to be announced now that the guest runs.
    pub fn take_later(&mut self) -> Vec<MacAddress> {
        std::mem::take(&mut self.later)
    }

    /// The session has changed, or time has passed.
    pub fn follow(&mut self, view: View, now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        if view.is_logging && !view.was_logging {
            // A source that goes on while its migration fails says so once more.
            let is_new = self.migration == Migration::No;
            self.migration = Migration::Copying;
            news.extend(is_new.then_some(News::Begins));
        }
        if view.runs || !view.is_stopped {
            self.leaves_at = None;
        }
        if view.runs {
            self.run(view.is_logging, &mut news);
        } else if view.is_stopped && self.runs {
            self.stop(view.may_go_on, now, &mut news);
        }
        let has_ended = view.was_logging && !view.is_logging;
        if has_ended && self.migration == Migration::Copying {
            self.migration = Migration::No;
            news.extend(self.runs.then_some(News::Stays));
        }
        news
    }

    fn run(&mut self, is_logging: bool, news: &mut Vec<News>) {
        let is_new = !std::mem::replace(&mut self.has_run, true);
        if std::mem::replace(&mut self.runs, true) {
            return;
        }
        let goes_on_at = self.goes_on_at.filter(|_| is_new);
        news.push(News::Runs { goes_on_at });
        if self.migration == Migration::Stopped && !is_logging {
            self.migration = Migration::No;
            news.push(News::Stays);
        }
    }

    fn stop(&mut self, may_go_on: bool, now: Instant, news: &mut Vec<News>) {
        let leaves_at = *self.leaves_at.get_or_insert(now + GOES_ON_WITHIN);
        if may_go_on && now < leaves_at {
            return;
        }
        (self.runs, self.leaves_at) = (false, None);
        let is_migrating = self.migration == Migration::Copying;
        if is_migrating {
            self.migration = Migration::Stopped;
        }
        news.push(News::Stopped { is_migrating });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNS: View = View {
        runs: true,
        is_stopped: false,
        may_go_on: false,
        is_logging: false,
        was_logging: false,
    };
    const STOPPED: View = View { runs: false, is_stopped: true, ..RUNS };
    const LOGGED: View = View { is_logging: true, was_logging: true, ..RUNS };
    const BEGINS: View = View { was_logging: false, ..LOGGED };
    const ENDS: View = View { is_logging: false, ..LOGGED };
    const LEFT: News = News::Stopped { is_migrating: false };
    const MOVES: News = News::Stopped { is_migrating: true };
    const CAME: News = News::Runs { goes_on_at: None };

    fn stopped(view: View) -> View {
        View { runs: false, is_stopped: true, ..view }
    }

    fn news(steps: &[View]) -> Vec<News> {
        let (mut presence, now) = (Presence::default(), Instant::now());
        steps.iter().flat_map(|view| presence.follow(*view, now)).collect()
    }

    #[test]
    fn a_guest_comes_and_leaves_with_its_rings() {
        let table: [(&str, &[View], &[News]); 9] = [
            ("it never ran", &[STOPPED], &[]),
            ("its driver is reset", &[RUNS, RUNS, STOPPED, STOPPED, RUNS], &[CAME, LEFT, CAME]),
            ("it waits for memory", &[RUNS, View { runs: false, ..RUNS }, RUNS], &[CAME]),
            (
                "it is copied, and stays",
                &[RUNS, BEGINS, LOGGED, ENDS],
                &[CAME, News::Begins, News::Stays],
            ),
            (
                "QEMU 10 stops",
                &[RUNS, BEGINS, stopped(LOGGED), stopped(ENDS)],
                &[CAME, News::Begins, MOVES],
            ),
            (
                "QEMU 7.2 stops",
                &[RUNS, BEGINS, stopped(ENDS), STOPPED],
                &[CAME, News::Begins, MOVES],
            ),
            (
                "it goes on after a file",
                &[RUNS, BEGINS, stopped(ENDS), STOPPED, RUNS],
                &[CAME, News::Begins, MOVES, CAME, News::Stays],
            ),
            (
                "its destination refuses at the end",
                &[RUNS, BEGINS, stopped(ENDS), stopped(BEGINS), LOGGED, ENDS],
                &[CAME, News::Begins, MOVES, CAME, News::Stays],
            ),
            (
                "it begins and ends while it is stopped",
                &[stopped(BEGINS), stopped(ENDS)],
                &[News::Begins],
            ),
        ];
        for (case, steps, expected) in table {
            assert_eq!(news(steps), expected, "{case}");
        }
    }

    #[test]
    fn one_whose_rings_were_only_asked_for_leaves_when_they_do_not_go_on() {
        let asked = View { may_go_on: true, ..STOPPED };
        let (mut presence, start) = (Presence::default(), Instant::now());
        assert_eq!(presence.follow(RUNS, start), [CAME]);
        assert_eq!(presence.follow(asked, start), []);
        assert_eq!(presence.leaves_at, Some(start + GOES_ON_WITHIN));
        assert_eq!(presence.follow(RUNS, start + GOES_ON_WITHIN / 2), []);
        assert_eq!(presence.leaves_at, None);
        presence.follow(asked, start);
        assert_eq!(presence.follow(asked, start + GOES_ON_WITHIN), [LEFT]);
        presence.follow(RUNS, start);
        presence.follow(asked, start);
        assert_eq!(presence.follow(STOPPED, start), [LEFT], "its status says so");
    }

    #[test]
    fn only_the_first_start_says_where_a_guest_goes_on() {
        let (mut presence, now) = (Presence::default(), Instant::now());
        let [_, second, third] = [(0, 0), (1, 7), (2, 9)].map(|(index, base)| {
            let at = RingBase { index, base };
            presence.starts_at(at, base == 0);
            at
        });
        assert_eq!(presence.follow(RUNS, now), [News::Runs { goes_on_at: Some(second) }]);
        presence.starts_at(third, false);
        assert_eq!(presence.follow(STOPPED, now), [LEFT]);
        assert_eq!(presence.follow(RUNS, now), [CAME]);
    }

    #[test]
    fn a_link_goes_on_with_the_next_data_plane() {
        let now = Instant::now();
        let resumed = |view| {
            let mut presence = Presence::default();
            presence.resume(view);
            presence
        };
        assert_eq!(resumed(LOGGED).follow(stopped(LOGGED), now), [MOVES]);
        assert_eq!(resumed(LOGGED).follow(ENDS, now), [News::Stays]);
        // Its rings wait for a log.
        let waits = View { runs: false, ..LOGGED };
        assert!(resumed(waits).runs && resumed(waits).follow(LOGGED, now).is_empty());
        // A destination that has not begun.
        let mut presence = resumed(STOPPED);
        let at = RingBase { index: 0, base: 7 };
        presence.starts_at(at, false);
        assert_eq!(presence.follow(RUNS, now), [News::Runs { goes_on_at: Some(at) }]);
    }

    #[test]
    fn announcements_wait_for_the_guest_and_are_few() {
        let mut presence = Presence::default();
        (0..40).for_each(|n| presence.announce_later(MacAddress::local(n / 2)));
        let later = presence.take_later();
        assert_eq!(later, (0..8).map(MacAddress::local).collect::<Vec<_>>());
        assert!(presence.take_later().is_empty());
    }
}
