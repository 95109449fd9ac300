//! QEMU: installed, or unpacked below a directory with the libraries and firmware it needs.

use std::path::Path;
use std::process::Command;

use anyhow::Context;

use crate::own_loader::OwnLoader;
use crate::shell;

/// The program.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// A QEMU.
#[derive(Debug, Clone)]
pub struct QemuFiles {
    program: OwnLoader,
}

/// QEMU below a directory: the root of a machine, or where packages are unpacked.
pub fn find(root: &Path) -> Option<QemuFiles> {
    Some(QemuFiles { program: OwnLoader::find(root, PROGRAM)? })
}

impl QemuFiles {
    /// The program, without arguments yet. Paths in them must be absolute.
    pub fn command(&self) -> Command {
        self.program.command()
    }

    /// Its major version.
    ///
    /// # Errors
    /// It does not start, or does not say.
    pub fn major_version(&self) -> anyhow::Result<u32> {
        let text = shell::output(self.command().arg("--version"))?;
        major_version(&text).with_context(|| format!("{PROGRAM}: no version in {text}"))
    }
}

fn major_version(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("version ")?;
    rest.split('.').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright\n";
        assert_eq!(major_version(text), Some(7));
        assert_eq!(major_version("QEMU emulator version 10.0.2"), Some(10));
        assert_eq!(major_version("nonsense"), None);
    }
}
