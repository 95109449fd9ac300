//! The messages of vhost-user as types: what a front-end asks, what a back-end replies.
//!
//! A [`Request`] owns the file descriptors that came with it; whatever drops the request closes
//! them. Indexes and sizes are kept as wide as on the wire, so that nothing is cut off before it
//! has been checked. What this back-end never offers (IOTLB, in-flight buffers, postcopy, crypto,
//! shared objects, in-band kicks) exists only as [`Request::NotOffered`].

use std::os::fd::{AsFd, BorrowedFd};

use ringway_foreign::UntrustedFd;

use bitflags::bitflags;
use thiserror::Error;

pub(crate) use crate::code;

/// Most bytes of configuration space that one message may carry.
pub const CONFIG_LEN_MAX: u32 = 256;

/// `VHOST_USER_F_PROTOCOL_FEATURES`: the feature bit that is about vhost-user, not virtio.
pub(crate) const PROTOCOL_FEATURES_BIT: u64 = 1 << 30;

bitflags! {
    /// Optional parts of the protocol (vhost-user, "Protocol features").
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ProtocolFeatures: u64 {
        /// More than one queue pair; `GET_QUEUE_NUM`.
        const MQ = 1 << 0;
        /// The log of written pages is a file: `SET_LOG_BASE`.
        const LOG_SHMFD = 1 << 1;
        /// `SEND_RARP`
        const RARP = 1 << 2;
        /// A front-end may ask for an acknowledgement of any request.
        const REPLY_ACK = 1 << 3;
        /// `NET_SET_MTU`
        const NET_MTU = 1 << 4;
        /// The back-end may send requests on a channel of its own.
        const BACKEND_REQ = 1 << 5;
        /// `GET_CONFIG`, `SET_CONFIG`, and the notice that the configuration changed.
        const CONFIG = 1 << 9;
        /// `RESET_DEVICE`
        const RESET_DEVICE = 1 << 13;
        /// Memory regions are added and removed one by one.
        const CONFIGURE_MEM_SLOTS = 1 << 15;
        /// `SET_STATUS`, `GET_STATUS`
        const STATUS = 1 << 16;
        /// `SET_DEVICE_STATE_FD`, `CHECK_DEVICE_STATE`
        const DEVICE_STATE = 1 << 19;
    }
}

/// A front-end's request and whether it waits for an acknowledgement.
#[derive(Debug)]
pub struct Message {
    /// The request.
    pub request: Request,
    /// The `NEED_REPLY` flag. Requests that have a reply of their own are answered either way.
    pub reply_wanted: bool,
}

impl Message {
    /// The same request, not to be fulfilled; its fds are closed.
    #[must_use]
    pub fn refused(self, why: WhyMalformed) -> Self {
        Self { request: Request::Malformed { code: self.request.code(), why }, ..self }
    }
}

/// A range of guest memory as the front-end sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// First guest-physical address.
    pub guest_address: u64,
    /// Bytes.
    pub size: u64,
    /// Where the front-end itself has it mapped; ring addresses are given in this space.
    pub user_address: u64,
}

/// A range of guest memory and the file that holds it.
#[derive(Debug)]
pub struct MemoryRegion {
    /// First guest-physical address.
    pub guest_address: u64,
    /// Bytes.
    pub size: u64,
    /// Where the front-end itself has it mapped.
    pub user_address: u64,
    /// Where in the file it begins, bytes.
    pub mmap_offset: u64,
    /// The file.
    pub fd: UntrustedFd,
}

impl MemoryRegion {
    /// The addresses alone.
    pub fn range(&self) -> MemoryRange {
        MemoryRange {
            guest_address: self.guest_address,
            size: self.size,
            user_address: self.user_address,
        }
    }
}

/// `SET_VRING_ADDR`: where the parts of a ring are, in the front-end's own address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VringAddress {
    /// The index of the ring.
    pub index: u32,
    /// Bit 0: where pages are logged, writes to the device area count as writes at `log`.
    pub flags: u32,
    /// Descriptor area.
    pub descriptor: u64,
    /// Device area (split: used ring).
    pub device: u64,
    /// Driver area (split: available ring).
    pub driver: u64,
    /// Guest-physical.
    pub log: u64,
}

/// `SET_LOG_BASE`: where the pages are marked that the back-end writes. A page is 4,096 bytes of
/// guest-physical addresses; its bit is number `page % 8` of byte `page / 8`.
#[derive(Debug)]
pub struct LogArea {
    /// Bytes.
    pub size: u64,
    /// Where in the file it begins, bytes.
    pub offset: u64,
    /// The file; `None`: none came.
    pub fd: Option<UntrustedFd>,
}

/// `SET_VRING_KICK`, `_CALL`, `_ERR`: a ring and its notification fd, or none.
#[derive(Debug)]
pub struct VringFd {
    /// The index of the ring; everything of the payload but the "no fd" flag.
    pub index: u64,
    /// `None`: the front-end says that there is none.
    pub fd: Option<UntrustedFd>,
}

/// `SET_DEVICE_STATE_FD`: what the back-end knows of the guest beside its memory and its rings is
/// to go through a file, or comes through it.
#[derive(Debug)]
pub struct StateRequest {
    /// 0: the back-end writes it. 1: the back-end reads it.
    pub direction: u32,
    /// 0: the device is stopped. The document has no other.
    pub phase: u32,
    /// A pipe or a socket; `None`: none came.
    pub fd: Option<UntrustedFd>,
}

/// Everything a front-end may ask of a network back-end.
#[derive(Debug)]
#[allow(missing_docs)] // the variants are the document's requests, the fields its payloads
pub enum Request {
    GetFeatures,
    SetFeatures(u64),
    SetOwner,
    ResetOwner,
    SetMemTable(Vec<MemoryRegion>),
    SetLogBase(LogArea),
    /// Its fd, through which a front-end could be told of marks, is closed.
    SetLogFd,
    SetVringNum {
        index: u32,
        size: u32,
    },
    SetVringAddr(VringAddress),
    SetVringBase {
        index: u32,
        base: u32,
    },
    GetVringBase {
        index: u32,
    },
    SetVringKick(VringFd),
    SetVringCall(VringFd),
    SetVringErr(VringFd),
    GetProtocolFeatures,
    SetProtocolFeatures(u64),
    GetQueueNum,
    SetVringEnable {
        index: u32,
        enable: bool,
    },
    SendRarp([u8; 6]),
    NetSetMtu(u64),
    SetBackendReqFd(UntrustedFd),
    GetConfig {
        offset: u32,
        size: u32,
        flags: u32,
    },
    SetConfig {
        offset: u32,
        flags: u32,
        bytes: Vec<u8>,
    },
    ResetDevice,
    GetMaxMemSlots,
    AddMemReg(MemoryRegion),
    RemMemReg(MemoryRange),
    SetStatus(u64),
    GetStatus,
    SetDeviceStateFd(StateRequest),
    CheckDeviceState,
    /// In the document, but belongs to a protocol feature that is never offered.
    NotOffered {
        code: u32,
    },
    /// Not in the document as known here.
    Unknown {
        code: u32,
    },
    /// A known request whose payload or fds are not as they must be.
    Malformed {
        code: u32,
        why: WhyMalformed,
    },
}

/// The fault in one message; the connection can go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WhyMalformed {
    /// Its content could not be kept for a successor of this process.
    #[error("it is more than is kept of one front-end")]
    NotKept,
    /// Fewer bytes than the request needs.
    #[error("its payload of {len} bytes is too short")]
    Short {
        /// Bytes that came.
        len: usize,
    },
    /// Fewer file descriptors than the request needs.
    #[error("it needs {needed} file descriptors and came with {came}")]
    MissingFds {
        /// Needed.
        needed: usize,
        /// Came.
        came: usize,
    },
    /// File descriptors came with it that this process has no room for.
    #[error(
        "not all of its file descriptors could be received: ringway may have no more: allow more: \
         LimitNOFILE= in its unit, or ulimit -Hn before it is started"
    )]
    LostFds,
    /// A socket of a connection to this process: the connection would never be seen to end.
    #[error("it brings along a socket that is connected to ringway itself")]
    OwnSocket,
    /// A count in the payload is beyond the limit.
    #[error("it announces {count} entries, the limit is {limit}")]
    TooMany {
        /// Announced.
        count: u32,
        /// Accepted at most.
        limit: u32,
    },
    /// It is marked as a reply, but nothing was asked.
    #[error("it is marked as a reply, but nothing was asked")]
    IsReply,
}

/// The answer of a back-end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A number: features, a limit, or an acknowledgement (0: done, 1: refused).
    U64(u64),
    /// `GET_VRING_BASE`
    VringState {
        /// The index of the ring.
        index: u32,
        /// Its position, encoded.
        base: u32,
    },
    /// `SET_LOG_BASE`: its payload.
    Log {
        /// As told.
        size: u64,
        /// As told.
        offset: u64,
    },
    /// `GET_CONFIG`
    Config {
        /// As asked.
        offset: u32,
        /// As asked.
        flags: u32,
        /// As many as asked.
        bytes: Vec<u8>,
    },
    /// No payload: a request with a reply of its own cannot be fulfilled.
    Empty,
}

impl Reply {
    /// "Done."
    pub const ACK: Self = Self::U64(0);
    /// "Refused."
    pub const NACK: Self = Self::U64(1);
    /// Of `SET_DEVICE_STATE_FD`: done, and no file descriptor comes with the reply (bit 8).
    pub const STATE_ACK: Self = Self::U64(1 << 8);
    /// The same: refused.
    pub const STATE_NACK: Self = Self::U64(1 << 8 | 1);
}

impl Request {
    /// Its number on the wire.
    pub fn code(&self) -> u32 {
        match self {
            Self::GetFeatures => code::GET_FEATURES,
            Self::SetFeatures(_) => code::SET_FEATURES,
            Self::SetOwner => code::SET_OWNER,
            Self::ResetOwner => code::RESET_OWNER,
            Self::SetMemTable(_) => code::SET_MEM_TABLE,
            Self::SetLogBase(_) => code::SET_LOG_BASE,
            Self::SetLogFd => code::SET_LOG_FD,
            Self::SetVringNum { .. } => code::SET_VRING_NUM,
            Self::SetVringAddr(_) => code::SET_VRING_ADDR,
            Self::SetVringBase { .. } => code::SET_VRING_BASE,
            Self::GetVringBase { .. } => code::GET_VRING_BASE,
            Self::SetVringKick(_) => code::SET_VRING_KICK,
            Self::SetVringCall(_) => code::SET_VRING_CALL,
            Self::SetVringErr(_) => code::SET_VRING_ERR,
            Self::GetProtocolFeatures => code::GET_PROTOCOL_FEATURES,
            Self::SetProtocolFeatures(_) => code::SET_PROTOCOL_FEATURES,
            Self::GetQueueNum => code::GET_QUEUE_NUM,
            Self::SetVringEnable { .. } => code::SET_VRING_ENABLE,
            Self::SendRarp(_) => code::SEND_RARP,
            Self::NetSetMtu(_) => code::NET_SET_MTU,
            Self::SetBackendReqFd(_) => code::SET_BACKEND_REQ_FD,
            Self::GetConfig { .. } => code::GET_CONFIG,
            Self::SetConfig { .. } => code::SET_CONFIG,
            Self::ResetDevice => code::RESET_DEVICE,
            Self::GetMaxMemSlots => code::GET_MAX_MEM_SLOTS,
            Self::AddMemReg(_) => code::ADD_MEM_REG,
            Self::RemMemReg(_) => code::REM_MEM_REG,
            Self::SetStatus(_) => code::SET_STATUS,
            Self::GetStatus => code::GET_STATUS,
            Self::SetDeviceStateFd(_) => code::SET_DEVICE_STATE_FD,
            Self::CheckDeviceState => code::CHECK_DEVICE_STATE,
            Self::NotOffered { code } | Self::Unknown { code } | Self::Malformed { code, .. } => {
                *code
            }
        }
    }

    /// The file descriptors that travel with it.
    pub fn fds(&self) -> Vec<BorrowedFd<'_>> {
        match self {
            Self::SetMemTable(regions) => regions.iter().map(|region| region.fd.as_fd()).collect(),
            Self::AddMemReg(region) => vec![region.fd.as_fd()],
            Self::SetLogBase(area) => area.fd.iter().map(|fd| fd.as_fd()).collect(),
            Self::SetDeviceStateFd(state) => state.fd.iter().map(|fd| fd.as_fd()).collect(),
            Self::SetVringKick(vring) | Self::SetVringCall(vring) | Self::SetVringErr(vring) => {
                vring.fd.iter().map(|fd| fd.as_fd()).collect()
            }
            Self::SetBackendReqFd(fd) => vec![fd.as_fd()],
            _ => Vec::new(),
        }
    }
}

/// Whether the request with this number is answered by more than an acknowledgement.
pub(crate) fn has_own_reply(code: u32) -> bool {
    matches!(
        code,
        code::GET_FEATURES
            | code::GET_PROTOCOL_FEATURES
            | code::SET_LOG_BASE
            | code::GET_VRING_BASE
            | code::GET_QUEUE_NUM
            | code::GET_CONFIG
            | code::GET_MAX_MEM_SLOTS
            | code::GET_STATUS
            | code::SET_DEVICE_STATE_FD
            | code::CHECK_DEVICE_STATE
    )
}
