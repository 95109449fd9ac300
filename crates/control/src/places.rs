//! Where sockets are if nothing is said about it: in a directory that this user may write, and no
//! other one.
//!
//! How: below `$XDG_RUNTIME_DIR` if that is this user's; otherwise below `/run` for root; otherwise
//! below a directory of one's own in `/tmp`. There `ringway.sock` is the control socket. Ports'
//! sockets lie beside it, so that two ringways of a user have their own: `ringway/NAME.sock`, and
//! `b/NAME.sock` where the control socket is `b.sock`; in a directory that is called `ringway`
//! already, such as that of the service, `NAME.sock`, so that other users reach it. In `/tmp`
//! others may have taken the name: a directory that is not this user's, or that others may look
//! into, is passed over and the next name is tried.
//!
//! Limits: [`NAMES_MAX`] names are tried. `/tmp` is not `$TMPDIR`, so that all commands of a user
//! look in one place.

use std::fs::{self, DirBuilder, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use rustix::fs::{Access, access};

/// Names that are tried for a directory of one's own.
const NAMES_MAX: u32 = 16;

/// A directory that only its owner may use.
const PRIVATE: u32 = 0o700;

/// The mode bits of others, which a private directory has none of.
const OTHERS: u32 = 0o077;

/// The mode bits that let others put something into a directory.
const OTHERS_WRITE: u32 = 0o022;

/// Where `ringway run` takes orders, and the other commands ask, if nothing else is said.
pub fn control_socket() -> PathBuf {
    Surroundings::here().base().join(CONTROL)
}

/// Where the service of a package takes orders.
const SERVICE: &str = "/run/ringway/ringway.sock";

/// Its unit, if it is installed.
const UNITS: [&str; 2] =
    ["/lib/systemd/system/ringway.service", "/etc/systemd/system/ringway.service"];

/// How to start the ringway that would answer there.
pub fn how_to_start(control: &str) -> String {
    match control {
        SERVICE => "it with: systemctl start ringway".to_owned(),
        _ => format!("one with: ringway run --control {control} …"),
    }
}

/// How to stop the one that answers there.
pub fn how_to_stop(control: &Path) -> String {
    match control == control_socket() {
        true => "ringway stop".to_owned(),
        false => format!("ringway stop --control {}", control.display()),
    }
}

/// The command that gives the service of a package the rights to make taps and to pin workers.
pub const WIDE_SERVICE: &str = "sudo install -D -m 644 -t /etc/systemd/system/ringway.service.d \
                                /usr/share/ringway/wide.conf && sudo systemctl daemon-reload && \
                                sudo systemctl restart ringway";

/// The way to give ringway the right to tell bridges of guests (`fdb=sync`, `neighbours=sync`).
pub fn how_to_tell_bridges() -> String {
    format!(
        "sudo setcap cap_net_admin+ep $(command -v ringway); or, for the service: {WIDE_SERVICE}"
    )
}

/// Where commands ask if nothing else is said: a ringway of this user's, or else the service.
pub fn control_socket_to_ask() -> PathBuf {
    let own = control_socket();
    let service = Path::new(SERVICE);
    let is_installed = || UNITS.iter().any(|unit| Path::new(unit).exists());
    let is_service = !own.exists() && (service.exists() || is_installed());
    if is_service { service.to_path_buf() } else { own }
}

/// Where a ringway with that control socket listens for the guest of a port if no path is given.
pub fn guest_socket(port: &str, control: &Path) -> PathBuf {
    sockets(control).join(format!("{port}.sock"))
}

/// Makes the directory of a socket, if it is one of those above, and checks whose it is; `control`
/// is the control socket beside which ports' sockets lie.
///
/// # Errors
/// It cannot be made, or others may put sockets there.
pub fn prepare(socket: &Path, control: &Path) -> anyhow::Result<()> {
    Surroundings::here().prepare(socket, control)
}

/// Whether [`prepare`] makes the directory of a socket.
pub fn is_made(socket: &Path, control: &Path) -> bool {
    let (base, is_own) = Surroundings::here().place();
    let parent = socket.parent();
    parent == own_sockets(control).as_deref() || is_own && parent == Some(&base)
}

/// The name of a directory that is ringway's own, and of its control socket there.
const OWN: &str = "ringway";
const CONTROL: &str = "ringway.sock";

/// Where ports' sockets are: in a directory of ringway's own without another one, which only its
/// owner could pass.
fn sockets(control: &Path) -> PathBuf {
    let control = std::path::absolute(control).unwrap_or_else(|_| control.to_owned());
    let directory = control.parent().filter(|it| it.file_name().is_some_and(|name| name == OWN));
    match directory.filter(|_| control.file_name().is_some_and(|name| name == CONTROL)) {
        Some(directory) => directory.to_owned(),
        None if control.extension().is_some_and(|it| it == "sock") => control.with_extension(""),
        None => control.with_added_extension("ports"),
    }
}

/// The same, if it is a directory of their own.
fn own_sockets(control: &Path) -> Option<PathBuf> {
    let sockets = sockets(control);
    let control = std::path::absolute(control).ok()?;
    (control.parent() != Some(&sockets)).then_some(sockets)
}

/// The user and directories that the place depends on.
#[derive(Debug)]
struct Surroundings {
    user: u32,
    /// `$XDG_RUNTIME_DIR`
    runtime: Option<PathBuf>,
    /// `/run`
    run: PathBuf,
    /// `/tmp`
    temporary: PathBuf,
}

impl Surroundings {
    fn here() -> Self {
        Self {
            user: rustix::process::geteuid().as_raw(),
            runtime: std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
            run: "/run".into(),
            temporary: "/tmp".into(),
        }
    }

    /// The directory in which the rest is, and whether it is one of our own making.
    fn place(&self) -> (PathBuf, bool) {
        let is_own = |path: &&PathBuf| {
            let found = fs::metadata(path);
            path.is_absolute() && found.is_ok_and(|it| it.is_dir() && it.uid() == self.user)
        };
        if let Some(runtime) = self.runtime.as_ref().filter(is_own) {
            return (runtime.clone(), false);
        }
        if self.user == 0 && access(&self.run, Access::WRITE_OK).is_ok() {
            return (self.run.clone(), false);
        }
        (self.own_directory(), true)
    }

    fn base(&self) -> PathBuf {
        self.place().0
    }

    /// The first of these names that is this user's own, or else the first that is free.
    fn own_directory(&self) -> PathBuf {
        let user = self.user;
        let path = |number: u32| match number {
            0 => self.temporary.join(format!("ringway-{user}")),
            _ => self.temporary.join(format!("ringway-{user}-{number}")),
        };
        let names = || (0..NAMES_MAX).map(path);
        let is_own = |path: &PathBuf| {
            fs::symlink_metadata(path).is_ok_and(|found| self.owns(&found, OTHERS))
        };
        let is_free = |path: &PathBuf| {
            fs::symlink_metadata(path).is_err_and(|why| why.kind() == ErrorKind::NotFound)
        };
        names().find(is_own).or_else(|| names().find(is_free)).unwrap_or_else(|| path(0))
    }

    /// Whether it is a directory of this user in which others may not do these things.
    fn owns(&self, found: &Metadata, denied: u32) -> bool {
        found.is_dir() && found.uid() == self.user && found.mode() & denied == 0
    }

    fn prepare(&self, socket: &Path, control: &Path) -> anyhow::Result<()> {
        let (base, is_own) = self.place();
        let parent = socket.parent();
        let sockets = own_sockets(control).filter(|sockets| parent == Some(sockets));
        let beside = sockets.as_ref().and_then(|sockets| sockets.parent());
        if is_own && (parent == Some(&base) || beside == Some(&base)) {
            self.make(&base, OTHERS)?;
        }
        sockets.map_or(Ok(()), |sockets| self.make(&sockets, OTHERS_WRITE))
    }

    fn make(&self, directory: &Path, denied: u32) -> anyhow::Result<()> {
        let shown = directory.display();
        match DirBuilder::new().mode(PRIVATE).create(directory) {
            Err(why) if why.kind() != ErrorKind::AlreadyExists => {
                return Err(why).with_context(|| format!("{shown}: cannot be made"));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(directory).with_context(|| shown.to_string())?;
        if !self.owns(&found, denied) {
            let user = self.user;
            bail!("{shown}: not a directory of user {user} alone: remove it, or give a path");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    impl Surroundings {
        fn prepare_port(&self) -> anyhow::Result<PathBuf> {
            let control = self.base().join(CONTROL);
            let socket = guest_socket("vm0", &control);
            self.prepare(&socket, &control).map(|()| socket)
        }
    }

    fn surroundings(root: &Path) -> Surroundings {
        let user = rustix::process::geteuid().as_raw();
        // Nothing there can be written, not even by root.
        let run = root.join("run");
        Surroundings { user, runtime: None, run, temporary: root.to_owned() }
    }

    #[test]
    fn the_runtime_directory_counts_only_if_it_is_this_users() {
        let root = tempfile::tempdir().expect("a directory");
        let mut here = surroundings(root.path());
        let own = root.path().join(format!("ringway-{}", here.user));
        for (runtime, base) in [
            (None, own.clone()),
            (Some(root.path().join("missing")), own.clone()),
            (Some("relative".into()), own.clone()),
            (Some(PathBuf::new()), own.clone()),
            (Some(root.path().to_owned()), root.path().to_owned()),
        ] {
            here.runtime = runtime;
            assert_eq!(here.base(), base, "{here:?}");
        }
        // It may be in the temporary folder, and more open than a directory of our own making.
        let session = root.path().join("session");
        fs::create_dir(&session).expect("a directory");
        fs::set_permissions(&session, Permissions::from_mode(0o755)).expect("open to readers");
        here.runtime = Some(session.clone());
        here.prepare_port().expect("it can be used");
        assert!(session.join(OWN).is_dir());
        here.runtime = Some(root.path().to_owned());
        here.user += 1;
        assert_ne!(here.base(), root.path(), "another user's");
    }

    #[test]
    fn the_sockets_of_ports_lie_beside_the_control_socket() {
        for (control, socket) in [
            ("/run/user/7/ringway.sock", "/run/user/7/ringway/vm0.sock"),
            ("/run/user/7/b.sock", "/run/user/7/b/vm0.sock"),
            ("/run/user/7/control", "/run/user/7/control.ports/vm0.sock"),
            ("/tmp/ringway-7/ringway.sock", "/tmp/ringway-7/ringway/vm0.sock"),
            // A directory of ringway's own has them itself.
            ("/run/ringway/ringway.sock", "/run/ringway/vm0.sock"),
            ("/run/ringway/b.sock", "/run/ringway/b/vm0.sock"),
        ] {
            assert_eq!(guest_socket("vm0", control.as_ref()), Path::new(socket));
        }
        let here = std::env::current_dir().expect("a directory");
        assert_eq!(guest_socket("vm0", "b.sock".as_ref()), here.join("b/vm0.sock"));
    }

    #[test]
    fn their_directory_is_made_wherever_the_control_socket_is() {
        let root = tempfile::tempdir().expect("a directory");
        let control = root.path().join("b.sock");
        let socket = guest_socket("vm0", &control);
        assert!(is_made(&socket, &control));
        assert!(!is_made(&root.path().join("c/vm0.sock"), &control));
        prepare(&socket, &control).expect("it can be made");
        let made = fs::metadata(root.path().join("b")).expect("it was made");
        assert_eq!(made.mode() & 0o777, PRIVATE);
    }

    #[test]
    fn root_uses_run_where_it_may() {
        let root = tempfile::tempdir().expect("a directory");
        let mut here = surroundings(root.path());
        here.user = 0;
        assert_eq!(here.base(), root.path().join("ringway-0"));
        here.run = root.path().to_owned();
        assert_eq!(here.base(), root.path());
    }

    #[test]
    fn a_name_that_others_have_taken_is_passed_over() {
        let root = tempfile::tempdir().expect("a directory");
        let here = surroundings(root.path());
        let name = |number: &str| root.path().join(format!("ringway-{}{number}", here.user));
        symlink(root.path(), name("")).expect("a link");
        fs::write(name("-1"), "").expect("a file");
        fs::create_dir(name("-2")).expect("a directory");
        fs::set_permissions(name("-2"), Permissions::from_mode(0o777)).expect("open to all");
        assert_eq!(here.base(), name("-3"));
        let socket = here.prepare_port().expect("it can be made");
        let made = fs::metadata(name("-3")).expect("it was made");
        assert_eq!(made.mode() & 0o777, PRIVATE);
        assert!(socket.parent().is_some_and(Path::is_dir));
        // It stays there, also when a name before it becomes free.
        fs::remove_file(name("-1")).expect("it was there");
        assert_eq!(here.base(), name("-3"));
    }

    #[test]
    fn a_directory_that_is_not_ours_is_not_used() {
        let root = tempfile::tempdir().expect("a directory");
        let mut here = surroundings(root.path());
        here.runtime = Some(root.path().to_owned());
        let sockets = root.path().join(OWN);
        fs::create_dir(&sockets).expect("a directory");
        fs::set_permissions(&sockets, Permissions::from_mode(0o777)).expect("open to all");
        let error = here.prepare_port().expect_err("others may write there");
        assert!(error.to_string().contains("remove it, or give a path"), "{error}");
        // A directory that the user named is taken as it is.
        let other = root.path().join("other/vm0.sock");
        here.prepare(&other, &here.base().join(CONTROL)).expect("nothing to do");
    }
}
