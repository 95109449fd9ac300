//! The one directory of a demonstration, and the removal of directories of earlier ones that were
//! killed together with everything that could have cleaned up.
//!
//! How: the directory has a file that its demonstration holds locked while it lives; a directory of
//! ours whose file no process holds is abandoned. A process that was told its path belongs to the
//! same dead demonstration, and is killed first.
//!
//! Limits: only directories that belong to this user are looked at.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, getpid, pidfd_open, pidfd_send_signal};

use crate::config::values::SOCKET_PATH_LEN_MAX;

/// What names of demonstration directories begin with; the process id follows.
const PREFIX: &str = "ringway-demo-";

/// What names of directories with kept logs begin with; they are never removed.
const LOGS_PREFIX: &str = "ringway-logs-";

/// The file that is locked.
const LOCK: &str = "lock";

/// The longest name of a file inside, with its slash.
const FILE_NAME_LEN_MAX: usize = 20;

/// A directory without a lock is left alone for this long: it may be coming into being.
const YOUNG: Duration = Duration::from_secs(60);

/// Names tried before giving up.
const TRIES_MAX: u32 = 16;

/// Exists as long as this value does.
pub struct DemoDirectory {
    path: PathBuf,
    _lock: File,
}

impl DemoDirectory {
    /// Creates one that only this user can look into.
    ///
    /// # Errors
    /// From the operating system.
    pub fn create() -> io::Result<Self> {
        let pid = std::process::id();
        let mut last = io::Error::other("no name is free");
        for attempt in 0..TRIES_MAX {
            let path = base().join(format!("{PREFIX}{pid}-{attempt}"));
            match create_locked(&path) {
                Ok(lock) => return Ok(Self { path, _lock: lock }),
                Err(why) if why.kind() == io::ErrorKind::AlreadyExists => last = why,
                Err(why) => return Err(why),
            }
        }
        Err(last)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        debug_assert!(name.len() < FILE_NAME_LEN_MAX);
        self.path.join(name)
    }

    /// The end of a log in it, for an error.
    pub fn log_tail(&self, name: &str) -> String {
        const LINES: usize = 12;
        let bytes = fs::read(self.file(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        lines[lines.len().saturating_sub(LINES)..].join("\n")
    }

    /// Copies the logs to a directory that stays, and returns it.
    ///
    /// # Errors
    /// From the operating system.
    pub fn keep_logs(&self) -> io::Result<PathBuf> {
        let kept = base().join(format!("{LOGS_PREFIX}{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&kept)?;
        for entry in fs::read_dir(&self.path)? {
            let from = entry?.path();
            if let (Some(name), true) = (from.file_name(), from.extension() == Some("log".as_ref()))
            {
                fs::copy(&from, kept.join(name))?;
            }
        }
        Ok(kept)
    }
}

impl Drop for DemoDirectory {
    fn drop(&mut self) {
        // What cannot be removed now is swept the next time.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Removes directories of demonstrations that do not run any more.
pub fn sweep() {
    sweep_in(&base());
}

fn sweep_in(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let is_demo = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if is_demo && is_abandoned(&entry.path()) {
            kill_users_of(&entry.path());
            // What cannot be removed now is tried again the next time.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(path: &Path) -> bool {
    let Ok(found) = fs::symlink_metadata(path) else { return false };
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return false;
    }
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(_) => {
            let age = found.modified().ok().and_then(|at| at.elapsed().ok());
            age.is_some_and(|age| age > YOUNG)
        }
    }
}

/// Kills every process with a file of this directory on its command line.
fn kill_users_of(directory: &Path) {
    let mut inside = directory.as_os_str().as_encoded_bytes().to_vec();
    inside.push(b'/');
    let Ok(entries) = fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let pid = entry.file_name().to_str().and_then(|name| name.parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw).filter(|&pid| pid != getpid()) else {
            continue;
        };
        // Opened before the look, so that the number cannot have passed to another process.
        let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if arguments.windows(inside.len()).any(|window| window == inside) {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

fn create_locked(path: &Path) -> io::Result<File> {
    DirBuilder::new().mode(0o700).create(path)?;
    let lock = File::create_new(path.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        // Another demonstration cleans up, and takes this one for abandoned: it removes it.
        Err(TryLockError::WouldBlock) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(TryLockError::Error(why)) => Err(why),
    }
}

/// The usual place, unless sockets in it would have names that are too long.
fn base() -> PathBuf {
    let usual = std::env::temp_dir();
    let longest = PREFIX.len() + FILE_NAME_LEN_MAX * 2;
    match usual.is_absolute() && usual.as_os_str().len() + longest <= SOCKET_PATH_LEN_MAX {
        true => usual,
        false => PathBuf::from("/tmp"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, PoisonError};

    /// A process in the making has our locks for a moment, until it becomes another program.
    static LOCKS_OR_PROCESSES: Mutex<()> = Mutex::new(());

    #[test]
    fn only_abandoned_directories_are_swept() {
        let _alone = LOCKS_OR_PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let base = tempfile::tempdir().expect("directory");
        let at = |name: &str| base.path().join(name);
        let running = create_locked(&at("ringway-demo-1-0")).expect("running");
        drop(create_locked(&at("ringway-demo-2-0")).expect("abandoned"));
        fs::create_dir(at("ringway-demo-3-0")).expect("young");
        fs::create_dir(at("something-else")).expect("other");
        sweep_in(base.path());
        assert!(at("ringway-demo-1-0").exists());
        assert!(!at("ringway-demo-2-0").exists());
        assert!(at("ringway-demo-3-0").exists());
        assert!(at("something-else").exists());
        drop(running);
        sweep_in(base.path());
        assert!(!at("ringway-demo-1-0").exists());
    }

    #[test]
    fn what_an_abandoned_demonstration_left_running_is_killed() {
        let _alone = LOCKS_OR_PROCESSES.lock().unwrap_or_else(PoisonError::into_inner);
        let base = tempfile::tempdir().expect("directory");
        let start = |name: &str| {
            let file = base.path().join(name).join("file");
            let mut command = std::process::Command::new("sh");
            command.args(["-c", "read line", "sh"]).arg(file);
            command.stdin(std::process::Stdio::piped()).spawn().expect("sh")
        };
        drop(create_locked(&base.path().join("ringway-demo-1-0")).expect("abandoned"));
        let mut left = start("ringway-demo-1-0");
        let mut other = start("ringway-demo-1-00");
        sweep_in(base.path());
        assert!(!left.wait().expect("wait").success(), "ended by itself");
        // Still there to come to its own end.
        assert!(other.try_wait().expect("wait").is_none());
        drop(other.stdin.take());
        other.wait().expect("wait");
    }

    #[test]
    fn a_directory_is_private_and_goes_with_its_value() {
        let directory = DemoDirectory::create().expect("directory");
        let path = directory.path().to_owned();
        fs::write(directory.file("a.log"), "one\ntwo\r\n").expect("log");
        assert_eq!(directory.log_tail("a.log"), "one\ntwo");
        assert_eq!(directory.log_tail("missing.log"), "");
        assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }
}
