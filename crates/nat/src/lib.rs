//! A router for guests, as a value: it leases addresses, answers for a gateway, and carries the
//! flows of guests by sockets of the host.
//!
//! Nothing here reads a clock, a file or a socket. Frames of guests and news of sockets go in
//! ([`Nat::from_guest`], [`Nat::on_socket`]); actions on sockets ([`Actions`]) and frames for
//! guests ([`Nat::due`]) come out, and the moment of the next wake-up ([`Nat::deadline`]).
#![forbid(unsafe_code)]

mod actions;
mod addresses;
mod arrival;
mod datagrams;
mod dhcp;
mod dhcp6;
mod emit;
mod errors;
mod flows;
mod forward;
mod fragments;
mod frame;
mod guests;
mod leases;
mod names;
mod nat;
mod neighbours;
mod networks;
mod packet;
pub mod policy;
mod reach;
mod refusal;
mod services;
mod socket;
mod table;
mod tcp;
mod timers;

pub use actions::{Action, Actions, GuestPort, Target};
pub use addresses::{Plan, PlanError, Prefix4, Prefix6};
pub use arrival::StationState;
pub use arrival::{ADDRESSES_PER_PORT_MAX, ArrivalError, LeaseState, STATIONS_PER_PORT_MAX};
pub use datagrams::Client;
pub use dhcp::DHCP_LEN_MAX;
pub use emit::{Emit, Source};
pub use flows::{Accepts, FlowLook};
pub use forward::{Forward, ListenAddress};
pub use guests::{Note, REPLIES_MAX, Station};
pub use leases::{LEASES_PER_PORT_MAX, Leases};
pub use nat::WHOLE_LEN_MAX;
pub use nat::{Caller, Destination, Due, FromGuest, MTU_MIN, Nat, Rings, Verdict};
pub use networks::{Network, NetworkError};
pub use packet::HEAD_LEN;
pub use reach::meant;
pub use refusal::Refusal;
pub use services::Services;
pub use socket::{Close, Event, Failure, Problem, Read};
pub use table::{FlowId, FlowKey, Guest, Limits, Protocol};
pub use tcp::SocketCounts;
