//! The Linux side of ringway: the worker, and what it needs of the operating system: mapped guest
//! memory, notification fds, epoll, taps, the sockets of routers, the journal and captures.
//!
//! Everything that makes a system call on the data path is here. What a front-end hands over is
//! checked once when it arrives; from then on the worker uses it without locks, allocation or
//! logging.
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

mod capture;
mod forward;
mod journal;
mod memory;
mod nat;
mod os;
mod pace;
mod peers;
mod port;
mod tap;
mod uml;
mod worker;

pub use capture::{CAPTURES_MAX, CaptureDirection, CaptureFile, CaptureOptions, CaptureOutput};
pub use capture::{CaptureReader, CaptureRecord, DroppedBy, Impossible};
pub use journal::learned::NotedAddress;
pub use journal::watch::{Beat, JournalWatch, Owner};
pub use journal::worker_line::Busy;
pub use journal::{JOURNAL_LAYOUT, Journal, Unfit};
pub use memory::backing::remember_mounts;
pub use memory::log::LogRequest;
pub use memory::signal_bus::install_bus_guard;
pub use memory::{GUEST_LEN_MAX, GuestMemory, MemoryError, MemoryRequest};
pub use nat::NatPort;
pub use nat::clients::tell_of_datagrams;
pub use nat::counts::connection_counts;
pub use nat::listeners::Listener;
pub use nat::options::NatOptions;
pub use nat::snapshot::{FLOWS_SHOWN_MAX, NatLook, NatSnapshot};
pub use os::call_guard::CallGuard;
pub use os::clock::now;
pub use os::credentials::{GROUPS_MAX, PeerCredentials};
pub use os::empty_path::{EMPTY_PATH_AT, EMPTY_PATH_END, place_empty_path};
pub use os::eventfd::{CallFd, CallResult, Callee, EventFd, KickFd, is_local_stream};
pub use os::forbidden_calls::tell_forbidden_calls;
pub use os::inherited::{close_inherited_fds, take_inherited_fd};
pub use os::pin::pin_to;
pub use os::poller::{Events, Interest, PollEvent, Poller};
pub use os::state_file::StateFile;
pub use os::tries::{try_fork, try_remap, try_signals};
pub use pace::{Flush, Pace, PaceSnapshot};
pub use peers::WorkerPeers;
pub use port::Carrier;
pub use port::queue_mode::{QueueMode, QueueSnapshot};
pub use port::waits::WaitCounts;
pub use tap::calls::{believe_calls, calls_measured, reads_from, writes_from};
pub use tap::ring::prepare_rings;
pub use tap::watch::TapWatch;
pub use tap::{Tap, TapError, TapOffloads, TapOptions};
pub use worker::announce::AnnounceTo;
pub use worker::bridge::SwitchCopy;
pub use worker::effort::{Effort, WorkerSnapshot};
pub use worker::event::WorkerEvent;
pub use worker::job::Job;
pub use worker::queue_fds::{NotifyFd, QueueFds};
pub use worker::queue_operations::Discarded;
pub use worker::snapshot::PortSnapshot;
pub use worker::{Worker, WorkerChannels};
