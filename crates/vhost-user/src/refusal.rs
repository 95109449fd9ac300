//! Why a session refused a request.

use std::io;

use thiserror::Error;

use crate::message::WhyMalformed;
use crate::names::request_name;

/// Why a request was refused.
#[derive(Debug, Error)]
pub enum Refusal {
    /// The message itself is wrong.
    #[error("{}: {why}", request_name(*.code))]
    Malformed {
        /// The code of the request.
        code: u32,
        /// In what way.
        why: WhyMalformed,
    },
    /// A request of a protocol feature that was never offered.
    #[error("{}: not offered", request_name(*.code))]
    NotOffered {
        /// The code of the request.
        code: u32,
    },
    /// A request that is not known.
    #[error("request {code}: not known")]
    Unknown {
        /// The code of the request.
        code: u32,
    },
    /// A ring that this device does not have.
    #[error("ring {index}: the device has {rings} rings")]
    NoSuchRing {
        /// The index of the ring.
        index: u64,
        /// How many there are.
        rings: usize,
    },
    /// The ring runs; this can only be set while it is stopped.
    #[error("ring {index}: cannot be changed while it runs")]
    RingRuns {
        /// The index of the ring.
        index: u16,
    },
    /// Not a queue size.
    #[error("ring {index}: queue size {size} is not possible: 1 to 32768, a power of two if split")]
    BadQueueSize {
        /// The index of the ring.
        index: u16,
        /// Entries.
        size: u32,
    },
    /// A part of the ring is not inside one memory region.
    #[error("ring {index}: its addresses are outside the memory table")]
    RingOutsideMemory {
        /// The index of the ring.
        index: u16,
    },
    /// Features that were not offered.
    #[error("features {bits:#x} were not offered")]
    FeaturesNotOffered {
        /// The bits too many.
        bits: u64,
    },
    /// `ACCESS_PLATFORM`: the addresses in the rings are those of an IOMMU.
    #[error(
        "ACCESS_PLATFORM: no addresses of a vIOMMU are translated: start the guest without one"
    )]
    NeedsTranslation,
    /// `LOG_ALL` needs a file in which pages are marked.
    #[error("LOG_ALL: the protocol feature LOG_SHMFD was not accepted")]
    LogWithoutFile,
    /// An area in which no page can be marked.
    #[error(
        "log of written pages: {size} bytes at {offset} of {} cannot be one",
        if *.has_fd { "a file" } else { "no file" }
    )]
    BadLog {
        /// Bytes.
        size: u64,
        /// Where it begins in its file, bytes.
        offset: u64,
        /// Whether a file came.
        has_fd: bool,
    },
    /// An area in which not all pages of the memory table have a bit.
    #[error("log of written pages: {size} bytes, the memory needs {needed}")]
    ShortLog {
        /// Bytes.
        size: u64,
        /// Bytes.
        needed: u64,
    },
    /// Protocol features that were not offered.
    #[error("protocol features {bits:#x} were not offered")]
    ProtocolFeaturesNotOffered {
        /// The bits too many.
        bits: u64,
    },
    /// A region that is empty or ends beyond 64 bits.
    #[error("memory region {guest_address:#x}: its size {size:#x} is not possible")]
    BadRegion {
        /// First guest-physical address.
        guest_address: u64,
        /// Bytes.
        size: u64,
    },
    /// A region that shares guest-physical addresses with another one.
    #[error("memory region {guest_address:#x}: overlaps another region")]
    RegionOverlaps {
        /// First guest-physical address.
        guest_address: u64,
    },
    /// More regions than there are slots.
    #[error("more than {limit} memory regions")]
    TooManyRegions {
        /// Slots.
        limit: usize,
    },
    /// No region like this one is in the table.
    #[error("memory region {guest_address:#x}: not in the table")]
    NoSuchRegion {
        /// First guest-physical address.
        guest_address: u64,
    },
    /// Nothing in the configuration space can be written.
    #[error("the configuration space cannot be written")]
    ConfigNotWritable,
    /// Beyond the end of the largest configuration space.
    #[error("configuration space: {size} bytes at {offset} are beyond its end")]
    ConfigOutOfRange {
        /// First byte.
        offset: u32,
        /// Bytes.
        size: u32,
    },
    /// Not an MTU.
    #[error("MTU {mtu} is not possible: 68 to 65535")]
    BadMtu {
        /// Bytes.
        mtu: u64,
    },
    /// Not a device status.
    #[error("device status {status:#x} has bits beyond the eighth")]
    BadStatus {
        /// As sent.
        status: u64,
    },
    /// A transfer of the device's state without the protocol feature.
    #[error("{}: the protocol feature DEVICE_STATE was not accepted", request_name(*.code))]
    StateNotAccepted {
        /// The code of the request.
        code: u32,
    },
    /// A transfer that the document does not know.
    #[error("SET_DEVICE_STATE_FD: direction {direction} in phase {phase} is not known")]
    UnknownTransfer {
        /// As sent.
        direction: u32,
        /// As sent.
        phase: u32,
    },
    /// A transfer of the state of a device that runs.
    #[error("SET_DEVICE_STATE_FD: ring {index} runs")]
    StateOfRunning {
        /// The first such ring.
        index: u16,
    },
    /// A transfer without a file.
    #[error("SET_DEVICE_STATE_FD: no file descriptor came with it")]
    StateWithoutFile,
    /// A file descriptor could not be duplicated.
    #[error("no file descriptor left: {0}")]
    NoFd(#[from] io::Error),
}
