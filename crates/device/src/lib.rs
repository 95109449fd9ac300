//! The device side of one guest: its queues as a packet source and a packet sink.
//!
//! Pure: no file descriptor, thread, clock or log. The host decides when a queue is visited and
//! carries out what a flush asks for.
#![forbid(unsafe_code)]

mod control;
mod copy;
mod from_guest;
mod port;
mod queue;
mod receiving;
mod requests;
mod ring;
mod to_guest;
mod window;

pub use control::ControlQueue;
pub use from_guest::FromGuest;
pub use port::{AnyGuestPort, GuestPort};
pub use queue::{Queue, QueueId};
pub use requests::Requests;
pub use ring::Published;
pub use to_guest::ToGuest;
pub use window::ReceiveLists;
