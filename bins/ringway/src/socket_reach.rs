//! Whether those who are named (`socket_user`, `socket_group`) reach a port's socket: the file may
//! be theirs, and a directory above it closed to them.
//!
//! Limits: modes only; of a user's groups nothing is known, so a directory that some group may pass
//! is taken to be passed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::config::port::SocketAccess;

use crate::config::{PortKind, PortSpec};

/// May be passed by its owner, its group, and others.
const PASS: [u32; 3] = [0o100, 0o010, 0o001];

/// The directory that keeps the users named at a port from its socket, if one does.
pub fn barrier(spec: &PortSpec) -> Option<String> {
    let PortKind::Vm { socket } = &spec.kind else { return None };
    let access = spec.socket_access();
    let socket = std::path::absolute(socket).ok()?;
    let closed = socket.ancestors().skip(1).find(|it| !lets_pass(it, &access))?;
    let named = [("socket_user", &spec.socket_user), ("socket_group", &spec.socket_group)];
    let named: Vec<&str> =
        named.iter().filter(|(_, id)| id.is_some()).map(|(key, _)| *key).collect();
    Some(format!(
        "{} is closed to whom {} names: choose a place for the socket that they reach, such as \
         /run/{}.sock, or: chmod o+x {}",
        closed.display(),
        named.join(" or "),
        spec.name,
        closed.display()
    ))
}

fn lets_pass(directory: &Path, access: &SocketAccess) -> bool {
    let Ok(found) = directory.metadata() else { return true };
    let [owner, group, others] = PASS.map(|bit| found.mode() & bit != 0);
    let user = access
        .user
        .is_none_or(|user| user == 0 || if user == found.uid() { owner } else { group || others });
    let members = access.group.is_none_or(|it| if it == found.gid() { group } else { others });
    user && members
}

#[cfg(test)]
mod tests {
    use std::fs::{DirBuilder, Permissions, set_permissions};
    use std::os::unix::fs::{DirBuilderExt, PermissionsExt};

    use super::*;
    use crate::config::flags;

    #[test]
    fn a_directory_that_is_closed_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        set_permissions(place.path(), Permissions::from_mode(0o755)).expect("ours");
        let closed = place.path().join("closed");
        DirBuilder::new().mode(0o700).create(&closed).expect("made");
        let own = place.path().metadata().expect("it is there");
        let barrier = |path: &Path, options: &str| {
            let typed = format!("a=vm:{}{options}", path.join("a.sock").display());
            let low = flags::parse_port(&typed).expect("a port");
            barrier(&PortSpec::resolve(&low).expect("a port"))
        };
        let (group, user) = (",socket_group=4242", format!(",socket_user={}", own.uid()));
        assert_eq!(barrier(&closed, ""), None, "it is for its owner");
        assert_eq!(barrier(&closed, &user), None, "it is theirs");
        assert_eq!(barrier(place.path(), group), None);
        let said = barrier(&closed, group).expect("they cannot pass");
        assert!(said.starts_with(&format!("{} is closed", closed.display())), "{said}");
        set_permissions(&closed, Permissions::from_mode(0o711)).expect("ours");
        assert_eq!(barrier(&closed, group), None);
    }
}
