//! Memory of this process that looks like a guest's.

use ringway_virtq::SharedSlice;

/// Private memory in the shape of shared memory, so that one kind of packet serves both.
#[derive(Debug)]
pub(crate) struct Scratch {
    bytes: SharedSlice,
}

impl Scratch {
    pub(crate) fn new(len: usize) -> Self {
        let bytes = Box::into_raw(vec![0u8; len].into_boxed_slice());
        // SAFETY: from now on only this slice refers to the bytes; they are freed on drop, and
        // slices of them are lent only for as long as this value is borrowed.
        Self { bytes: unsafe { SharedSlice::new(bytes.cast(), len) } }
    }

    pub(crate) fn bytes(&self) -> SharedSlice {
        self.bytes
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let bytes = std::ptr::slice_from_raw_parts_mut(self.bytes.as_ptr(), self.bytes.len());
        // SAFETY: made by `Box::into_raw` of a box of this length, and freed only here.
        drop(unsafe { Box::from_raw(bytes) });
    }
}
