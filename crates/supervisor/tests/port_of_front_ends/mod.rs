//! A port as the program has it, which carries effects out and panics where one is wrong.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ringway_supervisor::front_ends::{
    Admission, Effect, Event, GRACE, HOLD_OFF, RETRY_AFTER, SLOW_AFTER, SocketMode,
};
use ringway_supervisor::wire::Offence;

/// The program: its connections, and the effects that it was told.
#[derive(Debug, Clone)]
pub(crate) struct World {
    pub admission: Admission,
    pub mode: SocketMode,
    pub now: Instant,
    pub comers: u32,
    pub moments: u32,
    /// Front-ends that the program has not seen yet.
    pub queue: u32,
    /// Connections that wait.
    pub waiting: VecDeque<Newcomer>,
    pub is_linked: bool,
    pub has_room: bool,
    /// Front-ends that were linked, and have gone.
    pub gone: u32,
    pub refused: u64,
    pub is_listening: bool,
    pub is_reading: bool,
    pub closes_here: bool,
    pub plane_closes: bool,
    pub closing_since: Option<Instant>,
    pub is_slow: bool,
    pub is_failure_told: bool,
    pub is_held: bool,
    pub is_quarantined: bool,
    pub is_removed: bool,
    /// The program has let the port go.
    pub is_free: bool,
    /// No front-end may connect until then.
    pub quiet_until: Option<Instant>,
    pub connected_at: Option<Instant>,
    pub offences: u32,
    pub cannot_refuse: bool,
    pub cannot_link: bool,
}

/// A connection that waits.
#[derive(Debug, Clone)]
pub(crate) struct Newcomer {
    /// It has come, or moved up, at this time.
    pub since: Instant,
    /// It was said that it waits.
    pub is_told: bool,
    pub has_ended: bool,
}

impl World {
    pub fn new(mode: SocketMode) -> Self {
        let now = Instant::now();
        Self {
            admission: Admission::new(mode, now),
            mode,
            now,
            comers: 0,
            moments: 0,
            queue: u32::from(mode == SocketMode::Given),
            waiting: VecDeque::new(),
            is_linked: false,
            has_room: false,
            gone: 0,
            refused: 0,
            is_listening: mode == SocketMode::Listen,
            is_reading: false,
            closes_here: false,
            plane_closes: false,
            closing_since: None,
            is_slow: false,
            is_failure_told: false,
            is_held: false,
            is_quarantined: false,
            is_removed: false,
            is_free: false,
            quiet_until: None,
            connected_at: None,
            offences: 0,
            cannot_refuse: false,
            cannot_link: false,
        }
    }

    pub fn happens(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            self.admission.on(event, self.now, &mut effects);
            let is_closing = self.closes_here || self.plane_closes;
            self.closing_since = self.closing_since.or(is_closing.then_some(self.now));
            for effect in effects {
                events.extend(self.carry_out(effect));
            }
        }
    }

    fn is_quiet(&self) -> bool {
        self.quiet_until.is_some_and(|until| until > self.now)
    }

    fn may_link(&self) -> bool {
        let is_busy = self.closes_here || self.plane_closes || self.is_held;
        !is_busy && !self.is_linked && !self.is_removed && !self.is_quarantined
    }

    fn carry_out(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Listen(listens) => {
                assert_ne!(self.is_listening, listens);
                self.is_listening = listens;
            }
            Effect::Connect => return self.connect(),
            Effect::Link => return self.link(),
            Effect::Refuse if self.cannot_refuse => {}
            Effect::Refuse => {
                assert!(self.is_linked, "it may have the port");
                assert_eq!(self.waiting.len(), 2, "a second one is there");
                assert!(self.now >= self.waiting[1].since + GRACE, "within its grace");
                if self.waiting[0].has_ended {
                    self.waiting.pop_front();
                    self.waiting[0].since = self.now;
                    return Some(Event::NextHasGone);
                }
                self.waiting.pop_back();
                self.refused += 1;
                return Some(Event::Refused);
            }
            Effect::SayItWaits => {
                assert!(self.is_linked, "it may have the port");
                let next = self.waiting.front_mut().expect("there is one");
                assert!(self.now >= next.since + GRACE, "within its grace");
                assert!(!std::mem::replace(&mut next.is_told, true), "it is known");
            }
            Effect::Drop => {
                assert!(self.is_removed || self.is_quarantined, "it is forgotten");
                assert!(!self.waiting.is_empty());
                self.waiting.clear();
            }
            Effect::Read(reads) => self.is_reading = reads && self.is_linked,
            Effect::Disconnect => {
                assert!(self.is_quarantined);
                return Some(self.leave(None, true, true));
            }
            Effect::Free => {
                assert!(self.is_removed && !self.is_linked && !self.is_free);
                self.is_free = true;
            }
            Effect::CannotAccept { .. } => {
                assert!(!std::mem::replace(&mut self.is_failure_told, true), "it is known");
            }
            Effect::HoldOff { pause, .. } => self.holds_off(pause),
            Effect::IsSlow => {
                let since = self.closing_since.expect("something is being closed");
                assert!(self.now >= since + SLOW_AFTER && !self.is_slow);
                self.is_slow = true;
            }
            Effect::IsOver { took } => {
                assert!(std::mem::take(&mut self.is_slow) && took >= SLOW_AFTER);
                assert!(!self.closes_here && !self.plane_closes, "it goes on");
            }
        }
        None
    }

    fn connect(&mut self) -> Option<Event> {
        assert!(self.mode != SocketMode::Listen && self.may_link() && !self.is_quiet());
        let last = self.connected_at.replace(self.now);
        assert!(last.is_none_or(|at| self.now >= at + RETRY_AFTER), "too often");
        self.queue = self.queue.checked_sub(1)?;
        assert!(self.waiting.is_empty());
        self.comes();
        Some(Event::Connected)
    }

    fn link(&mut self) -> Option<Event> {
        assert!(self.may_link(), "its turn has not come");
        assert!(!self.is_quiet(), "the port is held off");
        assert!(self.waiting.pop_front().is_some(), "one that has come");
        self.waiting.iter_mut().for_each(|next| next.since = self.now);
        (self.is_failure_told, self.quiet_until) = (false, None);
        if self.cannot_link {
            return Some(Event::NotLinked);
        }
        (self.is_linked, self.has_room, self.is_reading) = (true, true, false);
        None
    }

    /// Each `Stalled` within a short time costs twice as much as the one before.
    fn holds_off(&mut self, pause: Duration) {
        let times = if self.offences.is_multiple_of(2) { 1 << (self.offences - 1) } else { 1 };
        assert_eq!(pause, HOLD_OFF * times);
        self.quiet_until = Some(self.now + pause);
    }

    fn comes(&mut self) {
        let newcomer = Newcomer { since: self.now, is_told: false, has_ended: false };
        self.waiting.push_back(newcomer);
    }

    pub fn accept(&mut self) {
        assert!(self.waiting.iter().all(|next| next.is_told), "one comes");
        assert!(self.waiting.len() < 2);
        self.comes();
        self.queue -= 1;
        self.happens(Event::Connected);
    }

    /// Another offence than the last one: the second one is `Stalled`.
    pub fn offence(&mut self) -> Offence {
        self.offences += 1;
        if self.offences.is_multiple_of(2) { Offence::Stalled } else { Offence::Blocked }
    }

    pub fn leave(&mut self, offence: Option<Offence>, here: bool, plane: bool) -> Event {
        (self.is_linked, self.is_reading) = (false, false);
        (self.closes_here, self.plane_closes) =
            (self.closes_here | here, self.plane_closes | plane);
        self.gone += 1;
        Event::Gone {
            link: self.gone,
            offence: offence.map(|offence| (offence, "why".to_owned())),
            is_closing_here: self.closes_here,
            is_plane_closing: plane,
        }
    }

    pub fn wait(&mut self) {
        self.now = self.admission.wake_at().map_or(self.now, |at| self.now.max(at));
        self.quiet_until = self.quiet_until.filter(|until| *until > self.now);
        self.happens(Event::Due);
        let is_later = self.admission.wake_at().is_none_or(|at| at > self.now);
        assert!(is_later, "no moment is due twice");
    }

    /// As the program does in each turn.
    pub fn turn(&mut self) {
        if self.admission.is_closing() {
            if !self.closes_here && !self.plane_closes {
                self.closing_since = None;
            }
            self.happens(Event::Closing { is_here: self.closes_here });
        }
        assert_eq!(self.admission.is_closing(), self.closing_since.is_some());
        assert_eq!(self.admission.is_linked(), self.is_linked);
        assert_eq!(self.admission.has_newcomer(), !self.waiting.is_empty(), "none is forgotten");
        assert_eq!(self.admission.has_third(), self.waiting.len() > 1, "none is forgotten");
        assert_eq!(self.admission.history().refused, self.refused);
        let is_able = self.mode == SocketMode::Listen && !self.is_removed && !self.is_quarantined;
        let has_use = self.is_linked || self.closing_since.is_none();
        let is_told = self.waiting.iter().all(|next| next.is_told && self.is_linked);
        let has_room = self.waiting.len() < 2 && is_told;
        let is_free = has_room && self.quiet_until.is_none() && !self.is_held;
        assert_eq!(self.is_listening, is_able && has_use && is_free, "while there is a use");
        let reads = self.is_linked && self.has_room && !self.is_held;
        assert_eq!(self.is_reading, reads && self.closing_since.is_none(), "while there is a use");
        assert!(!self.is_quarantined || !self.is_linked, "none is served in quarantine");
        assert!(self.is_linked || !self.is_removed || self.is_free, "it ends");
        if let Some(since) = self.closing_since.filter(|_| !self.is_slow) {
            let soonest = self.admission.wake_at();
            assert!(soonest.is_some_and(|at| at <= since + SLOW_AFTER), "it is said in time");
        }
        let third = self.waiting.iter().skip(1);
        let untold = self.waiting.iter().take(1).filter(|next| !next.is_told);
        for next in third.chain(untold).filter(|_| self.is_linked) {
            let soonest = self.admission.wake_at().expect("it is refused, or said to wait");
            assert!(soonest <= next.since.max(self.now) + RETRY_AFTER, "at once, or soon");
        }
    }
}
