//! Where things are.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug, Clone)]
pub struct Paths {
    pub root: PathBuf,
    pub target: PathBuf,
    /// This program. Looked up at the start: the file may be replaced while it runs.
    pub program: PathBuf,
}

impl Paths {
    pub fn new() -> Self {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = here.parent().unwrap_or(here).to_path_buf();
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(directory) => root.join(directory),
            None => root.join("target"),
        };
        let program = env::current_exe().unwrap_or_else(|_| target.join("debug/xtask"));
        Self { root, target, program }
    }

    /// Downloaded kernels, guests' file systems and logs.
    pub fn guest(&self) -> PathBuf {
        self.target.join("guest")
    }

    /// The binary under test: the one in `RINGWAY_BIN`, or the release build.
    pub fn ringway(&self) -> PathBuf {
        match env::var_os("RINGWAY_BIN") {
            Some(binary) => PathBuf::from(binary),
            None => self.target.join("release/ringway"),
        }
    }

    /// The build with debug assertions.
    pub fn checked_ringway(&self) -> PathBuf {
        self.target.join("debug/ringway")
    }

    pub fn cargo(&self, command: &str) -> Command {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.arg(command).current_dir(&self.root);
        cargo
    }
}
