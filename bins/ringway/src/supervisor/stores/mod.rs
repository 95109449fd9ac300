//! Files and descriptors by which another ringway goes on.

pub mod added_ports;
pub mod fd_store;
pub mod state_file;
pub mod station_file;
pub mod stations;
pub mod write_down;

use added_ports::AddedPorts;
use fd_store::FdStore;
use station_file::StationFile;

pub struct Stores {
    pub fds: FdStore,
    pub added: AddedPorts,
    pub stations: StationFile,
}
