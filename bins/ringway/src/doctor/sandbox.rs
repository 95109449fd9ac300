//! The rights that the data plane gives up on this machine.

use rustix::process::geteuid;

use super::finding::Finding;
use crate::data_plane::sandbox::filter::calls_allowed;
use crate::data_plane::sandbox::{USER, own_user};

pub fn findings() -> [Finding; 2] {
    [user(geteuid().is_root(), own_user().is_some()), calls()]
}

/// Another process of the same user can end the data plane; as the user that owns nothing several
/// programs run.
fn user(is_root: bool, is_there: bool) -> Finding {
    const WHAT: &str = "the data plane's user";
    match (is_root, is_there) {
        (true, true) => Finding::fine(WHAT, USER),
        (true, false) => Finding::absent(
            WHAT,
            format!("there is no user {USER}: it will be 65534, which other programs are, too"),
            format!("sudo useradd --system --user-group --no-create-home {USER}"),
        ),
        (false, _) => Finding::fine(WHAT, "this one: only root starts it as another one"),
    }
}

fn calls() -> Finding {
    let (alone, with_routers) = (calls_allowed(false), calls_allowed(true));
    let found = format!("{alone} are allowed, {with_routers} with a router");
    Finding::fine("the data plane's system calls", found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_missing_is_said_to_root_with_what_makes_it() {
        let mends = |is_root, is_there| user(is_root, is_there).mend;
        let made = mends(true, false).expect("what to do");
        assert!(made.starts_with("sudo useradd ") && made.ends_with(" ringway-data"), "{made}");
        let others = [(true, true), (false, true), (false, false)];
        assert!(others.into_iter().all(|(root, there)| mends(root, there).is_none()));
    }

    /// The number that the documentation tells.
    #[test]
    fn no_system_call_is_allowed_that_was_not_counted() {
        assert_eq!([calls_allowed(false), calls_allowed(true)], CALLS_TOLD);
    }

    #[cfg(target_arch = "x86_64")]
    const CALLS_TOLD: [usize; 2] = [59, 68];
    #[cfg(not(target_arch = "x86_64"))]
    const CALLS_TOLD: [usize; 2] = [57, 66];
}
