//! Open vSwitch, and OVN beside it, unpacked below a directory, or installed.
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
pub(crate) const NORTHD: &str = "usr/bin/ovn-northd";
pub(crate) const CONTROLLER: &str = "usr/bin/ovn-controller";
pub(crate) const NORTHBOUND: &str = "usr/bin/ovn-nbctl";
pub(crate) const NETWORK_SCHEMAS: [&str; 2] =
    ["usr/share/ovn/ovn-nb.ovsschema", "usr/share/ovn/ovn-sb.ovsschema"];
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// The directories of the unpacked packages.
#[derive(Debug, Clone)]
pub struct OvsFiles {
    root: PathBuf,
    ovn: Option<PathBuf>,
}

impl OvsFiles {
    /// Looks below a directory with unpacked packages.
    pub fn find(root: &Path) -> Option<Self> {
        let mut files = [SWITCH, DATABASE, TOOL, CONTROL, SCHEMA].iter();
        let is_there = files.all(|file| root.join(file).is_file());
        is_there.then(|| Self { root: root.to_path_buf(), ovn: None })
    }

    /// The same with OVN below another directory, if it is there.
    #[must_use]
    pub fn with_ovn(self, root: &Path) -> Self {
        let mut files = [NORTHD, CONTROLLER, NORTHBOUND].iter().chain(&NETWORK_SCHEMAS);
        let is_there = files.all(|file| root.join(file).is_file());
        Self { ovn: is_there.then(|| root.to_path_buf()), ..self }
    }

    /// Whether OVN is there, too.
    pub fn has_ovn(&self) -> bool {
        self.ovn.is_some()
    }

    /// Whether it can be started with DPDK.
    pub fn has_dpdk(&self) -> bool {
        self.root.join(DPDK_SWITCH).is_file()
    }

    /// Where its libraries are.
    pub(crate) fn libraries(&self) -> PathBuf {
        self.root.join(LIBRARIES)
    }

    /// One of the files.
    pub(crate) fn place(&self, path: &str) -> PathBuf {
        let of_ovn = self.ovn.iter().map(|root| root.join(path)).find(|place| place.is_file());
        of_ovn.unwrap_or_else(|| self.root.join(path))
    }

    /// One of the programs, with its places in that directory.
    pub(crate) fn command(&self, directory: &Path, program: &str) -> Command {
        let roots = std::iter::once(&self.root).chain(&self.ovn);
        let libraries = roots.map(|root| root.join(LIBRARIES).display().to_string());
        let mut command = Command::new(self.place(program));
        command.env("LD_LIBRARY_PATH", libraries.collect::<Vec<_>>().join(":"));
        command.env("OVS_PKGDATADIR", self.root.join("usr/share/openvswitch"));
        for (of, place) in ["OVS", "OVN"].iter().flat_map(|of| PLACES.map(|place| (of, place))) {
            command.env(format!("{of}_{place}"), directory);
        }
        command
    }
}

/// Environment variables in which the programs look for their directories.
const PLACES: [&str; 4] = ["RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"];
