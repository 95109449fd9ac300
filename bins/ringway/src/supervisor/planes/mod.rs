//! The data planes that there are, as processes; [`Succession`] says which of them serves.

pub mod death;
pub mod load;
pub mod messages;
pub mod order;
pub mod plane;
pub mod telling;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ringway_host::Poller;
use ringway_supervisor::changes::Change;
use ringway_supervisor::requests::Requests;
use ringway_supervisor::restart::Restarts;
use ringway_supervisor::succession::{Event, PlaneNumber, Succession};
use ringway_supervisor::wire::ToData;
use tracing::error;

use self::order::Order;
use self::plane::{OutgoingFd, Plane};
use crate::config::PortSpec;
use crate::supervisor::LOOK_EVERY;
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::processes::journal::Watched;
use crate::supervisor::record::{Fds, PlaneRecord};
use crate::supervisor::setup::wake::Wake;

/// All of them, by number.
pub struct Planes {
    poller: Rc<Poller>,
    pub all: BTreeMap<PlaneNumber, Plane>,
    pub succession: Succession<ClientId>,
    /// Events whose turn comes when what follows from the one before is done.
    pub events: VecDeque<Event<ClientId>>,
    pub is_busy: bool,
    /// The first one has served.
    is_begun: bool,
    /// Why the first one cannot.
    pub why_ended: Option<String>,
    pub journal: Watched,
    pub restarts: Restarts,
    /// Those of front-ends.
    pub requests: Requests,
    pub counts: PlaneCounts,
    pub last_order: u32,
    /// The data plane has told guests that their links are down: whether there were any.
    pub links_down: Option<bool>,
}

/// For statistics.
#[derive(Debug, Default)]
pub struct PlaneCounts {
    pub deaths: u64,
    pub upgrades: u64,
    pub down_since: Option<Instant>,
    /// The last system call that the sandbox has forbidden.
    pub forbidden_call: Option<u32>,
}

impl Planes {
    /// None yet.
    pub fn new(poller: Rc<Poller>, journal: Watched) -> Self {
        Self {
            poller,
            all: BTreeMap::new(),
            succession: Succession::new(0),
            events: VecDeque::new(),
            is_busy: false,
            is_begun: false,
            why_ended: None,
            journal,
            restarts: Restarts::default(),
            requests: Requests::default(),
            counts: PlaneCounts::default(),
            last_order: 0,
            links_down: None,
        }
    }

    /// One that has served before another program took the place of this process's own.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn resume(&mut self, number: PlaneNumber, plane: Plane) -> anyhow::Result<()> {
        self.succession = Succession::resume(number, self.succession.last());
        self.is_begun = true;
        self.add(number, plane)
    }

    /// The one that serves, or is about to.
    pub fn serving(&mut self) -> Option<&mut Plane> {
        self.all.get_mut(&self.succession.serving()?)
    }

    pub fn current(&self) -> Option<&Plane> {
        self.all.get(&self.succession.serving()?)
    }

    /// The one that is to follow it.
    pub fn next(&mut self) -> Option<&mut Plane> {
        self.all.get_mut(&self.succession.next()?)
    }

    /// The one that serves, if it may be told of ports and front-ends.
    pub fn loaded(&mut self) -> Option<&mut Plane> {
        if self.succession.is_loaded() { self.serving() } else { None }
    }

    /// The one that is to follow, if it has all that there is.
    pub fn loaded_next(&mut self) -> Option<&mut Plane> {
        if self.succession.is_next_loaded() { self.next() } else { None }
    }

    /// The one that serves, if it carries packets.
    pub fn running(&mut self) -> Option<&mut Plane> {
        if self.is_running() { self.serving() } else { None }
    }

    pub fn is_next(&self, number: PlaneNumber) -> bool {
        self.succession.next() == Some(number)
    }

    pub fn is_serving(&self, number: PlaneNumber) -> bool {
        self.succession.serving() == Some(number)
    }

    pub fn get(&mut self, number: PlaneNumber) -> Option<&mut Plane> {
        self.all.get_mut(&number)
    }

    /// Nothing is read from front-ends and clients: a data plane takes over from another one, or
    /// another supervisor from this one.
    pub fn is_holding(&self) -> bool {
        !self.succession.may_read()
    }

    pub fn is_running(&self) -> bool {
        self.succession.is_running()
    }

    /// The first one serves all ports that could be opened.
    pub fn has_begun(&mut self) -> bool {
        let opens = |plane: &Plane| {
            plane.debts.orders.values().any(|order| matches!(order, Order::Open { .. }))
        };
        let is_done = self.is_running() && self.current().is_some_and(|plane| !opens(plane));
        self.is_begun |= is_done;
        self.is_begun
    }

    pub fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// The record of the one that serves, for the next supervisor.
    pub fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Option<PlaneRecord> {
        let (number, plane) = (self.succession.serving()?, self.current()?);
        let (pid, channel) = (plane.pid().try_into().ok()?, fds.put(plane.socket.channel.as_fd()));
        let (may_route, speaks) = (plane.may_route, Some(plane.socket.speaks));
        Some(PlaneRecord { number, pid, channel, may_route, speaks })
    }

    /// There is one, which serves, and no other.
    pub fn is_alone(&self) -> bool {
        let knows_all = |plane: &Plane| plane.is_told() && plane.debts.without.is_empty();
        let is_alone = self.is_running() && self.succession.others_are_gone();
        is_alone && self.current().is_some_and(knows_all)
    }

    /// It has ended.
    pub fn remove(&mut self, number: PlaneNumber) -> Option<Plane> {
        self.all.remove(&number)
    }

    pub fn insert(&mut self, number: PlaneNumber, plane: Plane) {
        self.all.insert(number, plane);
    }

    /// At the end of everything.
    pub fn finish(mut self, at_most: Duration) {
        let serving = self.succession.serving().and_then(|number| self.all.remove(&number));
        for mut plane in self.all.into_values() {
            plane.kill();
            plane.finish(Duration::ZERO);
        }
        if let Some(plane) = serving {
            plane.finish(at_most);
        }
    }

    /// The number of the next order.
    pub fn next_number(&mut self) -> u32 {
        self.last_order = self.last_order.wrapping_add(1);
        self.last_order
    }

    /// Gives an order to the running data plane, and to the one that is to follow it if that has
    /// all that there is; without any the next one gets everything. `false`: there is none.
    pub fn order(
        &mut self,
        order: Order,
        message: impl Fn(u32) -> ToData,
        fds: Vec<OutgoingFd>,
    ) -> bool {
        let numbers = [self.next_number(), self.next_number()];
        if let Some(next) = self.loaded_next() {
            next.order(numbers[0], order.clone().unasked(), &message(numbers[0]), fds.clone());
        }
        let Some(plane) = self.loaded() else { return false };
        plane.order(numbers[1], order, &message(numbers[1]), fds);
        true
    }

    /// Changes of that port that are not answered yet, the oldest one first.
    pub fn changes(
        &mut self,
        port: u16,
        name: &str,
    ) -> impl Iterator<Item = &mut Change<PortSpec>> {
        let orders = self.serving().into_iter().flat_map(|plane| plane.debts.orders.values_mut());
        let changes = orders.filter_map(|order| match order {
            Order::Change { change, .. } => Some(&mut **change),
            _ => None,
        });
        changes.filter(move |change| change.is_of(port, name))
    }

    /// Watches a data plane, from now on one of these.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&mut self, number: PlaneNumber, plane: Plane) -> anyhow::Result<()> {
        self.poller.add(plane.socket.channel.as_fd(), Wake::Plane(number).token())?;
        self.poller.add(plane.process.pidfd.as_fd(), Wake::PlaneEnd(number).token())?;
        self.all.insert(number, plane);
        Ok(())
    }

    pub fn kill(&mut self, number: PlaneNumber, is_condemned: bool) {
        let Some(plane) = self.all.get_mut(&number).filter(|plane| !plane.process.is_killed) else {
            return;
        };
        if is_condemned && !std::mem::replace(&mut plane.process.is_condemned, true) {
            error!("the data plane did not do what was its turn: it is ended");
        }
        plane.kill();
        let _ = self.poller.remove(plane.socket.channel.as_fd());
    }

    /// A child was stopped, goes on or has ended.
    pub fn doubt(&mut self) {
        if let Some(plane) = self.serving() {
            plane.watch.doubts();
        }
    }

    /// Sends what waits, and notices who does not answer.
    pub fn look(&mut self, now: Instant) {
        let beats = if self.is_running() { self.journal.beats() } else { vec![] };
        if let Some(plane) = self.serving() {
            plane.flush();
            plane.look(now, &beats);
        }
        if let Some(plane) = self.next() {
            plane.flush();
        }
    }

    /// When to do that again.
    pub fn next_look(&self, is_reloading: bool) -> Option<Instant> {
        let now = Instant::now();
        let is_owed = self.succession.is_changing()
            || is_reloading
            || !self.requests.is_empty()
            || self.current().is_none_or(|plane| !plane.debts.orders.is_empty());
        let look = is_owed.then(|| now + LOOK_EVERY);
        let numbers = [self.succession.serving(), self.succession.next()];
        let planes = numbers.into_iter().flatten().filter_map(|number| self.all.get(&number));
        let at = self.current().and_then(|plane| plane.look_at);
        planes
            .filter_map(Plane::next_flush)
            .chain(look)
            .chain(at)
            .chain(self.succession.wake_at())
            .chain(self.requests.wake_at(now))
            .chain(self.next_serving_held_ports(now))
            .min()
    }
}
