//! User Mode Linux: installed, or unpacked below a directory with the C library it was built for.
//!
//! How: what is unpacked may be of a newer release than this machine, whose own loader then cannot
//! start it; and started as an argument of its own loader it takes that one's memory for its own.
//! So [`use_own_loader`] makes a copy that names the loader beside it.
//!
//! Limits: x86-64, the places of Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::shell;

const PROGRAM: &str = "linux.uml";
/// Below which the modules are: `VERSION/kernel`.
const MODULES: &str = "usr/lib/uml/modules";
/// Where an unpacked C library is, and the loader.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const LOADERS: &str = "usr/lib64";

/// The loader as a program names it: an absolute path, which would be this machine's.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
/// The same in the directory where the program is started. As long as the other.
const LOADER_HERE: &[u8] = b"./ld-linux-x86-64.so.2\0\0\0\0\0\0";

/// A User Mode Linux and its modules.
#[derive(Debug, Clone)]
pub struct UmlFiles {
    /// The directory called `kernel` of the modules.
    pub modules: PathBuf,
    program: PathBuf,
    /// The C library, if it is not this machine's.
    libraries: Option<PathBuf>,
}

/// User Mode Linux below a directory: the root of a machine, or where packages are unpacked.
pub fn find(root: &Path) -> Option<UmlFiles> {
    let own = root.join(LOADERS).join(PROGRAM);
    let (program, libraries) = match own.is_file() {
        true => (own, Some(root.join(LIBRARIES))),
        false => (root.join("usr/bin").join(PROGRAM), None),
    };
    let versions = fs::read_dir(root.join(MODULES)).ok()?.flatten();
    let modules = versions.map(|entry| entry.path().join("kernel")).find(|path| path.is_dir())?;
    program.is_file().then_some(UmlFiles { modules, program, libraries })
}

/// Makes what is unpacked below `root` start with the loader that is unpacked there, too.
///
/// # Errors
/// There is no program, or no place to write to.
pub fn use_own_loader(root: &Path) -> anyhow::Result<()> {
    let from = root.join("usr/bin").join(PROGRAM);
    let to = root.join(LOADERS).join(PROGRAM);
    let program = fs::read(&from).with_context(|| from.display().to_string())?;
    fs::write(&to, with_loader_here(program)).with_context(|| to.display().to_string())?;
    let permissions = fs::metadata(&from)?.permissions();
    fs::set_permissions(&to, permissions).with_context(|| to.display().to_string())
}

/// The program with the other path of its loader; a static one as it is.
fn with_loader_here(mut program: Vec<u8>) -> Vec<u8> {
    let at = program.windows(LOADER.len()).position(|window| window == LOADER);
    if let Some(name) = at.and_then(|at| program.get_mut(at..at + LOADER.len())) {
        name.copy_from_slice(LOADER_HERE);
    }
    program
}

impl UmlFiles {
    /// The program, without arguments yet.
    pub fn command(&self) -> Command {
        let mut command = shell::command(&[&self.program]);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
            command.current_dir(self.program.parent().unwrap_or(Path::new("/")));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &Path, contents: &[u8]) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, contents).expect("written");
    }

    #[test]
    fn an_unpacked_one_is_started_beside_its_loader() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        create(&root.join("usr/bin/linux.uml"), b"ELF /lib64/ld-linux-x86-64.so.2\0 more");
        assert!(find(root).is_none(), "it has no modules");
        let modules = root.join(MODULES).join("6.12/kernel");
        fs::create_dir_all(&modules).expect("created");
        let files = find(root).expect("both");
        assert_eq!(files.modules, modules);
        assert_eq!(files.command().get_current_dir(), None);
        fs::create_dir_all(root.join(LOADERS)).expect("created");
        use_own_loader(root).expect("copied");
        let files = find(root).expect("both");
        let command = files.command();
        assert_eq!(command.get_current_dir(), Some(&*root.join(LOADERS)));
        let program = fs::read(command.get_program()).expect("the copy");
        assert_eq!(program, b"ELF ./ld-linux-x86-64.so.2\0\0\0\0\0\0 more");
    }

    #[test]
    fn a_static_program_stays_as_it_is() {
        assert_eq!(LOADER.len(), LOADER_HERE.len());
        assert_eq!(with_loader_here(b"ELF".to_vec()), b"ELF");
    }
}
