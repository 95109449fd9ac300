//! The requests of a front-end about one ring, and kicks of rings that do not run. Nothing starts
//! here; the session settles that afterwards.
//!
//! Two kinds of rings are kicked that do not run. `GET_VRING_BASE` stops a ring, and one that is
//! stopped starts when it is kicked (vhost-user, "Ring states"): a monitor that only wants to show
//! where a ring stands asks so. A ring that nothing is posted in any more is not kicked, so a kick
//! of any ring of the device is enough. A front-end that really stops a device goes on to say so:
//! its rings wait until it is quiet. Where it tells the device's status, no kick is needed: a
//! device that really stops has another one than `DRIVER_OK` by then. While pages are logged no
//! ring goes on so: once the last of its guest's memory is copied, nothing may be written there. A
//! transmitq that is started and disabled is processed, and its packets are discarded.

use super::{Plan, RING_PACKED, STATUS_DRIVER_OK, Session};
use crate::effect::{Answer, Effect, Outcome};
use crate::message::{VringAddress, VringFd};
use crate::refusal::Refusal;
use crate::ring_state::{Kick, RingState, Running, duplicate, queue_size};

impl Session {
    pub(super) fn ring_index(&self, index: u64) -> Result<u16, Refusal> {
        let rings = self.rings.len();
        let refusal = Refusal::NoSuchRing { index, rings };
        u16::try_from(index).ok().filter(|index| usize::from(*index) < rings).ok_or(refusal)
    }

    /// The ring that something is told about: what it lacked when its start failed, perhaps.
    /// `index` must come from [`ring_index`](Self::ring_index).
    pub(super) fn ring(&mut self, index: u16) -> &mut RingState {
        let ring = &mut self.rings[usize::from(index)];
        ring.has_failed = false;
        ring
    }

    /// The index of a ring that does not run. One that has gone on by itself stops, because the
    /// front-end takes it for stopped.
    fn stopped_ring_index(&mut self, index: u32, plan: &mut Plan) -> Result<u16, Refusal> {
        let index = self.ring_index(index.into())?;
        let ring = self.ring(index);
        if ring.running.is_some() {
            if !ring.went_on {
                return Err(Refusal::RingRuns { index });
            }
            ring.pause();
            plan.stops.push(Effect::StopQueue { index });
        }
        ring.describe_anew();
        Ok(index)
    }

    pub(super) fn set_size(
        &mut self,
        index: u32,
        size: u32,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let index = self.stopped_ring_index(index, plan)?;
        let possible = self.accepted.unwrap_or(self.offer.features);
        let size = queue_size(index, size, possible & RING_PACKED != 0)?;
        self.ring(index).size = Some(size);
        Ok(())
    }

    pub(super) fn set_base(
        &mut self,
        index: u32,
        base: u32,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let index = self.stopped_ring_index(index, plan)?;
        self.ring(index).continue_at(base);
        Ok(())
    }

    /// Addresses may come before the memory that they are in, so they are kept even when they
    /// cannot be translated now. A ring that runs keeps the old ones then.
    pub(super) fn set_addresses(&mut self, addresses: VringAddress) -> Result<(), Refusal> {
        let index = self.ring_index(addresses.index.into())?;
        let before = self.ring(index).addresses.replace(addresses);
        let ring = &self.rings[usize::from(index)];
        let unknown = ring.size.is_none() || self.accepted.is_none() || self.memory.is_empty();
        if unknown || self.areas(ring).is_some() {
            return Ok(());
        }
        if ring.running.is_some() {
            self.ring(index).addresses = before;
        }
        Err(Refusal::RingOutsideMemory { index })
    }

    pub(super) fn set_kick(&mut self, vring: VringFd, plan: &mut Plan) -> Result<(), Refusal> {
        let index = self.ring_index(vring.index)?;
        let ring = self.ring(index);
        if ring.running.is_some() {
            let fd = duplicate(vring.fd.as_ref())?;
            plan.effects.push(Effect::SetKick { index, fd });
        }
        ring.set_kick(vring.fd.map_or(Kick::Poll, Kick::Fd));
        Ok(())
    }

    pub(super) fn set_call(&mut self, vring: VringFd, plan: &mut Plan) -> Result<(), Refusal> {
        let index = self.ring_index(vring.index)?;
        let ring = self.ring(index);
        if ring.running.is_some() {
            let fd = duplicate(vring.fd.as_ref())?;
            plan.effects.push(Effect::SetCall { index, fd });
        }
        ring.call = vring.fd;
        Ok(())
    }

    pub(super) fn set_error(&mut self, vring: VringFd, plan: &mut Plan) -> Result<(), Refusal> {
        let index = self.ring_index(vring.index)?;
        let ring = self.ring(index);
        if ring.running.is_some() {
            let fd = duplicate(vring.fd.as_ref())?;
            plan.effects.push(Effect::SetError { index, fd });
        }
        ring.error = vring.fd;
        Ok(())
    }

    pub(super) fn stop_for_base(&mut self, index: u32, plan: &mut Plan) -> Result<Answer, Refusal> {
        let index = self.ring_index(index.into())?;
        if self.ring(index).suspend() {
            plan.stops.push(Effect::StopQueue { index });
        }
        Ok(Answer::Base { index })
    }
}

/// Kicks of queues that do not run.
impl Session {
    /// The guest has kicked these queues, of those that [`Effect::WatchKicks`] has named last, or
    /// none. `is_quiet`: and its front-end has sent nothing for a while. What it leads to has to be
    /// carried out, as of [`handle`](Self::handle), and [`complete`](Self::complete) replies
    /// nothing.
    pub fn kicked(&mut self, queues: &[u16], is_quiet: bool) -> Outcome {
        let mut plan = Plan::default();
        let goes_on = !queues.is_empty() || self.status & STATUS_DRIVER_OK != 0;
        if is_quiet && goes_on && !self.is_logging() {
            for ring in self.rings.iter_mut().filter(|ring| ring.is_suspended) {
                (ring.is_suspended, ring.went_on) = (false, true);
            }
        }
        let settled = queues
            .iter()
            .try_for_each(|&index| self.discard(index, is_quiet, &mut plan))
            .and_then(|()| self.settle(&mut plan));
        plan.outcome(0, false, Answer::Ack, settled.err())
    }

    /// Whether kicks lead to something only when the front-end is quiet.
    pub fn waits_for_quiet(&self) -> bool {
        self.rings.iter().any(|ring| ring.is_suspended || ring.discards && ring.enabled.is_none())
    }

    /// Whether rings go on without a kick when the front-end is quiet.
    pub fn goes_on_when_quiet(&self) -> bool {
        let is_any_suspended = self.rings.iter().any(|ring| ring.is_suspended);
        self.status & STATUS_DRIVER_OK != 0 && !self.is_logging() && is_any_suspended
    }

    /// A front-end that has not told yet whether the ring is enabled may be about to.
    fn discard(&mut self, index: u16, is_quiet: bool, plan: &mut Plan) -> Result<(), Refusal> {
        let Some(ring) = self.rings.get(usize::from(index)) else { return Ok(()) };
        if ring.discards && (ring.enabled.is_some() || is_quiet) {
            self.discard_packets(index, plan)?;
        }
        Ok(())
    }

    fn discard_packets(&mut self, index: u16, plan: &mut Plan) -> Result<(), Refusal> {
        let (format, options) = (self.format(), self.options());
        let ring = &self.rings[usize::from(index)];
        let Some(areas) = self.started_areas(ring) else { return Ok(()) };
        let ring = &mut self.rings[usize::from(index)];
        plan.effects.extend(ring.discard(index, Running { areas, format }, options)?);
        Ok(())
    }

    /// A transmitq has an odd index. What is in it when it is disabled is discarded at once.
    pub(super) fn settle_discarding(&mut self, index: u16, plan: &mut Plan) -> Result<(), Refusal> {
        let ring = &self.rings[usize::from(index)];
        let discards =
            index % 2 == 1 && !self.is_enabled(ring) && self.started_areas(ring).is_some();
        let is_new = discards && !ring.discards && ring.enabled.is_some();
        self.rings[usize::from(index)].discards = discards;
        if is_new { self.discard_packets(index, plan) } else { Ok(()) }
    }

    /// Names the rings whose kicks lead to something, if they are others than before.
    pub(super) fn settle_watch(&mut self, plan: &mut Plan) -> Result<(), Refusal> {
        let is_any_suspended = self.rings.iter().any(|ring| ring.is_suspended);
        let rings = (0u16..).zip(&self.rings).filter_map(|(index, ring)| match &ring.kick {
            Kick::Fd(fd) if is_any_suspended || ring.discards => {
                Some((index, ring.kick_number, fd))
            }
            _ => None,
        });
        let rings: Vec<_> = rings.collect();
        let watched: Vec<_> = rings.iter().map(|&(index, number, _)| (index, number)).collect();
        if watched == self.watched {
            return Ok(());
        }
        let fds = rings.into_iter().map(|(index, _, fd)| Ok((index, fd.try_clone()?)));
        plan.watch = Some(Effect::WatchKicks(fds.collect::<std::io::Result<_>>()?));
        self.watched = watched;
        Ok(())
    }
}
