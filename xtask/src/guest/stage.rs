//! What every scenario has: places, and a way to say what it does.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use crate::paths::Paths;

/// In front of lines that are shown even when the scenario passes.
pub const NOTE: &str = "note: ";

/// The surroundings of one scenario.
#[derive(Debug)]
pub struct Stage {
    /// The tree.
    pub paths: Paths,
    /// For sockets and scripts; short, empty, and removed afterwards.
    pub directory: PathBuf,
    /// For what the processes print.
    pub logs: PathBuf,
    started: Instant,
}

impl Stage {
    /// The surroundings of a scenario of this name.
    pub fn new(paths: &Paths, name: &str, directory: &Path) -> Self {
        Self {
            paths: paths.clone(),
            directory: directory.to_path_buf(),
            logs: logs(paths, name),
            started: Instant::now(),
        }
    }

    /// Says what comes next, for the log.
    pub fn step(&self, text: &str) {
        println!("{:6.2} s: {text}", self.started.elapsed().as_secs_f64());
    }

    /// Says something that everybody wants to know.
    pub fn note(&self, text: &str) {
        println!("{NOTE}{text}");
    }

    /// A path for a socket or a file of this scenario.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

/// Where the logs of a scenario are.
pub fn logs(paths: &Paths, name: &str) -> PathBuf {
    paths.guest().join("logs").join(name)
}

/// Ends this process, and so all it has started, when whoever holds the other end of its standard
/// input is gone. `directory` goes with it.
pub fn end_with_parent(directory: &Path) {
    let directory = directory.to_path_buf();
    thread::spawn(move || {
        let mut nothing = [0; 64];
        while let Ok(1..) = std::io::stdin().read(&mut nothing) {}
        // Nobody is left to be told if this fails.
        let _ = std::fs::remove_dir_all(&directory);
        std::process::exit(1);
    });
}
