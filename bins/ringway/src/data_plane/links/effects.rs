//! Effects that a session decided, as far as they concern its front-end alone: memory is mapped,
//! what was negotiated and where queues are notified is told to the workers.

use std::os::fd::AsFd;

use anyhow::{Context, anyhow, ensure};
use ringway_device::QueueId;
use ringway_foreign::UntrustedFd;
use ringway_host::{AnnounceTo, CallFd, GuestMemory, KickFd, MemoryRequest, NotifyFd, Worker};
use ringway_net::{Features, MacAddress, Negotiated};
use ringway_vhost_user::{Effect, MemoryRegion};
use ringway_virtq::{Areas, Position};
use tracing::debug;

use super::super::device_state::note_control;
use super::super::replay::Discard;
use super::super::workers::Workers;
use super::{Link, Running};
use crate::config::PortSpec;

/// Queues whose rings are elsewhere, and where.
pub type Moved = [(QueueId, Areas)];

impl Link {
    /// Queues whose rings are elsewhere behind these effects. A memory table and they go together:
    /// no ring is ever looked for in memory that it is not meant for.
    pub fn moved(&self, effects: &[Effect]) -> Vec<(QueueId, Areas)> {
        let moved = effects.iter().filter_map(|effect| match effect {
            Effect::RebindQueue { index, areas } => {
                self.queue(*index).ok().map(|queue| (queue, *areas))
            }
            _ => None,
        });
        moved.collect()
    }

    /// Carries out an effect; `moved` is `None` if no queue runs yet.
    pub fn carry_out(
        &mut self,
        effect: Effect,
        moved: Option<&Moved>,
        spec: &PortSpec,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        let id = self.port;
        match effect {
            Effect::Features(features) => self.set_features(features, spec, workers),
            Effect::SetMemory(regions) => {
                let requests = regions.into_iter().map(memory_request).collect();
                let memory = self.memory.replaced_by(requests).context("memory table")?;
                self.set_memory(memory, moved, workers)?;
            }
            Effect::AddMemory(region) => {
                let memory = self.memory.with(memory_request(region)).context("memory region")?;
                self.set_memory(memory, moved, workers)?;
            }
            Effect::RemoveMemory(range) => {
                let memory = self.memory.without(range.guest_address, range.size);
                self.set_memory(memory, moved, workers)?;
            }
            Effect::RebindQueue { index, areas } => {
                let queue = self.queue(index)?;
                let rebind = move |worker: &mut Worker| worker.rebind_queue(id, queue, &areas);
                workers.owner(queue.pair).begin(rebind).of(queue)?;
            }
            Effect::SetKick { index, fd } => {
                let kick = fd.map(KickFd::new).transpose().context("notification fd")?;
                self.set_notify_fd(index, NotifyFd::Kick(kick), workers)?;
            }
            Effect::SetCall { index, fd } => {
                self.set_notify_fd(index, NotifyFd::Call(self.call_fd(fd)?), workers)?;
            }
            Effect::SetError { index, fd } => {
                self.set_notify_fd(index, NotifyFd::Error(self.call_fd(fd)?), workers)?;
            }
            Effect::BackendChannel(fd) => {
                let is_usable = ringway_host::is_local_stream(fd.as_fd())?;
                ensure!(is_usable, "the back-end's channel must be a Unix stream socket");
                self.back_end_channel = Some(fd);
            }
            Effect::Reset => {
                note_control(self, workers);
                self.negotiated = None;
                self.attach(spec, workers);
            }
            Effect::AnnounceMac(mac) if self.session.running().next().is_none() => {
                self.presence.announce_later(MacAddress(mac));
            }
            Effect::AnnounceMac(mac) => {
                let mac = MacAddress(mac);
                workers.first().send(move |worker| worker.announce(id, mac, AnnounceTo::All));
            }
            Effect::DropLog => self.drop_log(moved, workers)?,
            Effect::CheckState => self.state.check()?,
            Effect::SetMtu(mtu) => debug!(port = spec.name, mtu, "guest's MTU"),
            // They concern more than this front-end.
            Effect::StartQueue { .. }
            | Effect::StopQueue { .. }
            | Effect::DiscardPackets { .. }
            | Effect::SetLog(_)
            | Effect::Logging(_)
            | Effect::TransferState { .. }
            | Effect::WatchKicks(_) => {}
        }
        Ok(())
    }

    fn set_features(&mut self, features: u64, spec: &PortSpec, workers: &Workers) {
        let features = Features::from_bits_retain(features) - Features::PROTOCOL_FEATURES;
        // Some drivers accept an offload without what it needs; they get on without it.
        let negotiated = Some(Negotiated::of_front_end(features));
        if self.negotiated != negotiated {
            self.negotiated = negotiated;
            self.attach(spec, workers);
        }
    }

    /// Queues start only where something was negotiated.
    pub fn attach_if_needed(&mut self, spec: &PortSpec, workers: &Workers) {
        if self.negotiated.is_none() {
            self.set_features(0, spec, workers);
        }
    }

    fn attach(&mut self, spec: &PortSpec, workers: &Workers) {
        self.running = Running::default();
        let (id, notify, is_on) = (self.port, spec.notify, spec.has_histograms);
        let negotiated = self.negotiated.unwrap_or(Negotiated::NOTHING);
        let (memory, ends) = (self.memory.clone(), (self.mac, self.pairs));
        workers.send_all(move |worker| {
            worker.set_notify(id, notify);
            worker.count_waits(id, is_on);
            worker.attach_guest(id, negotiated, ends, &memory);
        });
    }

    pub fn set_memory(
        &mut self,
        memory: GuestMemory,
        moved: Option<&Moved>,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        self.memory = memory;
        let bound = workers.set_memory(self.port, &self.memory, moved);
        bound.map_err(|why| anyhow!("a running queue is not inside the new memory: {}", why.0))
    }

    /// The workers learn how many receive queues run, where there can be more than one.
    pub fn note_running(&mut self, queue: QueueId, runs: bool, workers: &Workers) {
        let is_news = self.running.note(queue, runs);
        if self.pairs > 1 && is_news {
            let id = self.port;
            let (running, has_control) = (self.running.pairs(), self.running.has_control);
            workers.send_all(move |worker| worker.set_pairs(id, running, has_control));
        }
    }

    /// Empties a transmitq that does not run: where it stands then. One that cannot be emptied is
    /// left alone.
    pub fn discard(&mut self, discard: Discard, workers: &Workers) -> Option<Position> {
        let Discard { port, index, setup, call } = discard;
        let queue = self.queue(index).ok()?;
        let call = self.call_fd(call).ok()?;
        let discarded = workers.discard_packets(port, queue, setup, call)?;
        if discarded.has_more {
            self.kicks.look_again(index);
        }
        Some(discarded.position)
    }

    fn set_notify_fd(
        &self,
        index: u16,
        notify_fd: NotifyFd,
        workers: &Workers,
    ) -> anyhow::Result<()> {
        let (id, queue) = (self.port, self.queue(index)?);
        workers.owner(queue.pair).send(move |worker| worker.set_notify_fd(id, queue, notify_fd));
        Ok(())
    }

    fn call_fd(&self, fd: Option<UntrustedFd>) -> anyhow::Result<Option<CallFd>> {
        fd.map(|fd| CallFd::new(fd, &self.callee)).transpose().context("notification fd")
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
