//! A program of packages that are unpacked, started with the loader and the libraries beside it.
//!
//! How: what is unpacked may be of a newer release than this machine, whose own loader then cannot
//! start it. [`use_own_loader`] makes a copy of the program that names the loader in the directory
//! where it is started. It lies beside `usr/bin`, so that a program that looks for its files by its
//! own place (`../share`, `../lib`) finds them.
//!
//! Limits: x86-64, the places of Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::shell;

/// Where programs are.
const PROGRAMS: &str = "usr/bin";
/// Where libraries are.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
/// Where the loader is, and the copies that name it.
const LOADERS: &str = "usr/lib64";

/// The loader as a program names it: an absolute path, which would be this machine's.
const LOADER: &[u8] = b"/lib64/ld-linux-x86-64.so.2\0";
/// The same in the directory where the program is started. As long as the other.
const LOADER_HERE: &[u8] = b"./ld-linux-x86-64.so.2\0\0\0\0\0\0";

/// A program, and what it is started with.
#[derive(Debug, Clone)]
pub struct OwnLoader {
    program: PathBuf,
    /// The libraries, if they are not this machine's.
    libraries: Option<PathBuf>,
}

impl OwnLoader {
    /// The program of this name below a directory: the root of a machine, or where packages are
    /// unpacked.
    pub fn find(root: &Path, name: &str) -> Option<Self> {
        let own = root.join(LOADERS).join(name);
        let (program, libraries) = match own.is_file() {
            true => (own, Some(root.join(LIBRARIES))),
            false => (root.join(PROGRAMS).join(name), None),
        };
        program.is_file().then_some(Self { program, libraries })
    }

    /// The command, without arguments yet. Paths in them must be absolute.
    pub fn command(&self) -> Command {
        let mut command = shell::command(&[&self.program]);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
            command.current_dir(self.program.parent().unwrap_or(Path::new("/")));
        }
        command
    }
}

/// Makes the program of this name that is unpacked below `root` start with the loader there.
///
/// # Errors
/// There is no such program, or no place to write to.
pub fn use_own_loader(root: &Path, name: &str) -> anyhow::Result<()> {
    let from = root.join(PROGRAMS).join(name);
    let to = root.join(LOADERS).join(name);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &Path, contents: &[u8]) {
        fs::create_dir_all(path.parent().expect("a parent")).expect("created");
        fs::write(path, contents).expect("written");
    }

    #[test]
    fn an_unpacked_program_is_started_beside_its_loader() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let root = directory.path();
        assert!(OwnLoader::find(root, "linux.uml").is_none());
        create(&root.join("usr/bin/linux.uml"), b"ELF /lib64/ld-linux-x86-64.so.2\0 more");
        let installed = OwnLoader::find(root, "linux.uml").expect("it is there");
        assert_eq!(installed.command().get_current_dir(), None);
        fs::create_dir_all(root.join(LOADERS)).expect("created");
        use_own_loader(root, "linux.uml").expect("copied");
        let command = OwnLoader::find(root, "linux.uml").expect("both").command();
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
