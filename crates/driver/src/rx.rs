//! Packets from the device: empty buffers are posted, and what arrives in them is lent.
//!
//! How: `receive` takes the buffers of one packet off the used ring and lends their bytes in
//! place; they go back to the pool with the next call of `receive` or `flush`. `flush` posts every
//! free buffer again and publishes once. With mergeable buffers a packet takes `num_buffers` of
//! them (virtio 1.2 §5.1.6.4); without, exactly one, and that must hold any packet.
//!
//! Limits: the device is not trusted. A packet whose lengths or `num_buffers` make no sense is
//! counted as malformed and its buffers are posted again; a used entry that the ring refuses stops
//! the queue. The bytes lent can still be changed by the device: copy, then check.

use alloc::vec::Vec;

use ringway_net::{Counters, DropReason, HEADER_LEN, NetHeader, PACKET_LEN_MAX};
use ringway_virtq::{Arm, Broken, BufferId, DriverQueue, SharedSlice, Used};

use crate::pool::Pool;
use crate::{Arena, ArenaFull};

/// Most elements one posted buffer is divided into.
pub const ELEMENTS_PER_BUFFER_MAX: usize = 32;

/// How buffers are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RxOptions {
    /// `VIRTIO_NET_F_MRG_RXBUF` was negotiated.
    pub mergeable: bool,
    /// Bytes of each buffer, header included.
    pub buffer_len: u32,
    /// Elements each buffer is divided into, 1 to [`ELEMENTS_PER_BUFFER_MAX`].
    pub elements: u16,
}

impl RxOptions {
    /// One page each: packets are spread over as many as they need.
    pub const MERGEABLE: Self = Self { mergeable: true, buffer_len: 4096, elements: 1 };

    /// The least that holds any packet when the device may send large ones (virtio 1.2 §5.1.6.3.1).
    pub const BIG: Self = Self { mergeable: false, buffer_len: 65_562, elements: 1 };
}

/// A packet lent by [`NetRx::receive`].
#[derive(Debug)]
pub struct Received<'a> {
    /// The header as the device wrote it, decoded; not checked beyond `num_buffers`.
    pub header: NetHeader,
    /// The packet's bytes in order.
    pub pieces: &'a [SharedSlice],
    /// Sum of their lengths in bytes.
    pub len: u32,
}

impl Received<'_> {
    /// Copies the packet to the start of `into`, which must be at least `len` bytes long.
    pub fn copy_to(&self, into: &mut [u8]) {
        let mut rest = into;
        for piece in self.pieces {
            let (head, tail) = rest.split_at_mut(piece.len());
            piece.read(0, head);
            rest = tail;
        }
    }
}

/// The receiveq of a driver.
#[derive(Debug)]
pub struct NetRx<Q> {
    queue: Q,
    pool: Pool,
    options: RxOptions,
    /// Buffers of the packet that is lent now.
    lent: Vec<BufferId>,
    pieces: Vec<SharedSlice>,
    counters: Counters,
    broken: Option<Broken>,
}

/// What the used ring held for one packet.
enum Taken {
    Nothing,
    Malformed,
    Packet(NetHeader, u32),
}

impl<Q: DriverQueue> NetRx<Q> {
    /// Takes the buffers from the arena and stages them; the first flush publishes them.
    /// The queue must be fresh.
    ///
    /// # Errors
    /// [`ArenaFull`].
    pub fn new(queue: Q, arena: &mut Arena, options: &RxOptions) -> Result<Self, ArenaFull> {
        assert!(options.buffer_len as usize > HEADER_LEN, "{} bytes", options.buffer_len);
        let elements = usize::from(options.elements);
        assert!((1..=ELEMENTS_PER_BUFFER_MAX).contains(&elements), "{elements} elements");
        assert!(options.buffer_len as usize >= elements, "{elements} elements");
        let size = queue.size();
        let mut rx = Self {
            pool: Pool::new(arena, size, options.buffer_len)?,
            queue,
            options: *options,
            lent: Vec::with_capacity(usize::from(size)),
            pieces: Vec::with_capacity(usize::from(size)),
            counters: Counters::default(),
            broken: None,
        };
        rx.refill();
        Ok(rx)
    }

    /// Lends the next packet. What was lent before goes back.
    ///
    /// Malformed packets are skipped and counted; at most one queue size of them per call.
    ///
    /// # Errors
    /// [`Broken`]: the device broke the rules; the queue must be set up again.
    pub fn receive(&mut self) -> Result<Option<Received<'_>>, Broken> {
        self.broken.map_or(Ok(()), Err)?;
        for _ in 0..self.queue.size() {
            self.take_back();
            match self.take_packet() {
                Ok(Taken::Nothing) => return Ok(None),
                Ok(Taken::Malformed) => self.counters.count_drop(DropReason::Malformed),
                Ok(Taken::Packet(header, len)) => {
                    self.counters.count(len);
                    return Ok(Some(Received { header, pieces: &self.pieces, len }));
                }
                Err(broken) => {
                    self.broken = Some(broken);
                    return Err(broken);
                }
            }
        }
        Ok(None)
    }

    /// Posts every free buffer again and publishes them. `true`: the device wants to be kicked.
    #[must_use]
    pub fn flush(&mut self) -> bool {
        if self.broken.is_some() {
            return false;
        }
        self.take_back();
        self.refill();
        self.queue.publish();
        let kick = self.queue.must_kick();
        self.counters.kicks += u64::from(kick);
        kick
    }

    /// Tells the device when to call about packets. `true`: some are already there.
    #[must_use]
    pub fn arm_calls(&mut self, arm: Arm) -> bool {
        self.queue.arm_calls(arm)
    }

    /// What was counted so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The ring itself, which keeps working on the same areas.
    pub fn queue(&self) -> &Q {
        &self.queue
    }

    /// The used entries of one packet, first to last.
    fn take_packet(&mut self) -> Result<Taken, Broken> {
        let Some(first) = self.queue.pop_used()? else { return Ok(Taken::Nothing) };
        let memory = self.lend(first);
        if memory.len() < HEADER_LEN {
            return Ok(Taken::Malformed);
        }
        let mut bytes = [0; HEADER_LEN];
        memory.read(0, &mut bytes);
        let header = NetHeader::decode(&bytes);
        let (_, payload) = memory.split_at(HEADER_LEN);
        let mut len = self.keep(payload);
        let buffers = if self.options.mergeable { header.num_buffers } else { 1 };
        if buffers == 0 || buffers > self.queue.size() {
            return Ok(Taken::Malformed);
        }
        for _ in 1..buffers {
            // All buffers of a packet become used together (virtio 1.2 §5.1.6.4): none may miss.
            let Some(next) = self.queue.pop_used()? else { return Ok(Taken::Malformed) };
            let memory = self.lend(next);
            len = len.saturating_add(self.keep(memory));
        }
        if len > PACKET_LEN_MAX {
            return Ok(Taken::Malformed);
        }
        Ok(Taken::Packet(header, len))
    }

    /// Marks a buffer as lent; returns the bytes the device wrote, at most the whole buffer.
    fn lend(&mut self, used: Used) -> SharedSlice {
        self.lent.push(used.id);
        let written = used.len.min(self.pool.slot_len());
        self.pool.memory(used.id).split_at(written as usize).0
    }

    /// Adds a piece to the packet, unless it is empty; returns its length.
    fn keep(&mut self, piece: SharedSlice) -> u32 {
        if piece.is_empty() {
            return 0;
        }
        self.pieces.push(piece);
        // A piece lies inside a slot, and a slot's length is 32 bits.
        u32::try_from(piece.len()).unwrap_or(u32::MAX)
    }

    fn take_back(&mut self) {
        self.pieces.clear();
        for id in self.lent.drain(..) {
            self.pool.give(id);
        }
    }

    /// Stages free buffers until the pool or the ring is out of them.
    fn refill(&mut self) {
        while let Some(id) = self.pool.take() {
            if !self.post(id) {
                self.pool.give(id);
                return;
            }
        }
    }

    fn post(&mut self, id: BufferId) -> bool {
        let mut room = [(0, 0); ELEMENTS_PER_BUFFER_MAX];
        let elements = &mut room[..usize::from(self.options.elements)];
        let share = self.options.buffer_len / u32::from(self.options.elements);
        let mut at = self.pool.device_address(id);
        let mut left = self.options.buffer_len;
        for element in elements.iter_mut() {
            *element = (at, share);
            at += u64::from(share);
            left -= share;
        }
        if let Some(last) = elements.last_mut() {
            // The division's rest.
            last.1 += left;
        }
        self.queue.add(&[], elements, id).is_ok()
    }
}
