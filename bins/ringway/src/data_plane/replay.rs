//! Actions that a data plane that takes over from another one may not do before `Go`: start rings,
//! touch taps, tell guests anything. They are noted, and done then.
//!
//! Where a ring goes on: at the position that the predecessor told when it stopped for this one
//! ([`Positions`]). After a crash the journal says it. A ring that is not in the journal goes on at
//! its used index if it is split, and where the ring itself shows if it is packed; or it does not
//! start, and the log says why.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use ringway_device::QueueId;
use ringway_foreign::UntrustedFd;
use ringway_host::QueueFds;
use ringway_supervisor::wire::KnownStation;
use ringway_switch::PortId;
use ringway_vhost_user::{base_from_position, position_from_base};
use ringway_virtq::{Broken, Format, Position, QueueSetup};
use serde::{Deserialize, Serialize};

use super::links::Link;
use super::ports::{Port, Ports};
use super::workers::{Promise, Workers};

/// Most bytes of positions: 2,048 rings have fewer.
const POSITIONS_LEN_MAX: usize = 1 << 20;

/// Rounds after which what a worker has handed to another one is with its receiver.
const HAND_OVERS: usize = 2;

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

    /// A queue does not start after all.
    pub(super) fn cancel(&mut self, id: PortId, index: u16) {
        self.starts.retain(|start| (start.port, start.index) != (id, index));
    }

    /// A piece of the text of [`Positions`] has come.
    pub(super) fn add_positions(&mut self, piece: Vec<u8>) {
        if self.positions.len() + piece.len() <= POSITIONS_LEN_MAX {
            self.positions.extend(piece);
        }
    }
}

impl Start {
    /// Receive queues start first: a packet to a port that does not run yet is dropped.
    pub(super) fn is_receiving(&self, ports: &mut Ports) -> bool {
        let queue = ports.link(self.port).and_then(|link| link.queue(self.index).ok());
        queue.is_some_and(|queue| queue.queue == ringway_device::Queue::ToGuest)
    }

    /// Where it is to start.
    fn ask_place(
        &self,
        positions: &Positions,
        ports: &mut Ports,
        workers: &Workers,
    ) -> anyhow::Result<Place> {
        let Self { port, index, setup, .. } = *self;
        let (link, _) = ports.linked(port)?;
        let queue = link.queue(index)?;
        Ok(match positions.stand(link, index).filter(|stand| stand.ran) {
            Some(stand) => Place::Known(position_from_base(stand.base, link.format())),
            None if self.is_told => Place::Asked(workers.position_by_ring(port, queue, setup)),
            None => Place::Known(setup.position),
        })
    }

    fn begin(
        self,
        place: anyhow::Result<Place>,
        ports: &mut Ports,
        workers: &Workers,
    ) -> anyhow::Result<(QueueId, Promise<Result<(), Broken>>)> {
        let Self { port, index, mut setup, mut fds, .. } = self;
        let queue = ports.linked(port)?.0.queue(index)?;
        setup.position = match place? {
            Place::Known(position) => position,
            Place::Asked(shown) => shown.of(queue)?,
        };
        fds.calls_at_start = true;
        Ok((queue, workers.start_queue(port, queue, setup, fds)))
    }
}

impl Positions {
    fn stand(&self, link: &Link, index: u16) -> Option<Stand> {
        self.links.get(&link.number)?.get(&index).copied()
    }

    fn note(&mut self, link: &Link, index: u16, stand: Stand) {
        self.links.entry(link.number).or_default().insert(index, stand);
    }

    /// Rings that did not run stand where the predecessor had stopped them.
    pub(super) fn restore(&self, ports: &mut Ports) {
        for (number, rings) in &self.links {
            let Some(link) = ports.of_link(*number).and_then(|id| ports.link(id)) else { continue };
            for (&index, stand) in rings.iter().filter(|(_, stand)| !stand.ran) {
                link.session.stood_at(index, stand.base, stand.goes_on);
            }
        }
    }

    /// Starts queues; one that cannot go on is the only one that does not.
    pub(super) fn start_all(&self, starts: Vec<Start>, ports: &mut Ports, workers: &Workers) {
        // All are asked, and begun, before any answer is waited for: each would cost a sleep of
        // two threads.
        let ask = |start: Start| (start.ask_place(self, ports, workers), start);
        let asked: Vec<_> = starts.into_iter().map(ask).collect();
        workers.catch_up();
        let begin = |(place, start): (_, Start)| {
            (start.port, start.index, start.begin(place, ports, workers))
        };
        let begun: Vec<_> = asked.into_iter().map(begin).collect();
        workers.catch_up();
        for (id, index, begun) in begun {
            let started = begun.and_then(|(queue, started)| started.of(queue).map(|()| queue));
            match started {
                Ok(queue) => ports.note_start(id, queue, workers.shared()),
                Err(why) => {
                    ports.complain(id, format_args!("queue {index} cannot go on: {why:#}"));
                    if let Some(link) = ports.link(id) {
                        link.session.start_failed(index);
                    }
                }
            }
        }
    }

    /// Empties a transmitq at last.
    pub(super) fn discard(&self, mut discard: Discard, link: &mut Link, workers: &Workers) {
        let (index, format) = (discard.index, link.format());
        let Ok(queue) = link.queue(index) else { return };
        match self.stand(link, index) {
            Some(stand) => discard.setup.position = position_from_base(stand.base, format),
            None if format == Format::Packed => {
                match workers.position_by_ring(link.port, queue, discard.setup).wait() {
                    Some(Ok(position)) => discard.setup.position = position,
                    // It is left alone until the front-end starts it.
                    Some(Err(_)) | None => return,
                }
            }
            None => {}
        }
        if let Some(position) = link.discard(discard, workers) {
            link.session.stood_at(index, base_from_position(position, format), true);
        }
    }

    /// Stops all rings for good: where they stand.
    pub(super) fn of_stopped(ports: &mut Ports, workers: &Workers) -> Self {
        let mut positions = Self::default();
        let running = running_queues(ports);
        for of_guest in [true, false] {
            let is_of_guest =
                |queue: &QueueId| (queue.queue != ringway_device::Queue::ToGuest) == of_guest;
            let stopping = running.iter().filter(|(.., queue)| is_of_guest(queue));
            let stopping: Vec<_> = stopping
                .map(|&(id, index, queue)| (id, index, workers.stop_queue(id, queue)))
                .collect();
            workers.catch_up();
            for (id, index, stopped) in stopping {
                let Some(position) = stopped.wait().flatten() else { continue };
                let Some(link) = ports.link(id) else { continue };
                let base = base_from_position(position, link.format());
                positions.note(link, index, Stand { base, goes_on: true, ran: true });
            }
            // Packets that workers hand over to each other arrive.
            (0..HAND_OVERS).for_each(|_| workers.catch_up());
        }
        for link in ports.iter().filter_map(Port::link) {
            for index in 0..link.session.ring_count() {
                let Some((base, goes_on)) = link.session.stood(index) else { continue };
                positions.note(link, index, Stand { base, goes_on, ran: false });
            }
        }
        positions
    }
}

fn running_queues(ports: &Ports) -> Vec<(PortId, u16, QueueId)> {
    let of_link = |link: &Link| {
        let queue = |index| Some((link.port, index, link.queue(index).ok()?));
        link.session.running().filter_map(queue).collect::<Vec<_>>()
    };
    ports.iter().filter_map(Port::link).flat_map(of_link).collect()
}
