//! Front-ends of guests: news of their ports goes to the data plane, and its answers to them.
//!
//! Events at virtual machines' ports go to the value that decides who may connect; its effects are
//! carried out here, or by the ports where no other part is concerned.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_supervisor::front_ends::{Effect, Event};
use ringway_supervisor::restart::Verdict;
use ringway_supervisor::slots::{NotKept, SlotRange};
use ringway_supervisor::wire::{Offence, ToData};
use ringway_switch::PortId;
use ringway_vhost_user::SocketError;
use tracing::{error, info};

use super::Supervisor;
use super::front_ends::front_end::{Done, PIECES_PER_TURN};
use super::planes::order::Order;
use super::ports::port::SupervisedPort;
use super::stores::write_down::store_link;

/// A front-end that has waited so long for an answer, while there is no data plane, is
/// disconnected: QEMU stands still meanwhile, and connects again.
const ANSWERED_WITHIN: Duration = Duration::from_secs(1);

impl Supervisor {
    /// Takes an event of a port, and does what follows from it; what happens meanwhile comes
    /// behind it.
    pub(super) fn happens_at(&mut self, id: PortId, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let mut effects = Vec::new();
            let Some(vm) = self.ports.vm(id) else { return };
            vm.admission.on(event, Instant::now(), &mut effects);
            events.extend(effects.into_iter().filter_map(|effect| self.carry_out_at(id, effect)));
        }
    }

    fn carry_out_at(&mut self, id: PortId, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Link => {
                let why = self.link(id).err()?;
                self.ports.complain(id, format_args!("link: {why}"));
                Some(Event::NotLinked)
            }
            Effect::Read(reads) => {
                let why = self.ports.watch_link(id, reads).err()?;
                self.ports.complain(id, format_args!("link: {why}"));
                self.disconnect(id, None)
            }
            Effect::Disconnect => self.disconnect(id, None),
            Effect::Free => {
                self.finish_leaving(id);
                None
            }
            other => self.ports.carry_out(id, other),
        }
    }

    /// A front-end connects.
    pub(super) fn accept(&mut self, id: PortId) {
        if let Some(event) = self.ports.accept(id) {
            self.happens_at(id, event);
        }
    }

    /// Ports at which something is due are told so.
    pub(super) fn tell_due_ports(&mut self) {
        let wake_at = |port: &SupervisedPort| port.vm.as_ref()?.admission.wake_at();
        for id in self.ports.ids_of(|port| wake_at(port).is_some_and(|at| at <= Instant::now())) {
            self.happens_at(id, Event::Due);
        }
    }

    /// Looks whether the port's thread closes something: nothing more is taken from the front-end,
    /// or from the next one, until that is done.
    pub(super) fn look_at_closing(&mut self, id: PortId) {
        if let Some(is_here) = self.ports.is_closing(id) {
            self.happens_at(id, Event::Closing { is_here });
        }
    }

    /// Ports for which everything is closed are served again.
    pub(super) fn end_closing(&mut self) {
        let is_closing = |port: &SupervisedPort| Some(port.vm.as_ref()?.admission.is_closing());
        for id in self.ports.ids_of(|port| is_closing(port) == Some(true)) {
            self.look_at_closing(id);
        }
    }

    /// Reads what a front-end sent; a connection that ends or breaks is dropped.
    pub(super) fn serve_link(&mut self, id: PortId) {
        for _ in 0..PIECES_PER_TURN {
            self.look_at_closing(id);
            if !self.ports.vm(id).is_some_and(|vm| vm.admission.may_read()) {
                break;
            }
            let Some(link) = self.ports.front_end(id) else { return };
            let wanted = link.kept.framer.wanted();
            if wanted == 0 {
                break;
            }
            let piece = match link.connection.receive_piece(wanted) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(why) => return self.end_link(id, &why),
            };
            if piece.bytes.is_empty() {
                return match link.kept.framer.is_between() {
                    true => self.drop_link(id, None),
                    false => self.end_link(id, &SocketError::Truncated),
                };
            }
            let fds = piece.fds.into_iter().map(Arc::new);
            match link.kept.framer.push(&piece.bytes, fds, piece.has_lost_fds) {
                Ok(false) => {}
                Ok(true) => {
                    store_link(id, &self.ports, &mut self.stores.fds);
                    self.planes.note_request(id, &self.ports);
                }
                Err(why) => return self.end_link(id, &why),
            }
        }
        self.look_for_room(id);
    }

    fn end_link(&mut self, id: PortId, why: &dyn std::error::Error) {
        self.ports.complain(id, format_args!("connection ended: {why}"));
        self.drop_link(id, None);
    }

    /// More can be read of a front-end, or not before its request is done.
    pub(super) fn look_for_room(&mut self, id: PortId) {
        let Some(link) = self.ports.front_end(id) else { return };
        let has_room = link.kept.framer.wanted() > 0;
        self.happens_at(id, Event::Room(has_room));
    }

    /// The data plane has carried out a request.
    ///
    /// # Errors
    /// It says what cannot be.
    pub(super) fn frame_is_done(
        &mut self,
        number: u32,
        done: Done,
        reply: Option<Vec<u8>>,
    ) -> Result<(), NotKept> {
        // It may have gone meanwhile.
        let Some(id) = self.ports.port_of(number) else { return Ok(()) };
        if !self.planes.requests.is_in_hand(number, done.request) {
            return Err(NotKept::NotOutstanding);
        }
        let Some(link) = self.ports.front_end(id) else { return Ok(()) };
        let gone = link.kept.done(done.request, &done.drops, done.keep)?;
        link.is_wait_logged = false;
        self.planes.has_answered(number);
        store_link(id, &self.ports, &mut self.stores.fds);
        let Some(link) = self.ports.front_end(id) else { return Ok(()) };
        let sent = reply.map_or(Ok(()), |bytes| link.connection.send(&bytes));
        drop(gone);
        if done.is_closing {
            self.happens_at(id, Event::PlaneCloses(true));
        }
        if let Err(why) = sent {
            self.ports.complain(id, format_args!("reply: {why}"));
            self.drop_link(id, None);
            return Ok(());
        }
        self.look_at_closing(id);
        self.look_for_room(id);
        Ok(())
    }

    /// Rings have gone on by themselves: what is not needed any more.
    pub(super) fn forget(&mut self, number: u32, drops: &[SlotRange]) {
        let Some(id) = self.ports.port_of(number) else { return };
        if let Some(link) = self.ports.front_end(id) {
            drop(link.kept.forget(drops));
        }
        self.look_at_closing(id);
        self.look_for_room(id);
    }

    /// The data plane has let go of a front-end, which is disconnected.
    pub(super) fn let_go(&mut self, number: u32, offence: Option<Offence>, why: &str) {
        if let Some(id) = self.ports.port_of(number) {
            if offence.is_none() {
                self.ports.complain(id, why);
            }
            return self.drop_link(id, offence.map(|offence| (offence, why.to_owned())));
        }
        let last = |port: &SupervisedPort| port.vm.as_ref()?.admission.history().last_link;
        // It had gone before, and its offence was noticed only now.
        let id = self.ports.ids_of(|port| last(port) == Some(number)).first().copied();
        if let Some((id, offence)) = id.zip(offence) {
            self.happens_at(id, Event::Offence { offence, why: why.to_owned() });
        }
    }

    /// Disconnects a front-end; the port waits for the next one.
    pub(super) fn drop_link(&mut self, id: PortId, offence: Option<(Offence, String)>) {
        if let Some(event) = self.disconnect(id, offence) {
            self.happens_at(id, event);
        }
    }

    fn disconnect(&mut self, id: PortId, offence: Option<(Offence, String)>) -> Option<Event> {
        let link = self.ports.unlink(id)?;
        self.planes.forget_front_end(link, id);
        let message = |order| ToData::Unlink { order, link };
        let is_plane_closing = self.planes.order(Order::Unlink { port: id }, message, vec![]);
        let is_closing_here = self.ports.is_closing(id)?;
        Some(Event::Gone { link, offence, is_closing_here, is_plane_closing })
    }

    /// Links the front-end that has connected.
    ///
    /// # Errors
    /// There is too much to tell the data plane of it.
    fn link(&mut self, id: PortId) -> anyhow::Result<()> {
        let is_told = self.planes.tells_of_guests();
        let linked = self.ports.link(id, &self.setup.identity, is_told)?;
        let Some((link, spec)) = linked else { return Ok(()) };
        if !self.planes.holds_back(id, &mut self.ports) {
            let message = |order| ToData::Link { order, port: id.0, link, spec: spec.clone() };
            self.planes.order(Order::Link { port: id }, message, vec![]);
        }
        Ok(())
    }

    pub(super) fn finish_leaving_ports(&mut self) {
        let now = Instant::now();
        for id in self.ports.ids_of(|port| port.leaves_at.is_some_and(|at| at <= now)) {
            self.finish_leaving(id);
        }
    }

    /// The port is gone, its id free.
    pub(super) fn finish_leaving(&mut self, id: PortId) {
        if self.ports.get(&id).is_some_and(SupervisedPort::is_linked) {
            return self.drop_link(id, None); // it comes back here
        }
        if self.ports.close(id) {
            // Another port that gets its number has done nothing yet, and has no stations.
            self.planes.restarts.release(id.0);
            self.ports.forget_stations(id);
        }
    }

    /// Front-ends that have waited for too long while there was no data plane.
    pub(super) fn drop_links_that_waited(&mut self, now: Instant) {
        let Some(since) = self.planes.counts.down_since else { return };
        if since + ANSWERED_WITHIN > now {
            return;
        }
        for id in self.ports.ids() {
            let link = self.ports.get(&id).and_then(SupervisedPort::link);
            if link.is_some_and(|link| link.kept.framer.outstanding().is_some()) {
                self.ports
                    .complain(id, "disconnected: there is no data plane to answer its request");
                self.drop_link(id, None);
            }
        }
    }

    /// Carries out a verdict about front-ends and ports.
    pub(super) fn follow(&mut self, verdict: Verdict) {
        for (link, _) in verdict.refuse {
            self.let_go(link, None, "its request has ended the data plane twice");
        }
        for port in verdict.release {
            self.release(PortId(port));
        }
        for port in verdict.quarantine {
            self.quarantine(PortId(port));
        }
    }

    /// The data plane has ended three times while it served this port. No front-end is served there
    /// for some time, or until a user says so.
    fn quarantine(&mut self, id: PortId) {
        let until = self.planes.restarts.quarantined_until(id.0);
        let pause = until.map_or(Duration::ZERO, |until| until - Instant::now());
        let name = self.ports.name(id);
        if self.ports.get(&id).is_none_or(|port| port.vm.is_none()) {
            error!(port = name, "the data plane ended three times while it served this port");
            return;
        }
        let why = format!(
            "quarantined for {} minutes: the data plane ended three times while it served this \
             port: \"ringway port set {name} link=up\" tries again now",
            pause.as_secs().div_ceil(60)
        );
        error!(port = name, "{why}");
        self.happens_at(id, Event::Quarantine { why });
    }

    /// A user wants it to be tried again.
    pub(super) fn release(&mut self, id: PortId) {
        self.planes.restarts.release(id.0);
        self.serve_again(id);
    }

    /// Ports whose quarantine is over are tried again.
    pub(super) fn release_due_ports(&mut self) {
        for id in self.planes.restarts.take_released(Instant::now()).into_iter().map(PortId) {
            if self.serve_again(id) {
                let name = self.ports.get(&id).map(|port| &port.spec.name);
                info!(port = name, "its quarantine is over: it is tried again");
            }
        }
    }

    /// `false`: it was served already, or is no port for virtual machines.
    fn serve_again(&mut self, id: PortId) -> bool {
        let is_released = self.ports.vm(id).is_some_and(|vm| vm.admission.is_quarantined());
        self.happens_at(id, Event::Release);
        is_released
    }
}
