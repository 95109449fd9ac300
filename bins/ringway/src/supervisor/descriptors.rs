//! What is said where no file descriptor is left: how many there may be, and how there may be more.

use std::error::Error;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// A failure with its causes and, where it is for want of file descriptors, what to do.
pub(super) fn explained(why: &anyhow::Error) -> String {
    with_advice(format!("{why:#}"), why.as_ref())
}

/// The same of one whose text has its causes in it.
pub(super) fn with_advice(text: String, why: &(dyn Error + 'static)) -> String {
    match errno_of(why).and_then(advice).filter(|_| !text.contains(UNIT)) {
        Some(advice) => format!("{text}: {advice}"),
        None => text,
    }
}

/// What the operating system said, if it is among the causes.
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
