//! Guests without virtual machines, and the other tools that tests of several crates share.
//!
//! [`AnyUserGuest`] is a complete guest in user space; [`HostileGuest`] attaches the same way and
//! then writes what it likes. [`Traffic`] moves verified packets between two guests.
//! [`RingwayProcess`] is a running `ringway` to attach them to. Everything random comes from
//! [`Rng`] and replays by seed.
#![forbid(unsafe_code)]

mod arena;
mod attachment;
pub mod beside;
mod driver_pair;
pub mod frames;
pub mod golden;
pub mod hostile;
mod mirror;
pub mod pacing;
mod raw_front_end;
mod rings;
mod ringway_process;
mod rng;
mod traffic;
pub mod unsegmented;
mod usage;
pub mod user_device;
mod user_guest;

pub use arena::TestMemory;
pub use attachment::{AttachedQueue, Attachment, GuestError, GuestOptions};
pub use driver_pair::{ARENA_AT, DriverPair, PairShape};
pub use hostile::{HostileGuest, Scramble};
pub use mirror::{Mirror, MirrorOptions};
pub use raw_front_end::{Answer, QUEUE_SIZE, RawFrontEnd, pair, vring_addresses};
pub use raw_front_end::{FDS_MAX, RAW_FEATURES, REGIONS, USER_OFFSET};
pub use rings::Ring;
pub use ringway_process::{BINARY_VARIABLE, RingwayProcess};
pub use rng::Rng;
pub use traffic::{ARRIVAL_LIMIT, Traffic, TrafficError};
pub use usage::{Footprint, Usage};
pub use user_device::UserDevice;
pub use user_guest::{AnyUserGuest, Arrived, UserGuest};
