//! One connected front-end: its session, and the memory it shared. Its socket is the supervisor's.

pub mod dirty_log;
pub mod effects;
pub mod kicks;
pub mod presence;
pub mod state;

use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Instant;

use anyhow::Context;
use ringway_device::{Queue, QueueId};
use ringway_foreign::UntrustedFd;
use ringway_host::{Callee, GuestMemory};
use ringway_net::{MacAddress, Negotiated};
use ringway_supervisor::keep::Keeper;
use ringway_switch::PortId;
use ringway_vhost_user::{Offer, Session};
use ringway_virtq::Format;

use kicks::Kicks;
use presence::Presence;
use state::StateTransfer;

/// The state that lasts as long as one connection.
pub struct Link {
    /// As the supervisor counts.
    pub number: u32,
    pub port: PortId,
    /// The part of it that the supervisor keeps.
    pub keeper: Keeper,
    /// The MAC address this guest was given; the port may have another for the next one.
    pub mac: MacAddress,
    /// The MTU that it was offered, if one.
    pub mtu: Option<u16>,
    pub session: Session,
    pub memory: GuestMemory,
    /// The receiver of calls, with what the workers found out about it.
    pub callee: Callee,
    pub negotiated: Option<Negotiated>,
    pub back_end_channel: Option<UntrustedFd>,
    /// Queue pairs this guest was offered; the port may have others for the next one.
    pub pairs: u16,
    pub running: Running,
    /// Since when its first receive queue does not run any more.
    pub stopped: Option<Instant>,
    pub announcement: Announcement,
    pub presence: Presence,
    pub kicks: Kicks,
    pub state: StateTransfer,
}

/// Where a guest is with announcing itself.
#[derive(Debug, Default)]
pub struct Announcement {
    /// It has been asked, and has not answered.
    pub is_asked: bool,
    /// How often it has answered.
    pub answers: u64,
}

/// The queues of a guest that run.
#[derive(Debug, Default)]
pub struct Running {
    all: Vec<QueueId>,
    /// Pairs whose receive queue runs.
    receiving: BTreeSet<u16>,
    pub has_control: bool,
}

impl Running {
    /// Notes one queue; `true`: where packets go is different now.
    pub fn note(&mut self, queue: QueueId, is_running: bool) -> bool {
        let before = (self.pairs(), self.has_control);
        self.all.retain(|other| *other != queue);
        if is_running {
            self.all.push(queue);
        }
        match queue.queue {
            Queue::ToGuest if is_running => drop(self.receiving.insert(queue.pair)),
            Queue::ToGuest => drop(self.receiving.remove(&queue.pair)),
            Queue::Control => self.has_control = is_running,
            Queue::FromGuest => {}
        }
        before != (self.pairs(), self.has_control)
    }

    /// Whether any does.
    pub fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// The first so many receive queues run without a gap.
    pub fn pairs(&self) -> u16 {
        let in_order = (0..).zip(&self.receiving).take_while(|(at, pair)| at == *pair);
        u16::try_from(in_order.count()).unwrap_or(u16::MAX)
    }
}

impl Link {
    pub fn new(number: u32, port: PortId, mac: MacAddress, offer: Offer, callee: Callee) -> Self {
        Self {
            number,
            port,
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
            presence: Presence::default(),
            kicks: Kicks::new(),
            state: StateTransfer::default(),
            session: Session::new(offer),
        }
    }

    /// The queue of that index, as both sides count since features were negotiated.
    pub fn queue(&self, index: u16) -> anyhow::Result<QueueId> {
        let negotiated = self.negotiated.unwrap_or(Negotiated::NOTHING);
        let pairs = negotiated.queue_pairs(self.pairs);
        let queue = QueueId::from_index(index, pairs, negotiated.ctrl_vq);
        queue.with_context(|| format!("queue {index} does not exist"))
    }

    pub fn format(&self) -> Format {
        self.negotiated.map_or(Format::Split, |negotiated| negotiated.format)
    }

    /// When kicks of stopped queues are looked at next.
    pub fn next_look(&self) -> Option<Instant> {
        self.kicks.next(&self.session)
    }

    /// Changes the configuration space; `true`: the guest was told.
    pub fn change_config(&mut self, config: Vec<u8>) -> bool {
        let Some(message) = self.session.set_config(config) else { return false };
        let Some(channel) = &self.back_end_channel else { return false };
        ringway_vhost_user::send_on_channel(channel.as_fd(), &message).is_ok()
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
        assert!(running.is_any() && !Running::default().is_any());
        assert!(running.note(queue(1, Queue::ToGuest), false));
        assert_eq!(running.pairs(), 1);
    }
}
