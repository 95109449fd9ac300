//! The process at the other end of a Unix socket, as the kernel noted it when it connected.
//!
//! Limits: at most [`GROUPS_MAX`] supplementary groups are looked at.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Supplementary groups of one process that are read (`NGROUPS_MAX` of Linux).
pub const GROUPS_MAX: usize = 65_536;

/// The number, the user and the groups of a connected process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerCredentials {
    /// Its number; `None`: it has none in this PID namespace.
    pub pid: Option<u32>,
    /// Its effective user.
    pub user: u32,
    /// Its effective group, and its supplementary ones.
    pub groups: Vec<u32>,
}

impl PeerCredentials {
    /// Asks the kernel (`SO_PEERCRED` and `SO_PEERGROUPS`, unix(7)).
    ///
    /// # Errors
    /// Not a connected Unix socket.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let (pid, user, group) = effective(&socket)?;
        let mut groups = supplementary_groups(&socket)?;
        groups.push(group);
        Ok(Self { pid, user, groups })
    }
}

/// The process, and its effective user and group. By hand: rustix takes a process for unknown that
/// is not in this PID namespace, because it has no number here, though the kernel says whose it is.
fn effective(socket: impl AsFd) -> io::Result<(Option<u32>, u32, u32)> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = libc::socklen_t::try_from(size_of_val(&peer)).unwrap_or(0);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `peer` has room for `len` bytes, and any bytes are valid numbers.
    let result = unsafe {
        let room = (&raw mut peer).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, room, &raw mut len)
    };
    match result {
        0 => {
            let pid = u32::try_from(peer.pid).ok().filter(|&pid| pid != 0);
            Ok((pid, peer.uid, peer.gid))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn supplementary_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = libc::socklen_t::try_from(size_of_val(groups.as_slice()))
            .map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: `groups` has room for `len` bytes, and any bytes are valid numbers.
        let result = unsafe {
            let room = groups.as_mut_ptr().cast();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, room, &raw mut len)
        };
        if result == 0 {
            groups.truncate(len as usize / size_of::<u32>());
            return Ok(groups);
        }
        let why = io::Error::last_os_error();
        // Too little room: the kernel has said in `len` how much it takes.
        let wanted = len as usize / size_of::<u32>();
        if why.raw_os_error() != Some(libc::ERANGE) || wanted <= groups.len() || wanted > GROUPS_MAX
        {
            return Err(why);
        }
        groups.resize(wanted, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_peer_of_our_own_socket_is_ourselves() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let peer = PeerCredentials::of(&ours).unwrap();
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.user, rustix::process::geteuid().as_raw());
        assert!(peer.groups.contains(&rustix::process::getegid().as_raw()));
        for group in rustix::process::getgroups().unwrap() {
            assert!(peer.groups.contains(&group.as_raw()));
        }
    }

    #[test]
    fn what_is_no_socket_has_no_peer() {
        assert!(PeerCredentials::of(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}
