//! Whether the interface of a tap is gone: the worker that reads the tap finds it out, and the
//! control thread asks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Says of one queue of a tap whether its interface is gone. It never comes back: a new one has to
/// be opened.
#[derive(Debug, Clone, Default)]
pub struct TapWatch {
    is_gone: Arc<AtomicBool>,
}

impl TapWatch {
    /// Whether the kernel has said that there is no such interface any more.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// The kernel says so; `true`: this is news.
    pub(crate) fn note_gone(&self) -> bool {
        !self.is_gone.swap(true, Ordering::Relaxed)
    }
}
