//! Data planes come and go: events go to the value that decides, and its effects are carried out.

use std::time::Duration;

use ringway_supervisor::front_ends;
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::restart::{Busy, Verdict};
use ringway_supervisor::succession::{Effect, Event, PlaneNumber, Stage};
use ringway_supervisor::wire::ToData;

use super::plane::{Order, Plane};
use super::process::{Process, Word};
use super::{Machine, Note};

impl Machine {
    pub fn happens(&mut self, event: Event<u32>) {
        self.events.push_back(event);
        if std::mem::replace(&mut self.is_busy, true) {
            return;
        }
        while let Some(event) = self.events.pop_front() {
            let mut effects = Vec::new();
            self.succession.on(event, self.now, &mut effects);
            effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
        self.is_busy = false;
    }

    fn carry_out(&mut self, effect: Effect<u32>) {
        match effect {
            Effect::Start { plane, is_bare, .. } => self.starts(plane, is_bare),
            Effect::Load { plane } => self.load(plane),
            Effect::Go { plane, .. } => self.go(plane),
            Effect::Quiesce { plane } => self.tell(plane, ToData::Quiesce {}, vec![]),
            Effect::Kill { plane, is_condemned } => self.kill(plane, is_condemned),
            Effect::NoteDeath { plane } => {
                let busy = self.note_death(plane);
                let suspects = (busy, self.requests.take_back());
                self.planes.get_mut(&plane).expect("it was there").suspects = Some(suspects);
            }
            Effect::Settle { plane } => {
                let orders = self.planes.get_mut(&plane).map(|it| std::mem::take(&mut it.orders));
                self.settle_orders(orders.unwrap_or_default());
            }
            Effect::Serves { plane } => {
                self.note(Note::Serves(plane));
                self.down_since = None;
            }
            Effect::Succeeds { plane, .. } => self.note(Note::Serves(plane)),
            Effect::SwapPrograms => {}
            Effect::Fails { by, .. } => by.into_iter().for_each(|by| self.answers(by)),
            Effect::Stays { by, .. } => self.answers(by),
            Effect::Hold(is_holding) => self.hold(is_holding),
            Effect::Check { .. } => {
                // It may not say in time.
                self.check_ends = Some(self.now + self.chance_of_check());
            }
            Effect::StopCheck => self.check_ends = None,
        }
    }

    fn chance_of_check(&mut self) -> Duration {
        self.chance.up_to_ms(2500)
    }

    fn starts(&mut self, number: PlaneNumber, is_bare: bool) {
        self.note(Note::Starts(number));
        if self.kernel.starts > self.now {
            return self.happens(Event::NotStarted { plane: number, why: String::new() });
        }
        let given = if is_bare { Default::default() } else { self.all_descriptors() };
        let mut process = Process::start(&given, self.now);
        process.is_old = std::mem::take(&mut self.is_next_old);
        self.planes.insert(number, Plane::new(given));
        self.processes.insert(number, process);
    }

    fn go(&mut self, number: PlaneNumber) {
        let go = ToData::Go { is_last: true, positions: Default::default() };
        self.tell(number, go, vec![self.journal]);
        if let Some(plane) = self.planes.get_mut(&number) {
            plane.given.clear();
        }
        let has_traffic = self.has_traffic;
        self.processes.get_mut(&number).into_iter().for_each(|it| it.has_traffic = has_traffic);
    }

    fn kill(&mut self, number: PlaneNumber, is_condemned: bool) {
        let Some(plane) = self.planes.get_mut(&number).filter(|it| !it.is_killed) else { return };
        plane.is_condemned |= is_condemned;
        plane.is_killed = true;
        plane.outbox.clear();
        if is_condemned {
            self.note(Note::Condemns(number));
        }
        let unmaps = self.chance.up_to_ms(10);
        let process = self.processes.get_mut(&number);
        process.expect("it was started").dies(Some(9), self.now, unmaps);
    }

    /// Visits that its workers were in; the next one gets another journal.
    fn note_death(&mut self, number: PlaneNumber) -> Vec<Busy> {
        self.down_since.get_or_insert(self.now);
        self.journal = self.next_number();
        self.processes.get(&number).map(|it| it.visits.clone()).unwrap_or_default()
    }

    pub fn hears(&mut self, number: PlaneNumber, word: Word) {
        let Some(plane) = self.planes.get_mut(&number).filter(|it| !it.is_killed) else { return };
        let is_serving = self.succession.serving() == Some(number);
        match word {
            Word::Hello { needs_bare } => self.happens(Event::Hello { plane: number, needs_bare }),
            Word::Ready => self.happens(Event::Ready { plane: number }),
            Word::Running => self.happens(Event::Running { plane: number }),
            Word::Positions => {
                assert_eq!(self.succession.stage(number), Some(Stage::Quiescing), "it was asked");
                self.happens(Event::Positions { plane: number, bytes: vec![] });
            }
            Word::GoesOn => plane.watch.goes_on(),
            Word::Finished { order, is_told, is_closing, is_refused } => {
                plane.outbox.is_answered(Owed::Order(order));
                let order = plane.orders.remove(&order).expect("it was ordered");
                match is_refused {
                    _ if is_serving => self.finish(order, is_told, is_closing, is_refused),
                    true => self.happens(Event::Refuses { plane: number, why: String::new() }),
                    false => {}
                }
            }
            // As each other word that is for the one that serves.
            Word::Closed { .. } if !is_serving => {
                plane.is_condemned = true;
                self.happens(Event::Lost { plane: number, is_condemned: true });
            }
            _ => {
                assert!(is_serving, "{word:?} of one that does not serve");
                self.hears_of_serving(number, word);
            }
        }
    }

    fn hears_of_serving(&mut self, number: PlaneNumber, word: Word) {
        match word {
            Word::Done { link, number, is_closing } => {
                self.request_is_done(link, number, is_closing)
            }
            Word::LetGo { link, offence } => {
                self.let_go(link, offence);
                self.happens(Event::Overtaken);
            }
            Word::Closed { port } => {
                self.happens_at(port, front_ends::Event::PlaneCloses(false));
            }
            Word::Answer { ask } => {
                let plane = self.planes.get_mut(&number).expect("it serves");
                plane.outbox.is_answered(Owed::Ask(ask));
                assert!(plane.asks.remove(&ask), "it was asked");
                if let Some(question) = self.questions.remove(&ask) {
                    self.answers(question.client);
                }
            }
            _ => unreachable!("each may say that"),
        }
    }

    pub fn on_worker_end(&mut self) {
        let Some(plane) = self.succession.serving().filter(|_| self.succession.is_running()) else {
            return;
        };
        if !self.processes.get(&plane).is_some_and(|it| it.have_workers_ended) {
            return;
        }
        let may_start = self.restarts.is_first(self.now);
        self.happens(Event::WorkersEnded { plane, may_start });
    }

    pub fn on_plane_end(&mut self, number: PlaneNumber) {
        // Its socket is closed first.
        if self.chance.one_in(2) && self.planes.get(&number).is_some_and(|it| !it.is_killed) {
            self.happens(Event::Lost { plane: number, is_condemned: false });
        }
        let signal = self.processes.get(&number).and_then(|it| it.ending).and_then(|it| it.signal);
        let Some(end) = self.end_of(number, signal) else { return };
        let was_serving = self.succession.serving() == Some(number);
        let mut plane = self.planes.remove(&number).expect("it was started");
        self.note(Note::Ended(number, end));
        let (how, now) = (String::new(), self.now);
        if let Some((busy, in_hand)) = plane.suspects.take() {
            let verdict = self.restarts.died(now, end, &busy, &in_hand);
            self.processes.remove(&number);
            self.happens(Event::Ended { plane: number, how, start_at: now });
            return self.follow(verdict);
        }
        if !was_serving {
            self.processes.remove(&number);
            return self.happens(Event::Ended { plane: number, how, start_at: now });
        }
        let (busy, in_hand) = (self.note_death(number), self.requests.take_back());
        let verdict = self.restarts.died(now, end, &busy, &in_hand);
        self.processes.remove(&number);
        self.settle_orders(plane.orders);
        self.happens(Event::Ended { plane: number, how, start_at: verdict.start_at });
        self.follow(verdict);
    }

    fn follow(&mut self, verdict: Verdict) {
        for (link, _) in verdict.refuse {
            self.let_go(link, None);
        }
        for port in verdict.release {
            self.release(port);
        }
        for port in verdict.quarantine {
            self.note(Note::Quarantines(port));
            self.happens_at(port, front_ends::Event::Quarantine { why: String::new() });
        }
    }

    pub fn release(&mut self, port: u16) {
        self.restarts.release(port);
        self.happens_at(port, front_ends::Event::Release);
    }

    fn hold(&mut self, is_holding: bool) {
        for number in self.ports.keys().copied().collect::<Vec<_>>() {
            self.happens_at(number, front_ends::Event::Hold(is_holding));
        }
    }

    /// Gives a data plane everything that there is.
    fn load(&mut self, number: PlaneNumber) {
        let is_next = self.succession.next() == Some(number);
        self.tell(number, ToData::Config { settings: Default::default() }, vec![]);
        let Some(plane) = self.planes.get_mut(&number) else { return };
        plane.batch = Some(Default::default());
        for id in self.ports.keys().copied().collect::<Vec<_>>() {
            let port = self.ports.get_mut(&id).expect("it is there");
            if port.leaves_at.is_some() {
                continue;
            }
            let client = port.asked.take_if(|_| !is_next);
            let (spec, fds) = (port.spec.told(), port.tap.into_iter().collect::<Vec<_>>());
            let order = self.next_number();
            let message = ToData::Port { order, port: id, spec };
            self.gives(number, (order, Order::Open { port: id, client }), message, &fds);
            self.load_front_end(number, id);
        }
        self.tell(number, ToData::Replayed {}, vec![]);
        self.planes.get_mut(&number).into_iter().for_each(Plane::is_filled);
        self.flush(number);
    }

    fn load_front_end(&mut self, number: PlaneNumber, id: u16) {
        let Some(link) = self.ports.get(&id).and_then(|port| port.link.as_ref()) else { return };
        let (link, kept) = (link.number, link.kept);
        if self.restarts.is_held(id, self.now) {
            let plane = self.planes.get_mut(&number);
            return plane.into_iter().for_each(|it| _ = it.without.insert(id));
        }
        let order = self.next_number();
        let message = ToData::Link { order, port: id, link, spec: Default::default() };
        self.gives(number, (order, Order::Link { port: id }), message, &[]);
        if let Some(fd) = kept {
            let slot = ToData::Slot { link, slot: 0, bytes: Default::default() };
            self.tell(number, slot, vec![fd]);
        }
    }
}
