//! The program looks after data planes in each turn, and knows when it has to look again.

use std::time::{Duration, Instant};

use ringway_supervisor::front_ends;
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::succession::Event;
use ringway_supervisor::wire::ToData;

use super::Machine;
use super::plane::Plane;

const LOOK_EVERY: Duration = Duration::from_millis(100);
const RENEWED_EVERY: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(4);
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

impl Machine {
    /// Each moment that is waited for, by name.
    pub fn dues(&self) -> Vec<(&'static str, Instant)> {
        let now = self.now;
        let numbers = [self.succession.serving(), self.succession.next()];
        let planes = || numbers.into_iter().flatten().filter_map(|number| self.planes.get(&number));
        let current = self.serving().and_then(|number| self.planes.get(&number));
        let is_owed = self.succession.is_changing()
            || !self.requests.is_empty()
            || current.is_none_or(|plane| !plane.orders.is_empty());
        let admissions = self.ports.values().filter_map(|port| port.admission.wake_at());
        let all = [
            ("release", self.restarts.next_release()),
            ("admission", admissions.min()),
            ("leaving", self.ports.values().filter_map(|port| port.leaves_at).min()),
            ("giving up", self.questions.values().map(|it| it.since + PATIENCE).min()),
            ("flush", planes().filter_map(|it| it.next_flush(now)).min()),
            ("owed", is_owed.then(|| now + LOOK_EVERY)),
            ("watch", current.and_then(|it| it.look_at)),
            ("succession", self.succession.wake_at()),
            ("requests", self.requests.wake_at(now)),
            ("held ports", self.next_serving_held_ports()),
            ("check", self.check_ends),
        ];
        all.into_iter().filter_map(|(name, at)| Some((name, at?))).collect()
    }

    pub fn run_due(&mut self) {
        let now = self.now;
        if self.restarts.next_release().is_some_and(|at| at <= now) {
            for port in self.restarts.take_released(now) {
                self.happens_at(port, front_ends::Event::Release);
            }
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for port in self.ports_of(|port| is_due(port.admission.wake_at())) {
            self.happens_at(port, front_ends::Event::Due);
        }
        self.finish_leaving_ports();
        let late = self.questions.extract_if(.., |_, it| it.since + PATIENCE <= now);
        for (_, question) in late.collect::<Vec<_>>() {
            self.answers(question.client);
        }
    }

    pub fn end_closing(&mut self) {
        for port in self.ports_of(|port| port.admission.is_closing()) {
            self.happens_at(port, front_ends::Event::Closing { is_here: false });
        }
    }

    pub fn look_after_planes(&mut self) {
        let now = self.now;
        if let Some(number) = self.serving() {
            self.flush(number);
            self.look_at(number);
        }
        if let Some(number) = self.succession.next() {
            self.flush(number);
        }
        if self.is_held_port_due() && self.succession.may_hand_over().is_ok() {
            self.happens(Event::HandOver { by: None });
        }
        self.take_back_unsent();
        if self.check_ends.take_if(|at| *at <= now).is_some() {
            let is_able = !self.chance.one_in(3);
            let outcome = if is_able { Ok(()) } else { Err(String::new()) };
            self.happens(Event::Checked(outcome));
        }
        if self.succession.wake_at().is_some_and(|at| at <= now) {
            self.happens(Event::Due);
        }
        if self.succession.waits_for_rest() && self.is_at_rest() {
            self.happens(Event::AtRest);
        }
        if self.succession.waits_to_give_place() && self.questions.is_empty() && self.is_at_rest() {
            self.happens(Event::NotReplaced { why: String::new() });
        }
        self.hand_over();
        self.ask();
        self.drop_links_that_waited();
    }

    fn is_at_rest(&self) -> bool {
        let plane = self.serving().and_then(|number| self.planes.get(&number));
        let owes = plane.is_none_or(|it| !it.orders.is_empty() || !it.asks.is_empty());
        self.succession.is_running() && !owes && !self.requests.is_any_owed()
    }

    fn is_held_port_due(&mut self) -> bool {
        let (now, is_running) = (self.now, self.succession.is_running());
        let serving = self.succession.serving().filter(|_| is_running);
        let Some(plane) = serving.and_then(|number| self.planes.get_mut(&number)) else {
            return false;
        };
        let is_due = plane.without.iter().any(|port| !self.restarts.is_held(*port, now));
        if !is_due || plane.renew_at.is_some_and(|at| at > now) {
            return false;
        }
        plane.renew_at = Some(now + RENEWED_EVERY);
        true
    }

    fn next_serving_held_ports(&self) -> Option<Instant> {
        let plane = self.serving().and_then(|number| self.planes.get(&number));
        let plane = plane.filter(|plane| !plane.without.is_empty())?;
        let next = self.restarts.next_unheld(self.now);
        plane.renew_at.into_iter().chain(next).filter(|at| *at > self.now).min()
    }

    fn take_back_unsent(&mut self) {
        let plane = self.serving().and_then(|number| self.planes.get_mut(&number));
        let links = plane.map(|plane| plane.outbox.take_given_back()).unwrap_or_default();
        links.into_iter().for_each(|link| self.requests.give_back(link, self.now));
    }

    fn hand_over(&mut self) {
        let is_one_by_one = self.restarts.is_suspicious(self.now);
        let Some(number) = self.serving().filter(|_| self.succession.is_running()) else { return };
        let without = self.planes.get(&number).map(|it| it.without.clone()).unwrap_or_default();
        let knows = |port| !without.contains(&port);
        for (link, port) in self.requests.hand_over(is_one_by_one, knows, self.now) {
            assert!(!self.succession.is_next_loaded(), "the next one would not know of it");
            let asked = self.ports.get(&port).and_then(|port| port.link.as_ref()?.outstanding);
            let (request, fd) = asked.expect("each request is of a front-end that is here");
            let bytes = Default::default();
            let message = ToData::Frame { link, number: request, flaw: None, bytes };
            self.tell(number, message, fd.into_iter().collect());
        }
    }

    fn ask(&mut self) {
        let Some(number) = self.serving().filter(|_| self.succession.is_running()) else { return };
        for (ask, question) in self.questions.clone() {
            let plane = self.planes.get_mut(&number);
            if plane.is_some_and(|plane: &mut Plane| plane.asks.insert(ask)) {
                let fds = question.has_fds.then(|| self.next_number());
                let message = ToData::Ask { ask, bytes: Default::default() };
                self.tell(number, message, fds.into_iter().collect());
            }
        }
    }

    pub fn has_answered(&mut self, link: u32) {
        self.requests.remove(link);
        if let Some(plane) = self.succession.serving().and_then(|it| self.planes.get_mut(&it)) {
            plane.outbox.is_answered(Owed::Frame(link));
        }
    }

    pub fn forget_front_end(&mut self, link: u32, port: u16) {
        self.requests.remove(link);
        if let Some(plane) = self.succession.serving().and_then(|it| self.planes.get_mut(&it)) {
            plane.outbox.forget_frame(link);
            plane.without.remove(&port);
        }
    }

    fn drop_links_that_waited(&mut self) {
        if self.down_since.is_none_or(|since| since + ANSWERED_WITHIN > self.now) {
            return;
        }
        let waits =
            |port: &super::Port| port.link.as_ref().is_some_and(|it| it.outstanding.is_some());
        for port in self.ports_of(waits) {
            self.drop_link(port, None);
        }
    }
}
