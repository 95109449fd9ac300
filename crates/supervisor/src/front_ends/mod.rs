//! Who may connect at a virtual machine's port. One front-end at a time is linked. The next one
//! that comes waits, and follows when the one that is linked ends. A third one is refused, that is,
//! disconnected: in the socket's queue it would wait without a word.
//!
//! The one that is linked may be about to end, and the newcomer be the same machine once more. So
//! that a newcomer waits is said only if the other one is still there [`GRACE`] later, and a third
//! one is refused only then. While something is being closed that a front-end has sent, nothing is
//! read from it, and the next one waits.
//!
//! How: as with [`succession`](crate::succession), events go in ([`Admission::on`]), and
//! [`Effect`]s come out, to be carried out in their order. Nothing is known of file descriptors.
//!
//! Limits: while the next one has not waited for [`GRACE`], or a third one is to be refused, others
//! wait in the socket's queue. That the next one has gone is noticed when another one comes, or
//! when its turn has come.

mod event;
mod steps;

use std::time::{Duration, Instant};

pub use event::{Effect, Event};

/// A process that has ended may have copies of its sockets for a moment, as between fork and exec.
pub const GRACE: Duration = Duration::from_millis(100);
/// Pause between two attempts to connect, to accept where that has failed, or to refuse.
pub const RETRY_AFTER: Duration = Duration::from_millis(500);
/// That something is being closed is said if it takes longer.
pub const SLOW_AFTER: Duration = Duration::from_secs(1);
/// How long the port accepts no front-end after one has blocked a call, which costs others up to
/// two ticks of the guard of calls, 20 ms, or has made page faults sleep.
pub const HOLD_OFF: Duration = Duration::from_secs(3);
/// After faults, twice as long each time, but so often at most: each costs others more.
pub const HOLD_OFF_DOUBLED_MAX: u32 = 6;
/// After this time without another one, an offence is forgotten.
pub const OFFENCE_FORGOTTEN: Duration = Duration::from_secs(600);

/// How the front-end is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SocketMode {
    /// It connects to us.
    Listen,
    /// We connect to it.
    Connect,
    /// It was there from the start, and there is no other one.
    Given,
    /// The port is being removed: none may connect.
    Closed,
}

/// Front-ends that came to a port before, and their offences.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// The number of the one before.
    pub last_link: Option<u32>,
    /// How the last one was hostile, or why there is a quarantine; until the next one comes.
    pub last_offence: Option<String>,
    /// How many came while another one was linked, and a second one waited.
    pub refused: u64,
}

/// The front-ends of one port.
#[derive(Debug, Clone)]
pub struct Admission {
    mode: SocketMode,
    is_listening: bool,
    link: Option<LinkedFrontEnd>,
    /// The front-end that is linked next.
    next: Option<Newcomer>,
    /// A third one has come; when it is refused, if the first one is linked still.
    refuse_at: Option<Instant>,
    closing: Closing,
    /// Of a listener: it is left alone until then, as the connection that waits there would keep
    /// waking us. Otherwise: when we connect next.
    next_try: Option<Instant>,
    /// That none can be accepted was said since the last one came.
    is_failure_told: bool,
    is_held: bool,
    is_quarantined: bool,
    /// How many there were in a row, and when the last one was.
    offences: (u32, Option<Instant>),
    history: History,
}

/// The front-end that is linked.
#[derive(Debug, Clone, Default)]
struct LinkedFrontEnd {
    has_room: bool,
    is_read: bool,
}

/// A front-end that waits until the one that is linked has gone.
#[derive(Debug, Clone)]
struct Newcomer {
    /// When it is said that it waits; `None`: it was.
    say_at: Option<Instant>,
}

impl Newcomer {
    fn new(now: Instant) -> Self {
        Self { say_at: Some(now + GRACE) }
    }
}

/// Closing what the front-end has sent, here and in the data plane.
#[derive(Debug, Clone, Default)]
struct Closing {
    is_here: bool,
    is_in_plane: bool,
    /// Until both have ended and the port's thread was looked at again.
    since: Option<Instant>,
    /// It takes long, which was said.
    is_slow: bool,
}

impl Admission {
    /// A new port; its listener is watched.
    #[must_use]
    pub fn new(mode: SocketMode, now: Instant) -> Self {
        Self {
            mode,
            is_listening: mode == SocketMode::Listen,
            link: None,
            next: None,
            refuse_at: None,
            closing: Closing::default(),
            next_try: matches!(mode, SocketMode::Connect | SocketMode::Given).then_some(now),
            is_failure_told: false,
            is_held: false,
            is_quarantined: false,
            offences: (0, None),
            history: History::default(),
        }
    }

    /// One that another supervisor had; nothing is watched until [`Event::Hold`] says so. The one
    /// that was [given](SocketMode::Given) has come.
    #[must_use]
    pub fn resume(mode: SocketMode, history: History, now: Instant) -> Self {
        let next_try = (mode == SocketMode::Connect).then_some(now);
        Self { is_listening: false, is_held: true, next_try, history, ..Self::new(mode, now) }
    }

    /// The front-ends that came before, for statistics and the record.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether a front-end is linked.
    #[must_use]
    pub fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Whether the listener is watched.
    #[must_use]
    pub fn is_listening(&self) -> bool {
        self.is_listening
    }

    /// Whether the connection that is linked is watched.
    #[must_use]
    pub fn is_reading(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_read)
    }

    /// Whether something may be taken from the front-end that is linked.
    #[must_use]
    pub fn may_read(&self) -> bool {
        self.is_linked() && !self.is_held && !self.is_closing()
    }

    /// Whether a front-end waits while another one is linked, or was until now.
    #[must_use]
    pub fn has_newcomer(&self) -> bool {
        self.next.is_some()
    }

    /// Whether a third front-end has come, which is to be refused.
    #[must_use]
    pub fn has_third(&self) -> bool {
        self.refuse_at.is_some()
    }

    /// Whether something is being closed that a front-end has sent.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.closing.since.is_some()
    }

    /// Whether that takes long.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.closing.is_slow
    }

    /// Whether no front-end may connect until the port is released.
    #[must_use]
    pub fn is_quarantined(&self) -> bool {
        self.is_quarantined
    }

    /// When [`Event::Due`] is due.
    #[must_use]
    pub fn wake_at(&self) -> Option<Instant> {
        let slow = self.closing.since.filter(|_| !self.is_slow()).map(|since| since + SLOW_AFTER);
        let say_at = self.next.as_ref().and_then(|next| next.say_at);
        let newcomers = say_at.into_iter().chain(self.refuse_at).filter(|_| self.is_linked());
        let is_tried = self.mode == SocketMode::Listen || self.may_connect();
        slow.into_iter().chain(newcomers).chain(self.next_try.filter(|_| is_tried)).min()
    }

    /// Whether a front-end that we connect to has a use now.
    fn may_connect(&self) -> bool {
        let is_ours = matches!(self.mode, SocketMode::Connect | SocketMode::Given);
        let is_busy = self.is_linked() || self.is_closing();
        is_ours && !is_busy && !self.is_quarantined && !self.is_held
    }

    /// Whether the next front-end that connects has a use now: it is linked, waits, or is refused.
    fn wants_front_end(&self) -> bool {
        let is_able =
            self.mode == SocketMode::Listen && self.next_try.is_none() && !self.is_quarantined;
        let has_use = match &self.next {
            None => self.is_linked() || !self.is_closing(),
            Some(next) => self.is_linked() && next.say_at.is_none() && !self.has_third(),
        };
        is_able && has_use && !self.is_held
    }

    /// Whether the newcomer takes the place of the one that was linked.
    fn is_newcomers_turn(&self) -> bool {
        let is_held_off = self.mode == SocketMode::Listen && self.next_try.is_some();
        let is_free = !self.is_linked() && !self.is_closing() && !is_held_off;
        self.has_newcomer() && is_free && !self.is_held
    }
}
