//! A file on a disk, none of it in memory, and a process for which that disk is slow.
//!
//! How: a control group of its own limits how often the process reads from the disk. Only the first
//! version of control groups, the one whose groups anybody but the service manager may make, is
//! known here.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, major, minor};

const GROUPS: &str = "/sys/fs/cgroup/blkio";

/// Bytes that are there at each step; between them the file has holes.
const PAGE: [u8; 4096] = [1; 4096];

/// A file of `len` bytes with a page from the disk at each multiple of `step`.
///
/// # Errors
/// The disk is full.
pub fn cold_file(directory: &Path, len: u64, step: u64) -> io::Result<File> {
    let place = directory.join("cold");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(place)?;
    file.set_len(len)?;
    for at in (0..len / step).map(|index| index * step) {
        file.write_all_at(&PAGE, at)?;
    }
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed)?;
    Ok(file)
}

/// A control group whose processes read from one disk only so often. It is removed with this, once
/// they have ended.
pub struct SlowDisk(PathBuf);

impl SlowDisk {
    /// The disk on which this file is, `reads` times per second.
    ///
    /// # Errors
    /// Control groups are not there, not ours, or know nothing of this disk.
    pub fn below(file: &File, reads: u32) -> io::Result<Self> {
        let device = file.as_fd().try_clone_to_owned().map(File::from)?.metadata()?.st_dev();
        let group = Path::new(GROUPS).join(format!("ringway-test-{}", std::process::id()));
        fs::create_dir(&group)?;
        let disk = Self(group);
        let limit = format!("{}:{} {reads}", major(device), minor(device));
        fs::write(disk.0.join("blkio.throttle.read_iops_device"), limit)?;
        Ok(disk)
    }

    /// From now on this process is one of them.
    ///
    /// # Errors
    /// It has ended.
    pub fn slow_down(&self, process: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), process.to_string())
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}
