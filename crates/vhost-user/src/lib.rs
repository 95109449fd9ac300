//! vhost-user, both ends: how a virtual machine monitor hands a guest's queues to this process.
//!
//! The way of one message on the back-end side, in one direction only:
//!
//! 1. [`Connection::receive`] reads bytes and file descriptors from the socket, and
//! 2. [`codec::decode`] makes a typed [`Message`] of them, or says why it cannot;
//! 3. [`Session::handle`] decides, without any I/O, what has to happen: a list of [`Effect`]s;
//! 4. the caller carries the effects out and reports with [`Applied`];
//! 5. [`Session::complete`] makes the reply, if one is wanted, for [`Connection::send`].
//!
//! [`Frontend`] is the other end: it drives a device the way a monitor does. [`FrontendTransport`]
//! makes it a device that the driver crate can bring up.
//!
//! The document meant by "vhost-user" everywhere in this crate is QEMU's `docs/interop/vhost-user`.
#![forbid(unsafe_code)]

mod code;
pub mod codec;
pub mod device_state;
mod effect;
pub mod frontend;
mod listener;
mod memory_table;
mod message;
mod names;
mod refusal;
mod ring_state;
mod session;
mod socket;
mod socket_error;
mod transport;

pub use effect::{Applied, Effect, Outcome, PendingReply, StateDirection};
pub use frontend::{Frontend, FrontendError, QueueStart};
pub use listener::{Access, Listener, Made, take_path};
pub use message::{
    CONFIG_LEN_MAX, LogArea, MemoryRange, MemoryRegion, Message, ProtocolFeatures, Reply, Request,
    StateRequest, VringAddress, VringFd, WhyMalformed,
};
pub use names::request_name;
pub use refusal::Refusal;
pub use ring_state::{base_from_position, position_from_base};
pub use session::{Offer, RingView, Session};
pub use socket::{Connection, Piece, Received, send_on_channel};
pub use socket_error::{FDS_MAX, FilePart, SocketError};
pub use transport::{EventfdDoorbell, FrontendTransport};
