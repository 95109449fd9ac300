//! Marks in the log of written pages what the device of one ring writes.
//!
//! How: of buffers that become used the descriptors say where they are, as the driver must not
//! change these before. Limits: of a guest that changes them, pages of its own are missing.

use alloc::boxed::Box;

use crate::chain::{ELEMENTS_MAX, Sink};
use crate::desc::{DESCRIPTOR_LEN, Descriptor, WRITE};
use crate::event;
use crate::fault::{self, Mark};
use crate::{Areas, Broken, DirtyLog, Regions, Why};

/// Most elements of posted buffers that are marked when a queue starts: more than drivers have.
const POSTED_ELEMENTS_MAX: usize = 1 << 18;
/// Most bytes of them.
const POSTED_LEN_MAX: u64 = 1 << 32;

/// Marks what the device of one ring writes.
#[derive(Debug)]
pub(crate) struct Marker {
    log: DirtyLog,
    pub regions: Regions,
    areas: Areas,
}

impl Marker {
    /// `None`: there is no log.
    pub fn new(areas: &Areas, regions: &Regions) -> Option<Box<Self>> {
        let log = regions.log()?;
        Some(Box::new(Self { log, regions: regions.clone(), areas: *areas }))
    }

    /// Marks so many bytes at an offset of the device area.
    pub fn mark_device(&self, mark: Mark, offset: usize, len: usize) {
        if !fault::is_left_out(mark) {
            self.log.mark(self.areas.device_log.wrapping_add(offset as u64), len as u64);
        }
    }

    /// Marks the word that was stored there, which says when to kick.
    #[cold]
    pub fn mark_armed(&self, offset: usize, len: usize) {
        event::before_marking();
        self.mark_device(Mark::Armed, offset, len);
    }

    /// Marks so many descriptors from one on, around the end of the ring.
    pub fn mark_descriptors(&self, mark: Mark, from: u16, count: u32, size: u16) {
        if fault::is_left_out(mark) {
            return;
        }
        let before_end = count.min(u32::from(size - from.min(size)));
        for (from, count) in [(u32::from(from), before_end), (0, count - before_end)] {
            let (offset, len) = (DESCRIPTOR_LEN * from, DESCRIPTOR_LEN * count);
            self.log.mark(self.areas.descriptor.wrapping_add(offset.into()), len.into());
        }
    }

    /// Marks the first so many bytes of a buffer that is this element alone.
    #[inline]
    pub fn mark_element(&self, element: &Descriptor, len: u32) {
        if !fault::is_left_out(Mark::Buffers) {
            self.log.mark(element.address, element.len.min(len).into());
        }
    }

    /// Marks the first so many bytes of a buffer that are writable.
    pub fn written(&self, len: u32) -> MarkedBytes {
        let elements_left = if fault::is_left_out(Mark::Buffers) { 0 } else { ELEMENTS_MAX };
        MarkedBytes { log: self.log, left: len.into(), elements_left }
    }

    /// Marks all writable bytes of all buffers that are posted.
    pub fn posted(&self) -> MarkedBytes {
        let is_left_out = fault::is_left_out(Mark::Posted);
        let elements_left = if is_left_out { 0 } else { POSTED_ELEMENTS_MAX };
        MarkedBytes { log: self.log, left: POSTED_LEN_MAX, elements_left }
    }
}

/// Bytes to be marked of buffers, element by element.
pub(crate) struct MarkedBytes {
    log: DirtyLog,
    left: u64,
    elements_left: usize,
}

impl MarkedBytes {
    /// There may be elements behind it.
    pub fn goes_on(&self) -> bool {
        self.elements_left > 0
    }
}

impl Sink for MarkedBytes {
    fn push(&mut self, element: &Descriptor, flags: u16, _: &Regions) -> Result<(), Broken> {
        self.elements_left = self.elements_left.checked_sub(1).ok_or(Broken(Why::ChainTooLong))?;
        if flags & WRITE != 0 {
            let len = self.left.min(element.len.into());
            self.log.mark(element.address, len);
            self.left -= len;
        }
        Ok(())
    }

    fn is_writable(&self) -> bool {
        true
    }
}
