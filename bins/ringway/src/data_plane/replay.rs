//! Actions that a data plane that takes over from another one may not do before `Go`: start rings,
//! touch taps, tell guests anything. They are noted, and done then.
//!
//! Where a ring goes on: at the position that the predecessor told when it stopped for this one
//! ([`Positions`]). After a crash the journal says it. A ring that is not in the journal goes on at
//! its used index if it is split, and where the ring itself shows if it is packed; or it does not
//! start, and the log says why.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use ringway_device::QueueId;
use ringway_foreign::UntrustedFd;
use ringway_host::{Carrier, Journal, QueueFds, Tap, Worker};
use ringway_supervisor::wire::{KnownStation, ToSupervisor};
use ringway_switch::PortId;
use ringway_vhost_user::position_from_base;
use ringway_virtq::{Broken, Format, Position, QueueSetup};
use serde::{Deserialize, Serialize};
use tracing::error;

use super::workers::NO_ANSWER;
use super::workers::handle::Promise;
use super::{DataPlane, Port};

/// Noted until `Go`.
#[derive(Debug, Default)]
pub(super) struct Replay {
    pub(super) starts: Vec<Start>,
    pub(super) discards: Vec<Discard>,
    /// Queues of taps, and a socket to ask about the interface with.
    pub(super) taps: Vec<(PortId, Vec<OwnedFd>)>,
    /// Routers.
    pub(super) routers: Vec<PortId>,
    /// The stations that are known of them.
    pub(super) stations: BTreeMap<PortId, Vec<KnownStation>>,
    /// Text of [`Positions`], as far as it has come.
    pub(super) positions: Vec<u8>,
}

/// A queue that is to start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) port: PortId,
    pub(super) index: u16,
    pub(super) setup: QueueSetup,
    pub(super) is_told: bool,
    pub(super) fds: QueueFds,
}

/// A queue that a worker starts.
struct PendingStart {
    id: PortId,
    queue: QueueId,
    started: Promise<Result<(), Broken>>,
}

/// Where a queue is to start.
enum Place {
    Known(Position),
    /// Its worker looks at the ring.
    Asked(Promise<Result<Position, Broken>>),
}

/// A transmitq that is to be emptied.
#[derive(Debug)]
pub(super) struct Discard {
    pub(super) port: PortId,
    pub(super) index: u16,
    pub(super) setup: QueueSetup,
    pub(super) call: Option<UntrustedFd>,
}

/// Where rings stand, by front-end and ring: what travels in `Export` and `Go`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Positions {
    pub(super) links: BTreeMap<u32, BTreeMap<u16, Stand>>,
}

/// Where one ring stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stand {
    /// As `GET_VRING_BASE` tells it.
    pub(super) base: u32,
    /// It goes on there when it starts next.
    pub(super) goes_on: bool,
    /// It ran.
    pub(super) ran: bool,
}

impl Replay {
    /// The front-end of a port is gone.
    pub(super) fn forget(&mut self, id: PortId) {
        self.starts.retain(|start| start.port != id);
        self.discards.retain(|discard| discard.port != id);
    }
}

impl DataPlane {
    /// All ports and front-ends are known. The workers have done their part of it before a
    /// predecessor stops.
    pub(super) fn is_ready(&self) {
        self.worker.catch_up();
        self.supervisor.tell(&ToSupervisor::Ready { refusal: None });
    }

    /// Everything that was noted is done: this process serves from now on.
    pub(super) fn go(&mut self, journal: Option<OwnedFd>) {
        let Some(replay) = self.replay.take() else { return };
        let journal = journal.and_then(|file| self.take_journal(&file));
        let positions: Positions = serde_json::from_slice(&replay.positions).unwrap_or_default();
        self.restore_stands(&positions);
        // Receive queues come first: a packet to a port that does not run yet is dropped.
        let follows = !replay.starts.is_empty();
        let (receiving, sending) =
            replay.starts.into_iter().partition(|start| self.is_receiving(start));
        self.start_all_at_last(receiving, &positions);
        for (id, fds) in replay.taps {
            if let Err(why) = self.attach_tap(id, fds) {
                self.complain(id, format_args!("its tap cannot be served: {why:#}"));
            }
        }
        for id in replay.routers {
            match self.attach_nat(id, follows) {
                Ok(()) => {
                    let known = replay.stations.get(&id).map_or(&[][..], Vec::as_slice);
                    self.remember_stations(id, known);
                }
                Err(why) => {
                    self.complain(id, format_args!("the router cannot be opened: {why:#}"));
                }
            }
        }
        self.worker.send_all(Worker::deliver_handed_over);
        self.remember_learned();
        self.start_all_at_last(sending, &positions);
        for discard in replay.discards {
            self.discard_at_last(discard, &positions);
        }
        // Asked for their counters, the workers go on from those in the journal.
        self.worker.ask_all(Worker::snapshots);
        if let Some(journal) = journal {
            journal.settle();
        }
        self.supervisor.tell(&ToSupervisor::Running {});
    }

    fn is_receiving(&mut self, start: &Start) -> bool {
        let queue = self.queue_of(start.port, start.index);
        queue.is_ok_and(|queue| queue.queue == ringway_device::Queue::ToGuest)
    }

    fn start_all_at_last(&mut self, starts: Vec<Start>, positions: &Positions) {
        // All are asked, and begun, before any answer is waited for: each would cost a sleep of
        // two threads.
        let asked: Vec<_> =
            starts.into_iter().map(|start| (self.ask_position(&start, positions), start)).collect();
        self.worker.catch_up();
        let begin = |(position, start): (_, Start)| {
            let (id, index) = (start.port, start.index);
            (id, index, self.begin_at_last(start, position))
        };
        let begun: Vec<_> = asked.into_iter().map(begin).collect();
        self.worker.catch_up();
        for (id, index, begun) in begun {
            if let Err(why) = begun.and_then(|begun| self.has_begun(begun)) {
                self.complain(id, format_args!("queue {index} cannot go on: {why:#}"));
                if let Ok(link) = self.linked(id) {
                    link.session.start_failed(index);
                }
            }
        }
    }

    /// The workers note what they do in it. Without one rings go on where they show it themselves.
    fn take_journal(&mut self, file: &OwnedFd) -> Option<Arc<Journal>> {
        let opened = Journal::open(file).and_then(|journal| {
            let journal = Arc::new(journal);
            self.replayed = journal.interrupted() as u64;
            // The notes in it count only for the data plane that follows at once.
            let noted = journal.clone();
            let set = self.worker.ask_all(move |worker| worker.set_journal(Some(noted)));
            let set: Result<(), _> = set.into_iter().collect();
            set.inspect_err(|_| journal.settle()).map(|()| journal)
        });
        match opened {
            Ok(journal) => {
                self.set_notes(journal.clone());
                Some(journal)
            }
            Err(why) => {
                // None may hand over in it what another one looks for in its own memory.
                self.worker.ask_all(|worker| worker.set_journal(None));
                error!("{why}: after the end of this process rings cannot all go on");
                None
            }
        }
    }

    fn stand(&mut self, id: PortId, index: u16, positions: &Positions) -> Option<Stand> {
        let number = self.link_of(id)?.number;
        positions.links.get(&number)?.get(&index).copied()
    }

    /// Rings that did not run stand where the predecessor had stopped them.
    fn restore_stands(&mut self, positions: &Positions) {
        for (number, rings) in &positions.links {
            let Some(id) = self.links.get(number).copied() else { continue };
            let Some(link) = self.link_of(id) else { continue };
            for (&index, stand) in rings.iter().filter(|(_, stand)| !stand.ran) {
                link.session.stood_at(index, stand.base, stand.goes_on);
            }
        }
    }

    /// Where a queue is to start.
    fn ask_position(&mut self, start: &Start, positions: &Positions) -> anyhow::Result<Place> {
        let Start { port: id, index, setup, .. } = *start;
        let queue = self.queue_of(id, index)?;
        let format = self.format_of(id);
        Ok(match self.stand(id, index, positions).filter(|stand| stand.ran) {
            Some(stand) => Place::Known(position_from_base(stand.base, format)),
            None if start.is_told => {
                let owner = self.worker.owner(queue.pair);
                Place::Asked(owner.begin(move |worker| worker.position_by_ring(id, queue, &setup)))
            }
            None => Place::Known(setup.position),
        })
    }

    fn begin_at_last(
        &mut self,
        start: Start,
        place: anyhow::Result<Place>,
    ) -> anyhow::Result<PendingStart> {
        let Start { port: id, index, mut setup, mut fds, .. } = start;
        let queue = self.queue_of(id, index)?;
        setup.position = match place? {
            Place::Known(position) => position,
            Place::Asked(shown) => {
                let shown = shown.wait().context(NO_ANSWER)?;
                shown.map_err(|why| anyhow!("{queue}: {}", why.0))?
            }
        };
        fds.calls_at_start = true;
        let owner = self.worker.owner(queue.pair);
        let started = owner.begin(move |worker| worker.start_queue(id, queue, &setup, fds));
        Ok(PendingStart { id, queue, started })
    }

    fn has_begun(&mut self, begun: PendingStart) -> anyhow::Result<()> {
        let PendingStart { id, queue, started } = begun;
        let started = started.wait().context(NO_ANSWER)?;
        started.map_err(|why| anyhow!("{queue}: {}", why.0))?;
        self.note_start(id, queue);
        Ok(())
    }

    fn discard_at_last(&mut self, discard: Discard, positions: &Positions) {
        let Discard { port: id, index, mut setup, call } = discard;
        let Ok(queue) = self.queue_of(id, index) else { return };
        let format = self.format_of(id);
        match self.stand(id, index, positions) {
            Some(stand) => setup.position = position_from_base(stand.base, format),
            None if format == Format::Packed => {
                let owner = self.worker.owner(queue.pair);
                match owner.ask(move |worker| worker.position_by_ring(id, queue, &setup)) {
                    Some(Ok(position)) => setup.position = position,
                    // It is left alone until the front-end starts it.
                    Some(Err(_)) | None => return,
                }
            }
            None => {}
        }
        let Ok(call) = self.call_fd(id, call) else { return };
        let owner = self.worker.owner(queue.pair);
        let discarded = owner.ask(move |worker| worker.discard_packets(id, queue, &setup, call));
        let Some(discarded) = discarded.flatten() else { return };
        let base = ringway_vhost_user::base_from_position(discarded.position, format);
        if let Ok(link) = self.linked(id) {
            link.session.stood_at(index, base, true);
            if discarded.has_more {
                link.kicks.look_again(index);
            }
        }
    }

    fn format_of(&mut self, id: PortId) -> Format {
        let negotiated = self.link_of(id).and_then(|link| link.negotiated);
        negotiated.map_or(Format::Split, |negotiated| negotiated.format)
    }

    /// The queues of a tap, which the supervisor has opened, go to the workers.
    pub(super) fn attach_tap(&mut self, id: PortId, mut fds: Vec<OwnedFd>) -> anyhow::Result<()> {
        let Some(port) = self.ports.get_mut(&id) else { return Ok(()) };
        let name = port.spec.kind.address();
        let interfaces = if fds.len() > 1 { fds.pop() } else { None };
        let mut queues = Vec::new();
        for fd in fds {
            let interfaces = interfaces.as_ref().map(OwnedFd::try_clone).transpose()?;
            let mut queue = Tap::new(fd, name.clone(), interfaces);
            queue.complete_all(!port.spec.offloads);
            queues.push(queue);
        }
        port.tap = queues.iter().map(Tap::watch).collect();
        let is_up = port.spec.is_link_up;
        self.worker.attach_tap(id, queues)?;
        if !is_up {
            self.worker.set_link(id, Carrier::Down);
        }
        self.announce_all();
        Ok(())
    }

    /// Where all rings stand, which stop for good: nothing is sent, called or told from now on.
    pub(super) fn quiesce(&mut self) -> Positions {
        let mut positions = Positions::default();
        self.is_frozen = true;
        self.worker.stop_reading_taps();
        self.stop_listening();
        let running = self.running_queues();
        for of_guest in [true, false] {
            let is_of_guest =
                |queue: &QueueId| (queue.queue != ringway_device::Queue::ToGuest) == of_guest;
            let stopping = running.iter().filter(|(.., queue)| is_of_guest(queue));
            let stopping: Vec<_> = stopping
                .map(|&(id, index, queue)| {
                    let owner = self.worker.owner(queue.pair);
                    (id, index, owner.begin(move |worker| worker.stop_queue(id, queue)))
                })
                .collect();
            self.worker.catch_up();
            for (id, index, stopped) in stopping {
                let Some(position) = stopped.wait().flatten() else { continue };
                let format = self.format_of(id);
                let Some(number) = self.link_of(id).map(|link| link.number) else { continue };
                let base = ringway_vhost_user::base_from_position(position, format);
                let stand = Stand { base, goes_on: true, ran: true };
                positions.links.entry(number).or_default().insert(index, stand);
            }
            // Packets that workers hand over to each other arrive.
            (0..HAND_OVERS).for_each(|_| self.worker.catch_up());
        }
        for vm in self.ports.values().filter_map(|port: &Port| port.vm.as_ref()) {
            let Some(link) = &vm.link else { continue };
            for index in 0..link.session.ring_count() {
                let Some((base, goes_on)) = link.session.stood(index) else { continue };
                let stand = Stand { base, goes_on, ran: false };
                positions.links.entry(link.number).or_default().insert(index, stand);
            }
        }
        self.leave_notes();
        self.tell_all_stations();
        self.worker.ask_all(|worker| worker.set_journal(None));
        positions
    }

    fn running_queues(&mut self) -> Vec<(PortId, u16, QueueId)> {
        let mut running = Vec::new();
        for id in self.ids() {
            let Some(link) = self.link_of(id) else { continue };
            let indexes: Vec<u16> = link.session.running().collect();
            for index in indexes {
                running.extend(self.queue_of(id, index).ok().map(|queue| (id, index, queue)));
            }
        }
        running
    }
}

/// Rounds after which what a worker has handed to another one is with its receiver.
const HAND_OVERS: usize = 2;
