//! The state that a session remembers: questions to it, which change nothing.

use ringway_virtq::{Areas, Format, QueueOptions};

use super::{EVENT_IDX, IN_ORDER, INDIRECT_DESC, NOTIFY_ON_EMPTY, RING_PACKED, Session};
use crate::message::{MemoryRange, PROTOCOL_FEATURES_BIT, ProtocolFeatures, VringAddress};
use crate::ring_state::{Kick, RingState, area_lens, base_from_position};

/// `VHOST_F_LOG_ALL`: pages of guest memory that the back-end writes are marked in a log. Comes and
/// goes while rings run.
pub(super) const LOG_ALL: u64 = 1 << 26;

/// The feature bits that are not virtio's: they change nothing about how a ring works.
pub(super) const VHOST_BITS: u64 = PROTOCOL_FEATURES_BIT | LOG_ALL;

/// `VHOST_VRING_F_LOG`, in [`VringAddress`](crate::VringAddress).
pub(super) const VRING_LOG: u32 = 1;

/// The state that a session remembers of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingView {
    /// Entries, once they are told.
    pub size: Option<u16>,
    /// In the front-end's address space, once they are told.
    pub addresses: Option<VringAddress>,
    /// The front-end's wish, if it has told one.
    pub enabled: Option<bool>,
    /// A kick was set, an fd or explicitly none, since the ring was last stopped for good.
    pub has_kick: bool,
    /// There is an fd for calls.
    pub has_call: bool,
    /// There is an fd for errors.
    pub has_error: bool,
    /// Stopped by `GET_VRING_BASE` until the guest kicks.
    pub is_suspended: bool,
    /// It runs, as far as the session knows.
    pub is_running: bool,
}

impl Session {
    /// The features that the guest can have, as bits.
    pub fn offered(&self) -> u64 {
        self.offer.features
    }

    /// How many rings the device has.
    pub fn ring_count(&self) -> u16 {
        u16::try_from(self.rings.len()).unwrap_or(u16::MAX)
    }

    /// One ring; `None`: the device does not have it.
    pub fn ring_view(&self, index: u16) -> Option<RingView> {
        let ring = self.rings.get(usize::from(index))?;
        Some(RingView {
            size: ring.size,
            addresses: ring.addresses,
            enabled: ring.enabled,
            has_kick: !matches!(ring.kick, Kick::Missing),
            has_call: ring.call.is_some(),
            has_error: ring.error.is_some(),
            is_suspended: ring.is_suspended,
            is_running: ring.running.is_some(),
        })
    }

    /// Where a ring that does not run stood when it was stopped, in a base's form, and whether it
    /// goes on there.
    pub fn stood(&self, index: u16) -> Option<(u32, bool)> {
        let ring = self.rings.get(usize::from(index))?;
        let (position, format) = ring.stood.filter(|_| ring.running.is_none())?;
        Some((base_from_position(position, format), ring.goes_on_there()))
    }

    /// The accepted features as they were sent, with bit 30.
    pub fn accepted(&self) -> Option<u64> {
        self.accepted
    }

    /// Regions of memory by guest-physical address, and how often each was added.
    pub fn memory(&self) -> impl Iterator<Item = (MemoryRange, u32)> + '_ {
        self.memory.ranges()
    }

    /// The virtio features that the driver has accepted, if it has.
    pub fn features(&self) -> Option<u64> {
        self.accepted.map(|accepted| accepted & !VHOST_BITS)
    }

    /// The protocol features that the front-end has accepted.
    pub fn protocol_features(&self) -> ProtocolFeatures {
        self.protocol_features
    }

    pub(super) fn format(&self) -> Format {
        let packed = self.accepted.unwrap_or(0) & RING_PACKED != 0;
        if packed { Format::Packed } else { Format::Split }
    }

    pub(super) fn options(&self) -> QueueOptions {
        let accepted = self.accepted.unwrap_or(0);
        QueueOptions {
            event_idx: accepted & EVENT_IDX != 0,
            indirect: accepted & INDIRECT_DESC != 0,
            in_order: accepted & IN_ORDER != 0,
            notify_on_empty: accepted & NOTIFY_ON_EMPTY != 0,
        }
    }

    /// Where the ring is, if everything about that is known and it lies inside memory.
    pub(super) fn areas(&self, ring: &RingState) -> Option<Areas> {
        let (size, at, format) = (ring.size?, ring.addresses?, self.format());
        if format == Format::Split && !size.is_power_of_two() {
            return None;
        }
        let (descriptor, driver, device) = area_lens(size, format, self.options().event_idx);
        let areas = Areas::new(
            self.memory.translate(at.descriptor, descriptor)?,
            self.memory.translate(at.driver, driver)?,
            self.memory.translate(at.device, device)?,
        );
        let device_log = if at.flags & VRING_LOG != 0 { at.log } else { areas.device };
        Some(Areas { device_log, ..areas })
    }

    /// Where the ring is, if it is started, enabled or not.
    pub(super) fn started_areas(&self, ring: &RingState) -> Option<Areas> {
        self.accepted?;
        let may_not = ring.has_failed || ring.is_suspended || self.waits_for_log();
        if may_not || matches!(ring.kick, Kick::Missing) {
            return None;
        }
        self.areas(ring)
    }

    pub(super) fn is_enabled(&self, ring: &RingState) -> bool {
        ring.enabled == Some(true)
            || self.accepted.is_some_and(|accepted| accepted & PROTOCOL_FEATURES_BIT == 0)
    }

    /// Where the ring is, in guest-physical addresses, if it ought to run.
    pub(super) fn wanted_areas(&self, ring: &RingState) -> Option<Areas> {
        self.started_areas(ring).filter(|_| self.is_enabled(ring))
    }

    /// The front-end copies memory while queues run, and has to be told what is written.
    pub fn is_logging(&self) -> bool {
        self.accepted.is_some_and(|accepted| accepted & LOG_ALL != 0)
    }

    /// No queue may run, because pages cannot be marked that it would write.
    pub fn waits_for_log(&self) -> bool {
        let needed = self.memory.log_len();
        self.is_logging() && self.log_len.is_none_or(|len| len < needed)
    }

    /// Every ring was told to stop, or was never told to run: it is disabled, has no kick, or
    /// `GET_VRING_BASE` has stopped it. A ring that waits for memory or for a log is not stopped.
    pub fn is_stopped(&self) -> bool {
        let is_told = |ring: &RingState| {
            ring.is_suspended || matches!(ring.kick, Kick::Missing) || !self.is_enabled(ring)
        };
        let is_stopped = |ring: &RingState| ring.running.is_none() && is_told(ring);
        self.accepted.is_none() || self.rings.iter().all(is_stopped)
    }

    /// A ring that `GET_VRING_BASE` has stopped may go on without a word of the front-end.
    pub fn may_go_on(&self) -> bool {
        !self.is_logging() && self.rings.iter().any(|ring| ring.is_suspended)
    }

    /// Bytes of the log; `None`: there is none that can be used.
    pub fn log_len(&self) -> Option<u64> {
        self.log_len
    }
}
