//! The core of two processes: a supervisor that holds every file descriptor, and a data plane that
//! may die at any moment and is rebuilt from what the supervisor has kept.
//!
//! The supervisor frames vhost-user ([`frame`]), hands each request over ([`wire`]) and waits for
//! the data plane's word; the word says what to reply, and which requests to keep ([`slots`]). It
//! never looks at a payload. What waits to be sent is in [`outbox`]. The data plane decides what is
//! kept ([`keep`]). How often a dead one is started again, and what is blamed for a death, is
//! [`restart`]; when one that hangs is ended, [`watch`]; who may connect at a port, [`front_ends`].
//!
//! No I/O, no clock, no thread: bytes and times are arguments, the next wake-up is a result. A file
//! descriptor is an opaque `F`, which this crate only counts and hands on.
#![forbid(unsafe_code)]

pub mod changes;
pub mod frame;
pub mod front_ends;
pub mod keep;
pub mod outbox;
pub mod requests;
pub mod restart;
pub mod slots;
pub mod succession;
pub mod watch;
pub mod wire;
