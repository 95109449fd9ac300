//! Requests of front-ends through deaths, handovers and refusals of the kernel, in every order of
//! events: none is answered twice, and each is answered in the end unless its front-end has gone.

mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ringway_supervisor::requests::Requests;
use ringway_supervisor::restart::{PlaneExit, Restarts};
use ringway_supervisor::succession::{Effect, Event, PlaneNumber, Stage, Succession};
use search::search;

/// Steps from the start that are tried in every order.
const STEPS: usize = 12;
/// Front-ends that ever come, each at a port of its own.
const LINKS: u32 = 3;
/// Steps after which everybody must have an answer.
const SETTLES_WITHIN: usize = 80;
const SEGV: i32 = 11;
const KILL: i32 = 9;

/// Something that may happen next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// A request of that front-end is whole.
    Ask(u32),
    /// It goes.
    Leave(u32),
    /// The data plane does its request.
    Do(u32),
    /// The kernel refuses its file descriptors.
    Refuse(u32),
    /// A data plane takes its next step.
    GoOn(PlaneNumber),
    /// It ends by that signal.
    Die(PlaneNumber, i32),
    Upgrade,
    Wait,
}

#[derive(Debug, Clone)]
struct World {
    succession: Succession<u32>,
    requests: Requests,
    restarts: Restarts,
    now: Instant,
    /// Data planes, and whether each was killed.
    planes: BTreeMap<PlaneNumber, bool>,
    /// Front-ends, with the request that each waits for.
    links: BTreeMap<u32, Option<u32>>,
    asked: u32,
    /// Requests that the data plane that serves was sent.
    sent: BTreeSet<(u32, u32)>,
    upgrades: u32,
    deaths: u32,
}

impl World {
    fn new(now: Instant) -> Self {
        let mut world = Self {
            succession: Succession::new(0),
            requests: Requests::default(),
            restarts: Restarts::default(),
            now,
            planes: BTreeMap::new(),
            links: (1..=LINKS).map(|link| (link, None)).collect(),
            asked: 0,
            sent: BTreeSet::new(),
            upgrades: 0,
            deaths: 0,
        };
        world.happens(Event::Begin);
        world
    }

    fn happens(&mut self, event: Event<u32>) {
        let mut effects = Vec::new();
        self.succession.on(event, self.now, &mut effects);
        for effect in effects {
            match effect {
                Effect::Start { plane, .. } => drop(self.planes.insert(plane, false)),
                Effect::Kill { plane, .. } => drop(self.planes.insert(plane, true)),
                // All that it had was done before: it was at rest.
                Effect::Succeeds { .. } => assert!(self.sent.is_empty()),
                _ => {}
            }
        }
    }

    /// As the program does in each turn.
    fn turn(&mut self) {
        if self.succession.waits_for_rest() && !self.requests.is_any_owed() {
            self.happens(Event::AtRest);
        }
        if !self.succession.is_running() {
            return;
        }
        let is_one_by_one = self.restarts.is_suspicious(self.now);
        for (link, _) in self.requests.hand_over(is_one_by_one, |_| true, self.now) {
            let number = self.links[&link].expect("it waits");
            assert!(self.sent.insert((link, number)), "it has that one already");
            let knows_all = self.succession.is_next_loaded();
            assert!(!knows_all, "the data plane that is to follow does not hear of it");
        }
        assert!(!is_one_by_one || self.sent.len() <= 1, "one by one");
    }

    fn is_serving(&self) -> bool {
        self.succession.serving().is_some_and(|it| self.planes.get(&it) == Some(&false))
    }

    fn leave(&mut self, link: u32) {
        self.links.remove(&link);
        self.requests.remove(link);
        self.sent.retain(|(its, _)| *its != link);
    }

    fn go_on(&mut self, plane: PlaneNumber) {
        if self.planes[&plane] {
            return self.die(plane, KILL);
        }
        match self.succession.stage(plane) {
            Some(Stage::Starting) if !self.succession.waits_for_rest() => {
                self.happens(Event::Hello { plane, needs_bare: false });
            }
            Some(Stage::Loading) => self.happens(Event::Ready { plane }),
            Some(Stage::Going) => self.happens(Event::Running { plane }),
            Some(Stage::Quiescing) => self.happens(Event::Positions { plane, bytes: vec![] }),
            _ => {}
        }
    }

    fn die(&mut self, plane: PlaneNumber, signal: i32) {
        let was_serving = self.succession.serving() == Some(plane);
        self.planes.remove(&plane);
        self.deaths += 1;
        let mut start_at = self.now;
        if was_serving {
            let in_hand = self.requests.take_back();
            let sent: Vec<(u32, u32)> = std::mem::take(&mut self.sent).into_iter().collect();
            assert_eq!(in_hand, sent, "what it had is known");
            let verdict = self.restarts.died(self.now, PlaneExit::Signal(signal), &[], &in_hand);
            start_at = verdict.start_at;
            verdict.refuse.into_iter().for_each(|(link, _)| self.leave(link));
        }
        self.happens(Event::Ended { plane, how: String::new(), start_at });
    }

    fn wait(&mut self) {
        let all = [self.succession.wake_at(), self.requests.wake_at(self.now)];
        let soonest = all.into_iter().flatten().min();
        let at = soonest.unwrap_or(self.now + Duration::from_secs(30));
        self.now = self.now.max(at);
        if self.succession.wake_at().is_some_and(|at| at <= self.now) {
            self.happens(Event::Due);
        }
    }
}

impl search::World for World {
    type Act = Act;

    fn acts(&self) -> Vec<Act> {
        let mut acts = vec![Act::Wait];
        for (&link, open) in &self.links {
            acts.push(Act::Leave(link));
            acts.extend((open.is_none() && self.succession.may_read()).then_some(Act::Ask(link)));
        }
        for (link, _) in &self.sent {
            acts.extend([Act::Do(*link), Act::Refuse(*link)]);
        }
        for &plane in self.planes.keys() {
            acts.extend([Act::GoOn(plane), Act::Die(plane, SEGV), Act::Die(plane, KILL)]);
        }
        let may_upgrade = self.upgrades == 0 && self.succession.may_hand_over().is_ok();
        acts.extend(may_upgrade.then_some(Act::Upgrade));
        acts
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Ask(link) => {
                self.asked += 1;
                self.links.insert(link, Some(self.asked));
                let port = u16::try_from(link).expect("a small number");
                self.requests.add(link, port, self.asked);
            }
            Act::Leave(link) => self.leave(link),
            Act::Do(link) => {
                let number = self.links[&link].expect("no front-end is answered twice");
                assert!(self.sent.remove(&(link, number)) && self.is_serving());
                assert!(self.requests.is_in_hand(link, number));
                self.requests.remove(link);
                self.links.insert(link, None);
            }
            Act::Refuse(link) => {
                self.sent.retain(|(its, _)| *its != link);
                self.requests.give_back(link, self.now);
            }
            Act::GoOn(plane) => self.go_on(plane),
            Act::Die(plane, signal) => self.die(plane, signal),
            Act::Upgrade => {
                self.upgrades += 1;
                self.happens(Event::HandOver { by: Some(1) });
            }
            Act::Wait => self.wait(),
        }
        self.turn();
    }

    fn settle(mut self) {
        for _ in 0..SETTLES_WITHIN {
            let before = format!("{:?} {:?}", self.succession, self.sent);
            for plane in self.planes.keys().copied().collect::<Vec<_>>() {
                self.act(Act::GoOn(plane));
            }
            if let Some(&(link, _)) = self.sent.first() {
                self.act(Act::Do(link));
            }
            if before == format!("{:?} {:?}", self.succession, self.sent) {
                self.act(Act::Wait);
            }
        }
        assert!(self.links.values().all(Option::is_none), "everybody has an answer");
        assert!(self.requests.is_empty() && self.sent.is_empty(), "nothing is left");
    }

    fn key(&self) -> String {
        let last = self.succession.last();
        let planes: Vec<_> = self
            .planes
            .iter()
            .map(|(number, is_killed)| (last - number, *is_killed, self.succession.stage(*number)))
            .collect();
        let links: Vec<_> = self.links.iter().map(|(link, open)| (*link, open.is_some())).collect();
        let sent: Vec<u32> = self.sent.iter().map(|(link, _)| *link).collect();
        let due = |at: Option<Instant>| at.map(|at| at.saturating_duration_since(self.now));
        let dues = (due(self.succession.wake_at()), due(self.requests.wake_at(self.now)));
        let is_suspicious = self.restarts.is_suspicious(self.now);
        format!(
            "{planes:?} {links:?} {sent:?} {dues:?} {is_suspicious} {} {}",
            self.upgrades, self.deaths
        )
    }
}

#[test]
fn each_request_is_answered_once_whatever_dies() {
    let states = search(World::new(Instant::now()), STEPS);
    println!("{states} states");
    assert!(states > 1000, "{states} states");
}
