//! One connected front-end: its session, and the memory it shared. Its socket is the supervisor's.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ringway_device::{Queue, QueueId};
use ringway_foreign::UntrustedFd;
use ringway_host::{Callee, GuestMemory};
use ringway_net::{MacAddress, Negotiated};
use ringway_supervisor::keep::{Changes, Keeper};
use ringway_supervisor::wire::{Bytes, Flaw, List, ToSupervisor};
use ringway_switch::PortId;
use ringway_vhost_user::{Applied, Message, Offer, Session, WhyMalformed, codec};
use tracing::debug;

use super::DataPlane;
use super::kicks::Kicks;

/// A request's bytes and file descriptors.
pub(super) type Kept = (Vec<u8>, Vec<OwnedFd>);

/// The state that lasts as long as one connection.
pub(super) struct Link {
    /// As the supervisor counts.
    pub(super) number: u32,
    /// The part of it that the supervisor keeps.
    pub(super) keeper: Keeper,
    /// The MAC address this guest was given; the port may have another for the next one.
    pub(super) mac: MacAddress,
    /// The MTU that it was offered, if one.
    pub(super) mtu: Option<u16>,
    pub(super) session: Session,
    pub(super) memory: GuestMemory,
    /// The receiver of calls, with what the workers found out about it.
    pub(super) callee: Callee,
    pub(super) negotiated: Option<Negotiated>,
    pub(super) back_end_channel: Option<UntrustedFd>,
    /// Queue pairs this guest was offered; the port may have others for the next one.
    pub(super) pairs: u16,
    pub(super) running: Running,
    /// Since when its first receive queue does not run any more.
    pub(super) stopped: Option<Instant>,
    pub(super) announcement: Announcement,
    pub(super) kicks: Kicks,
}

/// Where a guest is with announcing itself.
#[derive(Debug, Default)]
pub(super) struct Announcement {
    /// It has been asked, and has not answered.
    pub(super) is_asked: bool,
    /// How often it has answered.
    pub(super) answers: u64,
}

/// The queues of a guest that run.
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
    pub(super) fn new(number: u32, mac: MacAddress, offer: Offer, callee: Callee) -> Self {
        Self {
            number,
            keeper: Keeper::default(),
            mac,
            mtu: None,
            callee,
            memory: GuestMemory::empty(),
            negotiated: None,
            back_end_channel: None,
            pairs: offer.queue_pairs_max,
            running: Running::default(),
            stopped: None,
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

impl DataPlane {
    /// The connection of a port, if there is one.
    pub(super) fn link_of(&mut self, id: PortId) -> Option<&mut Link> {
        self.ports.get_mut(&id)?.vm.as_mut()?.link.as_mut()
    }

    /// The port of a link that is still served.
    fn served(&self, number: u32) -> Option<PortId> {
        let id = *self.links.get(&number)?;
        let link = self.ports.get(&id)?.link()?;
        (link.number == number).then_some(id)
    }

    /// A request, and what is wrong with it that only the supervisor can see.
    pub(super) fn serve_frame(&mut self, number: (u32, u32), flaw: Option<Flaw>, packet: Kept) {
        let (number, request_number) = number;
        let Some(id) = self.served(number) else { return };
        let Some((message, len)) = self.decode(id, packet) else {
            return self.let_go(id, None, "connection ended: not a vhost-user message");
        };
        let message = match flaw {
            Some(Flaw::LostFds) => message.refused(WhyMalformed::LostFds),
            Some(Flaw::OwnSocket) => message.refused(WhyMalformed::OwnSocket),
            None => message,
        };
        let Some(port) = self.ports.get_mut(&id) else { return };
        debug!(port = port.spec.name, request = ?message, "request");
        let Some(link) = port.vm.as_mut().and_then(|vm| vm.link.as_mut()) else { return };
        link.kicks.last_request = Instant::now();
        let (message, intent) = match link.keeper.intend(&message.request, len) {
            Ok(intent) => (message, Some(intent)),
            Err(_) => (message.refused(WhyMalformed::NotKept), None),
        };
        let Some((reply, is_remembered, applied)) = self.carry_out(id, message) else { return };
        let Some(link) = self.link_of(id) else { return };
        let changes = intent.map(|intent| {
            let is_taken = intent.is_taken(is_remembered, &applied);
            link.keeper.settle(intent, is_taken, &link.session)
        });
        let Changes { drops, keep } = changes.unwrap_or_default();
        let done = ToSupervisor::Done {
            link: number,
            number: request_number,
            is_closing: self.waits_for_closing(id),
            reply: reply.and_then(Bytes::new),
            keep,
            drops: List::new(drops).unwrap_or_default(),
        };
        self.supervisor.tell(&done);
    }

    /// A request that was kept, as the predecessor of this process had carried it out.
    pub(super) fn serve_slot(&mut self, number: u32, slot: u16, packet: Kept) {
        let Some(id) = self.served(number) else { return };
        let Some((message, len)) = self.decode(id, packet) else { return };
        let Some(link) = self.link_of(id) else { return };
        if let Err(why) = link.keeper.restore(slot, &message.request, len) {
            return self.let_go(id, None, &format!("cannot be taken over: {why}"));
        }
        let _ = self.carry_out(id, message);
    }

    fn decode(&self, id: PortId, (bytes, fds): Kept) -> Option<(Message, usize)> {
        let closer = &self.ports.get(&id)?.vm.as_ref()?.closing.closer;
        let fds = fds.into_iter().map(|fd| closer.keep(fd)).collect();
        Some((codec::decode(&bytes, fds).ok()?, bytes.len()))
    }

    /// Lets the session handle a request: the reply, whether it is remembered, and what its effects
    /// came to.
    fn carry_out(
        &mut self,
        id: PortId,
        message: Message,
    ) -> Option<(Option<Vec<u8>>, bool, Applied)> {
        let port = self.ports.get_mut(&id)?;
        let link = port.vm.as_mut().and_then(|vm| vm.link.as_mut())?;
        let outcome = link.session.handle(message);
        if let Some(why) = &outcome.refused {
            port.chatter.complain(&port.spec.name, format_args!("refused: {why}"));
        }
        let applied = self.apply(id, outcome.effects);
        let reply = self.link_of(id)?.session.complete(outcome.pending, applied.clone());
        Some((reply, outcome.is_remembered, applied))
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
