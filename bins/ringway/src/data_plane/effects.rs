//! Effects that a session decided, carried out: memory is mapped, queues are started and stopped.

use std::fmt;
use std::os::fd::AsFd;

use anyhow::{Context, anyhow, ensure};
use ringway_device::QueueId;
use ringway_foreign::UntrustedFd;
use ringway_host::{AnnounceTo, CallFd, GuestMemory, KickFd, MemoryRequest, NotifyFd, QueueFds};
use ringway_net::{Features, MacAddress, Negotiated};
use ringway_switch::PortId;
use ringway_vhost_user::{Applied, Effect, MemoryRegion};
use ringway_virtq::{Areas, Position, QueueSetup};
use tracing::debug;

use super::DataPlane;
use super::link::{Link, Running};
use super::replay::{Discard, Start};
use super::workers::NO_ANSWER;

impl DataPlane {
    /// Carries out the effects in order. After one fails, only effects that stop or release
    /// something still run.
    pub(super) fn apply(&mut self, id: PortId, effects: Vec<Effect>) -> Applied {
        let mut applied = Applied { ok: true, is_set_up: false, stopped: Vec::new() };
        let moved = self.moved(id, &effects);
        let has_effects = !effects.is_empty();
        let mut started = Vec::new();
        for effect in effects {
            if let Effect::StopQueue { index } = effect {
                let stopped = self.stop_queue(id, index);
                applied.stopped.extend(stopped.map(|position| (index, position)));
                continue;
            }
            if let Effect::DiscardPackets { index, setup, call } = effect {
                self.discard_packets(id, index, (setup, call), &mut applied);
                continue;
            }
            if !applied.ok {
                continue;
            }
            if let Effect::StartQueue { index, .. } = effect {
                started.push(index);
            }
            match self.apply_one(id, effect, &moved) {
                Ok(()) => applied.is_set_up = true,
                Err(why) => {
                    self.complain(id, &why);
                    applied.ok = false;
                }
            }
        }
        if !applied.ok {
            self.stop_again(id, &started, &mut applied);
        }
        if has_effects && self.replay.is_none() {
            // No front-end gives the workers more to do than they do.
            self.worker.catch_up();
        }
        applied
    }

    fn start_queue(
        &mut self,
        id: PortId,
        index: u16,
        (mut setup, is_told): (QueueSetup, bool),
        fds: QueueFds,
    ) -> anyhow::Result<()> {
        self.attach_if_needed(id)?;
        let queue = self.queue_of(id, index)?;
        if let Some(replay) = &mut self.replay {
            replay.starts.push(Start { port: id, index, setup, is_told, fds });
            self.note_running(id, queue, true);
            return Ok(());
        }
        if is_told {
            setup.position = self.position_by_ring(id, queue, setup)?;
        }
        let owner = self.worker.owner(queue.pair);
        let started = owner.ask(move |worker| worker.start_queue(id, queue, &setup, fds));
        started.context(NO_ANSWER)?.map_err(|why| anyhow!("{queue}: {}", why.0))?;
        self.note_running(id, queue, true);
        self.note_start(id, queue);
        Ok(())
    }

    /// Where a packed ring is to start whose position the front-end has told.
    fn position_by_ring(
        &mut self,
        id: PortId,
        queue: QueueId,
        setup: QueueSetup,
    ) -> anyhow::Result<Position> {
        let owner = self.worker.owner(queue.pair);
        let shown = owner.ask(move |worker| worker.position_by_ring(id, queue, &setup));
        let shown = shown.context(NO_ANSWER)?.map_err(|why| anyhow!("{queue}: {}", why.0))?;
        if shown != setup.position {
            let place = shown.used;
            let why =
                "its front-end did not know where the ring stood, as after a restart of ringway";
            self.complain(id, format_args!("{queue}: starts at entry {place}: {why}"));
        }
        Ok(shown)
    }

    /// A transmitq that is disabled is emptied. One that cannot be is left alone: it does not run.
    fn discard_packets(
        &mut self,
        id: PortId,
        index: u16,
        (setup, call): (QueueSetup, Option<UntrustedFd>),
        applied: &mut Applied,
    ) {
        if let Some(replay) = &mut self.replay {
            return replay.discards.push(Discard { port: id, index, setup, call });
        }
        let Ok(queue) = self.queue_of(id, index) else { return };
        let Ok(call) = self.call_fd(id, call) else { return };
        let stood = applied.stopped.iter().rfind(|(stopped, _)| *stopped == index);
        let position = stood.map_or(setup.position, |(_, position)| *position);
        let setup = QueueSetup { position, ..setup };
        let owner = self.worker.owner(queue.pair);
        let discarded = owner.ask(move |worker| worker.discard_packets(id, queue, &setup, call));
        let Some(discarded) = discarded.flatten() else { return };
        applied.stopped.push((index, discarded.position));
        if let Ok(link) = self.linked(id)
            && discarded.has_more
        {
            link.kicks.look_again(index);
        }
    }

    /// Queues that one outcome has started before something failed: the session takes them for
    /// stopped.
    fn stop_again(&mut self, id: PortId, started: &[u16], applied: &mut Applied) {
        for &index in started {
            let stopped = self.stop_queue(id, index);
            applied.stopped.extend(stopped.map(|position| (index, position)));
        }
    }

    /// Queues whose rings are elsewhere behind these effects. A memory table and they go together:
    /// no ring is ever looked for in memory that it is not meant for.
    fn moved(&self, id: PortId, effects: &[Effect]) -> Vec<(QueueId, Areas)> {
        let moved = effects.iter().filter_map(|effect| match effect {
            Effect::RebindQueue { index, areas } => {
                self.queue_of(id, *index).ok().map(|queue| (queue, *areas))
            }
            _ => None,
        });
        moved.collect()
    }

    fn apply_one(
        &mut self,
        id: PortId,
        effect: Effect,
        moved: &[(QueueId, Areas)],
    ) -> anyhow::Result<()> {
        match effect {
            Effect::Features(features) => self.set_features(id, features),
            Effect::SetMemory(regions) => {
                let requests = regions.into_iter().map(memory_request).collect();
                let memory = self.linked(id)?.memory.replaced_by(requests);
                self.set_memory(id, memory.context("memory table")?, moved)
            }
            Effect::AddMemory(region) => {
                let memory = self.linked(id)?.memory.with(memory_request(region));
                self.set_memory(id, memory.context("memory region")?, moved)
            }
            Effect::RemoveMemory(range) => {
                let memory = self.linked(id)?.memory.without(range.guest_address, range.size);
                self.set_memory(id, memory, moved)
            }
            Effect::StartQueue { index, setup, is_told, kick, call, error, .. } => {
                let fds = QueueFds::new(&self.linked(id)?.callee, kick, call, error);
                self.start_queue(id, index, (setup, is_told), fds.context("notification fd")?)
            }
            Effect::RebindQueue { index, areas } => {
                let queue = self.queue_of(id, index)?;
                let owner = self.worker.owner(queue.pair);
                let bound = owner.ask(move |worker| worker.rebind_queue(id, queue, &areas));
                bound.context(NO_ANSWER)?.map_err(|why| anyhow!("{queue}: {}", why.0))
            }
            Effect::SetKick { index, fd } => {
                let kick = fd.map(KickFd::new).transpose().context("notification fd")?;
                self.set_notify_fd(id, index, NotifyFd::Kick(kick))
            }
            Effect::SetCall { index, fd } => {
                let call = self.call_fd(id, fd)?;
                self.set_notify_fd(id, index, NotifyFd::Call(call))
            }
            Effect::SetError { index, fd } => {
                let error = self.call_fd(id, fd)?;
                self.set_notify_fd(id, index, NotifyFd::Error(error))
            }
            Effect::BackendChannel(fd) => {
                let is_usable = ringway_host::is_local_stream(fd.as_fd())?;
                ensure!(is_usable, "the back-end's channel must be a Unix stream socket");
                self.linked(id)?.back_end_channel = Some(fd);
                Ok(())
            }
            Effect::Reset => {
                self.linked(id)?.negotiated = None;
                self.attach(id)
            }
            Effect::AnnounceMac(mac) => {
                let mac = MacAddress(mac);
                self.worker.first().send(move |worker| worker.announce(id, mac, AnnounceTo::All));
                Ok(())
            }
            Effect::SetMtu(mtu) => {
                debug!(port = self.name(id), mtu, "guest's MTU");
                Ok(())
            }
            Effect::WatchKicks(fds) => {
                self.watch_kicks(id, fds);
                Ok(())
            }
            // Handled where the positions are collected.
            Effect::StopQueue { .. } | Effect::DiscardPackets { .. } => Ok(()),
        }
    }

    /// See [`Chatter::complain`](crate::chatter::Chatter::complain).
    pub(super) fn complain(&mut self, id: PortId, why: impl fmt::Display) {
        if let Some(port) = self.ports.get_mut(&id) {
            port.chatter.complain(&port.spec.name, why);
        }
    }

    pub(super) fn linked(&mut self, id: PortId) -> anyhow::Result<&mut Link> {
        let port = self.ports.get_mut(&id).context("port")?;
        port.vm.as_mut().and_then(|vm| vm.link.as_mut()).context("no front-end is connected")
    }

    fn set_features(&mut self, id: PortId, features: u64) -> anyhow::Result<()> {
        let features = Features::from_bits_retain(features) - Features::PROTOCOL_FEATURES;
        // Some drivers accept an offload without what it needs; they get on without it.
        let negotiated = Negotiated::of_front_end(features);
        let link = self.linked(id)?;
        if link.negotiated == Some(negotiated) {
            return Ok(());
        }
        link.negotiated = Some(negotiated);
        self.attach(id)
    }

    fn attach_if_needed(&mut self, id: PortId) -> anyhow::Result<()> {
        if self.linked(id)?.negotiated.is_some() {
            return Ok(());
        }
        self.set_features(id, 0)
    }

    fn attach(&mut self, id: PortId) -> anyhow::Result<()> {
        let port = self.ports.get_mut(&id).context("port")?;
        let (notify, is_on) = (port.spec.notify, port.spec.has_histograms);
        let vm = port.vm.as_mut().context("not a virtual machine's port")?;
        let link = vm.link.as_mut().context("no front-end is connected")?;
        let negotiated = link.negotiated.unwrap_or(Negotiated::NOTHING);
        let memory = link.memory.clone();
        link.running = Running::default();
        let ends = (link.mac, link.pairs);
        self.worker.send_all(move |worker| {
            worker.set_notify(id, notify);
            worker.count_waits(id, is_on);
            worker.attach_guest(id, negotiated, ends, &memory);
        });
        Ok(())
    }

    fn set_memory(
        &mut self,
        id: PortId,
        memory: GuestMemory,
        moved: &[(QueueId, Areas)],
    ) -> anyhow::Result<()> {
        self.linked(id)?.memory = memory.clone();
        if self.replay.is_some() {
            // No queue runs that could be elsewhere in it.
            self.worker.send_all(move |worker| _ = worker.set_memory(id, &memory, &[]));
            return Ok(());
        }
        let bound = self.worker.set_memory(id, &memory, moved);
        bound.map_err(|why| anyhow!("a running queue is not inside the new memory: {}", why.0))
    }

    /// The queue of that index, as both sides count since features were negotiated.
    pub(super) fn queue_of(&self, id: PortId, index: u16) -> anyhow::Result<QueueId> {
        let link = self.ports.get(&id).and_then(super::Port::link);
        let link = link.context("no front-end is connected")?;
        let negotiated = link.negotiated.unwrap_or(Negotiated::NOTHING);
        let pairs = negotiated.queue_pairs(link.pairs);
        let queue = QueueId::from_index(index, pairs, negotiated.ctrl_vq);
        queue.with_context(|| format!("queue {index} does not exist"))
    }

    fn stop_queue(&mut self, id: PortId, index: u16) -> Option<Position> {
        let queue = self.queue_of(id, index).ok()?;
        self.note_stop(id, queue);
        // No packet is to be sent to a queue that is about to stop.
        self.note_running(id, queue, false);
        if let Some(replay) = &mut self.replay {
            replay.starts.retain(|start| (start.port, start.index) != (id, index));
            return None;
        }
        self.worker.owner(queue.pair).ask(move |worker| worker.stop_queue(id, queue)).flatten()
    }

    /// The workers learn how many receive queues run, where there can be more than one.
    fn note_running(&mut self, id: PortId, queue: QueueId, is_running: bool) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(vm) = &mut port.vm else { return };
        let Some(link) = &mut vm.link else { return };
        if link.pairs > 1 && link.running.note(queue, is_running) {
            let (running, has_control) = (link.running.pairs(), link.running.has_control);
            self.worker.send_all(move |worker| worker.set_pairs(id, running, has_control));
        }
    }

    fn set_notify_fd(&mut self, id: PortId, index: u16, notify_fd: NotifyFd) -> anyhow::Result<()> {
        let queue = self.queue_of(id, index)?;
        let owner = self.worker.owner(queue.pair);
        owner.send(move |worker| worker.set_notify_fd(id, queue, notify_fd));
        Ok(())
    }

    pub(super) fn call_fd(
        &mut self,
        id: PortId,
        fd: Option<UntrustedFd>,
    ) -> anyhow::Result<Option<CallFd>> {
        let callee = &self.linked(id)?.callee;
        fd.map(|fd| CallFd::new(fd, callee)).transpose().context("notification fd")
    }
}

fn memory_request(region: MemoryRegion) -> MemoryRequest {
    MemoryRequest {
        guest_address: region.guest_address,
        size: region.size,
        mmap_offset: region.mmap_offset,
        fd: region.fd,
    }
}
