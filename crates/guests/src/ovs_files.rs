//! Open vSwitch, unpacked below a directory, or installed.
//!
//! Limits: the places of Debian's packages.

use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const SWITCH: &str = "usr/lib/openvswitch-switch/ovs-vswitchd";
/// The same with DPDK.
pub(crate) const DPDK_SWITCH: &str = "usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk";
pub(crate) const ASK: &str = "usr/bin/ovs-appctl";
pub(crate) const DATABASE: &str = "usr/sbin/ovsdb-server";
pub(crate) const TOOL: &str = "usr/bin/ovsdb-tool";
pub(crate) const CONTROL: &str = "usr/bin/ovs-vsctl";
pub(crate) const SCHEMA: &str = "usr/share/openvswitch/vswitch.ovsschema";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// What was unpacked.
#[derive(Debug, Clone)]
pub struct OvsFiles(PathBuf);

impl OvsFiles {
    /// Looks below a directory with unpacked packages.
    pub fn find(root: &Path) -> Option<Self> {
        let mut files = [SWITCH, DATABASE, TOOL, CONTROL, SCHEMA].iter();
        files.all(|file| root.join(file).is_file()).then(|| Self(root.to_path_buf()))
    }

    /// Whether it can be started with DPDK.
    pub fn has_dpdk(&self) -> bool {
        self.0.join(DPDK_SWITCH).is_file()
    }

    /// Where its libraries are.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.0.join(LIBRARIES)
    }

    /// One of the files.
    pub(crate) fn place(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// One of the programs, with its places in that directory.
    pub(crate) fn command(&self, directory: &Path, program: &str) -> Command {
        let mut command = Command::new(self.0.join(program));
        command.env("LD_LIBRARY_PATH", self.0.join(LIBRARIES));
        command.env("OVS_PKGDATADIR", self.0.join("usr/share/openvswitch"));
        for place in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(place, directory);
        }
        command
    }
}
