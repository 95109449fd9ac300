//! The requests about the device as a whole: features, status, reset, configuration space, memory,
//! the log of written pages, and its state.

use super::view::{LOG_ALL, VHOST_BITS};
use super::{ACCESS_PLATFORM, Plan, Session};
use crate::effect::{Answer, Effect, StateDirection};
use crate::memory_table::{Change, MemoryTable};
use crate::message::{
    CONFIG_LEN_MAX, LogArea, MemoryRange, MemoryRegion, PROTOCOL_FEATURES_BIT, ProtocolFeatures,
    Reply, StateRequest, code,
};
use crate::refusal::Refusal;
use crate::ring_state::{Kick, RingState};

/// Device status bit (virtio 1.2 §2.1).
const STATUS_FEATURES_OK: u8 = 8;

/// `VHOST_TRANSFER_STATE_PHASE_STOPPED`
const STATE_STOPPED: u32 = 0;

/// Smallest MTU of IPv4 and of virtio 1.2 §5.1.4.1.
const MTU_MIN: u16 = 68;

impl Session {
    /// A driver that negotiates something else has started anew, so its old rings stop. The same
    /// set again is harmless: a front-end with several queue pairs sends it once per pair, and
    /// another one sends it a second time without bit 30. A front-end that migrates its guest sends
    /// it with bit 26, and without, while rings run.
    pub(super) fn accept_features(
        &mut self,
        features: u64,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let bits = features & !(self.offer.features | PROTOCOL_FEATURES_BIT);
        if bits != 0 {
            return Err(Refusal::FeaturesNotOffered { bits });
        }
        // A front-end without a vIOMMU offers it to its guest, and keeps it to itself.
        if features & ACCESS_PLATFORM != 0 {
            return Err(Refusal::NeedsTranslation);
        }
        if features & LOG_ALL != 0 {
            self.needs_log_file()?;
        }
        let virtio_features = features & !VHOST_BITS;
        if self.features() != Some(virtio_features) {
            self.stop_all(plan);
            self.try_all_again();
        }
        if self.rings.iter().all(|ring| ring.running.is_none()) {
            plan.effects.push(Effect::Features(virtio_features));
            (plan.before.accepted, plan.before.is_accepting) = (self.accepted, true);
        }
        let had_bit_30 = self.accepted.is_some_and(|before| before & PROTOCOL_FEATURES_BIT != 0);
        if had_bit_30 && features & PROTOCOL_FEATURES_BIT == 0 {
            self.forget_disabled();
        }
        self.settle_logging(features, plan);
        self.accepted = Some(features);
        Ok(())
    }

    /// Without bit 30 every ring is enabled that was started. One that was disabled before may be a
    /// ring of a driver that has gone: User Mode Linux tells nothing more of its end. It is to be
    /// started anew.
    fn forget_disabled(&mut self) {
        for ring in self.rings.iter_mut().filter(|ring| ring.running.is_none()) {
            ring.set_kick(Kick::Missing);
        }
    }

    /// `MQ` only comes with more than one pair: QEMU and DPDK read the answer to `GET_QUEUE_NUM` as
    /// queue pairs, Cloud Hypervisor as rings. A device with one pair that answers 1 would not get
    /// its two rings from the latter; without `MQ` all of them know that there is one pair.
    pub(super) fn protocol_features_offered(&self) -> ProtocolFeatures {
        let mut offered = ProtocolFeatures::all();
        offered.set(ProtocolFeatures::MQ, self.offer.queue_pairs_max > 1);
        offered.set(ProtocolFeatures::LOG_SHMFD, self.offer.features & LOG_ALL != 0);
        offered.set(ProtocolFeatures::DEVICE_STATE, self.offer.has_device_state);
        offered
    }

    pub(super) fn accept_protocol_features(&mut self, features: u64) -> Result<(), Refusal> {
        let bits = features & !self.protocol_features_offered().bits();
        if bits != 0 {
            return Err(Refusal::ProtocolFeaturesNotOffered { bits });
        }
        let accepted = ProtocolFeatures::from_bits_truncate(features);
        if self.is_logging() && !accepted.contains(ProtocolFeatures::LOG_SHMFD) {
            return Err(Refusal::LogWithoutFile);
        }
        self.protocol_features = accepted;
        Ok(())
    }

    pub(super) fn set_status(&mut self, status: u64, plan: &mut Plan) -> Result<(), Refusal> {
        let mut bits = u8::try_from(status).map_err(|_| Refusal::BadStatus { status })?;
        if bits == 0 {
            self.reset(plan, RingState::reset_by_status);
        }
        if self.accepted.is_none() {
            bits &= !STATUS_FEATURES_OK;
        }
        self.status = bits;
        Ok(())
    }

    /// The driver is gone, and what it has set; `reset` says what stays of each ring.
    pub(super) fn reset(&mut self, plan: &mut Plan, reset: fn(&mut RingState)) {
        self.stop_all(plan);
        self.rings.iter_mut().for_each(reset);
        self.drop_log(plan);
        self.settle_logging(0, plan);
        self.accepted = None;
        self.status = 0;
        plan.effects.push(Effect::Reset);
    }

    /// `RESET_OWNER` is deprecated; the document recommends to disable all rings and no more.
    pub(super) fn disable_all(&mut self, plan: &mut Plan) {
        self.stop_all(plan);
        self.rings.iter_mut().for_each(|ring| ring.enabled = Some(false));
    }

    pub(super) fn stop_all(&mut self, plan: &mut Plan) {
        for (index, ring) in (0..).zip(&mut self.rings) {
            // Nor does one go on that is stopped already.
            ring.describe_anew();
            if ring.running.is_some() && ring.stop() {
                plan.stops.push(Effect::StopQueue { index });
            }
        }
    }

    /// The thing that a ring lacked when its start failed may be there now.
    pub(super) fn try_all_again(&mut self) {
        self.rings.iter_mut().for_each(|ring| ring.has_failed = false);
    }

    pub(super) fn config(&self, offset: u32, size: u32, flags: u32) -> Result<Answer, Refusal> {
        let refusal = Refusal::ConfigOutOfRange { offset, size };
        let Some(end) = offset.checked_add(size).filter(|end| *end <= CONFIG_LEN_MAX) else {
            return Err(refusal);
        };
        let config = self.offer.config.iter().copied().chain(std::iter::repeat(0));
        let bytes = config.take(end as usize).skip(offset as usize).collect();
        Ok(Answer::Reply(Reply::Config { offset, flags, bytes }))
    }

    /// An MTU that a network can have, in bytes.
    pub(super) fn checked_mtu(mtu: u64) -> Result<u16, Refusal> {
        let checked = u16::try_from(mtu).ok().filter(|mtu| *mtu >= MTU_MIN);
        checked.ok_or(Refusal::BadMtu { mtu })
    }
}

/// The memory table.
impl Session {
    pub(super) fn set_memory(
        &mut self,
        regions: Vec<MemoryRegion>,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let table = MemoryTable::new(&regions, self.slots_max())?;
        plan.before.memory = Some(std::mem::replace(&mut self.memory, table));
        self.try_all_again();
        plan.effects.push(Effect::SetMemory(regions));
        Ok(())
    }

    pub(super) fn add_memory(
        &mut self,
        region: MemoryRegion,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        let before = self.memory.clone();
        if self.memory.add(&region, self.slots_max())? == Change::Nothing {
            return Ok(());
        }
        plan.before.memory = Some(before);
        self.try_all_again();
        plan.effects.push(Effect::AddMemory(region));
        Ok(())
    }

    pub(super) fn remove_memory(
        &mut self,
        range: MemoryRange,
        plan: &mut Plan,
    ) -> Result<(), Refusal> {
        if self.memory.remove(&range)? == Change::Memory {
            plan.effects.push(Effect::RemoveMemory(range));
        }
        Ok(())
    }

    pub(super) fn slots_max(&self) -> usize {
        usize::try_from(self.offer.memory_slots_max).unwrap_or(usize::MAX)
    }
}

/// The log of pages that are written, while a front-end copies a guest's memory elsewhere (live
/// migration).
///
/// How: `SET_LOG_BASE` says where, bit 26 of the features that it counts. A front-end that is told
/// no goes on without a log, or ends its guest; so it is told yes, and where nothing can be marked
/// nothing is written: rings wait. They go on with the next log, or when bit 26 goes. A log counts
/// only if it has a bit for each page of the memory table.
impl Session {
    /// [`Effect::SetLog`] could not be carried out: the queues that have to stop. Where each stood
    /// belongs to [`Applied::stopped`](crate::Applied::stopped).
    pub fn log_failed(&mut self) -> Vec<u16> {
        self.log_len = None;
        if !self.is_logging() {
            return Vec::new();
        }
        let rings = (0..).zip(&mut self.rings);
        rings.filter_map(|(index, ring)| ring.pause().then_some(index)).collect()
    }

    /// A new area takes the place of the one before, whatever comes of it. The reply repeats it.
    pub(super) fn set_log(&mut self, area: LogArea, plan: &mut Plan) -> Answer {
        let (size, offset, has_fd) = (area.size, area.offset, area.fd.is_some());
        let is_area = has_fd && size > 0 && offset.checked_add(size).is_some();
        let needed = self.memory.log_len();
        if is_area && self.offer.features & LOG_ALL != 0 {
            let short = Refusal::ShortLog { size, needed };
            plan.complaint = (size < needed).then_some(short);
            plan.effects.push(Effect::SetLog(area));
            self.log_len = Some(size);
            self.try_all_again();
        } else {
            plan.complaint = Some(Refusal::BadLog { size, offset, has_fd });
            self.drop_log(plan);
        }
        Answer::Reply(Reply::Log { size, offset })
    }

    pub(super) fn needs_log_file(&self) -> Result<(), Refusal> {
        let has_file = self.protocol_features.contains(ProtocolFeatures::LOG_SHMFD);
        has_file.then_some(()).ok_or(Refusal::LogWithoutFile)
    }

    /// Bit 26 comes, goes, or stays as it is. With it goes the log.
    pub(super) fn settle_logging(&mut self, features: u64, plan: &mut Plan) {
        let (was_logging, is_logging) = (self.is_logging(), features & LOG_ALL != 0);
        if was_logging && !is_logging {
            self.drop_log(plan);
        }
        if was_logging != is_logging {
            plan.effects.push(Effect::Logging(is_logging));
        }
    }

    pub(super) fn drop_log(&mut self, plan: &mut Plan) {
        if self.log_len.take().is_some() {
            plan.effects.push(Effect::DropLog);
        }
    }
}

/// The state of the device: what a back-end knows of a guest beside its memory and its rings goes
/// along where the guest goes (live migration, saving).
///
/// How: a transfer is for a device that stands still, and goes through a file of the front-end's.
/// Its beginning is answered at once; whether it has ended well is asked for later. Whether another
/// transfer runs only the code knows that carries effects out. A save comes behind the bases, also
/// behind a status of 0, a load in front of features, memory and rings.
impl Session {
    /// The reply to a request with a reply of its own that is refused. The document has an error
    /// value for those about the state, and wants one without payload for `GET_CONFIG`.
    pub(super) fn refused_reply(code: u32) -> Reply {
        match code {
            code::SET_DEVICE_STATE_FD => Reply::STATE_NACK,
            code::CHECK_DEVICE_STATE => Reply::NACK,
            _ => Reply::Empty,
        }
    }

    fn needs_device_state(&self, code: u32) -> Result<(), Refusal> {
        if !self.offer.has_device_state {
            return Err(Refusal::NotOffered { code });
        }
        let has_it = self.protocol_features.contains(ProtocolFeatures::DEVICE_STATE);
        has_it.then_some(()).ok_or(Refusal::StateNotAccepted { code })
    }

    /// A ring that was asked for its base stays stopped from now on: the state is to be that of the
    /// moment at which the guest goes on elsewhere.
    pub(super) fn transfer_state(
        &mut self,
        request: StateRequest,
        plan: &mut Plan,
    ) -> Result<Answer, Refusal> {
        self.needs_device_state(code::SET_DEVICE_STATE_FD)?;
        let StateRequest { direction, phase, fd } = request;
        let direction = match (direction, phase) {
            (0, STATE_STOPPED) => StateDirection::Save,
            (1, STATE_STOPPED) => StateDirection::Load,
            (direction, phase) => return Err(Refusal::UnknownTransfer { direction, phase }),
        };
        let fd = fd.ok_or(Refusal::StateWithoutFile)?;
        for (index, ring) in (0..).zip(&self.rings) {
            if ring.running.is_some() {
                return Err(Refusal::StateOfRunning { index });
            }
        }
        self.rings.iter_mut().for_each(RingState::describe_anew);
        plan.effects.push(Effect::TransferState { direction, fd });
        Ok(Answer::Either { done: Reply::STATE_ACK, failed: Reply::STATE_NACK })
    }

    pub(super) fn check_state(&self, plan: &mut Plan) -> Result<Answer, Refusal> {
        self.needs_device_state(code::CHECK_DEVICE_STATE)?;
        plan.effects.push(Effect::CheckState);
        Ok(Answer::Either { done: Reply::ACK, failed: Reply::NACK })
    }
}
