//! The requests of a front-end about one ring. Nothing starts here; the session settles that
//! afterwards.

use super::{Plan, RING_PACKED, Session};
use crate::effect::{Answer, Effect};
use crate::message::{VringAddress, VringFd};
use crate::refusal::Refusal;
use crate::ring_state::{Kick, RingState, duplicate, queue_size};

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
