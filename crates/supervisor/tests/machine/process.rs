//! A data plane's process in small: it reads what it is told, does it a moment later, and says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ringway_supervisor::restart::Busy;
use ringway_supervisor::watch::Beat;
use ringway_supervisor::wire::{Offence, ToData};

use super::chance::Chance;

/// From a message's arrival until its answer.
const STEP: Duration = Duration::from_millis(1);
/// Visits of a worker that has traffic.
const VISITS_PER_MS: u64 = 4;
/// Packets in its socket that it has not read.
const UNREAD_MAX: usize = 64;

/// A message with its file descriptors, which travel with it or are named.
#[derive(Debug, Clone)]
pub struct Delivery {
    pub message: ToData,
    pub fds: Vec<u32>,
    pub is_named: bool,
}

/// A message of a data plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Hello { needs_bare: bool },
    Ready,
    Running,
    Positions,
    Finished { order: u32, is_told: bool, is_closing: bool, is_refused: bool },
    Done { link: u32, number: u32, is_closing: bool },
    LetGo { link: u32, offence: Option<Offence> },
    Closed { port: u16 },
    Answer { ask: u32 },
    GoesOn,
}

/// How a process ends, and when that is seen.
#[derive(Debug, Clone, Copy)]
pub struct Ending {
    /// `None`: it exits.
    pub signal: Option<i32>,
    /// Its workers end before the process has.
    pub workers_at: Instant,
    pub at: Instant,
}

#[derive(Debug, Clone)]
pub struct Process {
    inbox: VecDeque<Vec<Delivery>>,
    acts_at: Option<Instant>,
    later: Vec<(Instant, Word)>,
    has_said_hello: bool,
    pub is_old: bool,
    pub is_stopped: bool,
    pub is_hung: bool,
    given: BTreeSet<u32>,
    /// Ports, with their options.
    pub ports: BTreeMap<u16, Vec<u8>>,
    leaving: BTreeSet<u16>,
    /// Front-ends: their ports, and the descriptor that each has left here.
    pub links: BTreeMap<u32, (u16, Option<u32>)>,
    seen: BTreeSet<(u32, u32)>,
    pub is_running: bool,
    pub has_traffic: bool,
    count: u64,
    counted: Instant,
    pub visits: Vec<Busy>,
    pub ending: Option<Ending>,
    pub have_workers_ended: bool,
}

impl Process {
    pub fn start(given: &BTreeSet<u32>, now: Instant) -> Self {
        Self {
            inbox: VecDeque::new(),
            acts_at: Some(now + STEP),
            later: Vec::new(),
            has_said_hello: false,
            is_old: false,
            is_stopped: false,
            is_hung: false,
            given: given.clone(),
            ports: BTreeMap::new(),
            leaving: BTreeSet::new(),
            links: BTreeMap::new(),
            seen: BTreeSet::new(),
            is_running: false,
            has_traffic: false,
            count: 0,
            counted: now,
            visits: Vec::new(),
            ending: None,
            have_workers_ended: false,
        }
    }

    /// `false`: its socket is full.
    pub fn receives(&mut self, packet: Vec<Delivery>, now: Instant) -> bool {
        if self.inbox.len() >= UNREAD_MAX {
            return false;
        }
        self.inbox.push_back(packet);
        self.acts_at.get_or_insert(now + STEP);
        true
    }

    fn is_still(&self) -> bool {
        self.is_stopped || self.is_hung || self.ending.is_some()
    }

    /// When it does something next.
    pub fn wake_at(&self) -> Option<Instant> {
        if let Some(it) = self.ending {
            return Some(if self.have_workers_ended { it.at } else { it.workers_at });
        }
        let later = self.later.iter().map(|(at, _)| *at).min();
        self.acts_at.into_iter().chain(later).min().filter(|_| !self.is_still())
    }

    /// It ends by that signal.
    pub fn dies(&mut self, signal: Option<i32>, now: Instant, unmaps: Duration) {
        if self.ending.is_none() {
            self.visit(now);
            let workers_at = now + Duration::from_micros(100);
            self.ending = Some(Ending { signal, workers_at, at: workers_at + unmaps });
        }
    }

    /// It stood still until now, with everything else.
    pub fn skips(&mut self, now: Instant) {
        self.counted = now;
    }

    /// Counts the visits until now.
    pub fn visit(&mut self, now: Instant) {
        let past = now.saturating_duration_since(self.counted).as_millis();
        self.counted = now;
        if self.has_traffic && self.is_running && !self.is_still() {
            self.count += u64::try_from(past).unwrap() * VISITS_PER_MS + 1;
        }
    }

    pub fn beats(&mut self, now: Instant) -> Vec<Beat> {
        self.visit(now);
        let is_asleep = !self.is_hung && self.visits.is_empty();
        vec![Beat { count: self.count, is_asleep }]
    }

    /// Does its work that is due; the words that it says then.
    pub fn act(&mut self, now: Instant, chance: &mut Chance) -> Vec<Word> {
        let mut words = Vec::new();
        if self.is_still() {
            return words;
        }
        let due = self.later.extract_if(.., |(at, _)| *at <= now);
        words.extend(due.map(|(_, word)| word));
        if self.acts_at.is_none_or(|at| at > now) {
            return words;
        }
        self.acts_at = None;
        if !std::mem::replace(&mut self.has_said_hello, true) {
            words.push(Word::Hello { needs_bare: self.is_old && !self.given.is_empty() });
        }
        for told in std::mem::take(&mut self.inbox).into_iter().flatten() {
            if told.is_named {
                let has_each = told.fds.iter().all(|fd| self.given.remove(fd));
                assert!(has_each, "{told:?} names what it was not given");
            }
            self.read(&told, now, chance, &mut words);
        }
        words
    }

    fn read(&mut self, told: &Delivery, now: Instant, chance: &mut Chance, words: &mut Vec<Word>) {
        match &told.message {
            ToData::Port { order, port, spec } => {
                self.leaving.remove(port);
                self.ports.insert(*port, spec.as_slice().to_vec());
                words.push(finished(*order, false, false, false));
            }
            ToData::Remove { order, port } => {
                let is_linked = self.links.values().any(|(its, _)| its == port);
                match is_linked {
                    true => drop(self.leaving.insert(*port)),
                    false => drop(self.ports.remove(port)),
                }
                words.push(finished(*order, is_linked, false, false));
            }
            ToData::Change { order, port, spec } => {
                let place = self.ports.get_mut(port).filter(|_| !chance.one_in(8));
                let is_refused = place.map(|it| *it = spec.as_slice().to_vec()).is_none();
                words.push(finished(*order, true, false, is_refused));
            }
            ToData::Link { order, port, link, .. } => {
                let is_known = self.ports.contains_key(port);
                if is_known {
                    self.links.insert(*link, (*port, None));
                }
                words.push(finished(*order, false, false, !is_known));
            }
            ToData::Unlink { order, link } => {
                let is_closing = self.unlink(*link, now, chance);
                words.push(finished(*order, false, is_closing, false));
            }
            ToData::Slot { link, .. } => {
                self.links.get_mut(link).expect("it was told of").1 = told.fds.first().copied();
            }
            ToData::Frame { link, number, .. } => {
                words.extend(self.request((*link, *number), &told.fds, now, chance));
            }
            ToData::Replayed {} => words.push(Word::Ready),
            ToData::Go { .. } => {
                assert!(!told.fds.is_empty(), "without a journal");
                self.given.clear();
                self.is_running = true;
                words.push(Word::Running);
            }
            ToData::Quiesce {} => {
                self.is_running = false;
                words.push(Word::Positions);
            }
            ToData::Ask { ask, .. } => words.push(Word::Answer { ask: *ask }),
            ToData::DoesItGoOn {} => {
                self.count += 1;
                words.push(Word::GoesOn);
            }
            _ => {}
        }
    }

    fn request(
        &mut self,
        (link, number): (u32, u32),
        fds: &[u32],
        now: Instant,
        chance: &mut Chance,
    ) -> Option<Word> {
        assert!(self.seen.insert((link, number)), "it has that request already");
        let (port, kept) = self.links.get_mut(&link)?;
        if chance.one_in(40) {
            let offence = [None, Some(Offence::Blocked), Some(Offence::Stalled)];
            return Some(Word::LetGo { link, offence: offence[chance.below(3)] });
        }
        *kept = fds.first().copied().or(*kept);
        let port = *port;
        Some(Word::Done { link, number, is_closing: self.closes(port, now, chance) })
    }

    fn unlink(&mut self, link: u32, now: Instant, chance: &mut Chance) -> bool {
        let Some((port, _)) = self.links.remove(&link) else { return false };
        if self.leaving.remove(&port) {
            self.ports.remove(&port);
            return false;
        }
        self.closes(port, now, chance)
    }

    /// Something of the port is being closed, which takes a while.
    fn closes(&mut self, port: u16, now: Instant, chance: &mut Chance) -> bool {
        if !chance.one_in(12) {
            return false;
        }
        self.later.push((now + chance.up_to_ms(3000), Word::Closed { port }));
        true
    }
}

fn finished(order: u32, is_told: bool, is_closing: bool, is_refused: bool) -> Word {
    Word::Finished { order, is_told, is_closing, is_refused }
}
