//! Data planes that follow each other, in every order of events: each state that is reached within
//! some steps is visited once, and from each everything comes to a good end.

mod search;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ringway_supervisor::succession::{Effect, Event, PlaneNumber, Program, Stage, Succession};
use search::search;

/// Steps from the start that are tried in every order.
const STEPS: usize = 11;
/// Clients that ask for another program.
const CLIENTS: u32 = 2;
/// Events after which everything must have come to its end by itself.
const SETTLES_WITHIN: usize = 60;

/// A process, as far as it matters here.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    has_said_hello: bool,
    is_bare: bool,
    is_loaded: bool,
    has_said_ready: bool,
    is_going: bool,
    is_running: bool,
    /// It was given something that is not true any more.
    is_stale: bool,
    is_to_stop: bool,
    has_stopped: bool,
    is_killed: bool,
    /// Its orders are settled.
    is_settled: bool,
}

impl Process {
    fn may_use_rings(&self) -> bool {
        self.is_going && !self.has_stopped && !self.is_killed
    }

    /// The step that is its turn's, if one is.
    fn next_word(&self) -> Option<Word> {
        match self {
            Self { has_said_hello: false, .. } => Some(Word::Hello),
            Self { is_loaded: true, has_said_ready: false, .. } => Some(Word::Ready),
            Self { is_going: true, is_running: false, .. } => Some(Word::Running),
            Self { is_to_stop: true, has_stopped: false, .. } => Some(Word::Positions),
            _ => None,
        }
    }
}

/// The steps that a data plane says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Hello,
    Ready,
    Running,
    Positions,
}

const WORDS: [Word; 4] = [Word::Hello, Word::Ready, Word::Running, Word::Positions];

/// Something that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// It does what it was told, or says what is its turn.
    GoOn(PlaneNumber),
    /// Hello of one that is too old to be told what it was started with.
    OldHello(PlaneNumber),
    /// A step that is not its turn's.
    OutOfTurn(PlaneNumber, Word),
    Refuse(PlaneNumber),
    /// Its socket is closed, and it has not ended yet.
    Close(PlaneNumber),
    /// All of its workers have ended.
    WorkersEnd(PlaneNumber),
    End(PlaneNumber),
    Upgrade,
    Renew,
    Rest,
    Overtake,
    Check(bool),
    GivePlace,
    Wait,
    /// The same, and what is started then does not start.
    WaitInVain,
}

#[derive(Debug, Clone)]
struct World {
    succession: Succession<u32>,
    now: Instant,
    processes: BTreeMap<PlaneNumber, Process>,
    /// Clients that have no answer yet.
    waiting: BTreeSet<u32>,
    clients: u32,
    is_held: bool,
    /// A program is asked whether it can take the supervisor's place.
    is_checking: bool,
    /// The own program is one that a client has named.
    is_other_program: bool,
    starts_fail: bool,
}

impl World {
    fn new(now: Instant) -> Self {
        let mut world = Self {
            succession: Succession::new(0),
            now,
            processes: BTreeMap::new(),
            waiting: BTreeSet::new(),
            clients: 0,
            is_held: false,
            is_checking: false,
            is_other_program: false,
            starts_fail: false,
        };
        world.happens(Event::Begin);
        world
    }

    fn happens(&mut self, event: Event<u32>) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            self.succession.on(event, self.now, &mut effects);
            for effect in effects {
                events.extend(self.carry_out(effect));
            }
            assert_eq!(self.is_held, !self.succession.may_read(), "it says when to hold");
        }
        let users = self.processes.values().filter(|it| it.may_use_rings()).count();
        assert!(users <= 1, "two data planes have the rings");
        let ending = |(number, process): (&PlaneNumber, &Process)| {
            let stage = self.succession.stage(*number);
            process.is_killed == (stage == Some(Stage::Ending))
                // One that is to follow fails when it has ended.
                || self.succession.next() == Some(*number)
        };
        assert!(self.processes.iter().all(ending), "each process is known, or ends");
    }

    fn carry_out(&mut self, effect: Effect<u32>) -> Option<Event<u32>> {
        match effect {
            Effect::Start { plane, program, is_bare } => {
                assert!(program == Program::Own || !self.waiting.is_empty());
                if self.starts_fail {
                    return Some(Event::NotStarted { plane, why: "no".to_owned() });
                }
                let process = Process { is_bare, ..Process::default() };
                assert_eq!(self.processes.insert(plane, process), None, "a number of its own");
            }
            Effect::Load { plane } => self.process(plane).is_loaded = true,
            Effect::Go { plane, is_alone, .. } => {
                let process = self.process(plane);
                assert!(process.has_said_ready && !process.is_going && !process.is_stale);
                process.is_going = true;
                let others = self.processes.iter().filter(|(number, _)| **number != plane);
                let is_left = |it: &Process| !it.has_stopped;
                assert!(!is_alone || !others.map(|(_, it)| it).any(is_left), "it is not alone");
            }
            Effect::Quiesce { plane } => self.process(plane).is_to_stop = true,
            Effect::Kill { plane, .. } => {
                if let Some(process) = self.processes.get_mut(&plane) {
                    process.is_killed = true;
                }
            }
            Effect::NoteDeath { plane } => assert!(self.process(plane).is_killed),
            Effect::Settle { plane } => {
                let process = self.process(plane);
                assert!(process.is_killed && !process.is_settled);
                process.is_settled = true;
            }
            Effect::Serves { plane } | Effect::Succeeds { plane, .. } => {
                assert!(self.process(plane).is_running);
                let mut others = self.processes.iter().filter(|(number, _)| **number != plane);
                let is_settled = |it: &Process| it.is_settled || !it.is_running;
                assert!(others.all(|(_, it)| is_settled(it)), "no order is left behind");
            }
            Effect::SwapPrograms => self.is_other_program = !self.is_other_program,
            Effect::Fails { by, .. } => {
                assert!(!self.is_other_program, "the old one goes on");
                by.into_iter().for_each(|by| self.answer(by));
            }
            Effect::Stays { by, .. } => {
                // The new one has proved itself.
                (self.is_checking, self.is_other_program) = (false, false);
                self.answer(by);
            }
            Effect::Hold(is_held) => {
                assert_ne!(self.is_held, is_held);
                self.is_held = is_held;
            }
            Effect::Check { .. } => self.is_checking = true,
            Effect::StopCheck => self.is_checking = false,
        }
        None
    }

    fn answer(&mut self, client: u32) {
        assert!(self.waiting.remove(&client), "no client is answered twice");
    }

    fn process(&mut self, number: PlaneNumber) -> &mut Process {
        self.processes.get_mut(&number).expect("it was started")
    }

    fn wait(&mut self) {
        self.now = self.succession.wake_at().map_or(self.now, |at| self.now.max(at));
        self.happens(Event::Due);
        let is_later = self.succession.wake_at().is_none_or(|at| at > self.now);
        assert!(is_later, "no moment is due twice");
    }

    fn go_on(&mut self, plane: PlaneNumber) {
        let process = self.process(plane);
        let Some(word) = process.next_word() else { return };
        match word {
            Word::Hello => process.has_said_hello = true,
            Word::Ready => process.has_said_ready = true,
            Word::Running => process.is_running = true,
            Word::Positions => process.has_stopped = true,
        }
        self.says(plane, word);
    }

    fn says(&mut self, plane: PlaneNumber, word: Word) {
        self.happens(match word {
            Word::Hello => Event::Hello { plane, needs_bare: false },
            Word::Ready => Event::Ready { plane },
            Word::Running => Event::Running { plane },
            Word::Positions => Event::Positions { plane, bytes: vec![1] },
        });
    }
}

impl search::World for World {
    type Act = Act;

    fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        for (&number, process) in &self.processes {
            acts.push(Act::End(number));
            if process.is_killed {
                continue;
            }
            acts.extend([Act::GoOn(number), Act::Close(number)]);
            let next = process.next_word();
            let wrong = WORDS.into_iter().filter(|word| Some(*word) != next);
            acts.extend(wrong.map(|word| Act::OutOfTurn(number, word)));
            if !process.has_said_hello && !process.is_bare {
                acts.push(Act::OldHello(number));
            }
            if !process.is_running {
                acts.push(Act::Refuse(number));
            } else {
                acts.push(Act::WorkersEnd(number));
            }
        }
        if self.succession.may_hand_over().is_ok() {
            acts.push(Act::Renew);
            acts.extend((self.clients < CLIENTS).then_some(Act::Upgrade));
        }
        acts.extend(self.succession.waits_for_rest().then_some(Act::Rest));
        acts.extend(self.succession.next().map(|_| Act::Overtake));
        if self.is_checking {
            acts.extend([Act::Check(true), Act::Check(false)]);
        }
        acts.extend(self.succession.waits_to_give_place().then_some(Act::GivePlace));
        if self.succession.wake_at().is_some() {
            acts.extend([Act::Wait, Act::WaitInVain]);
        }
        acts
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::GoOn(plane) => self.go_on(plane),
            Act::OldHello(plane) => {
                self.process(plane).has_said_hello = true;
                self.happens(Event::Hello { plane, needs_bare: true });
            }
            Act::OutOfTurn(plane, word) => {
                self.says(plane, word);
                assert!(self.process(plane).is_killed, "it says each step once, in its turn");
            }
            Act::Refuse(plane) => self.happens(Event::Refuses { plane, why: "no".to_owned() }),
            Act::Close(plane) => self.happens(Event::Lost { plane, is_condemned: false }),
            Act::WorkersEnd(plane) => {
                self.process(plane).has_stopped = true;
                self.happens(Event::WorkersEnded { plane, may_start: true });
            }
            Act::End(plane) => {
                self.processes.remove(&plane);
                let start_at = self.now + Duration::from_millis(10);
                self.happens(Event::Ended { plane, how: "so".to_owned(), start_at });
            }
            Act::Upgrade => {
                self.clients += 1;
                self.waiting.insert(self.clients);
                self.happens(Event::HandOver { by: Some(self.clients) });
            }
            Act::Renew => self.happens(Event::HandOver { by: None }),
            Act::Rest => self.happens(Event::AtRest),
            Act::Overtake => {
                let next = self.succession.next();
                let next = next.filter(|next| self.succession.stage(*next) == Some(Stage::Loading));
                next.into_iter().for_each(|next| self.process(next).is_stale = true);
                self.happens(Event::Overtaken);
            }
            Act::Check(is_able) => {
                self.is_checking = false;
                let outcome = if is_able { Ok(()) } else { Err("no".to_owned()) };
                self.happens(Event::Checked(outcome));
            }
            Act::GivePlace => self.happens(Event::NotReplaced { why: "no".to_owned() }),
            Act::Wait => self.wait(),
            Act::WaitInVain => {
                self.starts_fail = true;
                self.wait();
                self.starts_fail = false;
            }
        }
    }

    fn settle(mut self) {
        for _ in 0..SETTLES_WITHIN {
            let killed = self.processes.iter().find(|(_, process)| process.is_killed);
            let killed = killed.map(|(&number, _)| number);
            let before = format!("{:?}", self.processes);
            if let Some(plane) = killed {
                self.act(Act::End(plane));
            } else if self.succession.waits_for_rest() {
                self.act(Act::Rest);
            } else if self.is_checking {
                self.act(Act::Check(true));
            } else if self.succession.waits_to_give_place() {
                self.act(Act::GivePlace);
            } else {
                let numbers: Vec<_> = self.processes.keys().copied().collect();
                numbers.into_iter().for_each(|number| self.go_on(number));
                if before == format!("{:?}", self.processes) {
                    self.act(Act::Wait);
                }
            }
        }
        let serving = self.succession.serving();
        assert!(self.succession.is_running() && !self.succession.is_changing(), "it serves");
        assert!(self.succession.others_are_gone() && self.processes.len() == 1, "alone");
        assert!(serving.is_some_and(|it| self.process(it).may_use_rings()), "with the rings");
        assert!(self.waiting.is_empty(), "everybody has an answer");
        assert!(!self.is_held && !self.is_checking, "nothing is held");
        assert_eq!(self.succession.wake_at(), None);
    }

    fn key(&self) -> String {
        let last = self.succession.last();
        let of_each = |(&number, process)| (last - number, process, self.succession.stage(number));
        let processes: Vec<_> = self.processes.iter().map(of_each).collect();
        let due = self.succession.wake_at().map(|at| at.saturating_duration_since(self.now));
        let roles = [self.succession.serving(), self.succession.next()];
        format!(
            "{processes:?} {roles:?} {due:?} {:?} {} {} {} {} {:?} {}",
            self.waiting,
            self.clients,
            self.is_checking,
            self.is_other_program,
            self.succession.waits_to_give_place(),
            self.succession.may_hand_over(),
            self.succession.is_renewing(),
            roles = roles.map(|role| role.map(|number| last - number)),
        )
    }
}

#[test]
fn whatever_happens_one_data_plane_serves_in_the_end_and_everybody_has_an_answer() {
    let states = search(World::new(Instant::now()), STEPS);
    println!("{states} states");
    assert!(states > 10_000, "{states} states");
}
