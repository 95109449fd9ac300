//! User Mode Linux: installed, or unpacked below a directory with the C library it was built for.
//!
//! Limits: the places of Debian's packages. Started as an argument of a loader it would take that
//! one's memory for its own, so what is unpacked needs a copy that names its loader
//! ([`use_own_loader`](crate::own_loader::use_own_loader)).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::own_loader::OwnLoader;

/// The program.
pub const PROGRAM: &str = "linux.uml";
/// Below which the modules are: `VERSION/kernel`.
const MODULES: &str = "usr/lib/uml/modules";

/// A User Mode Linux and its modules.
#[derive(Debug, Clone)]
pub struct UmlFiles {
    /// The directory called `kernel` of the modules.
    pub modules: PathBuf,
    program: OwnLoader,
}

/// User Mode Linux below a directory: the root of a machine, or where packages are unpacked.
pub fn find(root: &Path) -> Option<UmlFiles> {
    let versions = fs::read_dir(root.join(MODULES)).ok()?.flatten();
    let modules = versions.map(|entry| entry.path().join("kernel")).find(|path| path.is_dir())?;
    Some(UmlFiles { modules, program: OwnLoader::find(root, PROGRAM)? })
}

impl UmlFiles {
    /// The program, without arguments yet.
    pub fn command(&self) -> Command {
        self.program.command()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_with_its_modules_only() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        fs::create_dir_all(root.join("usr/bin")).expect("created");
        fs::write(root.join("usr/bin").join(PROGRAM), "ELF").expect("written");
        assert!(find(root).is_none(), "it has no modules");
        let modules = root.join(MODULES).join("6.12/kernel");
        fs::create_dir_all(&modules).expect("created");
        assert_eq!(find(root).map(|files| files.modules), Some(modules));
    }
}
