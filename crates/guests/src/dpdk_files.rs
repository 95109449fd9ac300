//! DPDK's `dpdk-testpmd`: installed, or unpacked below a directory with the libraries it needs.
//!
//! Limits: the places of Debian's packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};

use crate::shell;

/// Drivers that are loaded by name and not because something links to them.
pub const DRIVERS: [&str; 4] =
    ["librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio", "librte_net_vhost"];

/// The driver for taps, which is only measured.
const TAP_DRIVER: &str = "librte_net_tap";

const PROGRAM: &str = "dpdk-testpmd";

/// Where Debian has the libraries.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Where an installed DPDK has its drivers. Any DPDK of Debian's loads all that are there, and ends
/// where it already has some of them.
const INSTALLED: &str = "/usr/lib/x86_64-linux-gnu/dpdk";

/// Runs the rest of its words where that directory is empty.
const WITHOUT_INSTALLED: &str = "mount -t tmpfs none \"$0\" && exec env \"$@\"";

/// The files that `dpdk-testpmd` needs to run.
#[derive(Debug, Clone)]
pub struct DpdkFiles {
    /// The program.
    pub testpmd: PathBuf,
    /// Only where it is unpacked.
    unpacked: Option<Unpacked>,
}

#[derive(Debug, Clone)]
struct Unpacked {
    libraries: PathBuf,
    /// The drivers to load.
    drivers: Vec<PathBuf>,
}

impl DpdkFiles {
    /// Looks below a directory with unpacked packages.
    ///
    /// # Errors
    /// A driver is missing.
    pub fn unpacked(directory: &Path) -> anyhow::Result<Self> {
        let driver = |name: &&str| {
            let found = find_driver(directory, name);
            found.ok_or_else(|| anyhow!("{}: no {name}", directory.display()))
        };
        let mut drivers = DRIVERS.iter().map(driver).collect::<anyhow::Result<Vec<_>>>()?;
        drivers.extend(find_driver(directory, TAP_DRIVER));
        let unpacked = Unpacked { libraries: libraries(directory), drivers };
        Ok(Self { testpmd: testpmd(directory), unpacked: Some(unpacked) })
    }

    /// Looks among the installed programs.
    ///
    /// # Errors
    /// It is not installed.
    pub fn installed() -> anyhow::Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let program = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM));
        let program = program.chain([Path::new("/usr/bin").join(PROGRAM)]).find(|at| at.is_file());
        let missing = "dpdk-testpmd is not installed (Debian: apt-get install dpdk-dev)";
        Ok(Self { testpmd: program.context(missing)?, unpacked: None })
    }

    /// Whether it can open taps.
    pub fn has_tap(&self) -> bool {
        let is_tap = |path: &PathBuf| path.to_string_lossy().contains(TAP_DRIVER);
        self.unpacked.as_ref().is_none_or(|unpacked| unpacked.drivers.iter().any(is_tap))
    }

    /// Lets another program, without arguments yet, find the libraries as well, behind its own, and
    /// load the drivers.
    pub(crate) fn lend_to(&self, mut command: Command, own: &Path) -> Command {
        let Some(unpacked) = &self.unpacked else { return command };
        let drivers = unpacked.drivers.iter().map(|path| path.display().to_string());
        command.env("LD_PRELOAD", drivers.collect::<Vec<_>>().join(":"));
        let libraries = format!("{}:{}", own.display(), unpacked.libraries.display());
        command.env("LD_LIBRARY_PATH", libraries);
        without_installed(command, Path::new(INSTALLED))
    }

    /// The program with its libraries and drivers, `preload` beside them, and no arguments yet.
    ///
    /// The drivers are preloaded because DPDK refuses to load any from below a directory that
    /// all users can write to, as `/tmp` is.
    pub fn command(&self, preload: &[&str]) -> Command {
        let mut command = Command::new(&self.testpmd);
        let mut loaded: Vec<String> = Vec::new();
        if let Some(unpacked) = &self.unpacked {
            command.env("LD_LIBRARY_PATH", &unpacked.libraries);
            loaded.extend(unpacked.drivers.iter().map(|path| path.display().to_string()));
        }
        loaded.extend(preload.iter().map(ToString::to_string));
        if !loaded.is_empty() {
            command.env("LD_PRELOAD", loaded.join(":"));
        }
        let is_unpacked = self.unpacked.is_some();
        if is_unpacked { without_installed(command, Path::new(INSTALLED)) } else { command }
    }
}

/// The same command in a view of the file system of its own, in which nothing is installed there.
/// It stays one process with one number.
fn without_installed(command: Command, installed: &Path) -> Command {
    if !installed.is_dir() {
        return command;
    }
    let mut apart = shell::command(&["unshare"]);
    if !shell::is_root() {
        apart.arg("--map-root-user");
    }
    apart.args(["--mount", "--", "sh", "-c", WITHOUT_INSTALLED]).arg(installed);
    // Not of the programs in between, which would load what is preloaded, too.
    for (name, value) in command.get_envs() {
        let word = [name, value.unwrap_or_default()].join("=".as_ref());
        apart.arg(word);
    }
    apart.arg(command.get_program()).args(command.get_args());
    apart
}

/// Where the program is below such a directory.
pub fn testpmd(directory: &Path) -> PathBuf {
    directory.join("usr/bin").join(PROGRAM)
}

/// Where libraries are below such a directory.
pub fn libraries(directory: &Path) -> PathBuf {
    directory.join(LIBRARIES)
}

/// A driver below such a directory.
fn find_driver(directory: &Path, name: &str) -> Option<PathBuf> {
    let prefix = format!("{name}.so.");
    let entries = fs::read_dir(libraries(directory)).ok()?.flatten();
    entries.map(|entry| entry.path()).find(|path| {
        let version = path.file_name().and_then(|name| name.to_str()?.strip_prefix(&prefix));
        version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacked_drivers_are_found_by_name_and_version() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let libraries = libraries(directory.path());
        fs::create_dir_all(&libraries).expect("created");
        let add = |name: &str| fs::write(libraries.join(name), "").expect("written");
        DRIVERS.iter().for_each(|name| add(&format!("{name}.so.23.0")));
        assert!(DpdkFiles::unpacked(directory.path()).is_err());
        DRIVERS.iter().for_each(|name| add(&format!("{name}.so.23")));
        let files = DpdkFiles::unpacked(directory.path()).expect("all of them");
        assert!(!files.has_tap());
        add(&format!("{TAP_DRIVER}.so.23"));
        assert!(DpdkFiles::unpacked(directory.path()).is_ok_and(|files| files.has_tap()));
    }

    #[test]
    fn what_is_installed_is_out_of_sight_and_the_command_stays_the_same() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (there, nowhere) = (directory.path(), directory.path().join("nowhere"));
        fs::write(there.join("driver"), "").expect("written");
        let look = || {
            let mut command = shell::command(&["sh", "-c", "ls \"$1\"; echo $NAME $2 $$", "sh"]);
            command.arg(there).env("NAME", "a b");
            command
        };
        if let Err(why) = shell::output(&mut without_installed(shell::command(&["true"]), there)) {
            return println!("skipped: {why:#}");
        }
        let seen = |installed: &Path| {
            let mut command = without_installed(look(), installed);
            let command = command.arg("more").stdout(std::process::Stdio::piped());
            let child = command.spawn().expect("it starts");
            let id = format!(" {}\n", child.id());
            let output = child.wait_with_output().expect("it ends");
            String::from_utf8_lossy(&output.stdout).replace(&id, " itself\n")
        };
        assert_eq!(seen(&nowhere), "driver\na b more itself\n");
        assert_eq!(seen(there), "a b more itself\n");
    }
}
