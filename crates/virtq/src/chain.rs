//! The elements of one buffer, copied out of the ring and checked.

use alloc::vec::Vec;

use crate::SharedSlice;

/// Most elements one buffer may have (`IOV_MAX`, and what QEMU allows).
pub const ELEMENTS_MAX: usize = 1024;

/// The elements of one buffer: device-readable ones first, then device-writable ones.
///
/// Its memory is taken once; reading chains into it does not allocate.
#[derive(Debug)]
pub struct Elements {
    list: Vec<SharedSlice>,
    readable: usize,
}

impl Elements {
    /// Room for [`ELEMENTS_MAX`] elements.
    pub fn new() -> Self {
        Self { list: Vec::with_capacity(ELEMENTS_MAX), readable: 0 }
    }

    /// Forgets all elements.
    pub fn clear(&mut self) {
        self.list.clear();
        self.readable = 0;
    }

    /// What the device may read, in order.
    pub fn readable(&self) -> &[SharedSlice] {
        &self.list[..self.readable]
    }

    /// What the device may write, in order.
    pub fn writable(&self) -> &[SharedSlice] {
        &self.list[self.readable..]
    }
}

impl Default for Elements {
    fn default() -> Self {
        Self::new()
    }
}
