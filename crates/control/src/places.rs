//! Where sockets are if nothing is said about it: in a directory that this user may write, and no
//! other one.
//!
//! How: below `$XDG_RUNTIME_DIR` if that is this user's; otherwise below `/run` for root; otherwise
//! below a directory of one's own in `/tmp`. There `ringway.sock` is the control socket, and
//! `ringway/NAME.sock` the socket of a port; in a directory that is called `ringway` already, such
//! as that of the service, `NAME.sock`, so that other users reach it. In `/tmp` others may have
//! taken the name: a directory that is not this user's, or that others may look into, is passed
//! over and the next name is tried.
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

/// What others may do in a private directory.
const OTHERS: u32 = 0o077;

/// What lets others put something into a directory.
const OTHERS_WRITE: u32 = 0o022;

/// Where `ringway run` takes orders, and the other commands ask, if nothing else is said.
pub fn control_socket() -> PathBuf {
    Surroundings::here().base().join("ringway.sock")
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

/// What gives the service of a package the rights to make taps and to pin workers.
pub const WIDE_SERVICE: &str = "sudo install -D -m 644 -t /etc/systemd/system/ringway.service.d \
                                /usr/share/ringway/wide.conf && sudo systemctl daemon-reload && \
                                sudo systemctl restart ringway";

/// Where commands ask if nothing else is said: a ringway of this user's, or else the service.
pub fn control_socket_to_ask() -> PathBuf {
    let own = control_socket();
    let service = Path::new(SERVICE);
    let is_installed = || UNITS.iter().any(|unit| Path::new(unit).exists());
    let is_service = !own.exists() && (service.exists() || is_installed());
    if is_service { service.to_path_buf() } else { own }
}

/// Where `ringway run` listens for the guest of a port if no path is given.
pub fn guest_socket(port: &str) -> PathBuf {
    sockets(&Surroundings::here().base()).join(format!("{port}.sock"))
}

/// Makes the directory of a socket, if it is one of those above, and checks whose it is.
///
/// # Errors
/// It cannot be made, or others may put sockets there.
pub fn prepare(socket: &Path) -> anyhow::Result<()> {
    Surroundings::here().prepare(socket)
}

/// Whether [`prepare`] makes the directory of a socket.
pub fn is_made(socket: &Path) -> bool {
    let here = Surroundings::here();
    let (base, is_own) = here.place();
    let sockets = sockets(&base);
    let parent = socket.parent();
    sockets != base && parent == Some(&sockets) || is_own && parent == Some(&base)
}

/// The directory of ports' sockets.
const SOCKETS: &str = "ringway";

/// Where they are: in a directory of ringway's own without another one, which only its owner could
/// pass.
fn sockets(base: &Path) -> PathBuf {
    let is_own = base.file_name().is_some_and(|name| name == SOCKETS);
    if is_own { base.to_owned() } else { base.join(SOCKETS) }
}

/// What the place depends on.
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

    fn prepare(&self, socket: &Path) -> anyhow::Result<()> {
        let (base, is_own) = self.place();
        let sockets = sockets(&base);
        let parent = socket.parent();
        if is_own && (parent == Some(&base) || parent == Some(&sockets)) {
            self.make(&base, OTHERS)?;
        }
        if sockets != base && parent == Some(&sockets) {
            self.make(&sockets, OTHERS_WRITE)?;
        }
        Ok(())
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
        here.prepare(&here.base().join("ringway/vm0.sock")).expect("it can be used");
        assert!(session.join(SOCKETS).is_dir());
        here.runtime = Some(root.path().to_owned());
        here.user += 1;
        assert_ne!(here.base(), root.path(), "another user's");
    }

    #[test]
    fn a_directory_of_ringways_own_has_the_sockets_itself() {
        assert_eq!(sockets(Path::new("/run/ringway")), Path::new("/run/ringway"));
        assert_eq!(sockets(Path::new("/run/user/7")), Path::new("/run/user/7/ringway"));
        let own = PathBuf::from("/tmp/ringway-7");
        assert_eq!(sockets(&own), own.join(SOCKETS));
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
        let socket = here.base().join(SOCKETS).join("vm0.sock");
        here.prepare(&socket).expect("it can be made");
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
        let sockets = root.path().join(SOCKETS);
        fs::create_dir(&sockets).expect("a directory");
        fs::set_permissions(&sockets, Permissions::from_mode(0o777)).expect("open to all");
        let error = here.prepare(&sockets.join("vm0.sock")).expect_err("others may write there");
        assert!(error.to_string().contains("remove it, or give a path"), "{error}");
        // A directory that the user named is taken as it is.
        here.prepare(&root.path().join("other/vm0.sock")).expect("nothing to do");
    }
}
