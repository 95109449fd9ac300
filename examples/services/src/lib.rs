//! The services that a guest can offer over TCP with ringway's driver and smoltcp alone.
//!
//! How: [`Services`] owns the stack and its sockets. Each service is a [`Conversation`] with one
//! peer, and a [`Listener`] holds as many of them as can go on at once. The caller polls, with the
//! time as an argument, and learns when the next poll is due at the latest.
//!
//! Limits: everything is allocated in [`Services::new`]. IPv4 addresses, by DHCP or fixed; a fixed
//! number of connections per service.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod bulk;
mod conversation;
mod echo;
mod http;
mod services;
mod text;

pub use bulk::{Sink, Source};
pub use conversation::{Conversation, Listener};
pub use echo::Echo;
pub use http::Http;
pub use services::{Addressing, Services};
pub use text::Text;
