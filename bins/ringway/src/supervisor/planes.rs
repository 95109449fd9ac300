//! The data planes that there are, as processes; [`Succession`] says which of them serves.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_supervisor::succession::{Event, PlaneNumber, Succession};
use ringway_supervisor::wire::{Bytes, ToData};
use ringway_switch::PortId;

use super::control_client::ClientId;
use super::order::{Order, Requester};
use super::plane::{OutgoingFd, Plane};
use super::record::{Fds, PlaneRecord};
use super::{LOOK_EVERY, Supervisor, Wake};
use crate::spec_text;

/// The line of the log about a port that is held back.
const HELD: &str = "its front-end waits a few seconds: data planes end again and again, the last \
                    one while it served this port";

/// All of them, by number.
pub(super) struct Planes {
    all: BTreeMap<PlaneNumber, Plane>,
    pub(super) succession: Succession<ClientId>,
    /// Events whose turn comes when what follows from the one before is done.
    pub(super) events: VecDeque<Event<ClientId>>,
    pub(super) is_busy: bool,
    /// The first one has served.
    is_begun: bool,
    /// Why the first one cannot.
    pub(super) why_ended: Option<String>,
}

/// For statistics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) deaths: u64,
    pub(super) upgrades: u64,
    pub(super) down_since: Option<Instant>,
    /// The last system call that the sandbox has forbidden.
    pub(super) forbidden_call: Option<u32>,
}

impl Planes {
    /// None yet; numbers begin behind that one.
    pub(super) fn new(last: PlaneNumber) -> Self {
        let (all, events) = (BTreeMap::new(), VecDeque::new());
        let succession = Succession::new(last);
        Self { all, succession, events, is_busy: false, is_begun: false, why_ended: None }
    }

    /// One that has served before another program took the place of this process's own.
    pub(super) fn resume(&mut self, number: PlaneNumber, plane: Plane) {
        self.succession = Succession::resume(number, self.succession.last());
        self.is_begun = true;
        self.all.insert(number, plane);
    }

    /// The one that serves, or is about to.
    pub(super) fn serving(&mut self) -> Option<&mut Plane> {
        self.all.get_mut(&self.succession.serving()?)
    }

    pub(super) fn current(&self) -> Option<&Plane> {
        self.all.get(&self.succession.serving()?)
    }

    /// The one that is to follow it.
    pub(super) fn next(&mut self) -> Option<&mut Plane> {
        self.all.get_mut(&self.succession.next()?)
    }

    /// The one that serves, if it may be told of ports and front-ends.
    pub(super) fn loaded(&mut self) -> Option<&mut Plane> {
        if self.succession.is_loaded() { self.serving() } else { None }
    }

    /// The one that is to follow, if it has all that there is.
    pub(super) fn loaded_next(&mut self) -> Option<&mut Plane> {
        if self.succession.is_next_loaded() { self.next() } else { None }
    }

    /// The one that serves, if it carries packets.
    pub(super) fn running(&mut self) -> Option<&mut Plane> {
        if self.is_running() { self.serving() } else { None }
    }

    pub(super) fn is_next(&self, number: PlaneNumber) -> bool {
        self.succession.next() == Some(number)
    }

    pub(super) fn is_serving(&self, number: PlaneNumber) -> bool {
        self.succession.serving() == Some(number)
    }

    pub(super) fn get(&mut self, number: PlaneNumber) -> Option<&mut Plane> {
        self.all.get_mut(&number)
    }

    /// Nothing is read from front-ends and clients: a data plane takes over from another one, or
    /// another supervisor from this one.
    pub(super) fn is_holding(&self) -> bool {
        !self.succession.may_read()
    }

    pub(super) fn is_running(&self) -> bool {
        self.succession.is_running()
    }

    /// The first one serves all ports that could be opened.
    pub(super) fn has_begun(&mut self) -> bool {
        let opens =
            |plane: &Plane| plane.orders.values().any(|order| matches!(order, Order::Open { .. }));
        let is_done = self.is_running() && self.current().is_some_and(|plane| !opens(plane));
        self.is_begun |= is_done;
        self.is_begun
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// The record of the one that serves, for the next supervisor.
    pub(super) fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Option<PlaneRecord> {
        let (number, plane) = (self.succession.serving()?, self.current()?);
        let (pid, channel) = (plane.pid().try_into().ok()?, fds.put(plane.channel.as_fd()));
        let (may_route, speaks) = (plane.may_route, Some(plane.speaks));
        Some(PlaneRecord { number, pid, channel, may_route, speaks })
    }

    /// There is one, which serves, and no other.
    pub(super) fn is_alone(&self) -> bool {
        let knows_all = |plane: &Plane| plane.is_told() && plane.without.is_empty();
        let is_alone = self.is_running() && self.succession.others_are_gone();
        is_alone && self.current().is_some_and(knows_all)
    }

    /// It has ended.
    pub(super) fn remove(&mut self, number: PlaneNumber) -> Option<Plane> {
        self.all.remove(&number)
    }

    pub(super) fn insert(&mut self, number: PlaneNumber, plane: Plane) {
        self.all.insert(number, plane);
    }

    /// At the end of everything.
    pub(super) fn finish(mut self, at_most: Duration) {
        let serving = self.succession.serving().and_then(|number| self.all.remove(&number));
        for mut plane in self.all.into_values() {
            plane.kill();
            plane.finish(Duration::ZERO);
        }
        if let Some(plane) = serving {
            plane.finish(at_most);
        }
    }
}

impl Supervisor {
    /// All file descriptors that a data plane gets.
    pub(super) fn all_descriptors(&self) -> Vec<OutgoingFd> {
        let served = self.ports.values().filter(|port| port.failure.is_none());
        let of_ports = served.flat_map(|port| {
            let slots = port.link().into_iter().flat_map(|link| link.kept.replay());
            let of_front_end = slots.flat_map(|(_, frame)| frame.fds.iter().cloned());
            port.sent().into_iter().chain(of_front_end.map(OutgoingFd::FrontEnd))
        });
        of_ports.chain([OutgoingFd::Own(self.journal.file().clone())]).collect()
    }

    pub(super) fn watch_plane(&self, number: PlaneNumber, plane: &Plane) -> anyhow::Result<()> {
        self.poller.add(plane.channel.as_fd(), Wake::Plane(number).token())?;
        Ok(self.poller.add(plane.pidfd.as_fd(), Wake::PlaneEnd(number).token())?)
    }

    /// It closed its end, or said what cannot be.
    pub(super) fn end_plane(&mut self, plane: PlaneNumber, why: &str) {
        let running = self.planes.get(plane).filter(|it| !it.is_killed && !why.is_empty());
        if let Some(running) = running {
            tracing::error!("the data plane {why}: it is ended");
            running.is_condemned = true;
        }
        self.happens(Event::Lost { plane, is_condemned: !why.is_empty() });
    }

    /// Gives a data plane everything that there is: ports, front-ends and what was kept of them.
    pub(super) fn load(&mut self, number: PlaneNumber) {
        let settings = spec_text::settings(&self.settings, self.workers, self.has_routers());
        let (is_next, now) = (self.planes.is_next(number), Instant::now());
        if !self.planes.has_begun() {
            self.recall_stations();
        }
        let Some(mut plane) = self.planes.remove(number) else { return };
        plane.may_route = self.has_routers();
        plane.begin_filling(&ToData::Config { settings });
        for (&id, port) in &mut self.ports {
            if port.failure.is_some() || port.is_leaving() {
                continue;
            }
            let asked =
                if is_next { Requester::default() } else { port.asked.take().unwrap_or_default() };
            let Ok(spec) = spec_text::port(&port.spec, port.tap.name(), &self.identity) else {
                continue;
            };
            let message = |order| ToData::Port { order, port: id.0, spec };
            let order = Order::Open { port: id, asked };
            let message = (message, port.sent());
            Self::order(&mut plane, &mut self.next_order, order, message);
            let Some(link) = port.link() else { continue };
            if self.restarts.is_held(id.0, now) {
                plane.without.insert(id);
                continue;
            }
            let (link_number, spec) = (link.number, link.spec.clone());
            let message = |order| ToData::Link { order, port: id.0, link: link_number, spec };
            let order = Order::Link { port: id };
            Self::order(&mut plane, &mut self.next_order, order, (message, vec![]));
            for (slot, frame) in link.kept.replay() {
                let bytes = Bytes::new(frame.bytes.clone()).unwrap_or_default();
                let fds = frame.fds.iter().cloned().map(OutgoingFd::FrontEnd).collect();
                plane.tell(&ToData::Slot { link: link_number, slot, bytes }, fds);
            }
        }
        self.tell_of_stations(&mut plane);
        plane.tell(&ToData::Replayed {}, vec![]);
        plane.is_filled();
        let held: Vec<PortId> = plane.without.iter().copied().collect();
        self.planes.insert(number, plane);
        for id in held {
            self.complain(id, HELD);
        }
    }

    /// Whether a front-end that has just come has to wait, because its port is held back: it may be
    /// the one that was there when the data plane ended.
    pub(super) fn holds_back(&mut self, id: PortId) -> bool {
        let is_held = self.restarts.is_held(id.0, Instant::now());
        let plane = self.planes.loaded().filter(|_| is_held);
        let is_new = plane.map(|plane| plane.without.insert(id));
        if is_new.is_some() {
            self.complain(id, HELD);
        }
        is_new.is_some()
    }

    /// A child was stopped, goes on or has ended.
    pub(super) fn on_child(&mut self) {
        let _ = (&self.child_signals).read(&mut [0; 16]);
        if let Some(plane) = self.planes.serving() {
            plane.watch.doubts();
        }
    }

    /// Sends what waits, notices who does not answer, starts a new one when its time has come.
    pub(super) fn look_after_planes(&mut self) {
        let now = Instant::now();
        let beats = if self.planes.is_running() { self.journal.beats() } else { vec![] };
        if let Some(plane) = self.planes.serving() {
            plane.flush();
            plane.look(now, &beats);
        }
        if let Some(plane) = self.planes.next() {
            plane.flush();
        }
        self.serve_held_ports(now);
        self.take_back_unsent(now);
        self.look_after_check();
        if self.planes.succession.wake_at().is_some_and(|at| at <= now) {
            self.happens(Event::Due);
        }
        if self.planes.succession.waits_for_rest() && self.is_at_rest() {
            self.happens(Event::AtRest);
        }
        self.hand_over(now);
        self.ask_open_questions();
        self.drop_links_that_waited(now);
    }

    /// When to do that again.
    pub(super) fn next_look_at_planes(&self) -> Option<Instant> {
        let now = Instant::now();
        let is_owed = self.planes.succession.is_changing()
            || self.reloading.is_some()
            || !self.requests.is_empty()
            || self.planes.current().is_none_or(|plane| !plane.orders.is_empty());
        let look = is_owed.then(|| now + LOOK_EVERY);
        let numbers = [self.planes.succession.serving(), self.planes.succession.next()];
        let planes =
            numbers.into_iter().flatten().filter_map(|number| self.planes.all.get(&number));
        let at = self.planes.current().and_then(|plane| plane.look_at);
        planes
            .filter_map(Plane::next_flush)
            .chain(look)
            .chain(at)
            .chain(self.planes.succession.wake_at())
            .chain(self.requests.wake_at())
            .chain(self.next_serving_held_ports(now))
            .min()
    }
}
