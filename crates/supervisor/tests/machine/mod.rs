//! The supervisor's shell in small: it composes the values that decide as the program does, in
//! virtual time, between processes, front-ends, clients and a kernel that may refuse.

pub mod chance;
mod look;
mod orders;
pub mod plane;
mod planes;
pub mod ports;
pub mod process;
pub mod random;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ringway_supervisor::requests::Requests;
use ringway_supervisor::restart::{Busy, PlaneExit, Restarts};
use ringway_supervisor::succession::{Event, PlaneNumber, Succession};

use chance::Chance;
use plane::Plane;
use ports::{Port, Spec};
use process::Process;

pub const SEGV: Option<i32> = Some(11);
pub const KILL: Option<i32> = Some(9);
/// Nothing is held for longer than that.
const HELD_MAX: Duration = Duration::from_secs(30);
/// A moment that is due may need another turn, but not always one more.
const ROUNDS_MAX: u32 = 3;
/// For so long one may be ended that has stood still.
pub const DOUBTED_FOR: Duration = Duration::from_secs(6);
/// Notes that are shown when a test fails.
const NOTES_SHOWN: usize = 60;

/// Something that a script may look for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    Starts(PlaneNumber),
    Serves(PlaneNumber),
    Aborts(PlaneNumber),
    Condemns(PlaneNumber),
    Ended(PlaneNumber, PlaneExit),
    Faults(PlaneNumber, Busy),
    Quarantines(u16),
    Asks(u32),
    Answers(u32),
    Leaves(u32),
    Orders(u32),
    Tells(u32),
    Acts(random::Act),
}

/// Refusals of the kernel, until when.
#[derive(Debug, Clone)]
pub struct Kernel {
    pub descriptors: Instant,
    pub room: Instant,
    pub starts: Instant,
}

/// A question of a client to the data plane.
#[derive(Debug, Clone, Copy)]
struct Question {
    client: u32,
    since: Instant,
    has_fds: bool,
}

pub struct Machine {
    pub now: Instant,
    pub begun: Instant,
    pub succession: Succession<u32>,
    events: VecDeque<Event<u32>>,
    is_busy: bool,
    pub planes: BTreeMap<PlaneNumber, Plane>,
    pub restarts: Restarts,
    pub requests: Requests,
    pub ports: BTreeMap<u16, Port>,
    questions: BTreeMap<u32, Question>,
    down_since: Option<Instant>,
    held_since: Option<Instant>,
    check_ends: Option<Instant>,
    journal: u32,
    /// The last number of all that have one.
    last: u32,
    pub processes: BTreeMap<PlaneNumber, Process>,
    pub kernel: Kernel,
    pub chance: Chance,
    /// Clients that wait for an answer.
    pub waiting: BTreeSet<u32>,
    /// The next program is an older one.
    pub is_next_old: bool,
    pub has_traffic: bool,
    /// Until then a data plane may be ended that stood still before.
    doubtful_until: Instant,
    pub notes: Vec<(Duration, Note)>,
    rounds: u32,
    pub turns: u64,
}

impl Machine {
    /// With these ports, at each of which a front-end is linked.
    pub fn new(ports: impl IntoIterator<Item = u16>) -> Self {
        let now = Instant::now();
        let mut it = Self {
            now,
            begun: now,
            succession: Succession::new(0),
            events: VecDeque::new(),
            is_busy: false,
            planes: BTreeMap::new(),
            restarts: Restarts::default(),
            requests: Requests::default(),
            ports: BTreeMap::new(),
            questions: BTreeMap::new(),
            down_since: None,
            held_since: None,
            check_ends: None,
            journal: 0,
            last: 0,
            processes: BTreeMap::new(),
            kernel: Kernel { descriptors: now, room: now, starts: now },
            chance: Chance::default(),
            waiting: BTreeSet::new(),
            is_next_old: false,
            has_traffic: true,
            doubtful_until: now,
            notes: Vec::new(),
            rounds: 0,
            turns: 0,
        };
        it.happens(Event::Begin);
        for number in ports {
            it.open(number, false, None);
            it.comes(number);
        }
        it.runs(Duration::from_secs(1));
        it
    }

    pub fn note(&mut self, note: Note) {
        self.notes.push((self.now - self.begun, note));
    }

    /// The notes since then.
    pub fn since(&self, at: Instant) -> impl Iterator<Item = (Instant, Note)> {
        let begun = self.begun;
        let notes = self.notes.iter().map(move |(past, note)| (begun + *past, *note));
        notes.filter(move |(when, _)| *when >= at)
    }

    fn next_number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// A client that waits for an answer from now on.
    pub fn client(&mut self) -> u32 {
        let client = self.next_number();
        self.waiting.insert(client);
        client
    }

    fn answers(&mut self, client: u32) {
        assert!(self.waiting.remove(&client), "no client is answered twice");
        self.note(Note::Tells(client));
    }

    pub fn asks_whether(&mut self, has_fds: bool) -> u32 {
        let (client, ask) = (self.client(), self.next_number());
        self.questions.insert(ask, Question { client, since: self.now, has_fds });
        client
    }

    /// Time passes, from each wake-up to the next one.
    pub fn runs(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            self.turn();
            let in_world = self.processes.values().filter_map(Process::wake_at).min();
            let dues = self.dues();
            let due = dues.iter().map(|(_, at)| *at).min();
            let next = in_world.into_iter().chain(due).min().filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.rounds =
                if next > self.now || in_world == Some(next) { 0 } else { self.rounds + 1 };
            assert!(self.rounds <= ROUNDS_MAX, "due again and again: {:?}", self.names_of(&dues));
            self.now = self.now.max(next);
            self.processes_act();
        }
        self.now = until;
    }

    fn names_of(&self, dues: &[(&'static str, Instant)]) -> Vec<&'static str> {
        dues.iter().filter(|(_, at)| *at <= self.now).map(|(name, _)| *name).collect()
    }

    /// Until that is so.
    pub fn runs_until(&mut self, at_most: Duration, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = self.now + at_most;
        while !is_so(self) && self.now < end {
            self.runs(Duration::from_millis(1));
        }
        is_so(self)
    }

    /// The process and the supervisor stand still.
    pub fn pauses(&mut self, time: Duration) {
        self.now += time;
        self.doubtful_until = self.now + DOUBTED_FOR;
        self.held_since = self.held_since.map(|since| since + time);
        for process in self.processes.values_mut() {
            process.skips(self.now);
        }
    }

    fn processes_act(&mut self) {
        let now = self.now;
        let due = |it: &Process| it.wake_at().is_some_and(|at| at <= now);
        let numbers: Vec<_> =
            self.processes.iter().filter(|(_, it)| due(it)).map(|(number, _)| *number).collect();
        for number in numbers {
            let Some(process) = self.processes.get_mut(&number) else { continue };
            if let Some(ending) = process.ending {
                if !std::mem::replace(&mut process.have_workers_ended, true) {
                    self.on_worker_end();
                }
                if ending.at <= now {
                    self.on_plane_end(number);
                }
                continue;
            }
            for word in process.act(now, &mut self.chance) {
                self.hears(number, word);
            }
        }
    }

    /// As the program does between two waits.
    fn turn(&mut self) {
        self.turns += 1;
        self.run_due();
        self.end_closing();
        self.look_after_planes();
        self.serve_sockets();
        if !self.succession.may_read() {
            let since = *self.held_since.get_or_insert(self.now);
            assert!(self.now - since <= HELD_MAX, "front-ends are not read for ever");
        } else {
            self.held_since = None;
        }
    }

    /// Whether the port's front-end has its network.
    pub fn is_served(&self, port: u16) -> bool {
        let Some(serving) = self.succession.serving().filter(|_| self.succession.is_running())
        else {
            return false;
        };
        let process = self.processes.get(&serving).filter(|it| it.ending.is_none());
        let Some(process) = process.filter(|it| it.is_running && !it.is_stopped && !it.is_hung)
        else {
            return false;
        };
        process.links.values().any(|(its, _)| *its == port)
    }

    pub fn serving(&self) -> Option<PlaneNumber> {
        self.succession.serving()
    }

    /// The data plane that serves ends by that signal while it is in that visit.
    pub fn faults(&mut self, signal: Option<i32>, busy: &[Busy]) {
        let Some(number) = self.serving() else { return };
        let Some(process) = self.processes.get_mut(&number) else { return };
        process.visits = busy.to_vec();
        process.dies(signal, self.now, Duration::from_millis(5));
        for busy in busy {
            self.note(Note::Faults(number, *busy));
        }
    }

    /// Every front-end and client has its answer, and both sides know the same.
    pub fn is_settled(&self) {
        assert!(self.succession.is_running() && self.succession.others_are_gone(), "one serves");
        assert!(self.succession.may_read() && !self.succession.is_changing(), "nothing is held");
        assert!(self.requests.is_empty(), "each request is answered: {:?}", self.requests);
        assert!(self.waiting.is_empty(), "each client is answered: {:?}", self.waiting);
        let number = self.serving().expect("it runs");
        let (plane, process) = (&self.planes[&number], &self.processes[&number]);
        assert!(plane.orders.is_empty(), "each order is done: {:?}", plane.orders);
        assert!(plane.outbox.is_empty() && plane.outbox.oldest().is_none(), "nothing is owed");
        assert!(plane.without.is_empty(), "each port is served: {:?}", plane.without);
        let ports: BTreeMap<u16, Vec<u8>> =
            self.ports.iter().map(|(number, port)| (*number, port.spec.bytes())).collect();
        assert_eq!(ports, process.ports, "both know the same ports");
        let links = self.ports.iter().filter_map(|(&number, port)| {
            port.link.as_ref().map(|link| (link.number, (number, link.kept)))
        });
        assert_eq!(links.collect::<BTreeMap<_, _>>(), process.links, "and front-ends");
        for (number, port) in &self.ports {
            let link = port.link.as_ref();
            assert!(link.is_none_or(|it| it.unread.is_none()), "{number}: a request is not read");
            assert!(!port.admission.is_closing(), "{number}: it waits for what is closed");
            assert!(port.queue == 0, "{number}: a front-end waits in the socket");
            assert!(port.waiting <= u32::from(link.is_some()), "{number}: one waits for none");
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let first = self.notes.len().saturating_sub(NOTES_SHOWN);
            for (past, note) in &self.notes[first..] {
                eprintln!("{:>12.3} {note:?}", past.as_secs_f64());
            }
            eprintln!("{:>12.3} {:?}", (self.now - self.begun).as_secs_f64(), self.succession);
        }
    }
}
