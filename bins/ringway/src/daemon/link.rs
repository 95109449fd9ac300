//! One connected front-end: its socket, its session, and the memory it shared.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use ringway_device::{Queue, QueueId};
use ringway_foreign::UntrustedFd;
use ringway_host::{Callee, GuestMemory};
use ringway_net::{MacAddress, Negotiated};
use ringway_switch::PortId;
use ringway_vhost_user::{Connection, Message, Offer, Received, Session, WhyMalformed};
use tracing::debug;

use super::Daemon;
use super::kicks::Kicks;
use super::peer::Peer;

/// Messages handled before other ports get their turn.
const MESSAGES_PER_TURN: usize = 32;

/// The state that lasts as long as one connection.
pub(super) struct Link {
    pub(super) connection: Connection,
    /// The process at its other end, if it is known.
    pub(super) peer: Option<Peer>,
    /// The MAC address this guest was given; the port may have another for the next one.
    pub(super) mac: MacAddress,
    pub(super) session: Session,
    pub(super) memory: GuestMemory,
    /// What the workers found out when they called it.
    pub(super) callee: Callee,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) back_end_channel: Option<UntrustedFd>,
    /// Queue pairs this guest was offered; the port may have others for the next one.
    pub(super) pairs: u16,
    pub(super) running: Running,
    pub(super) announcement: Announcement,
    pub(super) kicks: Kicks,
}

/// Where a guest is with announcing itself.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    /// It will be asked then.
    pub(super) due: Option<Instant>,
    /// It has been asked, and has not answered.
    pub(super) is_asked: bool,
    /// How often it has answered.
    pub(super) answers: u64,
}

/// Which queues of a guest run.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Pairs whose receive queue runs.
    receiving: BTreeSet<u16>,
    pub(super) has_control: bool,
}

impl Running {
    /// Notes one queue; `true`: where packets go is different now.
    pub(super) fn note(&mut self, queue: QueueId, is_running: bool) -> bool {
        let before = (self.pairs(), self.has_control);
        match queue.queue {
            Queue::ToGuest if is_running => drop(self.receiving.insert(queue.pair)),
            Queue::ToGuest => drop(self.receiving.remove(&queue.pair)),
            Queue::Control => self.has_control = is_running,
            Queue::FromGuest => {}
        }
        before != (self.pairs(), self.has_control)
    }

    /// The first so many receive queues run without a gap.
    pub(super) fn pairs(&self) -> u16 {
        let in_order = (0..).zip(&self.receiving).take_while(|(at, pair)| at == *pair);
        u16::try_from(in_order.count()).unwrap_or(u16::MAX)
    }
}

impl Link {
    pub(super) fn new(
        (connection, peer): (Connection, Option<Peer>),
        mac: MacAddress,
        offer: Offer,
        callee: Callee,
    ) -> Self {
        Self {
            connection,
            peer,
            mac,
            callee,
            memory: GuestMemory::empty(),
            negotiated: None,
            back_end_channel: None,
            pairs: offer.queue_pairs_max,
            running: Running::default(),
            announcement: Announcement::default(),
            kicks: Kicks::new(),
            session: Session::new(offer),
        }
    }

    /// Changes the configuration space; `true`: the guest was told.
    pub(super) fn change_config(&mut self, config: Vec<u8>) -> bool {
        let Some(message) = self.session.set_config(config) else { return false };
        let Some(channel) = &self.back_end_channel else { return false };
        ringway_vhost_user::send_on_channel(channel.as_fd(), &message).is_ok()
    }
}

impl Daemon {
    /// The connection of a port, if there is one.
    pub(super) fn link_of(&mut self, id: PortId) -> Option<&mut Link> {
        self.ports.get_mut(&id)?.vm.as_mut()?.link.as_mut()
    }

    /// Handles what a front-end sent; a connection that ends or breaks is dropped.
    pub(super) fn serve_link(&mut self, id: PortId) {
        for _ in 0..MESSAGES_PER_TURN {
            if self.waits_for_closing(id) {
                return;
            }
            let Some(port) = self.ports.get_mut(&id) else { return };
            let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else { return };
            match link.connection.receive() {
                Ok(Received::Request(request)) => {
                    debug!(port = port.spec.name, ?request, "request");
                    let request = self.without_own_sockets(request);
                    let Some(port) = self.ports.get_mut(&id) else { return };
                    let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else {
                        return;
                    };
                    link.kicks.last_request = Instant::now();
                    let outcome = link.session.handle(request);
                    if let Some(why) = &outcome.refused {
                        port.complain(format_args!("refused: {why}"));
                    }
                    let applied = self.apply(id, outcome.effects);
                    if !self.reply(id, outcome.pending, applied) {
                        return self.drop_link(id);
                    }
                }
                Ok(Received::Nothing) => return,
                Ok(Received::Closed) => return self.drop_link(id),
                Err(why) => {
                    port.complain(format_args!("connection ended: {why}"));
                    return self.drop_link(id);
                }
            }
        }
    }

    /// A front-end that sends its end of a connection to us, as any fd, could end without us ever
    /// seeing it: its port would be taken for ever.
    fn without_own_sockets(&self, message: Message) -> Message {
        let is_ours = |fd: &BorrowedFd<'_>| {
            let mut vms = self.ports.values().filter_map(|port| port.vm.as_ref());
            vms.any(|vm| vm.is_reached_by(*fd))
        };
        match message.request.fds().iter().any(is_ours) {
            true => message.refused(WhyMalformed::OwnSocket),
            false => message,
        }
    }

    /// `false`: the reply could not be sent.
    fn reply(
        &mut self,
        id: PortId,
        pending: ringway_vhost_user::PendingReply,
        applied: ringway_vhost_user::Applied,
    ) -> bool {
        let Some(port) = self.ports.get_mut(&id) else { return false };
        let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else { return false };
        let Some(bytes) = link.session.complete(pending, applied) else { return true };
        match link.connection.send(&bytes) {
            Ok(()) => true,
            Err(why) => {
                port.complain(format_args!("reply: {why}"));
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_count_from_the_first_without_a_gap() {
        let mut running = Running::default();
        let queue = |pair, queue| QueueId { pair, queue };
        assert!(!running.note(queue(1, Queue::ToGuest), true));
        assert_eq!(running.pairs(), 0);
        assert!(running.note(queue(0, Queue::ToGuest), true));
        assert_eq!(running.pairs(), 2);
        assert!(!running.note(queue(0, Queue::FromGuest), true));
        assert!(running.note(queue(0, Queue::Control), true));
        assert!(running.note(queue(1, Queue::ToGuest), false));
        assert_eq!(running.pairs(), 1);
    }
}
