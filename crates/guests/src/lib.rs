//! Real guests and their surroundings: started, configured, talked to, and never left behind.
//!
//! How: a program that uses this runs in [`namespaces`] of its own; when its first process ends,
//! for whatever reason, the kernel ends everything that was started and removes every interface. A
//! guest runs one script ([`console`]) that obeys commands on its console, so that what a test or a
//! measurement does is all on this side, in Rust.
//!
//! Limits: Linux, x86-64, Debian's places for programs; guests of one processor.
#![forbid(unsafe_code)]

pub mod console;
pub mod dpdk_files;
pub mod fabric;
pub mod frr;
pub mod frr_files;
pub mod hosts;
mod initramfs;
pub mod iperf;
pub mod kernel_files;
pub mod monitor;
pub mod namespaces;
pub mod nat_lab;
pub mod net;
pub mod numbered;
pub mod ovs;
pub mod ovs_files;
pub mod own_loader;
pub mod parent;
mod port_stats;
pub mod process;
pub mod qemu;
pub mod qemu_files;
pub mod ringway;
pub mod shell;
pub mod silence;
pub mod stage;
pub mod testpmd;
pub mod traffic;
pub mod uml;
pub mod uml_files;
pub mod vde;

pub use console::Console;
pub use dpdk_files::DpdkFiles;
pub use frr_files::FrrFiles;
pub use ovs::Ovs;
pub use ovs_files::OvsFiles;
pub use own_loader::OwnLoader;
pub use process::Process;
pub use ringway::{PortStatistics, Ringway};
pub use ringway_control::protocol::Direction;
pub use stage::Stage;
pub use testpmd::Testpmd;
pub use traffic::Side;
