//! Packets from the device: empty buffers are posted, and what arrives in them is lent.
//!
//! How: what waits in the ring is memory and nothing else. Used buffers are taken off the ring
//! all at once, into a list. `receive` takes the buffers of one packet off that list, copies the
//! header out, and lends the rest in place; only then is there a packet. It is lent until the next
//! `receive` or `flush`, unless `hold` takes its buffers out. `flush` posts what is free and
//! publishes once. A slot of the ring keeps its memory as long as the wanted length stays the same,
//! so that it is posted again as it was. With mergeable buffers a packet takes `num_buffers` of
//! them (virtio 1.2 §5.1.6.4); without, exactly one.
//!
//! Memory that is missing is never an error: slots stay empty, that is counted, and every later
//! flush tries again.
//!
//! Limits: the device is not trusted. A packet whose lengths, `num_buffers` or header make no sense
//! is counted as malformed and its buffers are posted again; a used entry that the ring refuses
//! stops the queue. How long each posted buffer is, is in a private table.

mod find;
mod post;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use ringway_net::{Counters, HEADER_LEN, NetHeader};
use ringway_virtq::{Arm, Broken, BufferId, DriverQueue, Returned};

use crate::received::{FRAGMENTS_MAX, Fragment, Held, Received, Start};
use crate::rx_memory::{Extent, RxMemory};
use crate::{Arena, ArenaFull, RxBufferSizer, RxOptions, RxStatistics};

/// The memory of a slot of the ring.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Its memory; of length 0: none.
    extent: Extent,
    /// The length that was wanted when it was cut; it may be a little longer.
    wanted: u32,
}

/// The receiveq of a driver.
#[derive(Debug)]
pub struct NetRx<Q> {
    queue: Q,
    options: RxOptions,
    header_len: u32,
    sizer: RxBufferSizer,
    memory: RxMemory,
    /// By buffer id.
    slots: Vec<Slot>,
    /// Slots without memory.
    empty: Vec<BufferId>,
    /// Used buffers that are not posted again yet, as many as were `taken`. Those before `next` are
    /// posted by the next flush, from `lent_from` on by the packet lent now; the others were not
    /// looked at yet.
    used: Box<[Returned]>,
    taken: usize,
    next: usize,
    lent_from: usize,
    /// Bytes of the packet lent now, 0: there is none; and the memory that it holds.
    len: u32,
    truesize: u32,
    /// Its header, in bytes: what is not asked for is never taken apart.
    header: [u8; HEADER_LEN],
    start: Start,
    fragments: Vec<Fragment>,
    counters: Counters,
    statistics: RxStatistics,
    broken: Option<Broken>,
}

impl<Q: DriverQueue> NetRx<Q> {
    /// Takes the memory from the arena and stages buffers; the first flush publishes them.
    /// The queue must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(queue: Q, arena: &mut Arena, options: &RxOptions) -> Result<Self, ArenaFull> {
        options.check();
        let size = queue.size();
        // 12 or 20.
        let header_len = u32::try_from(options.header_len).unwrap_or(u32::MAX);
        // Without indirect tables a buffer takes as many entries as it has elements.
        let buffers_max = (size / options.elements).max(1);
        let sizer = RxBufferSizer::new(options.scheme, header_len, buffers_max);
        let (chunk_len, chunks) = options.chunks(&sizer, size);
        let mut rx = Self {
            memory: RxMemory::new(arena, chunk_len, chunks, header_len)?,
            queue,
            options: *options,
            header_len,
            sizer,
            slots: vec![Slot::default(); usize::from(size)],
            // Reversed, so that slots are first taken in rising order.
            empty: (0..size).rev().map(BufferId).collect(),
            used: vec![Returned::default(); usize::from(size)].into(),
            taken: 0,
            next: 0,
            lent_from: 0,
            len: 0,
            truesize: 0,
            header: [0; HEADER_LEN],
            start: Start::default(),
            fragments: Vec::with_capacity(usize::from(size)),
            counters: Counters::default(),
            statistics: RxStatistics::default(),
            broken: None,
        };
        rx.fill();
        Ok(rx)
    }

    /// Lends the next packet. What was lent before is lent no longer; the next flush posts it.
    ///
    /// Malformed packets are skipped and counted; at most one queue size of them per call.
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    #[inline(always)]
    pub fn receive(&mut self) -> Result<Option<Received<'_>>, Broken> {
        let is_found = self.find_usual() || self.find()?;
        Ok(is_found.then(|| self.lend()))
    }

    /// Takes the packet that was lent last out of the ring, to keep it. `None`: there is none, or
    /// it is in more than [`FRAGMENTS_MAX`] places (counted); then copy it.
    pub fn hold(&mut self) -> Option<Held> {
        if self.len == 0 {
            return None;
        }
        if self.fragments.len() > FRAGMENTS_MAX {
            self.statistics.hold_refused += 1;
            return None;
        }
        let mut fragments = [Fragment::default(); FRAGMENTS_MAX];
        let count = self.fragments.len();
        fragments[..count].copy_from_slice(&self.fragments);
        let mut copied = self.header_len + self.start.len();
        for used in &self.used[self.lent_from..self.next] {
            // Bytes of the packet are in its memory, beyond those copied out.
            if used.len > copied {
                self.slots[usize::from(used.id.0)] = Slot::default();
            }
            copied = 0;
        }
        let len = self.len;
        self.end_lending();
        self.statistics.held += 1;
        Some(Held {
            header: NetHeader::decode(&self.header),
            len,
            truesize: self.truesize,
            linear: self.start.linear(&self.memory).clone(),
            fragments,
            count,
            memory: self.memory.whole(),
            device_address: self.memory.device_address(0),
        })
    }

    /// Takes back a packet that was held; the next flush can post its memory.
    pub fn release(&mut self, held: Held) {
        assert!(held.memory.as_ptr() == self.memory.whole().as_ptr(), "held by another queue");
        // The memory that comes back last is taken first, so the order in the memory stays.
        for fragment in held.fragments[..held.count].iter().rev() {
            self.memory.give_back_fragment(fragment.extent, fragment.buffers);
        }
        self.statistics.released += 1;
    }

    /// Posts every free buffer again and publishes them. `true`: the device wants to be kicked.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.end_lending();
        self.post_again();
        self.fill();
        self.queue.publish();
        let kick = self.queue.must_kick();
        self.counters.kicks += u64::from(kick);
        kick
    }

    /// Tells the device when to call about packets. `true`: some are already there.
    #[must_use]
    pub fn arm_calls(&mut self, arm: Arm) -> bool {
        let is_waiting = arm != Arm::Never && self.next < self.taken;
        self.queue.arm_calls(arm) || is_waiting
    }

    /// The counters so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same with the specification's names, and more about memory.
    pub fn statistics(&self) -> RxStatistics {
        let posted = self.slots.iter().filter(|slot| slot.extent.len > 0);
        let posted_bytes = posted.clone().map(|slot| u64::from(slot.extent.len)).sum();
        RxStatistics {
            posted_buffers: posted.count() as u64,
            posted_bytes,
            buffer_len: self.sizer.next_len(),
            ..self.statistics.with(&self.counters)
        }
    }

    /// The ring itself, which keeps working on the same areas.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The packet that was lent, or not worth it, is over.
    #[inline]
    fn end_lending(&mut self) {
        self.len = 0;
        self.fragments.clear();
        self.lent_from = self.next;
    }

    #[inline]
    fn lend(&self) -> Received<'_> {
        Received {
            header: NetHeader::decode(&self.header),
            len: self.len,
            truesize: self.truesize,
            start: &self.start,
            fragments: &self.fragments,
            memory: &self.memory,
        }
    }
}
