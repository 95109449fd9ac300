//! Packets to the device: a header and the start of each packet are copied into a slot, the rest is
//! taken from where it is.
//!
//! How: `send` copies a whole packet, `send_fragments` a start and then lists memory that the device
//! sees; both stage, and `flush` publishes once for everything staged. What was sent in place must
//! not change until its token comes out of `next_done`. Used slots are reclaimed only when they
//! become scarce, so the used ring is read once for many packets, and the device is never asked to
//! call for them. A packet in one piece takes one descriptor; one in several pieces takes one ring
//! entry and an indirect table where tables were negotiated, else a chain.
//!
//! Limits: what is copied fits one slot; as many packets in flight as the queue has entries, and as
//! many tokens.

use alloc::vec;
use alloc::vec::Vec;

use ringway_net::notify::{Notifier, Policy};
use ringway_net::{Counters, DropReason, HEADER_LEN, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, Broken, BufferId, DriverQueue, SharedSlice};

use crate::slots::Slots;
use crate::tx_options::{Sent, TxFragment, TxOptions};
use crate::{Arena, ArenaFull, TxStatistics};

/// Most fragments of one packet, beside its copied start.
pub const TX_FRAGMENTS_MAX: usize = 18;

/// The transmitq of a driver.
#[derive(Debug)]
pub struct NetTx<Q> {
    pub(crate) queue: Q,
    slots: Slots,
    options: TxOptions,
    header_len: u32,
    reclaim_at: u16,
    /// By slot: what its sender calls the packet, if parts of it are in place.
    tokens: Vec<Option<u64>>,
    /// Tokens of packets that the device is done with, newest last.
    done: Vec<u64>,
    /// Tokens taken and not yet handed back.
    outstanding: u16,
    pub(crate) counters: Counters,
    statistics: TxStatistics,
    pub(crate) broken: Option<Broken>,
    /// Decides about kicks in [`flush_at`](Self::flush_at).
    pub(crate) kicks: Notifier,
    /// Packets staged since the last flush.
    pub(crate) unpublished: u32,
}

impl<Q: DriverQueue> NetTx<Q> {
    /// Takes one slot per queue entry from the arena. The queue must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(mut queue: Q, arena: &mut Arena, options: &TxOptions) -> Result<Self, ArenaFull> {
        options.check();
        // 12 or 20.
        let header_len = u32::try_from(options.header_len).unwrap_or(u32::MAX);
        let slots = Slots::new(arena, queue.size(), header_len + options.packet_len_max)?;
        // Nothing is in flight yet, so there is nothing to look at again.
        let _ = queue.arm_calls(Arm::Never);
        let size = usize::from(queue.size());
        Ok(Self {
            reclaim_at: (queue.size() / 4).max(1),
            kicks: Notifier::new(Policy::default(), queue.size()),
            unpublished: 0,
            queue,
            slots,
            options: *options,
            header_len,
            tokens: vec![None; size],
            done: Vec::with_capacity(size),
            outstanding: 0,
            counters: Counters::default(),
            statistics: TxStatistics::default(),
            broken: None,
        })
    }

    /// Stages one packet. `num_buffers` is sent as 0, as the driver must (virtio 1.2 §5.1.6.2.1).
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    #[inline]
    pub fn send(&mut self, header: &NetHeader, packet: &[u8]) -> Result<Sent, Broken> {
        self.stage(header, packet, &[], None)
    }

    /// Stages one packet whose start is copied and whose rest is `fragments`, in place.
    ///
    /// With [`Sent::Done`] the fragments belong to the device until [`next_done`](Self::next_done)
    /// returns `token`. At most [`TX_FRAGMENTS_MAX`], none of them empty.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_fragments(
        &mut self,
        header: &NetHeader,
        start: &[u8],
        fragments: &[TxFragment],
        token: u64,
    ) -> Result<Sent, Broken> {
        assert!(fragments.len() <= TX_FRAGMENTS_MAX, "{} fragments", fragments.len());
        if self.outstanding == self.queue.size() {
            return Ok(Sent::NoRoom);
        }
        self.stage(header, start, fragments, Some(token))
    }

    /// The next packet in fragments that the device is done with, in no particular order.
    pub fn next_done(&mut self) -> Option<u64> {
        let token = self.done.pop()?;
        self.outstanding -= 1;
        Some(token)
    }

    /// Publishes everything staged. `true`: the device wants to be kicked.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.queue.publish();
        self.unpublished = 0;
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
        let Self { queue, tokens, outstanding, done, .. } = self;
        let in_flight = queue.in_flight();
        let result = queue.take_used(queue.size(), |returned| {
            if *outstanding > 0
                && let Some(token) = tokens[usize::from(returned.id.0)].take()
            {
                // There is room: no more tokens are taken than the queue has entries.
                done.push(token);
            }
        });
        self.broken = result.err();
        result?;
        let reclaimed = in_flight - self.queue.in_flight();
        self.statistics.reclaims += u64::from(reclaimed > 0);
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
        usize::from(self.queue.in_flight())
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same with the specification's names, and more.
    pub fn statistics(&self) -> TxStatistics {
        self.statistics.with(&self.counters)
    }

    /// The ring itself, which keeps working on the same areas.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    fn check(&self) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), Err)
    }

    /// Part of each of its callers: without fragments there is little to do.
    #[inline(always)]
    fn stage(
        &mut self,
        header: &NetHeader,
        start: &[u8],
        fragments: &[TxFragment],
        token: Option<u64>,
    ) -> Result<Sent, Broken> {
        self.check()?;
        let start_len = u32::try_from(start.len()).unwrap_or(u32::MAX);
        let in_place = fragments.iter().fold(0u32, |sum, part| sum.saturating_add(part.len));
        let len = start_len.saturating_add(in_place);
        if start_len > self.options.packet_len_max || len > PACKET_LEN_MAX {
            self.counters.count_drop(DropReason::TooLong);
            return Ok(Sent::TooLong);
        }
        if !self.options.may_send(header) {
            self.counters.count_drop(DropReason::Offload);
            return Ok(Sent::NotNegotiated);
        }
        if self.queue.free() <= self.reclaim_at {
            self.reclaim()?;
        }
        let Some(id) = self.queue.next_id() else { return Ok(Sent::NoRoom) };
        let (slot, at) = self.slots.slot(id);
        if !self.add(id, (at, start_len), fragments) {
            return Ok(Sent::NoRoom);
        }
        // Before it is published.
        self.write_slot(slot, header, start);
        self.slots.prefetch(self.queue.soon_id());
        if token.is_some() {
            self.tokens[usize::from(id.0)] = token;
            self.outstanding += 1;
            self.statistics.in_place += 1;
        }
        self.counters.count(len);
        // No more than the queue has entries.
        self.unpublished += 1;
        Ok(Sent::Done)
    }

    #[inline]
    fn write_slot(&self, slot: SharedSlice, header: &NetHeader, start: &[u8]) {
        let header = NetHeader { num_buffers: 0, ..*header };
        match self.options.header_len {
            HEADER_LEN => slot.write_array(0, &header.encode()),
            _ => slot.write_array(0, &header.encode_any()),
        }
        slot.write(self.options.header_len, start);
    }

    /// Adds a slot, which has that many bytes of the packet, and what follows it. `false`: the ring
    /// is full.
    #[inline(always)]
    fn add(&mut self, id: BufferId, slot: (u64, u32), fragments: &[TxFragment]) -> bool {
        let (at, start_len) = slot;
        if !fragments.is_empty() || (self.options.header_apart && start_len > 0) {
            return self.add_pieces(id, slot, fragments);
        }
        self.queue.add(&[(at, self.header_len + start_len)], &[], id).is_ok()
    }

    /// The same for what takes more than one element.
    #[inline(never)]
    fn add_pieces(&mut self, id: BufferId, slot: (u64, u32), fragments: &[TxFragment]) -> bool {
        let (at, start_len) = slot;
        let mut room = [(0, 0); TX_FRAGMENTS_MAX + 2];
        let mut count = 1;
        room[0] = (at, self.header_len + start_len);
        if self.options.header_apart && start_len > 0 {
            room[0].1 = self.header_len;
            room[1] = (at + u64::from(self.header_len), start_len);
            count = 2;
        }
        for fragment in fragments {
            room[count] = (fragment.device_address, fragment.len);
            count += 1;
        }
        self.queue.add(&room[..count], &[], id).is_ok()
    }
}
