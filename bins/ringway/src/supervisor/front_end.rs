//! One connected front-end: its socket, its stream of requests, and what is kept of them.
//!
//! One request of each front-end is in the data plane's hands at a time. Nothing more is read
//! before it is done, and before everything is closed that it left behind.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_foreign::UntrustedFd;
use ringway_supervisor::outbox::Owed;
use ringway_supervisor::restart::RequestId;
use ringway_supervisor::slots::{Keep, Link, NotKept, SlotRange};
use ringway_supervisor::wire::{Bytes, Flaw, Offence, SPEC_LEN_MAX, ToData};
use ringway_switch::PortId;
use ringway_vhost_user::{Connection, SocketError};

use super::descriptors::too_many_on_their_way;
use super::order::Order;
use super::peer::Peer;
use super::plane::{Plane, Sent};
use super::{Supervisor, Wake};

/// Pieces of messages read before other ports get their turn.
const PIECES_PER_TURN: usize = 64;

/// Until a request whose file descriptors could not be sent is handed over again.
const HAND_OVER_AGAIN: Duration = Duration::from_millis(20);

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
    /// The data plane has its request, or will have as soon as there is room for it.
    in_hand: bool,
    /// Its request could not be sent, and is handed over again then.
    hand_over_at: Option<Instant>,
    /// The log says that its request waits.
    is_wait_logged: bool,
    /// Whether the poller has it.
    is_watched: bool,
}

impl FrontEnd {
    pub(super) fn new(
        number: u32,
        (connection, peer): (Connection, Option<Peer>),
        spec: Bytes<SPEC_LEN_MAX>,
    ) -> Self {
        Self {
            number,
            connection,
            peer,
            spec,
            kept: Link::default(),
            in_hand: false,
            hand_over_at: None,
            is_wait_logged: false,
            is_watched: false,
        }
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched
    }
}

/// What was outstanding and is done: number, drops, keep.
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
            if self.waits_for_closing(id) || self.planes.is_holding() {
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
                    self.hand_over(id);
                }
                Err(why) => return self.end_link(id, &why),
            }
        }
        self.watch_link(id);
    }

    fn end_link(&mut self, id: PortId, why: &dyn std::error::Error) {
        self.complain(id, format_args!("connection ended: {why}"));
        self.drop_link(id, None);
    }

    /// Watches a connection exactly while something is to be read from it.
    pub(super) fn watch_link(&mut self, id: PortId) {
        let is_holding = self.planes.is_holding();
        let Some(vm) = self.ports.get_mut(&id).and_then(|port| port.vm.as_mut()) else { return };
        let is_closing = vm.closing.is_waited_for();
        let Some(link) = &mut vm.link else { return };
        let wants = !is_holding && !is_closing && link.kept.framer.wanted() > 0;
        if wants == link.is_watched {
            return;
        }
        link.is_watched = wants;
        let fd = link.connection.as_fd();
        let done = match wants {
            true => self.poller.add(fd, Wake::Link(id).token()),
            false => self.poller.remove(fd),
        };
        if let Err(why) = done {
            link.is_watched = false;
            self.complain(id, format_args!("link: {why}"));
            self.drop_link(id, None);
        }
    }

    /// Gives the data plane the request that is outstanding, if it can take it now.
    fn hand_over(&mut self, id: PortId) {
        let now = Instant::now();
        let is_waiting = |link: &FrontEnd| {
            let is_ready = !link.in_hand && link.hand_over_at.is_none();
            is_ready && link.kept.framer.outstanding().is_some()
        };
        if !self.ports.get(&id).and_then(super::Port::link).is_some_and(is_waiting) {
            return;
        }
        let knows = |plane: &Plane| !plane.without.contains(&id);
        if !self.planes.current().is_some_and(knows) {
            return;
        }
        let is_one_by_one = self.restarts.is_suspicious(now);
        let is_any_in_hand = self.is_any_in_hand();
        if !self.planes.is_running() || is_one_by_one && is_any_in_hand {
            return;
        }
        let Some(link) = self.front_end(id) else { return };
        let Some((number, frame)) = link.kept.framer.outstanding() else { return };
        let fds = frame.fds.clone();
        let has_lost_fds = frame.has_lost_fds;
        let (link_number, bytes) = (link.number, frame.bytes.clone());
        let is_ours = fds.iter().any(|fd| self.is_own_socket(fd));
        let flaw = match (has_lost_fds, is_ours) {
            (true, _) => Some(Flaw::LostFds),
            (false, true) => Some(Flaw::OwnSocket),
            (false, false) => None,
        };
        let bytes = Bytes::new(bytes).unwrap_or_default();
        // Too many, or not all: none is used.
        let fds = if flaw.is_some() { vec![] } else { fds };
        let fds = fds.into_iter().map(Sent::FrontEnd).collect();
        let message = ToData::Frame { link: link_number, number, flaw, bytes };
        if let Some(plane) = self.planes.serving() {
            plane.tell(&message, fds);
        }
        if let Some(link) = self.front_end(id) {
            link.in_hand = true;
        }
    }

    /// A front-end that sends its end of a connection to us, as any fd, could end without us ever
    /// seeing it: its port would be taken for ever.
    fn is_own_socket(&self, fd: &Arc<UntrustedFd>) -> bool {
        let mut vms = self.ports.values().filter_map(|port| port.vm.as_ref());
        vms.any(|vm| vm.is_reached_by(fd.as_fd()))
    }

    /// Requests that no data plane has are given to the one that runs now, as far as it can take
    /// them.
    pub(super) fn hand_over_all(&mut self) {
        for id in self.ids() {
            self.hand_over(id);
        }
    }

    /// The data plane is gone: requests that it had.
    pub(super) fn take_back_frames(&mut self) -> Vec<RequestId> {
        let mut in_hand = Vec::new();
        for vm in self.ports.values_mut().filter_map(|port| port.vm.as_mut()) {
            let Some(link) = &mut vm.link else { continue };
            link.hand_over_at = None;
            let number = link.kept.framer.outstanding().map(|(number, _)| number);
            let number = number.filter(|_| std::mem::take(&mut link.in_hand));
            in_hand.extend(number.map(|number| (link.number, number)));
        }
        in_hand
    }

    /// Requests whose file descriptors could not be sent wait, and are handed over again when their
    /// time has come.
    pub(super) fn take_back_unsent(&mut self, now: Instant) {
        let links = self.planes.serving().map(Plane::take_given_back).unwrap_or_default();
        for id in links.into_iter().filter_map(|link| self.port_of(link)).collect::<Vec<_>>() {
            let Some(link) = self.front_end(id) else { continue };
            (link.in_hand, link.hand_over_at) = (false, Some(now + HAND_OVER_AGAIN));
            if !std::mem::replace(&mut link.is_wait_logged, true) {
                self.complain(id, too_many_on_their_way());
            }
        }
        let links = self.ports.values_mut().filter_map(|port| port.vm.as_mut()?.link.as_mut());
        let due = links.filter_map(|link| link.hand_over_at.take_if(|at| *at <= now));
        if due.count() > 0 {
            self.hand_over_all();
        }
    }

    /// When such a request is handed over again.
    pub(super) fn next_handing_over(&self) -> Option<Instant> {
        self.ports.values().filter_map(super::Port::link).filter_map(|link| link.hand_over_at).min()
    }

    /// Whether the data plane has a request, or did not get it yet because it could not be sent.
    fn is_any_owed(&self) -> bool {
        let mut links = self.ports.values().filter_map(super::Port::link);
        links.any(|link| link.in_hand || link.hand_over_at.is_some())
    }

    /// Whether the data plane has a request.
    fn is_any_in_hand(&self) -> bool {
        self.ports.values().filter_map(super::Port::link).any(|link| link.in_hand)
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
        let Some(link) = self.front_end(id).filter(|link| link.in_hand) else {
            return Err(NotKept::NotOutstanding);
        };
        let gone = link.kept.done(request, &drops, keep)?;
        (link.in_hand, link.is_wait_logged) = (false, false);
        if let Some(plane) = self.planes.serving() {
            plane.is_answered(Owed::Frame(number));
        }
        self.store_link(id);
        let Some(link) = self.front_end(id) else { return Ok(()) };
        let sent = reply.map_or(Ok(()), |bytes| link.connection.send(&bytes));
        drop(gone);
        if let Some(vm) = self.vm(id) {
            vm.closing.is_plane_closing |= is_closing;
        }
        if let Err(why) = sent {
            self.complain(id, format_args!("reply: {why}"));
            self.drop_link(id, None);
            return Ok(());
        }
        self.waits_for_closing(id);
        self.watch_link(id);
        self.hand_over_all();
        Ok(())
    }

    /// Rings have gone on by themselves: what is not needed any more.
    pub(super) fn forget(&mut self, number: u32, drops: &[SlotRange]) {
        let Some(id) = self.port_of(number) else { return };
        if let Some(link) = self.front_end(id) {
            drop(link.kept.forget(drops));
        }
        self.waits_for_closing(id);
        self.watch_link(id);
    }

    /// The data plane has let go of a front-end, which is disconnected.
    pub(super) fn let_go(&mut self, number: u32, offence: Option<Offence>, why: &str) {
        if let Some(id) = self.port_of(number) {
            if offence.is_none() {
                self.complain(id, why);
            }
            return self.drop_link(id, offence.map(|offence| (offence, why.to_owned())));
        }
        let parted = |port: &&mut super::Port| {
            port.vm.as_ref().is_some_and(|vm| vm.last_link == Some(number))
        };
        // It had gone before, and its offence was noticed only now.
        if let Some((port, offence)) = self.ports.values_mut().find(parted).zip(offence) {
            port.hold_off(offence, why);
        }
    }

    /// Disconnects a front-end; the port waits for the next one.
    pub(super) fn drop_link(&mut self, id: PortId, offence: Option<(Offence, String)>) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let is_leaving = port.is_leaving();
        let Some(vm) = &mut port.vm else { return };
        let Some(link) = vm.link.take() else { return };
        if link.is_watched {
            let _ = self.poller.remove(link.connection.as_fd());
        }
        let name = &port.spec.name;
        port.chatter.say(name, || tracing::info!(port = name, "front-end gone"));
        let number = link.number;
        vm.last_link = Some(number);
        drop(link);
        if let Some(plane) = self.planes.serving() {
            plane.forget_frame(number);
            plane.without.remove(&id);
        }
        let message = |order| ToData::Unlink { order, link: number };
        if self.order_now(Order::Unlink { port: id }, message, vec![])
            && let Some(vm) = self.vm(id)
        {
            vm.closing.is_plane_closing = true;
        }
        if is_leaving {
            return self.finish_leaving(id);
        }
        if let Some((port, (offence, why))) = self.ports.get_mut(&id).zip(offence) {
            port.hold_off(offence, &why);
        }
        self.listen_to_the_next(id);
    }

    /// The data plane uses nothing of a front-end any more.
    pub(super) fn unlinked(&mut self, id: PortId, is_closing: bool) {
        if let Some(vm) = self.vm(id) {
            vm.closing.is_plane_closing = is_closing;
        }
        // Its last request may have been the one that others wait for.
        self.hand_over_all();
    }

    /// A data plane stops reading requests, or all are read again.
    pub(super) fn hold(&mut self, is_holding: bool) {
        for id in self.ids() {
            self.watch_link(id);
            self.serve_listener(id);
        }
        self.watch_clients();
        // Otherwise one that waits until then would wake the loop again and again.
        let (poller, signals) = (&self.poller, self.reload_signals.as_fd());
        let add = || poller.add(signals, Wake::Reload.token());
        let _ = if is_holding { poller.remove(signals) } else { add() };
        if !is_holding {
            self.hand_over_all();
        }
    }

    /// Nothing of the data plane is outstanding.
    pub(super) fn is_at_rest(&self) -> bool {
        let plane = self.planes.current();
        let owes = plane.is_none_or(|it| !it.orders.is_empty() || !it.asks.is_empty());
        self.planes.is_running() && !owes && !self.is_any_owed()
    }
}
