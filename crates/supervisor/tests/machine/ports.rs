//! Ports of virtual machines and taps, and the front-ends that come to them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Instant;

use ringway_supervisor::front_ends::{Admission, Effect, Event, SocketMode};
use ringway_supervisor::wire::{Bytes, Offence, SPEC_LEN_MAX, ToData};

use super::plane::Order;
use super::{Machine, Note};

/// Options of a port: a name and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    pub name: String,
    pub value: u8,
}

impl Spec {
    pub fn bytes(&self) -> Vec<u8> {
        [&[self.value], self.name.as_bytes()].concat()
    }

    pub fn told(&self) -> Bytes<SPEC_LEN_MAX> {
        Bytes::new(self.bytes()).unwrap_or_default()
    }
}

pub struct Port {
    pub spec: Spec,
    pub from_file: Option<Spec>,
    /// Its file descriptor, if it is a tap.
    pub tap: Option<u32>,
    pub admission: Admission,
    pub link: Option<FrontEnd>,
    /// Front-ends that have connected, and are not linked yet.
    pub waiting: u32,
    /// Front-ends that wait in the socket.
    pub queue: u32,
    pub leaves_at: Option<Instant>,
    pub asked: Option<u32>,
}

pub struct FrontEnd {
    pub number: u32,
    /// A request that was not read yet, with a file descriptor or without.
    pub unread: Option<bool>,
    /// One that is not answered: its number, and its file descriptor.
    pub outstanding: Option<(u32, Option<u32>)>,
    /// The descriptor that is kept of it.
    pub kept: Option<u32>,
}

impl Machine {
    /// A port opens; `client`: it has asked for that.
    pub fn open(&mut self, number: u16, is_tap: bool, client: Option<u32>) {
        let name = format!("port{}", self.next_number());
        let spec = Spec { name, value: 0 };
        let tap = is_tap.then(|| self.next_number());
        let way = if is_tap { SocketMode::Closed } else { SocketMode::Listen };
        let port = Port {
            from_file: client.is_none().then(|| spec.clone()),
            spec,
            tap,
            admission: Admission::new(way, self.now),
            link: None,
            waiting: 0,
            queue: 0,
            leaves_at: None,
            asked: None,
        };
        let spec = port.spec.told();
        self.ports.insert(number, port);
        if !self.succession.may_read() {
            self.happens_at(number, Event::Hold(true));
        }
        let message = |order| ToData::Port { order, port: number, spec: spec.clone() };
        let fds: Vec<u32> = tap.into_iter().collect();
        if !self.order(Order::Open { port: number, client }, message, &fds)
            && let Some(port) = self.ports.get_mut(&number)
        {
            port.asked = client;
        }
    }

    pub fn all_descriptors(&self) -> BTreeSet<u32> {
        let of_ports = self.ports.values().flat_map(|port| {
            port.tap.into_iter().chain(port.link.as_ref().and_then(|link| link.kept))
        });
        of_ports.chain([self.journal]).collect()
    }

    pub fn ports_of(&self, is_it: impl Fn(&Port) -> bool) -> Vec<u16> {
        self.ports.iter().filter(|(_, port)| is_it(port)).map(|(number, _)| *number).collect()
    }

    pub fn happens_at(&mut self, id: u16, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            let Some(port) = self.ports.get_mut(&id).filter(|it| it.tap.is_none()) else { return };
            port.admission.on(event, self.now, &mut effects);
            events.extend(effects.into_iter().filter_map(|effect| self.carry_out_at(id, effect)));
        }
    }

    fn carry_out_at(&mut self, id: u16, effect: Effect) -> Option<Event> {
        let port = self.ports.get_mut(&id)?;
        match effect {
            Effect::Link => {
                assert!(port.waiting > 0 && port.link.is_none());
                port.waiting -= 1;
                self.link(id);
                None
            }
            Effect::Refuse => {
                assert!(port.waiting == 2 && port.link.is_some());
                port.waiting -= 1;
                Some(Event::Refused)
            }
            Effect::Drop => {
                port.waiting = 0;
                None
            }
            Effect::Disconnect => self.disconnect(id, None),
            Effect::Free => {
                self.finish_leaving(id);
                None
            }
            _ => None,
        }
    }

    fn link(&mut self, id: u16) {
        let link = self.next_number();
        let front_end = FrontEnd { number: link, unread: None, outstanding: None, kept: None };
        self.ports.get_mut(&id).expect("it is there").link = Some(front_end);
        if self.holds_back(id) {
            return;
        }
        let message = |order| ToData::Link { order, port: id, link, spec: Default::default() };
        self.order(Order::Link { port: id }, message, &[]);
    }

    fn holds_back(&mut self, id: u16) -> bool {
        let is_held = self.restarts.is_held(id, self.now) && self.succession.is_loaded();
        let serving = self.succession.serving().filter(|_| is_held);
        let Some(plane) = serving.and_then(|number| self.planes.get_mut(&number)) else {
            return false;
        };
        plane.without.insert(id);
        true
    }

    fn disconnect(&mut self, id: u16, offence: Option<(Offence, String)>) -> Option<Event> {
        let link = self.ports.get_mut(&id)?.link.take()?.number;
        self.note(Note::Leaves(link));
        self.forget_front_end(link, id);
        let message = |order| ToData::Unlink { order, link };
        let is_plane_closing = self.order(Order::Unlink { port: id }, message, &[]);
        Some(Event::Gone { link, offence, is_closing_here: false, is_plane_closing })
    }

    pub fn drop_link(&mut self, id: u16, offence: Option<(Offence, String)>) {
        if let Some(event) = self.disconnect(id, offence) {
            self.happens_at(id, event);
        }
    }

    pub fn port_of(&self, link: u32) -> Option<u16> {
        let is_it = |port: &Port| port.link.as_ref().is_some_and(|it| it.number == link);
        self.ports.iter().find(|(_, port)| is_it(port)).map(|(number, _)| *number)
    }

    pub fn let_go(&mut self, link: u32, offence: Option<Offence>) {
        if let Some(id) = self.port_of(link) {
            return self.drop_link(id, offence.map(|offence| (offence, String::new())));
        }
        let last = |port: &Port| port.admission.history().last_link == Some(link);
        let id = self.ports_of(last).first().copied();
        if let Some((id, offence)) = id.zip(offence) {
            self.happens_at(id, Event::Offence { offence, why: String::new() });
        }
    }

    /// A front-end connects to the port's socket.
    pub fn comes(&mut self, id: u16) {
        if let Some(port) = self.ports.get_mut(&id).filter(|port| port.tap.is_none()) {
            port.queue += 1;
        }
    }

    /// Its front-end sends a request, unless the one before was not read yet.
    pub fn asks(&mut self, id: u16, has_fds: bool) -> bool {
        let link = self.ports.get_mut(&id).and_then(|port| port.link.as_mut());
        let link = link.filter(|link| link.unread.is_none());
        link.map(|link| link.unread = Some(has_fds)).is_some()
    }

    /// Accepts who waits, and reads what was sent.
    pub fn serve_sockets(&mut self) {
        for id in self.ports_of(|port| port.queue > 0 && port.admission.is_listening()) {
            let port = self.ports.get_mut(&id).expect("it is there");
            port.queue -= 1;
            port.waiting += 1;
            self.happens_at(id, Event::Connected);
        }
        let has_sent = |port: &Port| port.link.as_ref().is_some_and(|link| link.unread.is_some());
        for id in self.ports_of(|port| has_sent(port) && port.admission.is_reading()) {
            self.reads(id);
        }
    }

    fn reads(&mut self, id: u16) {
        let number = self.next_number();
        let port = self.ports.get_mut(&id).expect("it is there");
        let link = port.link.as_mut().expect("it is linked");
        assert!(link.outstanding.is_none(), "one at a time");
        let has_fds = link.unread.take() == Some(true);
        link.outstanding = Some((number, has_fds.then_some(number)));
        let link = link.number;
        self.note(Note::Asks(link));
        self.requests.add(link, id, number);
        self.happens_at(id, Event::Room(false));
    }

    pub fn request_is_done(&mut self, link: u32, number: u32, is_closing: bool) {
        let Some(id) = self.port_of(link) else { return };
        assert!(self.requests.is_in_hand(link, number), "what it has is known");
        let front_end = self.ports.get_mut(&id).and_then(|port| port.link.as_mut());
        let front_end = front_end.expect("it is linked");
        let asked = front_end.outstanding.take().expect("no request is answered twice");
        assert_eq!(asked.0, number, "another request than it has");
        front_end.kept = asked.1.or(front_end.kept);
        self.note(Note::Answers(link));
        self.has_answered(link);
        if is_closing {
            self.happens_at(id, Event::PlaneCloses(true));
        }
        self.happens_at(id, Event::Room(true));
    }
}
