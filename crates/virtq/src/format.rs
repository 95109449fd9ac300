//! The two ring formats.
//!
//! Limits: all queues of a device have the same.

/// Ring format, chosen once when a queue starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// virtio 1.2 §2.7
    Split,
    /// virtio 1.2 §2.8
    Packed,
}
