//! Queues of guests, started, moved and stopped between two visits.

use ringway_device::{Queue, QueueId};
use ringway_net::control_record;
use ringway_switch::PortId;
use ringway_virtq::{Areas, Arm, Broken, Position, QueueSetup, Why, position_by_ring};
use std::os::fd::AsFd;

use crate::journal::ring_lines::{Claim, NotedRing, Past, RingName};
use crate::journal::worker_line::WorkerLine;
use crate::memory::GuestMemory;
use crate::os::eventfd::{CallFd, KickFd};
use crate::port::notify_fds::NotifyFds;
use crate::port::queue_pair::End;
use crate::worker::Worker;
use crate::worker::event::WorkerEvent;
use crate::worker::poll_token::PollToken;
use crate::worker::queue_fds::{NotifyFd, QueueFds};

/// How far a transmitq was emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discarded {
    /// Where it stands.
    pub position: Position,
    /// There is more in it already: the next kick may be one that was sent.
    pub has_more: bool,
}

impl Worker {
    /// Binds running queues of a port to other memory, in which the rings of `moved` are elsewhere;
    /// afterwards the old memory is not used any more.
    ///
    /// # Errors
    /// A ring is outside.
    pub fn set_memory(
        &mut self,
        port: PortId,
        memory: &GuestMemory,
        moved: &[(QueueId, Areas)],
    ) -> Result<(), Broken> {
        let slots = self.ports.slots_of(port).into_iter();
        slots.map(|slot| self.set_memory_at(slot, memory.clone(), moved)).fold(Ok(()), Result::and)
    }

    /// Other memory, in which the queues of `moved` are elsewhere.
    pub(crate) fn set_memory_at(
        &mut self,
        id: PortId,
        memory: GuestMemory,
        moved: &[(QueueId, Areas)],
    ) -> Result<(), Broken> {
        let Some(pair) = self.ports.get(id).map(|pair| pair.pair.pair) else {
            return Ok(());
        };
        let Some(guest) = self.ports.guest(id) else { return Ok(()) };
        let regions = memory.regions();
        let (mut result, mut mended) = (Ok(()), Vec::new());
        for queue in Queue::ALL {
            let Some(areas) = &mut guest.fds[queue as usize].areas else { continue };
            let is_it = |(id, _): &&(QueueId, Areas)| *id == QueueId { pair, queue };
            *areas = moved.iter().find(is_it).map_or(*areas, |(_, areas)| *areas);
            let areas = *areas;
            let was_broken = guest.queues.broken(queue).is_some();
            note_areas(self.journal.as_ref(), &mut guest.fds[queue as usize], areas);
            result = result.and(guest.queues.rebind(queue, &areas, &regions));
            if was_broken && guest.queues.broken(queue).is_none() {
                guest.fds[queue as usize].is_broken_reported = false;
                mended.push(queue);
            }
        }
        // Only now may the old mappings go: a ring points into the new ones, or is not touched.
        let is_on_disk = memory.is_on_disk();
        guest.memory = memory;
        self.ports.at(id).faults.use_memory(is_on_disk);
        self.report_broken(id);
        for queue in mended {
            self.go_on(id, queue);
        }
        result
    }

    /// The memory has come that a queue needed: what its guest kicked about is looked at again.
    fn go_on(&mut self, slot: PortId, queue: Queue) {
        let pair = self.ports.at(slot);
        let (port, id) = (pair.port, QueueId { pair: pair.pair.pair, queue });
        self.control.tell(WorkerEvent::GoesOn { port, queue: id });
        self.after_start(slot, queue);
    }

    /// Where a packed ring is to start whose position a front-end has told.
    ///
    /// # Errors
    /// Its position is unknown.
    pub fn position_by_ring(
        &mut self,
        port: PortId,
        queue: QueueId,
        setup: &QueueSetup,
    ) -> Result<Position, Broken> {
        let slot = self.ports.slot_of(port, queue.pair);
        let link = self.ports.port(port).link;
        let guest = slot.and_then(|slot| self.ports.guest(slot)).ok_or(Broken(Why::BadArea))?;
        if let Some((line, link)) = self.journal.as_ref().zip(link) {
            let format = guest.queues.negotiated().format;
            if line.journal.is_left(&RingName { port, queue, link, format }, setup) {
                // It continues there, whatever the position.
                return Ok(setup.position);
            }
        }
        position_by_ring(setup, &guest.memory.regions())
    }

    /// Starts a queue, also one that runs already.
    ///
    /// # Errors
    /// Its ring is not in memory, or breaks the rules.
    pub fn start_queue(
        &mut self,
        port: PortId,
        queue: QueueId,
        setup: &QueueSetup,
        fds: QueueFds,
    ) -> Result<(), Broken> {
        match self.ports.slot_of(port, queue.pair) {
            Some(slot) => self.start_queue_at(slot, queue.queue, setup, fds),
            None => Err(Broken(Why::BadArea)),
        }
    }

    fn start_queue_at(
        &mut self,
        id: PortId,
        queue: Queue,
        setup: &QueueSetup,
        fds: QueueFds,
    ) -> Result<(), Broken> {
        self.stop_queue_at(id, queue);
        let is_left = self.start_ring(id, queue, setup)?;
        let Some(guest) = self.ports.guest(id) else { return Err(Broken(Why::BadArea)) };
        guest.pace.start(queue, setup.size);
        let arm = match queue {
            Queue::ToGuest => Arm::Never,
            Queue::FromGuest | Queue::Control => Arm::Next,
        };
        guest.queues.arm_kicks(queue, arm);
        let of_queue = &mut guest.fds[queue as usize];
        of_queue.areas = Some(setup.areas);
        of_queue.is_broken_reported = false;
        of_queue.set_call(fds.call);
        of_queue.error = fds.error;
        self.set_kick(id, queue, fds.kick);
        self.schedule.after_call(self.ports.at(id).follow_coalescing());
        self.ports.refresh_tap_offloads(self.peers.index());
        self.bridge.refresh_claim(id, &self.ports);
        if (is_left || fds.calls_at_start)
            && let Some(guest) = self.ports.guest(id)
        {
            // The data plane before may have shown something and not said so.
            self.schedule.after_call(guest.call(queue));
        }
        if is_left && queue == Queue::Control {
            self.restore_control(id);
        }
        self.after_start(id, queue);
        Ok(())
    }

    /// The guest had set something, as the data plane before has noted.
    fn restore_control(&mut self, id: PortId) {
        let Some(guest) = self.ports.guest(id) else { return };
        let noted = self.journal.as_ref().zip(guest.fds[Queue::Control as usize].noted);
        let Some((line, noted)) = noted else { return };
        let mut state = guest.queues.control_state().clone();
        control_record::follow(
            &mut state,
            &line.journal.control(noted.line),
            guest.queues.negotiated(),
        );
        guest.queues.set_control_state(state);
        self.after_control(id, 0);
    }

    /// Starts a ring, or continues it where the data plane before has left it; `true`: that.
    fn start_ring(&mut self, id: PortId, queue: Queue, setup: &QueueSetup) -> Result<bool, Broken> {
        let (port, number) = self.ports.get(id).map_or((id, 0), |pair| (pair.port, pair.pair.pair));
        let link = self.ports.port(port).link;
        let Some(guest) = self.ports.guest(id) else { return Err(Broken(Why::BadArea)) };
        let regions = guest.memory.regions();
        let line = self.journal.as_ref().zip(link);
        let noted = line.and_then(|(line, link)| {
            let format = guest.queues.negotiated().format;
            let name = RingName { port, queue: QueueId { pair: number, queue }, link, format };
            Some((&line.journal, name, line.journal.claim_ring(&name, setup)?))
        });
        let Some((journal, name, Claim { line, past })) = noted else {
            return guest.queues.start(queue, setup, &regions).map(|()| false);
        };
        let left = match past {
            Past::None => None,
            Past::OtherRing => Some(Err(Broken(Why::OtherRing))),
            Past::Left => {
                Some(guest.queues.recover(queue, setup, &regions, journal.record(line, setup)))
            }
        };
        if left != Some(Ok(())) {
            guest.queues.start_in(queue, setup, &regions, journal.record(line, setup))?;
        }
        let noted = NotedRing { line, name, setup: *setup };
        journal.note_ring(&noted);
        guest.fds[queue as usize].noted = Some(noted);
        if let Some(Err(Broken(why))) = left {
            self.control.tell(WorkerEvent::StartedAnew { port, queue: name.queue, why });
        }
        Ok(left == Some(Ok(())))
    }

    /// A kick may have been sent before the worker listened, so every new queue is visited once.
    fn after_start(&mut self, id: PortId, queue: Queue) {
        match queue {
            Queue::FromGuest => self.schedule.ready.add(id),
            Queue::Control => self.visit_control(id),
            Queue::ToGuest => {
                self.ports.at(id).room.is_stuck = false;
                self.schedule.release_slot(id, &mut self.ports, &mut self.peers);
                for pair in &self.ports.slots {
                    if matches!(pair.end, End::Tap(_) | End::Nat(_)) {
                        self.schedule.ready.add(pair.slot);
                    }
                }
            }
        }
    }

    /// Queues whose guest cannot kick are visited as if it had.
    pub(crate) fn poll_without_kick(&mut self, id: PortId) {
        for queue in Queue::ALL {
            if self.ports.guest(id).is_some_and(|guest| guest.is_polled(queue)) {
                self.after_start(id, queue);
            }
        }
        if let Some(guest) = self.ports.guest(id) {
            guest.plan_poll();
        }
    }

    /// Stops a queue and says where it stood; `None`: it did not run.
    pub fn stop_queue(&mut self, port: PortId, queue: QueueId) -> Option<Position> {
        let slot = self.ports.slot_of(port, queue.pair)?;
        self.stop_queue_at(slot, queue.queue)
    }

    pub(crate) fn stop_queue_at(&mut self, id: PortId, queue: Queue) -> Option<Position> {
        self.set_kick(id, queue, None);
        if queue == Queue::FromGuest {
            self.schedule.forget_hold(id, &mut self.ports);
        }
        let position = self.stop_ring(id, queue);
        if queue == Queue::ToGuest {
            self.schedule.release_slot(id, &mut self.ports, &mut self.peers);
        }
        self.bridge.refresh_claim(id, &self.ports);
        position
    }

    fn stop_ring(&mut self, id: PortId, queue: Queue) -> Option<Position> {
        let guest = self.ports.guest(id)?;
        guest.flush_last(queue);
        let fds = &mut guest.fds[queue as usize];
        fds.areas = None;
        fds.noted = None;
        fds.call = None;
        fds.error = None;
        guest.plan_poll();
        guest.queues.stop(queue)
    }

    /// Empties a transmitq that does not run: what is available becomes used, and goes nowhere.
    /// `None`: it is none, it runs, or its ring is not in memory.
    pub fn discard_packets(
        &mut self,
        port: PortId,
        QueueId { pair, queue }: QueueId,
        setup: &QueueSetup,
        call: Option<CallFd>,
    ) -> Option<Discarded> {
        let slot = self.ports.slot_of(port, pair)?;
        let guest = self.ports.guest(slot)?;
        if queue != Queue::FromGuest || guest.queues.is_running(queue) {
            return None;
        }
        guest.queues.start(queue, setup, &guest.memory.regions()).ok()?;
        let has_more = guest.queues.discard();
        if let Some(call) = call.filter(|_| guest.queues.must_call(queue)) {
            call.call();
        }
        let position = guest.queues.stop(queue)?;
        Some(Discarded { position, has_more })
    }

    /// Moves a running queue to other areas.
    ///
    /// # Errors
    /// They are not inside memory.
    pub fn rebind_queue(
        &mut self,
        port: PortId,
        queue: QueueId,
        areas: &Areas,
    ) -> Result<(), Broken> {
        let slot = self.ports.slot_of(port, queue.pair);
        slot.map_or(Ok(()), |slot| self.rebind_queue_at(slot, queue.queue, areas))
    }

    pub(crate) fn rebind_queue_at(
        &mut self,
        id: PortId,
        queue: Queue,
        areas: &Areas,
    ) -> Result<(), Broken> {
        let Some(guest) = self.ports.guest(id) else { return Ok(()) };
        let regions = guest.memory.regions();
        let result = guest.queues.rebind(queue, areas, &regions);
        if guest.queues.is_running(queue) {
            guest.fds[queue as usize].areas = Some(*areas);
            note_areas(self.journal.as_ref(), &mut guest.fds[queue as usize], *areas);
        }
        self.report_broken(id);
        result
    }

    /// Replaces an fd of a running queue.
    pub fn set_notify_fd(&mut self, port: PortId, queue: QueueId, notify_fd: NotifyFd) {
        if let Some(slot) = self.ports.slot_of(port, queue.pair) {
            self.set_notify_fd_at(slot, queue.queue, notify_fd);
        }
    }

    pub(crate) fn set_notify_fd_at(&mut self, id: PortId, queue: Queue, notify_fd: NotifyFd) {
        if let NotifyFd::Kick(kick) = notify_fd {
            self.set_kick(id, queue, kick);
            return self.after_start(id, queue);
        }
        let Some(guest) = self.ports.guest(id) else { return };
        match notify_fd {
            NotifyFd::Call(call) => {
                guest.fds[queue as usize].set_call(call);
                // The guest would never be told of what was used while the old fd was going away.
                self.schedule.after_call(guest.call(queue));
            }
            NotifyFd::Error(error) => guest.fds[queue as usize].error = error,
            NotifyFd::Kick(_) => {}
        }
    }

    fn set_kick(&mut self, id: PortId, queue: Queue, kick: Option<KickFd>) {
        let Some(guest) = self.ports.guest(id) else { return };
        let fds = &mut guest.fds[queue as usize];
        if let Some(old) = fds.kick.take() {
            let _ = self.poller.remove(old.as_fd());
        }
        let token = PollToken::Kick(id, queue).token();
        let is_heard = |kick: &KickFd| self.poller.add_edge(kick.as_fd(), token).is_ok();
        fds.kick = kick.filter(is_heard);
        guest.plan_poll();
    }
}

/// A ring that is noted goes on in other areas.
fn note_areas(line: Option<&WorkerLine>, fds: &mut NotifyFds, areas: Areas) {
    if let (Some(line), Some(noted)) = (line, &mut fds.noted) {
        noted.setup.areas = areas;
        line.journal.note_ring(noted);
    }
}
