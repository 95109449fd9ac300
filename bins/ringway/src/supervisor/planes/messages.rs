//! Messages between data planes and this process: requests of front-ends, and what data planes say.

use std::time::Instant;

use anyhow::{Context, ensure};
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::succession::{Event, PlaneNumber, Stage};
use ringway_supervisor::wire::{
    Bytes, Flaw, ToData, Versions, WIRE_VERSION, WIRE_VERSION_LOGS, WIRE_VERSION_MIN,
};
use ringway_switch::PortId;
use tracing::error;

use super::Planes;
use super::order::Order;
use super::plane::{OutgoingFd, Plane};
use super::telling::NEWER;
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::processes::descriptors::too_many_on_their_way;
use crate::supervisor::processes::journal::Watched;

/// Most bytes of an answer: a thousand ports have fewer.
const ANSWER_LEN_MAX: usize = 16 << 20;

/// Most bytes of positions.
const POSITIONS_LEN_MAX: usize = 1 << 20;

impl Planes {
    /// A request is whole, and waits to be handed over.
    pub fn note_request(&mut self, id: PortId, ports: &Ports) {
        let Some(link) = ports.get(&id).and_then(SupervisedPort::link) else { return };
        if let Some((number, _)) = link.kept.framer.outstanding() {
            self.requests.add(link.number, id.0, number);
        }
    }

    /// Requests that no data plane has are given to the one that runs now, as far as it can take
    /// them: in each turn, so that no event is forgotten behind which one could go.
    pub fn hand_over(&mut self, now: Instant, ports: &Ports) {
        let is_one_by_one = self.restarts.is_suspicious(now);
        let Some(plane) = self.running() else { return };
        let without = plane.debts.without.clone();
        let knows = |port| !without.contains(&PortId(port));
        for (_, port) in self.requests.hand_over(is_one_by_one, knows, now) {
            self.send_request(PortId(port), ports);
        }
    }

    fn send_request(&mut self, id: PortId, ports: &Ports) {
        let Some(link) = ports.get(&id).and_then(SupervisedPort::link) else { return };
        let Some((number, frame)) = link.kept.framer.outstanding() else { return };
        let is_ours = frame.fds.iter().any(|fd| ports.is_own_socket(fd));
        let flaw = match (frame.has_lost_fds, is_ours) {
            (true, _) => Some(Flaw::LostFds),
            (false, true) => Some(Flaw::OwnSocket),
            (false, false) => None,
        };
        let bytes = Bytes::new(frame.bytes.clone()).unwrap_or_default();
        // Too many, or not all: none is used.
        let fds = frame.fds.iter().filter(|_| flaw.is_none()).cloned();
        let fds = fds.map(OutgoingFd::FrontEnd).collect();
        let message = ToData::Frame { link: link.number, number, flaw, bytes };
        if let Some(plane) = self.serving() {
            plane.tell(&message, fds);
        }
    }

    /// Requests whose file descriptors could not be sent wait for a moment.
    pub fn take_back_unsent(&mut self, now: Instant, ports: &mut Ports) {
        let links = self.serving().map(Plane::take_given_back).unwrap_or_default();
        for number in links {
            self.requests.give_back(number, now);
            let Some(id) = ports.port_of(number) else { continue };
            let Some(link) = ports.front_end(id) else { continue };
            if !std::mem::replace(&mut link.is_wait_logged, true) {
                ports.complain(id, too_many_on_their_way());
            }
        }
    }

    /// A request is done.
    pub fn has_answered(&mut self, link: u32) {
        self.requests.remove(link);
        if let Some(plane) = self.serving() {
            plane.is_answered(Owed::Frame(link));
        }
    }

    /// A front-end has gone.
    pub fn forget_front_end(&mut self, link: u32, port: PortId) {
        self.requests.remove(link);
        if let Some(plane) = self.serving() {
            plane.forget_frame(link);
            plane.debts.without.remove(&port);
        }
    }

    /// No more is read from front-ends, and nothing is to stay outstanding: those that wait for the
    /// end of a transfer are answered soon.
    pub fn hold(&mut self, is_holding: bool) {
        let knows = |plane: &&mut Plane| is_holding && plane.socket.speaks >= WIRE_VERSION_LOGS;
        let plane = self.running().filter(knows);
        plane.into_iter().for_each(|plane| plane.tell(&ToData::EndTransfers {}, vec![]));
    }

    /// Nothing of the data plane is outstanding.
    pub fn is_at_rest(&self) -> bool {
        let plane = self.current();
        let owes = plane.is_none_or(|it| !it.debts.orders.is_empty() || !it.debts.asks.is_empty());
        self.is_running() && !owes && !self.requests.is_any_owed()
    }

    /// A data plane says hello. It may have to be started anew without what it was given.
    ///
    /// # Errors
    /// Why it cannot serve.
    pub fn hello(
        &mut self,
        number: PlaneNumber,
        wire: Versions,
        journal: Versions,
    ) -> Result<Event<ClientId>, String> {
        let ours = Versions { first: WIRE_VERSION_MIN, last: WIRE_VERSION };
        let layout = Versions { first: Watched::LAYOUT, last: Watched::LAYOUT };
        let Some(speaks) = ours.common(wire) else {
            let Versions { first, last } = wire;
            return Err(format!("it speaks versions {first} to {last}, and not {WIRE_VERSION}"));
        };
        let plane = self.get(number);
        let needs_bare =
            speaks < NEWER && plane.as_ref().is_some_and(|it| !it.process.given.is_empty());
        plane.into_iter().for_each(|plane| plane.socket.speaks = speaks);
        if layout.common(journal).is_none() {
            let (Versions { first, last }, ours) = (journal, Watched::LAYOUT);
            return Err(format!("it knows journals of layouts {first} to {last}, and not {ours}"));
        }
        Ok(Event::Hello { plane: number, needs_bare })
    }

    /// A data plane cannot serve, and says why.
    pub fn refuses(&mut self, plane: PlaneNumber, why: &str) -> Event<ClientId> {
        let why = why.to_owned();
        match self.is_begun() {
            _ if self.is_next(plane) => {}
            true => error!("the data plane cannot start: {why}"),
            false => self.why_ended = Some(why.clone()),
        }
        self.get(plane).into_iter().for_each(|it| it.process.is_condemned = true);
        Event::Refuses { plane, why }
    }

    /// A data plane closed its end, or said what cannot be.
    pub fn lost(&mut self, plane: PlaneNumber, why: &str) -> Event<ClientId> {
        let running = self.get(plane).filter(|it| !it.process.is_killed && !why.is_empty());
        if let Some(running) = running {
            error!("the data plane {why}: it is ended");
            running.process.is_condemned = true;
        }
        Event::Lost { plane, is_condemned: !why.is_empty() }
    }

    /// A data plane says where rings stand; an event when that is all.
    ///
    /// # Errors
    /// It was not asked, or says more than there can be.
    pub fn positions(
        &mut self,
        number: PlaneNumber,
        positions: Vec<u8>,
        is_last: bool,
    ) -> anyhow::Result<Option<Event<ClientId>>> {
        let stage = self.succession.stage(number);
        let plane = self.get(number).filter(|_| stage == Some(Stage::Quiescing));
        let plane = plane.context("positions are not asked for")?;
        plane.debts.export.extend(positions);
        ensure!(plane.debts.export.len() <= POSITIONS_LEN_MAX, "too many positions");
        let bytes = is_last.then(|| std::mem::take(&mut plane.debts.export));
        Ok(bytes.map(|bytes| Event::Positions { plane: number, bytes }))
    }

    /// A piece of an answer.
    ///
    /// # Errors
    /// It was not asked, or says more than there can be.
    pub fn answer(&mut self, ask: u32, bytes: Vec<u8>) -> anyhow::Result<()> {
        let asked = self.serving().and_then(|plane| plane.debts.asks.get_mut(&ask));
        let text = asked.context("it was not asked")?;
        text.extend(bytes);
        ensure!(text.len() <= ANSWER_LEN_MAX, "a longer answer than any");
        Ok(())
    }

    /// An order is done.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn take_order(&mut self, number: PlaneNumber, order: u32) -> anyhow::Result<Order> {
        let plane = self.get(number).context("there is no such data plane")?;
        plane.is_answered(Owed::Order(order));
        plane.debts.orders.remove(&order).context("no such order")
    }
}
