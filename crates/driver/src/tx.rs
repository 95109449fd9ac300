//! Packets to the device: a header and the start of each packet are copied into memory of the
//! transmitq, the rest is taken from where it is.
//!
//! How: `send` copies a whole packet, `send_fragments` a start and then lists memory that the
//! device sees, `send_whole` copies nothing; all stage, and `flush` publishes once for everything
//! staged. What was sent in place must not change until its token comes out of `next_done`. Used
//! buffers are reclaimed only when entries or memory become scarce, so the used ring is read once
//! for many packets, and the device is never asked to call for them. A packet in one piece takes
//! one descriptor; one in several pieces takes one ring entry and an indirect table where tables
//! were negotiated, else a chain.
//!
//! Limits: as many packets in flight as the queue has entries, and as many tokens; of those of
//! which more than 2,048 bytes are copied, as many as fit 4 MiB.

use alloc::vec;
use alloc::vec::Vec;

use ringway_net::moderation::{Moderator, Policy, Role};
use ringway_net::{Counters, DropReason, HEADER_LEN, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, Broken, BufferId, DriverQueue, SharedSlice};

use crate::tx_memory::TxMemory;
use crate::tx_options::{Sent, TxFragment, TxOptions};
use crate::{Arena, ArenaFull, Part, TxStatistics};

/// Most fragments of one packet, beside its copied start.
pub const TX_FRAGMENTS_MAX: usize = 18;

/// The transmitq of a driver.
#[derive(Debug)]
pub struct NetTx<Q> {
    pub(crate) queue: Q,
    memory: TxMemory,
    options: TxOptions,
    header_len: u32,
    reclaim_at: u16,
    /// By buffer id: what its sender calls the packet, if parts of it are in place.
    tokens: Vec<Option<u64>>,
    /// Tokens of packets that the device is done with, newest last.
    done: Vec<u64>,
    /// Tokens taken and not yet handed back.
    outstanding: u16,
    pub(crate) counters: Counters,
    statistics: TxStatistics,
    pub(crate) broken: Option<Broken>,
    /// Decides about kicks in [`flush_at`](Self::flush_at).
    pub(crate) kicks: Moderator,
    /// Packets staged since the last flush.
    pub(crate) unpublished: u32,
}

impl<Q: DriverQueue> NetTx<Q> {
    /// Takes memory for packets from the arena: 2,112 bytes for each queue entry and 4 MiB at most
    /// for those that are longer, or less with a smaller
    /// [`packet_len_max`](TxOptions::packet_len_max). The queue must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(mut queue: Q, arena: &mut Arena, options: &TxOptions) -> Result<Self, ArenaFull> {
        options.check();
        let memory = TxMemory::new(arena, queue.size(), options)?;
        // Nothing is in flight yet, so there is nothing to look at again.
        let _ = queue.arm_calls(Arm::Never);
        let size = usize::from(queue.size());
        Ok(Self {
            reclaim_at: (queue.size() / 4).max(1),
            kicks: Moderator::new(Policy::default(), Role::Producer, queue.size()),
            unpublished: 0,
            queue,
            memory,
            options: *options,
            // 12 or 20.
            header_len: u32::try_from(options.header_len).unwrap_or(u32::MAX),
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

    /// Stages one packet that lies whole in `place`, behind as many bytes as a header has, which is
    /// written there: one descriptor, and nothing is copied. As with fragments, all of `place`
    /// belongs to the device until [`next_done`](Self::next_done) returns `token`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_whole(
        &mut self,
        header: &NetHeader,
        place: Part,
        token: u64,
    ) -> Result<Sent, Broken> {
        let len = place.memory.len().checked_sub(self.options.header_len);
        let len = len.filter(|len| *len > 0).expect("room for a header, and a packet behind it");
        let len = u32::try_from(len).unwrap_or(u32::MAX);
        self.check()?;
        if self.outstanding == self.queue.size() {
            return Ok(Sent::NoRoom);
        }
        if let Some(refused) = self.refuse(header, len) {
            return Ok(refused);
        }
        if self.queue.free() <= self.reclaim_at {
            self.reclaim()?;
        }
        let Some(id) = self.queue.next_id() else { return Ok(Sent::NoRoom) };
        if !self.add(id, (place.device_address, len), &[]) {
            return Ok(Sent::NoRoom);
        }
        // Before it is published.
        self.write(place.memory, header, &[]);
        self.note_staged(id, Some(token), len);
        Ok(Sent::Done)
    }

    /// The next packet in place that the device is done with, in no particular order.
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

    /// Whether there is room for a packet in one piece, as long as may be; looks for used buffers
    /// if there is none.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn has_room(&mut self) -> Result<bool, Broken> {
        let entries = (1 + u16::from(self.options.header_apart)).min(self.queue.size());
        let longest = self.options.packet_len_max;
        let is_room = |tx: &Self| tx.queue.free() >= entries && tx.memory.has_room(longest);
        Ok(is_room(self) || (self.reclaim()? > 0 && is_room(self)))
    }

    /// Takes back everything the device is done with; returns how many packets.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn reclaim(&mut self) -> Result<u16, Broken> {
        self.check()?;
        let Self { queue, memory, tokens, outstanding, done, .. } = self;
        let in_flight = queue.in_flight();
        // Looked at once for all of them.
        let is_plain = *outstanding == 0 && !memory.has_stretches();
        let result = queue.take_used(queue.size(), |returned| {
            if is_plain {
                return;
            }
            memory.give_back(returned.id);
            if let Some(token) = tokens[usize::from(returned.id.0)].take() {
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

    /// The counters so far.
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
        let (start_len, len) = lengths(start, fragments);
        if let Some(refused) = self.refuse(header, len) {
            return Ok(refused);
        }
        match self.memory.is_short(start_len) {
            true => self.put(PacketStart { header, start }, fragments, token, |memory, id| {
                Some(memory.slot(id))
            }),
            false => self.put_long(header, start, fragments, token),
        }
    }

    /// The result for a packet that may not be sent.
    #[inline(always)]
    fn refuse(&mut self, header: &NetHeader, len: u32) -> Option<Sent> {
        if len > PACKET_LEN_MAX {
            return Some(self.drop_too_long());
        }
        if !self.options.may_send(header) {
            self.counters.count_drop(DropReason::Offload);
            return Some(Sent::NotNegotiated);
        }
        None
    }

    fn drop_too_long(&mut self) -> Sent {
        self.counters.count_drop(DropReason::TooLong);
        Sent::TooLong
    }

    /// Stages a packet that may be sent, and of which more is copied than fits a slot.
    #[inline(never)]
    fn put_long(
        &mut self,
        header: &NetHeader,
        start: &[u8],
        fragments: &[TxFragment],
        token: Option<u64>,
    ) -> Result<Sent, Broken> {
        let (len, _) = lengths(start, fragments);
        if len > self.options.packet_len_max {
            return Ok(self.drop_too_long());
        }
        if !self.memory.has_room(len) {
            self.reclaim()?;
        }
        let packet = PacketStart { header, start };
        self.put(packet, fragments, token, |memory, id| memory.stretch(id, len))
    }

    /// Stages a packet that may be sent. Part of each of its callers: what is known of a slot's
    /// descriptor is still known when it is added.
    #[inline(always)]
    fn put(
        &mut self,
        PacketStart { header, start }: PacketStart<'_>,
        fragments: &[TxFragment],
        token: Option<u64>,
        place: impl FnOnce(&mut TxMemory, BufferId) -> Option<(SharedSlice, u64)>,
    ) -> Result<Sent, Broken> {
        let (start_len, len) = lengths(start, fragments);
        if self.queue.free() <= self.reclaim_at {
            self.reclaim()?;
        }
        let Some(id) = self.queue.next_id() else { return Ok(Sent::NoRoom) };
        let Some((place, at)) = place(&mut self.memory, id) else { return Ok(Sent::NoRoom) };
        if !self.add(id, (at, start_len), fragments) {
            self.memory.give_back(id);
            return Ok(Sent::NoRoom);
        }
        // Before it is published.
        self.write(place, header, start);
        self.memory.prefetch(self.queue.soon_id());
        self.note_staged(id, token, len);
        Ok(Sent::Done)
    }

    #[inline(always)]
    fn note_staged(&mut self, id: BufferId, token: Option<u64>, len: u32) {
        if token.is_some() {
            self.tokens[usize::from(id.0)] = token;
            self.outstanding += 1;
            self.statistics.in_place += 1;
        }
        self.counters.count(len);
        // No more than the queue has entries.
        self.unpublished += 1;
    }

    #[inline]
    fn write(&self, place: SharedSlice, header: &NetHeader, start: &[u8]) {
        let header = NetHeader { num_buffers: 0, ..*header };
        match self.options.header_len {
            HEADER_LEN => place.write_array(0, &header.encode()),
            _ => place.write_array(0, &header.encode_any()),
        }
        place.write(self.options.header_len, start);
    }

    /// Adds where the header and that many bytes of the packet are, and what follows them. `false`:
    /// the ring is full.
    #[inline(always)]
    fn add(&mut self, id: BufferId, copied: (u64, u32), fragments: &[TxFragment]) -> bool {
        let (at, start_len) = copied;
        if !fragments.is_empty() || (self.options.header_apart && start_len > 0) {
            return self.add_pieces(id, copied, fragments);
        }
        self.queue.add(&[(at, self.header_len + start_len)], &[], id).is_ok()
    }

    /// The same for what takes more than one element.
    #[inline(never)]
    fn add_pieces(&mut self, id: BufferId, copied: (u64, u32), fragments: &[TxFragment]) -> bool {
        let (at, start_len) = copied;
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

/// The header of a packet, and the bytes at its start that are copied behind it.
struct PacketStart<'a> {
    header: &'a NetHeader,
    start: &'a [u8],
}

/// Bytes of a packet's start, and of all of it.
#[inline(always)]
fn lengths(start: &[u8], fragments: &[TxFragment]) -> (u32, u32) {
    let start_len = u32::try_from(start.len()).unwrap_or(u32::MAX);
    let in_place = fragments.iter().fold(0u32, |sum, part| sum.saturating_add(part.len));
    (start_len, start_len.saturating_add(in_place))
}
