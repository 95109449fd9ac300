//! A vhost-user front-end that sends what it is told: any number, any payload, any fds.
//!
//! How: it shares no code with ringway's codec, so that both cannot be wrong together. Every
//! request asks for an acknowledgement. [`RawFrontEnd::bring_up`] starts a device with two queues
//! as a well-behaved front-end would, as the place from which a test goes astray.
//!
//! Limits: queues of 16 entries, which share two kick fds; one reply per request.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use ringway_virtq::Format;
use rustix::cmsg_space;
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::arena::TestMemory;

/// Most fds sent with one message.
pub const FDS_MAX: usize = 16;
/// Entries of each queue.
pub const QUEUE_SIZE: u32 = 16;

/// Version 1, and an acknowledgement is wanted.
const FLAGS: u32 = 1 | 8;
/// Version 1, and a reply: exactly so (vhost-user, "Header").
const REPLY_FLAGS: u32 = 1 | 4;
/// Longest wait for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// `VIRTIO_F_VERSION_1` and `VHOST_USER_F_PROTOCOL_FEATURES`.
pub const RAW_FEATURES: u64 = 1 << 32 | 1 << 30;
/// `VIRTIO_F_RING_PACKED`
const RING_PACKED: u64 = 1 << 34;

/// Where guest memory is: two regions that do not touch.
pub const REGIONS: [(u64, u64); 2] = [(0x1000_0000, 0x10_0000), (0x4000_0000, 0x10_0000)];
/// User addresses are guest-physical ones and this.
pub const USER_OFFSET: u64 = 0x7f00_0000_0000;

/// The answer to a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// An acknowledgement, or another number: 0 is success.
    Number(u64),
    /// A reply that is not just a number.
    Bytes(Vec<u8>),
    /// The connection is closed.
    Closed,
}

impl Answer {
    /// Whether the back-end has done it.
    pub fn is_done(&self) -> bool {
        *self == Self::Number(0)
    }
}

/// A front-end.
#[derive(Debug)]
pub struct RawFrontEnd {
    stream: UnixStream,
    /// Memory that is shared with the device.
    pub memory: TestMemory,
    /// Kick fds: one for receive queues, one for transmit queues.
    pub kicks: [OwnedFd; 2],
}

impl RawFrontEnd {
    /// Connects; nothing is said yet.
    ///
    /// # Errors
    /// No back-end listens.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        let kick = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        Ok(Self { stream, memory: TestMemory::new(&REGIONS)?, kicks: [kick()?, kick()?] })
    }

    /// Sends one request and waits for what comes back.
    ///
    /// # Errors
    /// Nothing comes back in time, or something that is no reply to this.
    pub fn request(
        &mut self,
        code: u32,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> io::Result<Answer> {
        let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
        let header = [code, FLAGS, len].map(u32::to_le_bytes).concat();
        match self.send(&[&header, payload].concat(), fds) {
            Ok(()) => self.answer(code),
            Err(error) if is_gone(&error) => Ok(Answer::Closed),
            Err(error) => Err(error),
        }
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FDS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::Error::other("too many fds"));
        }
        let flags = SendFlags::NOSIGNAL;
        sendmsg(&self.stream, &[io::IoSlice::new(bytes)], &mut ancillary, flags)?;
        Ok(())
    }

    /// Waits for the answer to a request that was sent.
    ///
    /// # Errors
    /// Nothing comes back in time, or something that is no reply to this.
    pub fn answer(&mut self, code: u32) -> io::Result<Answer> {
        let mut header = [0; 12];
        match self.stream.read_exact(&mut header) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => return Ok(Answer::Closed),
            Err(error) => return Err(error),
        }
        let word = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        if (word(0), word(4)) != (code, REPLY_FLAGS) {
            let what = format!("request {code} answered by {} with flags {}", word(0), word(4));
            return Err(io::Error::other(what));
        }
        let mut payload = vec![0; usize::try_from(word(8)).map_err(io::Error::other)?];
        self.stream.read_exact(&mut payload)?;
        Ok(match <[u8; 8]>::try_from(&payload[..]) {
            Ok(number) => Answer::Number(u64::from_le_bytes(number)),
            Err(_) => Answer::Bytes(payload),
        })
    }

    /// Goes through everything up to two running queues.
    ///
    /// # Errors
    /// The back-end refuses something.
    pub fn bring_up(&mut self, format: Format) -> io::Result<()> {
        let packed = if format == Format::Packed { RING_PACKED } else { 0 };
        self.bring_up_with(RAW_FEATURES | packed, 2)
    }

    /// The same with these features, up to so many running queues.
    ///
    /// # Errors
    /// The back-end refuses something.
    pub fn bring_up_with(&mut self, features: u64, queues: u32) -> io::Result<()> {
        self.must(3, &[], &[])?;
        let Answer::Number(offered) = self.request(15, &[], &[])? else {
            return Err(io::Error::other("no protocol features"));
        };
        self.must(16, &offered.to_le_bytes(), &[])?;
        self.must(2, &features.to_le_bytes(), &[])?;
        let table = self.memory_table();
        let file = self.memory.file().try_clone_to_owned()?;
        self.must(5, &table, &[file.as_fd(), file.as_fd()])?;
        for index in 0..queues {
            self.start_queue(index)?;
        }
        Ok(())
    }

    /// Starts and enables one queue.
    ///
    /// # Errors
    /// The back-end refuses something.
    pub fn start_queue(&mut self, index: u32) -> io::Result<()> {
        self.must(8, &pair(index, QUEUE_SIZE), &[])?;
        self.must(10, &pair(index, 0), &[])?;
        self.must(9, &self.addresses(index), &[])?;
        let kick = self.kicks[usize::try_from(index % 2).unwrap_or(0)].try_clone()?;
        self.must(12, &u64::from(index).to_le_bytes(), &[kick.as_fd()])?;
        self.must(13, &u64::from(index).to_le_bytes(), &[kick.as_fd()])?;
        self.must(18, &pair(index, 1), &[])
    }

    /// The payload of `SET_MEM_TABLE` for this front-end's memory.
    pub fn memory_table(&self) -> Vec<u8> {
        let mut table = pair(2, 0);
        for (at, (address, size)) in REGIONS.into_iter().enumerate() {
            let words = [address, size, address + USER_OFFSET, self.memory.file_offset(at)];
            table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        }
        table
    }

    /// The payload of `SET_VRING_ADDR` for a queue.
    pub fn addresses(&self, index: u32) -> Vec<u8> {
        let at = REGIONS[0].0 + USER_OFFSET + u64::from(index) * 0x1000;
        vring_addresses(index, [at, at + 0x400, at + 0x800])
    }

    fn must(&mut self, code: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        match self.request(code, payload, fds)? {
            answer if answer.is_done() => Ok(()),
            answer => Err(io::Error::other(format!("request {code} was answered {answer:?}"))),
        }
    }
}

/// Two words of 32 bits, as `SET_VRING_NUM` and others have them.
pub fn pair(first: u32, second: u32) -> Vec<u8> {
    [first.to_le_bytes(), second.to_le_bytes()].concat()
}

/// The payload of `SET_VRING_ADDR`: descriptor, device and driver area (in that order).
pub fn vring_addresses(index: u32, areas: [u64; 3]) -> Vec<u8> {
    let mut payload = pair(index, 0);
    payload.extend(areas.iter().flat_map(|area| area.to_le_bytes()));
    payload.extend(0_u64.to_le_bytes());
    payload
}

fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}
