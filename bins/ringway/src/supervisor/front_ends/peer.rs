//! The process of a front-end, as far as the kernel says: for people who look for it.
//!
//! Limits: it is the process that connected (of a `vm-connect` port: that listens). It may have
//! handed the connection to another one, may have ended, and names itself as it likes. Nothing is
//! decided by it.

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::AsFd;

use ringway_host::PeerCredentials;
use ringway_vhost_user::SocketError;

use crate::control::FrontEndStats;
use crate::process_names;

/// Users whose names are kept.
const NAMES_MAX: usize = 1024;

/// A process at the other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pid: Option<u32>,
    uid: u32,
    user: Option<String>,
    program: Option<String>,
}

/// Names of users. Each is looked up once: a directory of names may take long to answer, and a
/// front-end connects as often as it likes.
#[derive(Debug, Default)]
pub struct UserNames(BTreeMap<u32, Option<String>>);

impl UserNames {
    fn of(&mut self, uid: u32) -> Option<String> {
        if self.0.len() >= NAMES_MAX {
            self.0.clear();
        }
        self.0.entry(uid).or_insert_with(|| process_names::user(uid)).clone()
    }
}

impl Peer {
    /// `None`: the kernel does not say.
    pub fn of(connection: impl AsFd, names: &mut UserNames) -> Option<Self> {
        let PeerCredentials { pid, user: uid, .. } = PeerCredentials::of(connection).ok()?;
        let program = pid.and_then(process_names::program);
        Some(Self { pid, uid, user: names.of(uid), program })
    }

    pub fn stats(&self) -> FrontEndStats {
        let Self { pid, uid, user, program } = self.clone();
        FrontEndStats { pid, uid, user, program }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stats().fmt(f)
    }
}

/// The process that listens where a socket cannot be made for that reason.
pub fn in_use(why: &SocketError) -> Option<String> {
    let SocketError::InUse { path, by } = why else { return None };
    let who = by.map_or(String::new(), |(pid, uid)| {
        let user = process_names::user(uid).unwrap_or_else(|| uid.to_string());
        format!(" (process {pid} of user {user})")
    });
    Some(format!("{}: a running instance listens here{who}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn the_process_at_the_other_end_is_named() {
        let (ours, _theirs) = UnixStream::pair().expect("sockets");
        let peer = Peer::of(&ours, &mut UserNames::default()).expect("it is known");
        assert_eq!(peer.pid, Some(std::process::id()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.program.is_some_and(|name| !name.is_empty() && !name.contains('\n')));
    }

    #[test]
    fn no_more_names_are_kept_than_that() {
        let mut names = UserNames::default();
        (1_000_000..1_000_000 + 10).for_each(|uid| drop(names.of(uid)));
        assert_eq!(names.0.len(), 10);
        names.0.extend((0..2000).map(|uid| (uid, None)));
        names.of(0);
        assert_eq!(names.0.len(), 1);
    }
}
