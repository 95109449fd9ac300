//! Copies of what workers share, to try a packet on without changing anything.

use alloc::boxed::Box;
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize};

/// Shared values that can be copied.
pub(crate) trait Copied {
    /// A copy of its value now.
    fn copied(&self) -> Self;
}

macro_rules! atomics {
    ($($type:ty),*) => {
        $(impl Copied for $type {
            fn copied(&self) -> Self {
                Self::new(self.load(Relaxed))
            }
        })*
    };
}

atomics!(AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize);

impl<T: Copied, const N: usize> Copied for [T; N] {
    fn copied(&self) -> Self {
        core::array::from_fn(|at| self[at].copied())
    }
}

impl<T: Copied> Copied for Box<[T]> {
    fn copied(&self) -> Self {
        self.iter().map(T::copied).collect()
    }
}
