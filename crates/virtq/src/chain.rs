//! The elements of one buffer, copied out of the ring and checked.
//!
//! How: the formats walk their descriptors, [`Elements::push`] checks and keeps each one, and
//! [`IndirectTable`] finds the table behind an indirect descriptor. Limits: [`ELEMENTS_MAX`]
//! elements, one level of indirection, each element inside one region.

use alloc::boxed::Box;

use crate::desc::{DESCRIPTOR_LEN, Descriptor, INDIRECT, NEXT, WRITE};
use crate::{Broken, Regions, SharedSlice, Why};

/// Most elements one buffer may have (`IOV_MAX`, and what QEMU allows).
pub const ELEMENTS_MAX: usize = 1024;

/// The receiver of the elements of one buffer, one after the other.
pub(crate) trait Sink {
    /// Takes the next one.
    fn push(
        &mut self,
        descriptor: &Descriptor,
        flags: u16,
        regions: &Regions,
    ) -> Result<(), Broken>;

    /// Whether the device may write one of them.
    fn is_writable(&self) -> bool;
}

/// The elements of one buffer: device-readable ones first, then device-writable ones.
///
/// Its memory is taken once, and touched as far as buffers need it: queues that start by the
/// hundred wait for no page that they do not use. Reading chains into it does not allocate.
#[derive(Debug)]
pub struct Elements {
    list: Box<[SharedSlice; ELEMENTS_MAX]>,
    /// The first readable element that was not taken.
    first: usize,
    /// Where the writable ones begin.
    readable_to: usize,
    len: usize,
    /// Sum of the lengths of all elements that were not taken.
    bytes: u64,
    readable_only: bool,
}

impl Elements {
    /// Room for [`ELEMENTS_MAX`] elements.
    pub fn new() -> Self {
        Self {
            list: SharedSlice::list(),
            first: 0,
            readable_to: 0,
            len: 0,
            bytes: 0,
            readable_only: false,
        }
    }

    /// The same for a queue that only ever carries device-readable buffers: what a driver marks
    /// as writable is read all the same. The transmitq of DPDK's packed driver needs that.
    pub fn readable_only() -> Self {
        Self { readable_only: true, ..Self::new() }
    }

    /// Forgets all elements.
    #[inline]
    pub fn clear(&mut self) {
        self.first = 0;
        self.readable_to = 0;
        self.len = 0;
        self.bytes = 0;
    }

    /// The elements that the device may read, in order, without what was taken.
    #[inline]
    pub fn readable(&self) -> &[SharedSlice] {
        &self.list[self.first..self.readable_to]
    }

    /// The elements that the device may write, in order.
    #[inline]
    pub fn writable(&self) -> &[SharedSlice] {
        &self.list[self.readable_to..self.len]
    }

    /// Length of all elements together in bytes, without what was taken.
    #[inline]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies the first `N` readable bytes to `into`, and takes them off the elements. `false`, and
    /// nothing useful left, if there are not so many.
    #[inline]
    pub fn take<const N: usize>(&mut self, into: &mut [u8; N]) -> bool {
        if self.first < self.readable_to
            && let Some(element) = self.list.get_mut(self.first)
            && element.len() > N
        {
            let (front, rest) = element.split_at(N);
            *into = front.read_array(0);
            *element = rest;
            self.bytes -= N as u64;
            return true;
        }
        // Not straight into it: what a call has the address of cannot be in registers.
        self.take_pieces().map(|taken| *into = taken).is_some()
    }

    /// The same from elements as short as one byte.
    #[cold]
    fn take_pieces<const N: usize>(&mut self) -> Option<[u8; N]> {
        let mut taken = [0; N];
        let mut have = 0;
        while have < N {
            let element = *self.readable().first()?;
            let (front, rest) = element.split_at(element.len().min(N - have));
            front.read(0, &mut taken[have..have + front.len()]);
            have += front.len();
            self.list[self.first] = rest;
            self.first += usize::from(rest.is_empty());
        }
        self.bytes -= N as u64;
        Some(taken)
    }
}

impl Sink for Elements {
    /// Checks one element and keeps it behind the others: readable ones come first (virtio 1.2
    /// §2.7.4.2).
    #[inline]
    fn push(
        &mut self,
        descriptor: &Descriptor,
        flags: u16,
        regions: &Regions,
    ) -> Result<(), Broken> {
        let element = element(descriptor, regions)?;
        let place = self.list.get_mut(self.len).ok_or(Broken(Why::ChainTooLong))?;
        if flags & WRITE == 0 || self.readable_only {
            if self.readable_to != self.len {
                return Err(Broken(Why::ReadableAfterWritable));
            }
            self.readable_to += 1;
        }
        *place = element;
        self.len += 1;
        self.bytes += u64::from(descriptor.len);
        Ok(())
    }

    #[inline]
    fn is_writable(&self) -> bool {
        !self.writable().is_empty()
    }
}

/// The memory of one element, checked.
#[inline(always)]
pub(crate) fn element(descriptor: &Descriptor, regions: &Regions) -> Result<SharedSlice, Broken> {
    if descriptor.len == 0 {
        return Err(Broken(Why::ZeroLength));
    }
    regions.slice(descriptor.address, descriptor.len).ok_or(Broken(Why::OutsideMemory))
}

impl Default for Elements {
    fn default() -> Self {
        Self::new()
    }
}

/// The table behind an indirect descriptor (virtio 1.2 §2.7.5.3, §2.8.7).
#[derive(Debug, Clone, Copy)]
pub(crate) struct IndirectTable {
    memory: SharedSlice,
    /// Descriptors in it: 1 to [`ELEMENTS_MAX`].
    count: u16,
}

impl IndirectTable {
    /// Finds the table; its descriptor's own WRITE flag means nothing.
    #[inline]
    pub fn find(
        descriptor: &Descriptor,
        flags: u16,
        allowed: bool,
        regions: &Regions,
    ) -> Result<Self, Broken> {
        if !allowed || flags & NEXT != 0 {
            return Err(Broken(Why::BadIndirect));
        }
        let Descriptor { address, len, .. } = *descriptor;
        let count = usize::try_from(len / DESCRIPTOR_LEN).unwrap_or(usize::MAX);
        if len % DESCRIPTOR_LEN != 0 || count == 0 || count > ELEMENTS_MAX {
            return Err(Broken(Why::BadIndirectLength));
        }
        let memory = regions.slice(address, len).ok_or(Broken(Why::OutsideMemory))?;
        let count = u16::try_from(count).map_err(|_| Broken(Why::BadIndirectLength))?;
        Ok(Self { memory, count })
    }

    /// Follows the next fields from the first descriptor, as split rings do.
    pub fn walk_linked(self, regions: &Regions, into: &mut impl Sink) -> Result<(), Broken> {
        let mut index = 0;
        for _ in 0..self.count {
            let descriptor = Descriptor::copy(self.memory, index);
            let flags = descriptor.third;
            if flags & INDIRECT != 0 {
                return Err(Broken(Why::BadIndirect));
            }
            into.push(&descriptor, flags, regions)?;
            if flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.fourth;
            if index >= self.count {
                return Err(Broken(Why::BadIndex));
            }
        }
        Err(Broken(Why::ChainTooLong))
    }

    /// Takes all descriptors one after the other, as packed rings do; only WRITE has a meaning.
    pub fn walk_all(self, regions: &Regions, into: &mut impl Sink) -> Result<(), Broken> {
        for index in 0..self.count {
            let descriptor = Descriptor::copy(self.memory, index);
            let flags = descriptor.fourth;
            if flags & INDIRECT != 0 {
                return Err(Broken(Why::BadIndirect));
            }
            into.push(&descriptor, flags, regions)?;
        }
        Ok(())
    }
}
