//! The Linux side of ringway: mapped guest memory, notification fds, epoll, and the tap.
//!
//! Everything that makes a system call on the data path is here, and every `unsafe` outside the
//! rings. What a front-end hands over is checked once when it arrives; from then on the worker uses
//! it without locks, allocation or logging.
//!
//! ```no_run
//! use ringway_host::{Tap, TapOffloads, TapOptions};
//!
//! # fn main() -> Result<(), ringway_host::TapError> {
//! let mut tap = Tap::open(&TapOptions { name: "tap0".into(), mtu: None })?;
//! let wanted = TapOffloads { csum: true, tso4: true, ..TapOffloads::default() };
//! let granted = tap.set_offloads(wanted);
//! assert!(!granted.tso6);
//! # Ok(())
//! # }
//! ```
#![cfg(target_os = "linux")]

mod announce;
mod arrivals;
mod backing;
mod call_guard;
mod claims;
mod clock;
mod command;
mod commands;
mod completion;
mod effort;
mod eventfd;
mod fill;
mod flood;
mod forward;
mod guarded;
mod hand_off;
mod holds;
mod memory;
mod memory_share;
mod pace;
mod patience;
mod peer;
mod pieces;
mod pin;
mod poller;
mod polling;
mod port;
mod queue_commands;
mod queue_mode;
mod ready;
mod rewrite;
mod second_call;
mod short_row;
mod signal_bus;
mod sleeper;
mod slots;
mod snapshot;
mod stalls;
mod stream;
mod tap;
mod tap_ahead;
mod tap_batch;
mod tap_calls;
mod tap_ioctl;
mod tap_offloads;
mod tap_open;
mod tap_ring;
mod tap_visit;
mod tap_watch;
mod team;
mod timers;
mod visit;
mod wake;
mod wires;
mod worker;

pub use call_guard::CallGuard;
pub use command::{Answer, Command, Discarded, Event, PortSnapshot, QueueFds, Wire};
pub use effort::{Effort, WorkerSnapshot};
pub use eventfd::{CallFd, CallResult, Callee, EventFd, KickFd, is_local_stream};
pub use memory::{GUEST_LEN_MAX, GuestMemory, MemoryError, MemoryRequest};
pub use pace::{Flush, Pace, PaceSnapshot};
pub use peer::{GROUPS_MAX, PeerCredentials};
pub use pin::pin_to;
pub use poller::{Events, Interest, PollEvent, Poller};
pub use queue_mode::{QueueMode, QueueSnapshot};
pub use signal_bus::install_bus_guard;
pub use tap::{Tap, TapError, TapOffloads, TapOptions};
pub use tap_calls::{TapCalls, TapCallsError};
pub use tap_watch::TapWatch;
pub use team::Team;
pub use worker::{Worker, WorkerChannels};
