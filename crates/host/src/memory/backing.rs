//! The kind of file behind a descriptor that a front-end sent as memory, without asking the file
//! system.
//!
//! A file may be of a file system that a program serves (FUSE), the front-end's own perhaps. A
//! thread that asks such a file anything, even which file system it is of, waits for that program.
//! So it is not asked. A file is in memory (tmpfs, memfd, hugetlbfs) if it can be sealed. Of any
//! other file the kernel itself knows the mount and the device, of these the kind, and how long the
//! file was when the kernel last heard of it.
//!
//! Limits: without /proc, or before Linux 5.8, files must be in memory. A disk counts if it is
//! mounted here, wherever the front-end has it; a Btrfs subvolume only if the file was opened
//! through that mount.

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::io::Errno;

use crate::os::empty_path::empty_path;

/// See `proc_pid_mountinfo(5)`.
const MOUNTINFO: &str = "/proc/self/mountinfo";

/// `f_type` of hugetlbfs (`linux/magic.h`).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// The properties of a file that a mapping needs to know, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    pub(crate) file_len: u64,
    /// Mappings start and end at such pages.
    pub(crate) page_size: u64,
    /// A page of it may have to be read from a disk.
    pub(crate) is_on_disk: bool,
}

/// `None`: a program may serve the file.
pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Option<Backing>> {
    let usual_size = rustix::param::page_size() as u64;
    let known = known(fd)?;
    let is_in_memory = rustix::fs::fcntl_get_seals(fd).is_ok();
    let page_size = if is_in_memory {
        let file_system = rustix::fs::fstatfs(fd)?;
        let block_size = u64::try_from(file_system.f_bsize).unwrap_or(0);
        let is_huge = file_system.f_type as u64 == HUGETLBFS_MAGIC;
        if is_huge { block_size.max(usual_size) } else { usual_size }
    } else if known.as_ref().is_some_and(is_on_disk) {
        usual_size
    } else {
        return Ok(None);
    };
    let file_len = match known {
        Some(known) => known.stx_size,
        // It is in memory: this asks no program.
        None => u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0),
    };
    Ok(Some(Backing { file_len, page_size, is_on_disk: !is_in_memory }))
}

/// The properties of the file that the kernel knows; `None` where a filter of system calls forbids
/// it.
fn known(fd: BorrowedFd<'_>) -> rustix::io::Result<Option<Statx>> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let what = StatxFlags::TYPE | StatxFlags::SIZE | StatxFlags::MNT_ID;
    match rustix::fs::statx(fd, empty_path(), flags, what) {
        Ok(known) => Ok(Some(known)),
        Err(Errno::NOSYS | Errno::PERM) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Only a regular file is looked up: for other kinds `/proc` may ask their file system, too.
fn is_on_disk(known: &Statx) -> bool {
    let has_mount = known.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    if FileType::from_raw_mode(known.stx_mode.into()) != FileType::RegularFile || !has_mount {
        return false;
    }
    let mounts = mounts().unwrap_or_default();
    let device = format!("{}:{}", known.stx_dev_major, known.stx_dev_minor);
    let kind = kind_of(&known.stx_mnt_id.to_string(), &device, &mounts);
    kind.is_some_and(|kind| !is_served(kind))
}

/// Where the kernel says what is mounted; opened before a process gives up its files.
static MOUNTS: OnceLock<File> = OnceLock::new();

/// Opens the kernel's list of mounts for later: a process in the sandbox may open no file.
pub fn remember_mounts() {
    if let Ok(file) = File::open(MOUNTINFO) {
        let _ = MOUNTS.set(file);
    }
}

/// The list of all that is mounted now.
fn mounts() -> io::Result<String> {
    let Some(file) = MOUNTS.get() else { return std::fs::read_to_string(MOUNTINFO) };
    let (mut text, mut room) = (Vec::new(), [0; 4096]);
    loop {
        // From its beginning on the kernel says what holds now.
        match file.read_at(&mut room, text.len() as u64)? {
            0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
            len => text.extend_from_slice(&room[..len]),
        }
    }
}

/// The file system of a mount, or of the same device where that is mounted here as well; see
/// `proc_pid_mountinfo(5)`.
fn kind_of<'a>(mount: &str, device: &str, mounts: &'a str) -> Option<&'a str> {
    let field = |line: &'a str, at: usize| line.split(' ').nth(at);
    let with = |at, what: &str| mounts.lines().find(|line| field(line, at) == Some(what));
    let line = with(0, mount).or_else(|| with(2, device))?;
    // Fields of which there may be any number end at a lone hyphen.
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next()
}

/// `fuse`, `fuse.sshfs`, `fuseblk`, …
fn is_served(kind: &str) -> bool {
    kind.starts_with("fuse") || kind == "virtiofs"
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    const MOUNTS: &str = "\
22 1 254:1 / / rw,relatime shared:1 master:7 - ext4 /dev/vda1 rw
221 22 0:44 / /home/guest/a\\040-\\040b rw - fuse.sshfs host:/ rw,user_id=1000
23 22 0:45 / /shared rw - virtiofs shared rw
";

    #[test]
    fn what_a_program_serves_is_known_by_its_mount() {
        let kind = |mount| kind_of(mount, "0:9", MOUNTS);
        assert_eq!(kind("22"), Some("ext4"));
        assert_eq!(kind("221"), Some("fuse.sshfs"));
        assert_eq!(kind("2"), None, "it is not mounted here");
        let is_served = |mount| kind(mount).is_some_and(is_served);
        assert_eq!(["22", "221", "23"].map(is_served), [false, true, true]);
    }

    #[test]
    fn a_disk_that_the_front_end_has_mounted_for_itself_is_known_by_its_device() {
        let kind = |device| kind_of("999", device, MOUNTS);
        assert_eq!(kind("254:1"), Some("ext4"));
        assert_eq!(kind("0:44"), Some("fuse.sshfs"));
        assert_eq!(kind("0:4"), None);
    }

    #[test]
    fn files_in_memory_and_on_a_disk_are_known() {
        let page_size = rustix::param::page_size() as u64;
        let memory = rustix::fs::memfd_create("backing", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("memfd");
        rustix::fs::ftruncate(&memory, 12_345).expect("longer");
        let expected = Some(Backing { file_len: 12_345, page_size, is_on_disk: false });
        assert_eq!(of(memory.as_fd()).expect("known"), expected);
        let program = std::fs::File::open("/proc/self/exe").expect("this program");
        let file_len = program.metadata().expect("known").len();
        let expected = Some(Backing { file_len, page_size, is_on_disk: true });
        assert_eq!(of(program.as_fd()).expect("known"), expected);
        let is_on_disk = |fd| known(fd).expect("known").as_ref().is_some_and(is_on_disk);
        assert!(is_on_disk(program.as_fd()));
        let (pipe, _other_end) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(of(pipe.as_fd()).expect("known"), None, "that is nowhere");
        let flags = rustix::event::epoll::CreateFlags::CLOEXEC;
        let epoll = rustix::event::epoll::create(flags).expect("an epoll instance");
        assert_eq!(of(epoll.as_fd()).expect("known"), None, "nor is that");
    }
}
