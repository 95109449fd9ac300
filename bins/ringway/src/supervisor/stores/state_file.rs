//! Files that outlive this process, in a directory of its service or its user.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory that a service manager has made for it (`STATE_DIRECTORY`, systemd.exec(5)).
pub fn of_service() -> Option<PathBuf> {
    let paths = std::env::var("STATE_DIRECTORY").ok()?;
    paths.split(':').next().filter(|first| !first.is_empty()).map(PathBuf::from)
}

/// That, or else /var/lib/ringway if it is there; of other users than root
/// `$XDG_STATE_HOME/ringway` or ~/.local/state/ringway.
pub fn directory() -> Option<PathBuf> {
    let of = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(directory) = of_service() {
        return Some(directory);
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/ringway")).filter(|path| path.is_dir());
    }
    let home = || Some(of("HOME")?.join(".local/state"));
    Some(of("XDG_STATE_HOME").or_else(home)?.join("ringway"))
}

/// Writes a file as a whole, or leaves it as it was. Only its owner may read it.
///
/// # Errors
/// The operating system refuses.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let new = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    options.custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed());
    options.open(&new)?.write_all(text)?;
    fs::rename(new, path)
}
