//! transmitq → packets: what the guest sends, lent straight out of its memory.
//!
//! `peek` reads the next buffer, copies and checks its header, and lends the rest in place; `pop`
//! gives the buffer back as used; `flush` makes everything given back visible at once. A packet
//! whose content makes no sense is dropped and counted; a ring that breaks the rules stops.

use std::slice;

use crate::ring::{GuestRing, Published, Staged};
use ringway_net::{
    Counters, DropReason, HEADER_LEN, HEADER_LEN_HASH, Negotiated, NetHeader, PACKET_LEN_MAX,
    Packet, SAYS_NOTHING,
};
use ringway_net::{ETHERNET_HEADER_LEN, PacketSource};
use ringway_virtq::{Areas, Arm, Broken, Cursor, DeviceQueue, Elements, Head, One, Position};
use ringway_virtq::{Regions, SharedSlice, Why};

/// Buffers without a packet that one visit looks at; those behind them wait for the next one.
const WASTED_MAX: u32 = 32;
/// Packets that are discarded at a time.
const DISCARDED_MAX: u32 = 256;
/// Elements of a buffer that count as one buffer or packet more, in both limits.
const COUNTED_ELEMENTS: usize = 64;

/// The device side of one transmitq.
#[derive(Debug)]
pub struct FromGuest<Q> {
    ring: GuestRing<Q>,
    negotiated: Negotiated,
    pub(crate) elements: Elements,
    lent: Option<Lent>,
    /// The header of the last packet, of those whose header is not all zeros.
    header: NetHeader,
    /// Buffers popped and not published.
    staged: Staged,
    /// How many of them held no packet; one of many elements counts several times.
    wasted: u32,
    /// Packets that went through, and packets dropped on the way in.
    pub counters: Counters,
}

/// The packet that `peek` has lent and `pop` has not taken yet.
#[derive(Debug, Clone, Copy)]
struct Lent {
    /// Two fields of its head, kept apart: the processor would copy a whole head in words that are
    /// larger than the stores that wrote it, and so wait for all of them.
    id: u16,
    descriptors: u16,
    /// All of its bytes, if they are in one piece; or else empty, and they are in the elements.
    only: SharedSlice,
    /// Whether `header` holds the header of this packet. Most headers are all 0: those are not
    /// written here, because reading as a whole what was just written field by field takes long.
    has_header: bool,
    len: u32,
    /// Segments of it that its receiver has already.
    segments_done: usize,
}

impl<Q: DeviceQueue> FromGuest<Q> {
    /// Wraps a started queue; `counters` continue from an earlier start, and `elements` are
    /// [readable only](Elements::readable_only).
    pub fn new(
        queue: Q,
        regions: Regions,
        negotiated: Negotiated,
        counters: Counters,
        elements: Elements,
    ) -> Self {
        Self {
            ring: GuestRing::new(queue, regions),
            negotiated,
            elements,
            lent: None,
            header: NetHeader::default(),
            staged: Staged::new(&counters),
            wasted: 0,
            counters,
        }
    }

    /// Publishes what was popped; `true`: the guest wants a call.
    pub fn flush(&mut self) -> bool {
        self.publish().packets > 0 && self.must_call()
    }

    /// Publishes what was popped, and says how many buffers that are.
    pub fn publish(&mut self) -> Published {
        self.wasted = 0;
        self.ring.publish(&mut self.staged, &self.counters)
    }

    /// Whether the guest wants a call about what was published since the last time asked.
    pub fn must_call(&mut self) -> bool {
        self.ring.must_call()
    }

    /// See [`DeviceQueue::driver_event`]; `None` if the ring is not in the guest's memory.
    pub fn driver_event(&self) -> Option<u32> {
        self.ring.driver_event()
    }

    /// Tells the guest when to kick; `true`: packets are already there, look again.
    pub fn arm_kicks(&mut self, arm: Arm) -> bool {
        self.ring.arm_kicks(arm)
    }

    /// Gives back everything, asks for a kick at whatever comes next, and says where the ring
    /// stands.
    pub(crate) fn stop(&mut self) -> Position {
        self.flush();
        self.ring.stop()
    }

    /// Why the queue stopped, if the guest broke it.
    pub fn broken(&self) -> Option<Why> {
        self.ring.broken
    }

    /// Gives back up to [`DISCARDED_MAX`] packets without taking them; `true`: there are more, or
    /// else the next one is told by a kick.
    pub(crate) fn discard(&mut self) -> bool {
        let mut discarded = 0;
        while discarded < DISCARDED_MAX && self.peek().is_some() {
            let Some(Lent { id, descriptors, only, .. }) = self.lent.take() else { break };
            discarded += if only.is_empty() { count_of(self.elements.readable()) } else { 1 };
            self.counters.count_drop(DropReason::LinkDown);
            self.give_back(id, descriptors);
        }
        self.publish();
        self.arm_kicks(Arm::Next)
    }

    /// From now on the ring is at `areas` in `regions`. If it is not in that memory the queue is
    /// broken; a queue that was broken for that reason alone goes on once it is.
    ///
    /// # Errors
    /// [`Broken`]: the areas are not in that memory.
    pub fn rebind(&mut self, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        // Forgotten, not lost: it is read again.
        self.lent = None;
        self.ring.rebind(areas, regions)
    }

    /// The memory of the next packet and its header, of which nothing has been read yet; nothing
    /// if there is none, or it has been found already.
    pub fn ahead(&mut self) -> &[SharedSlice] {
        let at = self.ring.queue.cursor();
        let is_new = self.lent.is_none() && self.ring.broken.is_none();
        let mut peek = || self.ring.queue.peek(&mut { at }, &self.ring.regions, &mut self.elements);
        if is_new && matches!(peek(), Ok(Some(_))) { self.elements.readable() } else { &[] }
    }

    /// Looks for the next packet.
    #[inline(always)]
    fn find(&mut self) {
        let at = self.ring.queue.cursor();
        if self.wasted < WASTED_MAX
            && let Some(one) = self.ring.queue.peek_one(at, &self.ring.regions)
            && let Some(lent) = self.lend(one)
        {
            self.fetch_behind(at);
            self.lent = Some(lent);
        } else if let Err(why) = self.find_any() {
            self.ring.broken = Some(why);
        }
    }

    #[inline(always)]
    fn fetch_behind(&self, at: Cursor) {
        if let Some(soon) = self.ring.queue.ahead(at, &self.ring.regions) {
            soon.prefetch_to_read(0);
        }
    }

    /// The packet in a buffer of one element. `None`: there is none, or its header has another
    /// length.
    #[inline(always)]
    fn lend(&mut self, One { head: Head { id, descriptors, .. }, memory }: One) -> Option<Lent> {
        let len = memory.len().checked_sub(HEADER_LEN)?;
        let only = memory.slice(HEADER_LEN, len)?;
        if self.negotiated.header_len != HEADER_LEN {
            return None;
        }
        let len = packet_len(len as u64).ok()?;
        let bytes = memory.read_array(0);
        let has_header = match NetHeader::says_nothing(&bytes) {
            true => false,
            false => self.check(NetHeader::decode(&bytes), len).ok()?,
        };
        Some(Lent { id, descriptors, only, has_header, len, segments_done: 0 })
    }

    /// Reads buffers, of any number of elements, until one holds a packet; bad ones for at most
    /// [`WASTED_MAX`] per visit.
    #[inline(never)]
    fn find_any(&mut self) -> Result<(), Why> {
        while self.wasted < WASTED_MAX {
            let at = self.ring.queue.cursor();
            let found = self.ring.queue.peek(&mut { at }, &self.ring.regions, &mut self.elements);
            let Some(Head { id, descriptors, .. }) = found.map_err(|broken| broken.0)? else {
                return Ok(());
            };
            let header = self.take_header().ok_or(Why::NoHeader)?;
            self.fetch_behind(at);
            let len = packet_len(self.elements.bytes());
            match len.and_then(|len| Ok((self.check(header, len)?, len))) {
                Ok((has_header, len)) => {
                    let only = SharedSlice::EMPTY;
                    let segments_done = 0;
                    let lent = Lent { id, descriptors, only, has_header, len, segments_done };
                    self.lent = Some(lent);
                    return Ok(());
                }
                Err(reason) => {
                    self.counters.count_drop(reason);
                    self.wasted += count_of(self.elements.readable());
                    self.give_back(id, descriptors);
                }
            }
        }
        Ok(())
    }

    /// Takes the header off the elements; what remains is the payload.
    #[inline]
    fn take_header(&mut self) -> Option<NetHeader> {
        match self.negotiated.header_len {
            HEADER_LEN => self.take_front(NetHeader::decode),
            HEADER_LEN_HASH => self.take_front(|bytes| NetHeader::decode_hash(bytes).0),
            _ => self.take_front(NetHeader::decode_legacy),
        }
    }

    #[inline]
    fn take_front<const N: usize>(
        &mut self,
        decode: fn(&[u8; N]) -> NetHeader,
    ) -> Option<NetHeader> {
        let mut bytes = [0; N];
        self.elements.take(&mut bytes).then(|| decode(&bytes))
    }

    /// Keeps the fields that matter of the header, if it makes sense together with the packet's
    /// length; `false`: they are all zeros.
    fn check(&mut self, header: NetHeader, len: u32) -> Result<bool, DropReason> {
        let header = self.negotiated.from_guest(header);
        if header.check(len).is_err() || !self.negotiated.may_send(&header) {
            return Err(DropReason::Malformed);
        }
        self.header = header;
        Ok(!header.is_zero())
    }

    #[inline]
    fn give_back(&mut self, id: u16, descriptors: u16) {
        let head = Head { id, descriptors, is_writable: false };
        self.ring.queue.pop(head);
        self.ring.queue.add_used(head, 0);
        self.ring.queue.keep();
        self.staged.packets += 1;
    }
}

/// As how many buffers one of these elements counts.
pub(crate) fn count_of(elements: &[SharedSlice]) -> u32 {
    1 + u32::try_from(elements.len() / COUNTED_ELEMENTS).unwrap_or(DISCARDED_MAX)
}

/// The length of a packet of so many bytes, if one may have it.
#[inline]
fn packet_len(bytes: u64) -> Result<u32, DropReason> {
    match u32::try_from(bytes) {
        Ok(len @ ..=PACKET_LEN_MAX) if bytes >= ETHERNET_HEADER_LEN as u64 => Ok(len),
        Ok(..=PACKET_LEN_MAX) => Err(DropReason::Malformed),
        _ => Err(DropReason::TooLong),
    }
}

impl<Q: DeviceQueue> PacketSource for FromGuest<Q> {
    #[inline(always)]
    fn peek(&mut self) -> Option<Packet<'_>> {
        if self.lent.is_none() && self.ring.broken.is_none() {
            self.find();
        }
        let lent = self.lent.as_ref()?;
        let header = if lent.has_header { &self.header } else { &SAYS_NOTHING };
        let payload = match lent.only.is_empty() {
            true => self.elements.readable(),
            false => slice::from_ref(&lent.only),
        };
        Some(Packet { header, payload, len: lent.len })
    }

    #[inline]
    fn segments_done(&self) -> usize {
        self.lent.as_ref().map_or(0, |lent| lent.segments_done)
    }

    fn set_segments_done(&mut self, count: usize) {
        if let Some(lent) = &mut self.lent {
            lent.segments_done = count;
        }
    }

    fn dropped(&self) -> [u64; DropReason::ALL.len()] {
        self.counters.drops
    }

    fn read_at_flush(&mut self) {
        self.ring.queue.keep_at_publish();
    }

    #[inline(always)]
    fn pop(&mut self) {
        let Some(Lent { id, descriptors, len, .. }) = self.lent else { return };
        self.lent = None;
        self.counters.count(len);
        self.give_back(id, descriptors);
    }
}
