//! One connected front-end: its socket, its stream of requests, and what is kept of them.
//!
//! One request of each front-end is in the data plane's hands at a time. Nothing more is read
//! before it is done, and before everything is closed that it left behind.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use ringway_foreign::UntrustedFd;
use ringway_supervisor::front_ends::Event;
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::slots::{Keep, Link, NotKept, SlotRange};
use ringway_supervisor::wire::{Bytes, Flaw, Offence, SPEC_LEN_MAX, ToData};
use ringway_switch::PortId;
use ringway_vhost_user::{Connection, SocketError};

use super::descriptors::too_many_on_their_way;
use super::order::Order;
use super::peer::Peer;
use super::plane::{OutgoingFd, Plane};
use super::{Supervisor, Wake, hears_hangup};

/// Pieces of messages read before other ports get their turn.
const PIECES_PER_TURN: usize = 64;

/// The state that lasts as long as one connection.
pub(super) struct FrontEnd {
    /// Never used again for another one.
    pub(super) number: u32,
    pub(super) connection: Connection,
    /// The process at its other end, if it is known.
    pub(super) peer: Option<Peer>,
    /// The port's options when it came, for data planes.
    pub(super) spec: Bytes<SPEC_LEN_MAX>,
    pub(super) kept: Link<Arc<UntrustedFd>>,
    /// The log says that its request waits.
    is_wait_logged: bool,
}

impl FrontEnd {
    pub(super) fn new(
        number: u32,
        (connection, peer): (Connection, Option<Peer>),
        spec: Bytes<SPEC_LEN_MAX>,
    ) -> Self {
        Self { number, connection, peer, spec, kept: Link::default(), is_wait_logged: false }
    }
}

/// An outstanding request that is done: number, drops, keep.
pub(super) type Done = (u32, Vec<SlotRange>, Option<Keep>);

impl Supervisor {
    pub(super) fn front_end(&mut self, id: PortId) -> Option<&mut FrontEnd> {
        self.ports.get_mut(&id)?.vm.as_mut()?.link.as_mut()
    }

    /// The port of a front-end, by its number.
    fn port_of(&self, number: u32) -> Option<PortId> {
        let is_it = |port: &super::Port| port.link().is_some_and(|it| it.number == number);
        self.ports.iter().find(|(_, port)| is_it(port)).map(|(&id, _)| id)
    }

    /// Reads what a front-end sent; a connection that ends or breaks is dropped.
    pub(super) fn serve_link(&mut self, id: PortId) {
        for _ in 0..PIECES_PER_TURN {
            self.look_at_closing(id);
            if !self.vm(id).is_some_and(|vm| vm.admission.may_read()) {
                break;
            }
            let Some(link) = self.front_end(id) else { return };
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
                    self.store_link(id);
                    self.note_request(id);
                }
                Err(why) => return self.end_link(id, &why),
            }
        }
        self.look_for_room(id);
    }

    fn end_link(&mut self, id: PortId, why: &dyn std::error::Error) {
        self.complain(id, format_args!("connection ended: {why}"));
        self.drop_link(id, None);
    }

    /// More can be read of a front-end, or not before its request is done.
    pub(super) fn look_for_room(&mut self, id: PortId) {
        let Some(link) = self.front_end(id) else { return };
        let has_room = link.kept.framer.wanted() > 0;
        self.happens_at(id, Event::Room(has_room));
    }

    /// A request is whole, and waits to be handed over.
    pub(super) fn note_request(&mut self, id: PortId) {
        let Some(link) = self.ports.get(&id).and_then(super::Port::link) else { return };
        if let Some((number, _)) = link.kept.framer.outstanding() {
            self.requests.add(link.number, id.0, number);
        }
    }

    /// Requests that no data plane has are given to the one that runs now, as far as it can take
    /// them: in each turn, so that no event is forgotten behind which one could go.
    pub(super) fn hand_over(&mut self, now: Instant) {
        let is_one_by_one = self.restarts.is_suspicious(now);
        let Some(plane) = self.planes.running() else { return };
        let knows = |port| !plane.without.contains(&PortId(port));
        for (_, port) in self.requests.hand_over(is_one_by_one, knows, now) {
            self.send_request(PortId(port));
        }
    }

    fn send_request(&mut self, id: PortId) {
        let Some(link) = self.ports.get(&id).and_then(super::Port::link) else { return };
        let Some((number, frame)) = link.kept.framer.outstanding() else { return };
        let is_ours = frame.fds.iter().any(|fd| self.is_own_socket(fd));
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
        if let Some(plane) = self.planes.serving() {
            plane.tell(&message, fds);
        }
    }

    /// A front-end that sends its end of a connection to us, as any fd, could end without us ever
    /// seeing it: its port would be taken for ever.
    fn is_own_socket(&self, fd: &Arc<UntrustedFd>) -> bool {
        let mut vms = self.ports.values().filter_map(|port| port.vm.as_ref());
        vms.any(|vm| vm.is_reached_by(fd.as_fd()))
    }

    /// Requests whose file descriptors could not be sent wait for a moment.
    pub(super) fn take_back_unsent(&mut self, now: Instant) {
        let links = self.planes.serving().map(Plane::take_given_back).unwrap_or_default();
        for number in links {
            self.requests.give_back(number, now);
            let Some(id) = self.port_of(number) else { continue };
            let Some(link) = self.front_end(id) else { continue };
            if !std::mem::replace(&mut link.is_wait_logged, true) {
                self.complain(id, too_many_on_their_way());
            }
        }
    }

    /// The data plane has carried out a request.
    ///
    /// # Errors
    /// It says what cannot be.
    pub(super) fn frame_is_done(
        &mut self,
        number: u32,
        (request, drops, keep): Done,
        reply: Option<Vec<u8>>,
        is_closing: bool,
    ) -> Result<(), NotKept> {
        // It may have gone meanwhile.
        let Some(id) = self.port_of(number) else { return Ok(()) };
        if !self.requests.is_in_hand(number, request) {
            return Err(NotKept::NotOutstanding);
        }
        let Some(link) = self.front_end(id) else { return Ok(()) };
        let gone = link.kept.done(request, &drops, keep)?;
        self.requests.remove(number);
        let Some(link) = self.front_end(id) else { return Ok(()) };
        link.is_wait_logged = false;
        if let Some(plane) = self.planes.serving() {
            plane.is_answered(Owed::Frame(number));
        }
        self.store_link(id);
        let Some(link) = self.front_end(id) else { return Ok(()) };
        let sent = reply.map_or(Ok(()), |bytes| link.connection.send(&bytes));
        drop(gone);
        if is_closing {
            self.happens_at(id, Event::PlaneCloses(true));
        }
        if let Err(why) = sent {
            self.complain(id, format_args!("reply: {why}"));
            self.drop_link(id, None);
            return Ok(());
        }
        self.look_at_closing(id);
        self.look_for_room(id);
        Ok(())
    }

    /// Rings have gone on by themselves: what is not needed any more.
    pub(super) fn forget(&mut self, number: u32, drops: &[SlotRange]) {
        let Some(id) = self.port_of(number) else { return };
        if let Some(link) = self.front_end(id) {
            drop(link.kept.forget(drops));
        }
        self.look_at_closing(id);
        self.look_for_room(id);
    }

    /// The data plane has let go of a front-end, which is disconnected.
    pub(super) fn let_go(&mut self, number: u32, offence: Option<Offence>, why: &str) {
        if let Some(id) = self.port_of(number) {
            if offence.is_none() {
                self.complain(id, why);
            }
            return self.drop_link(id, offence.map(|offence| (offence, why.to_owned())));
        }
        let last = |port: &super::Port| port.vm.as_ref()?.admission.history().last_link;
        // It had gone before, and its offence was noticed only now.
        let id = self.ids_of(|port| last(port) == Some(number)).first().copied();
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

    pub(super) fn disconnect(
        &mut self,
        id: PortId,
        offence: Option<(Offence, String)>,
    ) -> Option<Event> {
        let port = self.ports.get_mut(&id)?;
        let vm = port.vm.as_mut()?;
        let link = vm.link.take()?;
        if vm.admission.is_reading() {
            let _ = self.poller.remove(link.connection.as_fd());
        }
        let name = &port.spec.name;
        port.chatter.say(name, || tracing::info!(port = name, "front-end gone"));
        let number = link.number;
        self.requests.remove(number);
        drop(link);
        if let Some(plane) = self.planes.serving() {
            plane.forget_frame(number);
            plane.without.remove(&id);
        }
        let message = |order| ToData::Unlink { order, link: number };
        let is_plane_closing = self.order_now(Order::Unlink { port: id }, message, vec![]);
        let bell = self.bell.clone();
        let is_closing_here = self.vm(id)?.closing.is_busy(&bell);
        Some(Event::Gone { link: number, offence, is_closing_here, is_plane_closing })
    }

    /// A data plane stops reading requests, or all are read again.
    pub(super) fn hold(&mut self, is_holding: bool) {
        for id in self.ids() {
            self.happens_at(id, Event::Hold(is_holding));
        }
        self.watch_clients();
        if !hears_hangup(self.file.as_deref()) {
            return;
        }
        // Otherwise one that waits until then would wake the loop again and again.
        let (poller, signals) = (&self.poller, self.reload_signals.as_fd());
        let add = || poller.add(signals, Wake::Reload.token());
        let _ = if is_holding { poller.remove(signals) } else { add() };
    }

    /// Nothing of the data plane is outstanding.
    pub(super) fn is_at_rest(&self) -> bool {
        let plane = self.planes.current();
        let owes = plane.is_none_or(|it| !it.orders.is_empty() || !it.asks.is_empty());
        self.planes.is_running() && !owes && !self.requests.is_any_owed()
    }
}
