//! Packets to the device: each is copied into a slot behind its header and made available.
//!
//! How: `send` stages, `flush` publishes once for everything staged. Used slots are reclaimed
//! only when they become scarce, so the used ring is read once for many packets, and the device is
//! never asked to call for them.
//!
//! Limits: a packet fits one slot; as many packets in flight as the queue has entries.

use ringway_net::{Counters, DropReason, HEADER_LEN, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, Broken, DriverQueue};

use crate::pool::Pool;
use crate::{Arena, ArenaFull};

/// Header and packet lengths are added as 32-bit numbers.
#[allow(clippy::cast_possible_truncation)]
const HEADER_BYTES: u32 = HEADER_LEN as u32;

/// How packets are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TxOptions {
    /// Longest packet in bytes, without the header.
    pub packet_len_max: u32,
    /// Header in an element of its own (two descriptors per packet, or one indirect table).
    pub header_apart: bool,
}

impl Default for TxOptions {
    fn default() -> Self {
        Self { packet_len_max: PACKET_LEN_MAX, header_apart: false }
    }
}

/// What became of a packet handed to [`NetTx::send`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// Staged; the device sees it after the next flush.
    Done,
    /// Every slot is in flight; nothing changed. Flush, and try again after the device's call.
    NoRoom,
    /// Longer than a slot: counted and dropped.
    TooLong,
}

/// The transmitq of a driver.
#[derive(Debug)]
pub struct NetTx<Q> {
    queue: Q,
    pool: Pool,
    header_apart: bool,
    reclaim_at: u16,
    counters: Counters,
    broken: Option<Broken>,
}

impl<Q: DriverQueue> NetTx<Q> {
    /// Takes one slot per queue entry from the arena. The queue must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(mut queue: Q, arena: &mut Arena, options: &TxOptions) -> Result<Self, ArenaFull> {
        assert!(options.packet_len_max <= PACKET_LEN_MAX, "{}", options.packet_len_max);
        let slot_len = HEADER_BYTES + options.packet_len_max;
        let pool = Pool::new(arena, queue.size(), slot_len)?;
        // Nothing is in flight yet, so there is nothing to look at again.
        let _ = queue.arm_calls(Arm::Never);
        Ok(Self {
            reclaim_at: (queue.size() / 4).max(1),
            queue,
            pool,
            header_apart: options.header_apart,
            counters: Counters::default(),
            broken: None,
        })
    }

    /// Stages one packet. `num_buffers` is sent as 0, as the driver must (virtio 1.2 §5.1.6.2.1).
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    pub fn send(&mut self, header: &NetHeader, packet: &[u8]) -> Result<Sent, Broken> {
        self.check()?;
        let len = match u32::try_from(packet.len()) {
            Ok(len) if len <= self.pool.slot_len() - HEADER_BYTES => len,
            _ => {
                self.counters.count_drop(DropReason::TooLong);
                return Ok(Sent::TooLong);
            }
        };
        if self.queue.free() <= self.reclaim_at || self.pool.free() == 0 {
            self.reclaim()?;
        }
        let Some(id) = self.pool.take() else { return Ok(Sent::NoRoom) };
        let slot = self.pool.memory(id);
        slot.write(0, &NetHeader { num_buffers: 0, ..*header }.encode());
        slot.write(HEADER_LEN, packet);
        let at = self.pool.device_address(id);
        let apart = [(at, HEADER_BYTES), (at + u64::from(HEADER_BYTES), len)];
        let added = if self.header_apart && len > 0 {
            self.queue.add(&apart, &[], id)
        } else {
            self.queue.add(&[(at, HEADER_BYTES + len)], &[], id)
        };
        if added.is_err() {
            self.pool.give(id);
            return Ok(Sent::NoRoom);
        }
        self.counters.count(len);
        Ok(Sent::Done)
    }

    /// Publishes everything staged. `true`: the device wants to be kicked.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.queue.publish();
        let kick = self.queue.must_kick();
        self.counters.kicks += u64::from(kick);
        kick
    }

    /// Takes back every slot the device is done with; returns how many.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn reclaim(&mut self) -> Result<u16, Broken> {
        self.check()?;
        let mut reclaimed = 0;
        while reclaimed < self.queue.size() {
            match self.queue.pop_used() {
                Ok(Some(used)) => self.pool.give(used.id),
                Ok(None) => break,
                Err(broken) => {
                    self.broken = Some(broken);
                    return Err(broken);
                }
            }
            reclaimed += 1;
        }
        Ok(reclaimed)
    }

    /// Tells the device when to call about used slots: for a sender that waits for room.
    /// `true`: some are already there.
    #[must_use]
    pub fn arm_calls(&mut self, arm: Arm) -> bool {
        self.queue.arm_calls(arm)
    }

    /// Packets sent and not reclaimed yet.
    pub fn in_flight(&self) -> usize {
        usize::from(self.queue.size()) - self.pool.free()
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The ring itself, which keeps working on the same areas.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    fn check(&self) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), Err)
    }
}
