//! File descriptors: those that another program gets, and what is said where none is left, or none
//! may be sent: how many there may be, and how there may be more.

use std::error::Error;
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Resource, getrlimit};

/// A failure with its causes and, where it is for want of file descriptors, what to do.
pub fn explained(why: &anyhow::Error) -> String {
    with_advice(format!("{why:#}"), why.as_ref())
}

/// The same of one whose text has its causes in it.
pub fn with_advice(text: String, why: &(dyn Error + 'static)) -> String {
    match errno_of(why).and_then(advice).filter(|_| !text.contains(UNIT)) {
        Some(advice) => format!("{text}: {advice}"),
        None => text,
    }
}

/// The errno of the operating system, if it is among the causes.
fn errno_of(why: &(dyn Error + 'static)) -> Option<Errno> {
    let own = match why.downcast_ref::<std::io::Error>() {
        Some(why) => Errno::from_io_error(why),
        None => why.downcast_ref::<Errno>().copied(),
    };
    own.or_else(|| errno_of(why.source()?))
}

/// Where a service is told how many it may have.
const UNIT: &str = "LimitNOFILE=";

fn advice(why: Errno) -> Option<String> {
    match why {
        Errno::MFILE => {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            Some(format!(
                "ringway has all {limit} file descriptors that it may have: allow more: {UNIT} in \
                 its unit, or ulimit -Hn before it is started"
            ))
        }
        Errno::NFILE => Some("this machine has no more: allow more: sysctl fs.file-max".to_owned()),
        _ => None,
    }
}

/// Why a message with file descriptors waits.
pub fn too_many_on_their_way() -> String {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    format!(
        "its request waits: processes of this user have more than {limit} file descriptors in \
         flight (sent in messages that were not received), and the limit of ringway is that \
         many: end who does not receive them, or allow more: {UNIT} in its unit, or ulimit -Hn"
    )
}

/// File descriptors that stay open when another program is started, while it exists. No thread but
/// this one starts any.
pub struct Kept<'a>(Vec<BorrowedFd<'a>>);

impl<'a> Kept<'a> {
    /// # Errors
    /// The kernel refuses.
    pub fn open(fds: Vec<BorrowedFd<'a>>) -> anyhow::Result<Self> {
        let kept = Self(fds);
        for fd in &kept.0 {
            fcntl_setfd(fd, fcntl_getfd(fd)? - FdFlags::CLOEXEC)?;
        }
        Ok(kept)
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        for fd in &self.0 {
            let _ = fcntl_setfd(fd, FdFlags::CLOEXEC);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_is_said_once_and_only_where_it_helps() {
        let of = |errno: Errno| explained(&anyhow::Error::from(errno).context("accept"));
        let text = of(Errno::MFILE);
        assert!(text.starts_with("accept: Too many open files") && text.contains(UNIT), "{text}");
        assert!(of(Errno::NFILE).ends_with("sysctl fs.file-max"));
        assert_eq!(of(Errno::PERM), format!("accept: {}", Errno::PERM));
        let known = anyhow::Error::from(std::io::Error::from(Errno::MFILE)).context(UNIT);
        assert_eq!(explained(&known).matches(UNIT).count(), 1);
    }
}
