//! Notification policies against load shapes, in virtual time.
//!
//! A guest and a device share three directions of notification: kicks for packets from the guest,
//! calls for packets to the guest, and calls for used transmit buffers. Each side is one processor
//! that works, or sleeps until it is notified or its timer ends. The device's decisions are those
//! of the worker's own [`Pace`](ringway_host::Pace). Behind the device is a remote end that
//! answers. Everything is a function of the load, the policy and the seed.
//!
//! The guest is Linux: it asks to be called about every packet once it has taken all, and about
//! used transmit buffers after three quarters of them.
//!
//! Limits: one guest, one queue pair. Costs are the few that decide (see [`Costs`]); caches,
//! scheduling and other guests are not modelled, so the numbers compare policies and predict
//! nothing else.

mod device;
mod load;
mod outcome;
mod parts;
mod ring_model;
mod sim;

pub use load::{LOADS, Load};
pub use outcome::{Outcome, Waits};
pub use ring_model::RingModel;
pub use sim::simulate;

/// The costs of each action, in nanoseconds of virtual time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// As in the golden table.
    pub name: &'static str,
    /// From a notification, or the end of a timer, until a sleeping side runs.
    pub wake_ns: u64,
    /// A kick costs the guest so much: an exit to the monitor, or a system call.
    pub kick_ns: u64,
    /// A call costs the device one system call.
    pub call_ns: u64,
    /// One packet in the device: a few cache lines (0.1 µs each from the other core) and a copy.
    pub device_packet_ns: u64,
    /// One visit of the device: looking at the ring, publishing, arming.
    pub device_visit_ns: u64,
    /// One packet in the guest's network stack.
    pub guest_packet_ns: u64,
    /// 1,024 bytes of a packet, copied in the device, and in the guest.
    pub kib_ns: [u64; 2],
    /// One way between the device and the remote end, answer included.
    pub remote_ns: u64,
}

impl Costs {
    /// User Mode Linux beside a worker on two virtual processors, measured: a wake-up is one way of
    /// an eventfd between two threads that sleep.
    pub const USER_MODE_LINUX: Self = Self {
        name: "User Mode Linux",
        wake_ns: 30_000,
        kick_ns: 2_000,
        call_ns: 1_000,
        device_packet_ns: 500,
        device_visit_ns: 500,
        guest_packet_ns: 1_000,
        kib_ns: [150, 150],
        remote_ns: 10_000,
    };

    /// QEMU's software emulation, measured: it sends a packet of 64 KiB every 150 to 200 µs, and
    /// its processor takes an interrupt between two translated blocks.
    pub const EMULATED: Self = Self {
        name: "emulated",
        wake_ns: 60_000,
        kick_ns: 5_000,
        guest_packet_ns: 6_000,
        kib_ns: [150, 2_000],
        ..Self::USER_MODE_LINUX
    };

    /// KVM with a guest that halts. An interrupt to a halted virtual processor takes 5 to 15 µs,
    /// the exit for a kick (ioeventfd) 1 to 2 µs (Linux, Documentation/virt/kvm/halt-polling.rst;
    /// Har'El et al., "Efficient and Scalable Paravirtual I/O System", USENIX ATC 2013).
    pub const KVM_IDLE: Self = Self {
        name: "KVM, idle guest",
        wake_ns: 12_000,
        kick_ns: 1_500,
        call_ns: 700,
        guest_packet_ns: 700,
        kib_ns: [100, 100],
        ..Self::USER_MODE_LINUX
    };

    /// KVM with a guest that polls before it halts, and interrupts posted to a running processor
    /// (the same sources): little more than a line of memory that moves.
    pub const KVM_POLLING: Self =
        Self { name: "KVM, polling guest", wake_ns: 4_000, ..Self::KVM_IDLE };

    /// All profiles of the golden table.
    pub const ALL: [Self; 4] =
        [Self::USER_MODE_LINUX, Self::EMULATED, Self::KVM_IDLE, Self::KVM_POLLING];

    /// To copy a packet of `len` bytes in the device.
    fn copy_ns(&self, len: u32) -> u64 {
        self.kib_ns[0] * u64::from(len / 1024)
    }

    /// To copy a packet of `len` bytes in the guest.
    fn guest_copy_ns(&self, len: u32) -> u64 {
        self.kib_ns[1] * u64::from(len / 1024)
    }
}
