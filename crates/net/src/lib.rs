//! What the bytes of virtio-net mean, and every decision about them that is not I/O.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod counters;
mod header;
mod packet;

pub use counters::{Counters, DropReason};
pub use header::{GsoType, HEADER_LEN, NetHeader};
pub use packet::{PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put};
