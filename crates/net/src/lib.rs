//! The meaning of the bytes of virtio-net, and every decision about them that is not I/O.
//!
//! Feature bits become plain fields once ([`Features`] → [`Negotiated`]), header bytes become a
//! [`NetHeader`] and are checked against their packet, the configuration space and the control
//! queue are bytes in, bytes out, and a [`Packet`] is lent from a [`PacketSource`] to a
//! [`PacketSink`]. Nothing here reads a clock, a file or a socket.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod coalesce_commands;
mod coalescing;
mod config;
mod control;
mod control_copy;
pub mod control_record;
mod control_state;
mod counters;
mod ethernet;
mod features;
mod flow;
mod header;
mod histogram;
mod mac;
pub mod moderation;
mod nanos;
mod negotiated;
pub mod offload;
mod packet;
mod policy;
mod polling;
mod queue_commands;
mod receive_filter;
mod receive_hash;
mod request;
mod steering;
mod tap_calls;

pub use coalescing::{CoalesceScope, Coalescing, QueueKind};
pub use config::{CONFIG_LEN, NetConfig};
pub use control::{Ack, Answer, Command, MacTable, answer};
pub use control_copy::{CONTROL_LEN_MAX, copy_command};
pub use control_state::ControlState;
pub use counters::{Counters, DropReason, LONG_LEN};
pub use ethernet::{ETHERNET_HEADER_LEN, destination, source};
pub use features::{FeatureError, Features};
pub use flow::{FLOW_HEAD_LEN, Flow, Network, Transport};
pub use header::{DATA_VALID, GSO_ECN, NEEDS_CSUM};
pub use header::{GsoType, HeaderError, HeaderHash, NetHeader, SAYS_NOTHING};
pub use header::{HEADER_LEN, HEADER_LEN_HASH, HEADER_LEN_LEGACY};
pub use histogram::{HISTOGRAM_BOUNDS_NS, Histogram};
pub use mac::{MAC_ADDRESS_LEN, MacAddress, MacAddressError};
pub use nanos::Nanos;
pub use negotiated::Negotiated;
pub use packet::{PACKET_LEN_MAX, Packet, PacketSink, PacketSource, Put};
pub use polling::{
    LOOK_NS_MAX, Next, POLL_BACKOFF_NS, PREEMPTED_NS, PollCounters, PollMode, PollModeError,
    PollOptions, Polling, WAKE_NS,
};
pub use queue_commands::{SetHash, SetSteering};
pub use receive_filter::{ADDRESSES_MAX, FILTER_LEN, ReceiveFilter, ReceiveMode};
pub use receive_hash::{HASH_KEY_LEN_MAX, HASH_TYPES_SUPPORTED, ReceiveHash};
pub use request::is_request;
pub use steering::{FromPair, INDIRECTION_LEN_MAX, RssTable, Steering};
pub use tap_calls::{TapCalls, TapCallsError};
