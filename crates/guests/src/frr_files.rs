//! FRR, unpacked below a directory, or installed.
//!
//! Limits: the places of Debian's packages.

use std::path::{Path, PathBuf};

pub(crate) const DAEMONS: [&str; 2] = ["usr/lib/frr/zebra", "usr/lib/frr/bgpd"];
pub(crate) const ASKER: &str = "usr/bin/vtysh";
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu/frr", "usr/lib/x86_64-linux-gnu"];

/// The directory of the unpacked packages.
#[derive(Debug, Clone)]
pub struct FrrFiles(PathBuf);

impl FrrFiles {
    /// Looks below a directory with unpacked packages.
    pub fn find(root: &Path) -> Option<Self> {
        let mut programs = DAEMONS.iter().chain([&ASKER]);
        programs.all(|program| root.join(program).is_file()).then(|| Self(root.to_path_buf()))
    }

    /// One of the programs.
    pub(crate) fn program(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    /// Where their libraries are, for `LD_LIBRARY_PATH`.
    pub(crate) fn libraries(&self) -> String {
        LIBRARIES.map(|place| self.0.join(place).display().to_string()).join(":")
    }
}
