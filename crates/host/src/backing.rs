//! What is behind a file descriptor that a front-end sent as memory, without asking anybody.
//!
//! A file may be of a file system that a program serves (FUSE), the front-end's own perhaps, and whoever
//! asks that anything, even which file system it is, waits for the program. So it is not asked. That a file is
//! in memory (tmpfs, memfd, hugetlbfs) shows in that it can be sealed; of any other one the kernel knows the
//! mount, and of that the kind, and how long the file was when it last heard of it.
//!
//! Limits: without /proc, files must be in memory.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;

/// `f_type` of hugetlbfs (`linux/magic.h`).
const HUGETLBFS_MAGIC: u64 = 0x9584_58f6;

/// What a mapping needs to know of its file, in bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Backing {
    pub(crate) file_len: u64,
    /// Mappings start and end at such pages.
    pub(crate) page_size: u64,
}

/// `None`: a program may serve the file.
pub(crate) fn of(fd: BorrowedFd<'_>) -> rustix::io::Result<Option<Backing>> {
    let usual_size = rustix::param::page_size() as u64;
    let page_size = if rustix::fs::fcntl_get_seals(fd).is_ok() {
        let file_system = rustix::fs::fstatfs(fd)?;
        let block_size = u64::try_from(file_system.f_bsize).unwrap_or(0);
        let is_huge = file_system.f_type as u64 == HUGETLBFS_MAGIC;
        if is_huge { block_size.max(usual_size) } else { usual_size }
    } else if is_on_disk(fd) {
        usual_size
    } else {
        return Ok(None);
    };
    Ok(Some(Backing { file_len: known_len(fd)?, page_size }))
}

/// How long the file is, as far as that is known here.
fn known_len(fd: BorrowedFd<'_>) -> rustix::io::Result<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    match rustix::fs::statx(fd, c"", flags, StatxFlags::SIZE) {
        Ok(known) => Ok(known.stx_size),
        // Where a filter of system calls does not know it. All but FUSE answers at once.
        Err(Errno::NOSYS | Errno::PERM) => {
            Ok(u64::try_from(rustix::fs::fstat(fd)?.st_size).unwrap_or(0))
        }
        Err(errno) => Err(errno),
    }
}

fn is_on_disk(fd: BorrowedFd<'_>) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let about = read(&format!("/proc/self/fdinfo/{}", fd.as_raw_fd()));
    let mount = about.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let kind = mount.and_then(|mount| kind_of(mount.trim(), &read("/proc/self/mountinfo")));
    kind.is_some_and(|kind| !is_served(&kind))
}

/// The file system of a mount; see `proc_pid_mountinfo(5)`.
fn kind_of(mount: &str, mounts: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(mount))?;
    // Fields of which there may be any number end at a lone hyphen.
    let (_, rest) = line.split_once(" - ")?;
    rest.split(' ').next().map(str::to_owned)
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
        let kind = |mount| kind_of(mount, MOUNTS);
        assert_eq!(kind("22").as_deref(), Some("ext4"));
        assert_eq!(kind("221").as_deref(), Some("fuse.sshfs"));
        assert_eq!(kind("2"), None, "it is not mounted here");
        let is_served = |mount| kind(mount).is_some_and(|kind| is_served(&kind));
        assert_eq!(["22", "221", "23"].map(is_served), [false, true, true]);
    }

    #[test]
    fn files_in_memory_and_on_a_disk_are_known() {
        let page_size = rustix::param::page_size() as u64;
        let memory = rustix::fs::memfd_create("backing", rustix::fs::MemfdFlags::CLOEXEC);
        let memory = memory.expect("memfd");
        rustix::fs::ftruncate(&memory, 12_345).expect("longer");
        let expected = Some(Backing { file_len: 12_345, page_size });
        assert_eq!(of(memory.as_fd()).expect("known"), expected);
        let program = std::fs::File::open("/proc/self/exe").expect("this program");
        let file_len = program.metadata().expect("known").len();
        assert_eq!(of(program.as_fd()).expect("known"), Some(Backing { file_len, page_size }));
        assert!(is_on_disk(program.as_fd()));
        let (pipe, _other_end) = rustix::pipe::pipe().expect("a pipe");
        assert_eq!(of(pipe.as_fd()).expect("known"), None, "that is nowhere");
    }
}
