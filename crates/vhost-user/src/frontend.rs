//! The front-end: negotiates with a back-end, shares memory, starts and stops queues.
//!
//! Every call waits for the back-end's answer, up to a timeout given once. Requests without a reply
//! of their own are acknowledged when the back-end offers that; a refusal is an error. When the
//! front-end is dropped, the connection is closed and the back-end stops all queues by itself.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ringway_virtq::Areas;
use thiserror::Error;

use crate::codec;
use crate::message::{
    MemoryRange, MemoryRegion, Message, PROTOCOL_FEATURES_BIT, ProtocolFeatures, Reply, Request,
    VringAddress, VringFd,
};
use crate::names::request_name;
use crate::socket::{Connection, Raw};
use crate::socket_error::SocketError;

/// Pause between two attempts to connect to a back-end that is busy.
const RETRY_AFTER: Duration = Duration::from_millis(10);

/// Why something with a back-end did not work.
#[derive(Debug, Error)]
pub enum FrontendError {
    /// The connection failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The back-end did not answer in time.
    #[error("the back-end did not answer {} within {timeout:?}", request_name(*.code))]
    Timeout {
        /// The code of the request.
        code: u32,
        /// How long it was waited for.
        timeout: Duration,
    },
    /// The back-end closed the connection.
    #[error("the back-end closed the connection at {}", request_name(*.code))]
    Closed {
        /// The code of the request at which that happened.
        code: u32,
    },
    /// The back-end said no.
    #[error("the back-end refused {}", request_name(*.code))]
    Refused {
        /// The code of the request.
        code: u32,
    },
    /// The back-end answered something else.
    #[error("the back-end's answer to {} makes no sense", request_name(*.code))]
    UnexpectedReply {
        /// The code of the request.
        code: u32,
    },
    /// Features that the back-end does not offer.
    #[error("features {bits:#x} are not offered by the back-end")]
    NotOffered {
        /// The bits too many.
        bits: u64,
    },
}

/// The facts that a back-end needs to start a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueStart<'a> {
    /// The index of the queue.
    pub index: u16,
    /// Entries.
    pub size: u16,
    /// Where the ring is, in the address space that the memory regions call `user_address`.
    pub areas: Areas,
    /// Where to continue, see [`base_from_position`](crate::base_from_position).
    pub base: u32,
    /// Driver → device: an eventfd.
    pub kick: BorrowedFd<'a>,
    /// Device → driver: an eventfd.
    pub call: BorrowedFd<'a>,
}

/// A connection to a back-end.
#[derive(Debug)]
pub struct Frontend {
    connection: Connection,
    timeout: Duration,
    offered: u64,
    protocol_features: ProtocolFeatures,
    /// Where the back-end tells that the configuration space changed.
    notices: Option<Connection>,
}

impl Frontend {
    /// Connects and negotiates the protocol.
    ///
    /// # Errors
    /// No process listens there, or one that is not a vhost-user back-end.
    pub fn connect(path: &Path, timeout: Duration) -> Result<Self, FrontendError> {
        let deadline = Instant::now() + timeout;
        loop {
            match Connection::connect(path) {
                // Too many others wait there, for a moment.
                Err(SocketError::Path { source, .. })
                    if source.kind() == io::ErrorKind::WouldBlock && Instant::now() < deadline =>
                {
                    std::thread::sleep(RETRY_AFTER);
                }
                connected => return Self::negotiate(connected?, timeout),
            }
        }
    }

    /// The same over a stream that is connected already.
    ///
    /// # Errors
    /// The other end is not a vhost-user back-end.
    pub fn from_stream(stream: UnixStream, timeout: Duration) -> Result<Self, FrontendError> {
        Self::negotiate(Connection::new(stream)?, timeout)
    }

    fn negotiate(connection: Connection, timeout: Duration) -> Result<Self, FrontendError> {
        let protocol_features = ProtocolFeatures::empty();
        let mut frontend =
            Self { connection, timeout, offered: 0, protocol_features, notices: None };
        frontend.tell(Request::SetOwner)?;
        frontend.offered = frontend.ask(Request::GetFeatures)?;
        if frontend.offered & PROTOCOL_FEATURES_BIT != 0 {
            let offered = frontend.ask(Request::GetProtocolFeatures)?;
            let accepted = ProtocolFeatures::from_bits_truncate(offered);
            frontend.tell(Request::SetProtocolFeatures(accepted.bits()))?;
            frontend.protocol_features = accepted;
        }
        if frontend.protocol_features.contains(ProtocolFeatures::BACKEND_REQ) {
            let (ours, theirs) = UnixStream::pair().map_err(SocketError::Io)?;
            frontend.tell(Request::SetBackendReqFd(OwnedFd::from(theirs).into()))?;
            frontend.notices = Some(Connection::new(ours)?);
        }
        Ok(frontend)
    }

    /// Virtio features that the back-end offers.
    pub fn offered_features(&self) -> u64 {
        self.offered & !PROTOCOL_FEATURES_BIT
    }

    /// Protocol features in use.
    pub fn protocol_features(&self) -> ProtocolFeatures {
        self.protocol_features
    }

    /// Accepts virtio features; no queue may run.
    ///
    /// # Errors
    /// [`FrontendError::NotOffered`], or the back-end refuses.
    pub fn accept_features(&mut self, features: u64) -> Result<(), FrontendError> {
        let bits = features & !self.offered_features();
        if bits != 0 {
            return Err(FrontendError::NotOffered { bits });
        }
        self.tell(Request::SetFeatures(features | (self.offered & PROTOCOL_FEATURES_BIT)))
    }

    /// Shares memory: the whole table. The fds are closed on this side.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn set_memory(&mut self, regions: Vec<MemoryRegion>) -> Result<(), FrontendError> {
        self.tell(Request::SetMemTable(regions))
    }

    /// Shares one more region.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn add_memory(&mut self, region: MemoryRegion) -> Result<(), FrontendError> {
        self.tell(Request::AddMemReg(region))
    }

    /// Takes one region back.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn remove_memory(&mut self, range: MemoryRange) -> Result<(), FrontendError> {
        self.tell(Request::RemMemReg(range))
    }

    /// Most regions that the back-end takes.
    ///
    /// # Errors
    /// The connection failed.
    pub fn memory_slots_max(&mut self) -> Result<u64, FrontendError> {
        self.ask(Request::GetMaxMemSlots)
    }

    /// Queue pairs that the back-end has.
    ///
    /// # Errors
    /// The connection failed.
    pub fn queue_pairs_max(&mut self) -> Result<u64, FrontendError> {
        self.ask(Request::GetQueueNum)
    }

    /// Tells everything about a queue; it runs as soon as it is enabled too.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn start_queue(&mut self, start: QueueStart<'_>) -> Result<(), FrontendError> {
        let index = u32::from(start.index);
        let Areas { descriptor, driver, device, .. } = start.areas;
        let log = 0;
        self.tell(Request::SetVringNum { index, size: start.size.into() })?;
        self.tell(Request::SetVringBase { index, base: start.base })?;
        let addresses = VringAddress { index, flags: 0, descriptor, device, driver, log };
        self.tell(Request::SetVringAddr(addresses))?;
        self.tell(Request::SetVringCall(vring_fd(start.index, start.call)?))?;
        self.tell(Request::SetVringKick(vring_fd(start.index, start.kick)?))
    }

    /// Enables or disables a queue.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn enable_queue(&mut self, index: u16, enable: bool) -> Result<(), FrontendError> {
        self.tell(Request::SetVringEnable { index: index.into(), enable })
    }

    /// Stops a queue. When this returns, the back-end does not touch its ring any more.
    /// The result is the base at which it can continue.
    ///
    /// # Errors
    /// The back-end has no such queue.
    pub fn stop_queue(&mut self, index: u16) -> Result<u32, FrontendError> {
        let request = Request::GetVringBase { index: index.into() };
        let code = request.code();
        match self.call(request)? {
            Reply::VringState { index: replied, base } if replied == u32::from(index) => Ok(base),
            Reply::Empty => Err(FrontendError::Refused { code }),
            _ => Err(FrontendError::UnexpectedReply { code }),
        }
    }

    /// The first `len` bytes of the configuration space.
    ///
    /// # Errors
    /// The back-end has none, or not so many.
    pub fn config(&mut self, len: u32) -> Result<Vec<u8>, FrontendError> {
        let request = Request::GetConfig { offset: 0, size: len, flags: 0 };
        let code = request.code();
        match self.call(request)? {
            Reply::Config { offset: 0, bytes, .. } if bytes.len() == len as usize => Ok(bytes),
            Reply::Empty => Err(FrontendError::Refused { code }),
            _ => Err(FrontendError::UnexpectedReply { code }),
        }
    }

    /// Whether the back-end has told, since this was asked last, that the configuration changed.
    ///
    /// # Errors
    /// The connection failed.
    pub fn config_changed(&mut self) -> Result<bool, FrontendError> {
        let Some(notices) = &mut self.notices else { return Ok(false) };
        let mut changed = false;
        while let Raw::Message(bytes, _) = notices.receive_raw()? {
            changed |= codec::is_config_change(&bytes);
        }
        Ok(changed)
    }

    /// Sets the device status; 0 resets the device.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn set_status(&mut self, status: u8) -> Result<(), FrontendError> {
        self.tell(Request::SetStatus(status.into()))
    }

    /// The device status.
    ///
    /// # Errors
    /// The connection failed.
    pub fn status(&mut self) -> Result<u64, FrontendError> {
        self.ask(Request::GetStatus)
    }

    /// Resets the device: all queues stop, nothing is negotiated any more.
    ///
    /// # Errors
    /// The back-end refuses.
    pub fn reset_device(&mut self) -> Result<(), FrontendError> {
        self.tell(Request::ResetDevice)
    }

    /// Sends a request that has no reply of its own, and waits for its acknowledgement.
    fn tell(&mut self, request: Request) -> Result<(), FrontendError> {
        let code = request.code();
        let acknowledged = self.protocol_features.contains(ProtocolFeatures::REPLY_ACK);
        self.send(Message { request, reply_wanted: acknowledged })?;
        if !acknowledged {
            return Ok(());
        }
        match self.reply(code)? {
            Reply::ACK => Ok(()),
            Reply::U64(_) => Err(FrontendError::Refused { code }),
            _ => Err(FrontendError::UnexpectedReply { code }),
        }
    }

    /// Sends a request that is answered by a number.
    fn ask(&mut self, request: Request) -> Result<u64, FrontendError> {
        let code = request.code();
        match self.call(request)? {
            Reply::U64(value) => Ok(value),
            Reply::Empty => Err(FrontendError::Refused { code }),
            _ => Err(FrontendError::UnexpectedReply { code }),
        }
    }

    fn call(&mut self, request: Request) -> Result<Reply, FrontendError> {
        let code = request.code();
        self.send(Message { request, reply_wanted: false })?;
        self.reply(code)
    }

    fn send(&mut self, message: Message) -> Result<(), FrontendError> {
        let bytes = codec::encode(&message);
        Ok(self.connection.send_with_fds(&bytes, &message.request.fds())?)
    }

    fn reply(&mut self, code: u32) -> Result<Reply, FrontendError> {
        let deadline = Instant::now() + self.timeout;
        loop {
            match self.connection.receive_raw()? {
                Raw::Message(bytes, _) => {
                    let reply = codec::decode_reply(code, &bytes).map_err(SocketError::from)?;
                    return reply.ok_or(FrontendError::UnexpectedReply { code });
                }
                Raw::Closed => return Err(FrontendError::Closed { code }),
                Raw::Nothing => {}
            }
            if !self.connection.wait_readable(deadline)? {
                return Err(FrontendError::Timeout { code, timeout: self.timeout });
            }
        }
    }
}

fn vring_fd(index: u16, fd: BorrowedFd<'_>) -> Result<VringFd, FrontendError> {
    let fd: OwnedFd = fd.try_clone_to_owned().map_err(SocketError::Io)?;
    Ok(VringFd { index: index.into(), fd: Some(fd.into()) })
}
