//! The log of pages that are written, while a front-end copies a guest's memory elsewhere (live
//! migration).
//!
//! How: `SET_LOG_BASE` says where, bit 26 of the features that it counts. A front-end that is told
//! no goes on without a log, or ends its guest; so it is told yes, and where nothing can be marked
//! nothing is written: rings wait. They go on with the next log, or when bit 26 goes. A log counts
//! only if it has a bit for each page of the memory table.

use super::{Plan, Session};
use crate::effect::{Answer, Effect};
use crate::message::{LogArea, PROTOCOL_FEATURES_BIT, ProtocolFeatures, Reply};
use crate::refusal::Refusal;

/// `VHOST_F_LOG_ALL`: pages of guest memory that the back-end writes are marked in a log. Comes and
/// goes while rings run.
pub(super) const LOG_ALL: u64 = 1 << 26;

/// The feature bits that are not virtio's: they change nothing about how a ring works.
pub(super) const VHOST_BITS: u64 = PROTOCOL_FEATURES_BIT | LOG_ALL;

/// `VHOST_VRING_F_LOG`, in [`VringAddress`](crate::VringAddress).
pub(super) const VRING_LOG: u32 = 1;

impl Session {
    /// The front-end copies memory while queues run, and has to be told what is written.
    pub fn is_logging(&self) -> bool {
        self.accepted.is_some_and(|accepted| accepted & LOG_ALL != 0)
    }

    /// No queue may run, because pages cannot be marked that it would write.
    pub fn waits_for_log(&self) -> bool {
        let needed = self.memory.log_len();
        self.is_logging() && self.log_len.is_none_or(|len| len < needed)
    }

    /// Bytes of the log; `None`: there is none that can be used.
    pub fn log_len(&self) -> Option<u64> {
        self.log_len
    }

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
