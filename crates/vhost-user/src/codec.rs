//! Bytes and file descriptors ↔ messages. Total: every input gives a message or an error.
//!
//! A message is a header of 12 bytes (request, flags, payload length; little endian) and a
//! payload. Two failures are kept apart. A header that cannot be believed ends the connection
//! ([`HeaderError`]), because the start of the next message is unknown. Everything else is about
//! one message only: it becomes [`Request::Malformed`] and is refused. A payload longer than needed
//! is accepted (User Mode Linux pads its memory table), fds that no request needs are closed.

mod encode;

use ringway_foreign::UntrustedFd;
use thiserror::Error;

pub use encode::{encode, encode_config_change, encode_reply};

use crate::message::{
    LogArea, MemoryRange, MemoryRegion, Message, Reply, Request, StateRequest, VringAddress,
    VringFd, WhyMalformed, code,
};

/// Bytes of a header.
pub const HEADER_LEN: usize = 12;

/// Most bytes of a payload. The longest honest one is a `SET_CONFIG` of 4 KiB.
pub const PAYLOAD_LEN_MAX: u32 = 4096 + 64;

/// Most regions in one `SET_MEM_TABLE`. The document has 8; front-ends exist that send more.
pub const TABLE_REGIONS_MAX: u32 = 32;

const VERSION: u32 = 1;
const VERSION_MASK: u32 = 3;
const FLAG_REPLY: u32 = 1 << 2;
const FLAG_NEED_REPLY: u32 = 1 << 3;

/// In the payload of `SET_VRING_KICK`, `_CALL`, `_ERR`: no fd comes along.
const NO_FD: u64 = 1 << 8;

/// `BACKEND_CONFIG_CHANGE_MSG`, the one request this back-end sends.
const BACKEND_CONFIG_CHANGE: u32 = 2;

/// Why a connection cannot go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum HeaderError {
    /// Not protocol version 1.
    #[error("vhost-user version {version}, only version 1 is known")]
    Version {
        /// The version that the header says.
        version: u32,
    },
    /// Longer than any honest message.
    #[error("vhost-user payload of {len} bytes, the limit is {PAYLOAD_LEN_MAX}")]
    PayloadTooLong {
        /// The length that the header says.
        len: u32,
    },
    /// The bytes are not one whole message.
    #[error("vhost-user message of {len} bytes does not have the length that its header says")]
    WrongLength {
        /// Bytes given.
        len: usize,
    },
}

/// The first 12 bytes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Request number.
    pub code: u32,
    /// Version and flags.
    pub flags: u32,
    /// Bytes that follow.
    pub payload_len: u32,
}

impl Header {
    /// Reads and checks a header.
    ///
    /// # Errors
    /// [`HeaderError`]: the connection cannot go on.
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let header = Self { code: word(0), flags: word(4), payload_len: word(8) };
        let version = header.flags & VERSION_MASK;
        if version != VERSION {
            return Err(HeaderError::Version { version });
        }
        if header.payload_len > PAYLOAD_LEN_MAX {
            return Err(HeaderError::PayloadTooLong { len: header.payload_len });
        }
        Ok(header)
    }

    /// Whether this is a reply.
    pub fn is_reply(&self) -> bool {
        self.flags & FLAG_REPLY != 0
    }
}

/// Splits one whole message into its header and its payload.
///
/// # Errors
/// [`HeaderError`]: the connection cannot go on.
pub fn split(bytes: &[u8]) -> Result<(Header, &[u8]), HeaderError> {
    let wrong = HeaderError::WrongLength { len: bytes.len() };
    let (header, payload) = bytes.split_first_chunk().ok_or(wrong)?;
    let header = Header::parse(header)?;
    if payload.len() != header.payload_len as usize {
        return Err(wrong);
    }
    Ok((header, payload))
}

/// Makes a request of one whole message. All `fds` that it does not use are closed.
///
/// # Errors
/// [`HeaderError`]: the connection cannot go on. Anything else is a [`Request::Malformed`].
pub fn decode(bytes: &[u8], fds: Vec<UntrustedFd>) -> Result<Message, HeaderError> {
    let (header, payload) = split(bytes)?;
    let code = header.code;
    let request = if header.is_reply() {
        Err(WhyMalformed::IsReply)
    } else {
        parse_request(code, Payload { left: payload, len: payload.len() }, fds)
    };
    Ok(Message {
        request: request.unwrap_or_else(|why| Request::Malformed { code, why }),
        reply_wanted: header.flags & FLAG_NEED_REPLY != 0,
    })
}

fn parse_request(
    code: u32,
    mut payload: Payload<'_>,
    mut fds: Vec<UntrustedFd>,
) -> Result<Request, WhyMalformed> {
    Ok(match code {
        code::GET_FEATURES => Request::GetFeatures,
        code::SET_FEATURES => Request::SetFeatures(payload.u64()?),
        code::SET_OWNER => Request::SetOwner,
        code::RESET_OWNER => Request::ResetOwner,
        code::SET_MEM_TABLE => Request::SetMemTable(memory_table(payload, fds)?),
        code::SET_LOG_BASE => Request::SetLogBase(log_area(payload, fds)?),
        code::SET_LOG_FD => Request::SetLogFd,
        code::SET_VRING_NUM => Request::SetVringNum { index: payload.u32()?, size: payload.u32()? },
        code::SET_VRING_ADDR => Request::SetVringAddr(vring_address(payload)?),
        code::SET_VRING_BASE => {
            Request::SetVringBase { index: payload.u32()?, base: payload.u32()? }
        }
        code::GET_VRING_BASE => Request::GetVringBase { index: payload.u32()? },
        code::SET_VRING_KICK => Request::SetVringKick(vring_fd(payload, fds)?),
        code::SET_VRING_CALL => Request::SetVringCall(vring_fd(payload, fds)?),
        code::SET_VRING_ERR => Request::SetVringErr(vring_fd(payload, fds)?),
        code::GET_PROTOCOL_FEATURES => Request::GetProtocolFeatures,
        code::SET_PROTOCOL_FEATURES => Request::SetProtocolFeatures(payload.u64()?),
        code::GET_QUEUE_NUM => Request::GetQueueNum,
        code::SET_VRING_ENABLE => {
            Request::SetVringEnable { index: payload.u32()?, enable: payload.u32()? != 0 }
        }
        code::SEND_RARP => Request::SendRarp(mac_address(payload.u64()?)),
        code::NET_SET_MTU => Request::NetSetMtu(payload.u64()?),
        code::SET_BACKEND_REQ_FD => Request::SetBackendReqFd(one_fd(&mut fds)?),
        code::GET_CONFIG => Request::GetConfig {
            offset: payload.u32()?,
            size: payload.u32()?,
            flags: payload.u32()?,
        },
        code::SET_CONFIG => set_config(payload)?,
        code::RESET_DEVICE => Request::ResetDevice,
        code::GET_MAX_MEM_SLOTS => Request::GetMaxMemSlots,
        code::ADD_MEM_REG => {
            payload.u64()?; // padding
            let (range, mmap_offset) = payload.region()?;
            Request::AddMemReg(region(range, mmap_offset, one_fd(&mut fds)?))
        }
        code::REM_MEM_REG => {
            payload.u64()?; // padding
            Request::RemMemReg(payload.region()?.0)
        }
        code::SET_STATUS => Request::SetStatus(payload.u64()?),
        code::GET_STATUS => Request::GetStatus,
        code::SET_DEVICE_STATE_FD => Request::SetDeviceStateFd(state_request(payload, fds)?),
        code::CHECK_DEVICE_STATE => Request::CheckDeviceState,
        code::IOTLB_MSG | code::SET_VRING_ENDIAN | code::VRING_KICK => Request::NotOffered { code },
        26..=code::GPU_SET_SOCKET | code::GET_SHARED_OBJECT => Request::NotOffered { code },
        _ => Request::Unknown { code },
    })
}

fn memory_table(
    mut payload: Payload<'_>,
    fds: Vec<UntrustedFd>,
) -> Result<Vec<MemoryRegion>, WhyMalformed> {
    let count = payload.u32()?;
    payload.u32()?; // padding
    if count > TABLE_REGIONS_MAX {
        return Err(WhyMalformed::TooMany { count, limit: TABLE_REGIONS_MAX });
    }
    let (needed, came) = (count as usize, fds.len());
    if came < needed {
        return Err(WhyMalformed::MissingFds { needed, came });
    }
    let mut regions = Vec::with_capacity(needed);
    for fd in fds.into_iter().take(needed) {
        let (range, mmap_offset) = payload.region()?;
        regions.push(region(range, mmap_offset, fd));
    }
    Ok(regions)
}

fn region(range: MemoryRange, mmap_offset: u64, fd: UntrustedFd) -> MemoryRegion {
    let MemoryRange { guest_address, size, user_address } = range;
    MemoryRegion { guest_address, size, user_address, mmap_offset, fd }
}

/// Without an fd it is no area, and its sender waits for an answer all the same.
fn log_area(mut payload: Payload<'_>, mut fds: Vec<UntrustedFd>) -> Result<LogArea, WhyMalformed> {
    let (size, offset) = (payload.u64()?, payload.u64()?);
    Ok(LogArea { size, offset, fd: one_fd(&mut fds).ok() })
}

/// The same holds here.
fn state_request(
    mut payload: Payload<'_>,
    mut fds: Vec<UntrustedFd>,
) -> Result<StateRequest, WhyMalformed> {
    let (direction, phase) = (payload.u32()?, payload.u32()?);
    Ok(StateRequest { direction, phase, fd: one_fd(&mut fds).ok() })
}

fn vring_address(mut payload: Payload<'_>) -> Result<VringAddress, WhyMalformed> {
    Ok(VringAddress {
        index: payload.u32()?,
        flags: payload.u32()?,
        descriptor: payload.u64()?,
        device: payload.u64()?,
        driver: payload.u64()?,
        log: payload.u64()?,
    })
}

fn vring_fd(mut payload: Payload<'_>, mut fds: Vec<UntrustedFd>) -> Result<VringFd, WhyMalformed> {
    let value = payload.u64()?;
    let fd = if value & NO_FD == 0 { Some(one_fd(&mut fds)?) } else { None };
    Ok(VringFd { index: value & !NO_FD, fd })
}

fn one_fd(fds: &mut Vec<UntrustedFd>) -> Result<UntrustedFd, WhyMalformed> {
    fds.drain(..).next().ok_or(WhyMalformed::MissingFds { needed: 1, came: 0 })
}

/// The front-end copies the six bytes of the address to the start of a 64-bit word.
fn mac_address(word: u64) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = word.to_le_bytes();
    [a, b, c, d, e, f]
}

fn set_config(mut payload: Payload<'_>) -> Result<Request, WhyMalformed> {
    let offset = payload.u32()?;
    let size = payload.u32()?;
    let flags = payload.u32()?;
    let bytes = payload.bytes(size)?.to_vec();
    Ok(Request::SetConfig { offset, flags, bytes })
}

/// Makes a reply of one whole message, on the front-end's side. `None`: not a reply to `code`, or
/// a payload that is too short.
///
/// # Errors
/// [`HeaderError`]: the connection cannot go on.
pub fn decode_reply(code: u32, bytes: &[u8]) -> Result<Option<Reply>, HeaderError> {
    let (header, payload) = split(bytes)?;
    if !header.is_reply() || header.code != code {
        return Ok(None);
    }
    Ok(parse_reply(code, Payload { left: payload, len: payload.len() }).ok())
}

fn parse_reply(code: u32, mut payload: Payload<'_>) -> Result<Reply, WhyMalformed> {
    if payload.len == 0 {
        return Ok(Reply::Empty);
    }
    Ok(match code {
        code::SET_LOG_BASE => Reply::Log { size: payload.u64()?, offset: payload.u64()? },
        code::GET_VRING_BASE => Reply::VringState { index: payload.u32()?, base: payload.u32()? },
        code::GET_CONFIG => {
            let offset = payload.u32()?;
            let size = payload.u32()?;
            let flags = payload.u32()?;
            Reply::Config { offset, flags, bytes: payload.bytes(size)?.to_vec() }
        }
        _ => Reply::U64(payload.u64()?),
    })
}

/// Whether a message on the back-end's channel says that the configuration space changed.
pub fn is_config_change(bytes: &[u8]) -> bool {
    split(bytes).is_ok_and(|(header, _)| header.code == BACKEND_CONFIG_CHANGE && !header.is_reply())
}

/// The rest of a payload.
struct Payload<'a> {
    left: &'a [u8],
    len: usize,
}

impl<'a> Payload<'a> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], WhyMalformed> {
        let (array, rest) =
            self.left.split_first_chunk().ok_or(WhyMalformed::Short { len: self.len })?;
        self.left = rest;
        Ok(*array)
    }

    fn u32(&mut self) -> Result<u32, WhyMalformed> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WhyMalformed> {
        self.array().map(u64::from_le_bytes)
    }

    fn bytes(&mut self, len: u32) -> Result<&'a [u8], WhyMalformed> {
        let short = WhyMalformed::Short { len: self.len };
        let (bytes, rest) = self.left.split_at_checked(len as usize).ok_or(short)?;
        self.left = rest;
        Ok(bytes)
    }

    fn region(&mut self) -> Result<(MemoryRange, u64), WhyMalformed> {
        let guest_address = self.u64()?;
        let size = self.u64()?;
        let user_address = self.u64()?;
        Ok((MemoryRange { guest_address, size, user_address }, self.u64()?))
    }
}
