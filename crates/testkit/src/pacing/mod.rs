//! Notification policies against load shapes, in virtual time.
//!
//! A guest and a device share three directions of notification: kicks for packets from the guest,
//! calls for packets to the guest, and calls for used transmit buffers. Each side is one processor
//! that works, or sleeps until it is notified or its timer ends. The device's decisions are those of the
//! worker's own [`Pace`](ringway_host::Pace). Behind the device is a remote end
//! that answers. Everything is a function of the load, the policy and the seed.
//!
//! Limits: one guest, one queue pair. Costs are the few that decide (see [`Costs`]); caches,
//! scheduling and other guests are not modelled, so the numbers compare policies and predict
//! nothing else.

mod device;
mod direction;
mod load;
mod outcome;
mod parts;
mod sim;

pub use direction::Direction;
pub use load::{LOADS, Load};
pub use outcome::{Outcome, Waits};
pub use sim::simulate;

/// Who the guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// As Linux does it: asks to be called about every packet once it has taken all, and about
    /// used transmit buffers after three quarters of them. The device decides what to hold back.
    Stock,
    /// Uses the same policy as the device, for when to be called.
    Paced,
}

/// What things cost, in nanoseconds of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// From a notification, or the end of a timer, until a sleeping side runs: measured, one way,
    /// between two virtual processors.
    pub wake_ns: u64,
    /// A kick costs the guest an exit from virtual to real and back.
    pub kick_ns: u64,
    /// A call costs the device one system call.
    pub call_ns: u64,
    /// One packet in the device: a few cache lines (0.1 µs each from the other core) and a copy.
    pub device_packet_ns: u64,
    /// One visit of the device: looking at the ring, publishing, arming.
    pub device_visit_ns: u64,
    /// One packet in the guest's network stack.
    pub guest_packet_ns: u64,
    /// 1,024 bytes of a packet, copied: in the device, and in the guest.
    pub kib_ns: u64,
    /// One way between the device and the remote end, answer included.
    pub remote_ns: u64,
}

impl Costs {
    /// Those of a machine with two cores.
    pub const TWO_CORES: Self = Self {
        wake_ns: 30_000,
        kick_ns: 2_000,
        call_ns: 1_000,
        device_packet_ns: 500,
        device_visit_ns: 500,
        guest_packet_ns: 1_000,
        kib_ns: 150,
        remote_ns: 10_000,
    };

    /// To copy a packet of `len` bytes.
    fn copy_ns(&self, len: u32) -> u64 {
        self.kib_ns * u64::from(len / 1024)
    }
}
