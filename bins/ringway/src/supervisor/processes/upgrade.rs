//! `ringway upgrade`: another program becomes the data plane, and the guests see nothing.
//!
//! The next one is started beside the one that serves, and gets all that there is. From then on
//! until it serves nothing is read from front-ends and clients, so what it was given stays true.
//! Then the one that serves stops and says where each ring stands, and the next one goes on there.
//!
//! Whatever fails before that leaves the old one as it is. If the next one fails behind it, or
//! before it has proved itself, the old program is started again, as after a crash.
//!
//! How: [`succession`](ringway_supervisor::succession) decides, and here is what it needs.
//!
//! When it has proved itself, the same program takes the place of the supervisor (`replace`).

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::ensure;
use rustix::fs::{Mode, OFlags, open};

/// The program of that name, or the one that is now where this process's own program was.
///
/// # Errors
/// There is none that can be started.
pub fn chosen_program(named: Option<&str>) -> Result<(PathBuf, File), String> {
    let path = match named {
        Some(named) => PathBuf::from(named),
        None => own_program().map_err(|why| why.to_string())?,
    };
    match open_program(&path) {
        Ok(file) => Ok((path, file)),
        Err(why) => Err(format!("{}: {why:#}", path.display())),
    }
}

/// Opens a program, and nothing else: a pipe would keep the supervisor waiting.
fn open_program(path: &Path) -> anyhow::Result<File> {
    let file = open(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())?;
    let file = File::from(file);
    ensure!(file.metadata()?.is_file(), "no program: name a file that can be started");
    Ok(file)
}

/// Where the file of this process's own program is, or was before another one took its place.
fn own_program() -> std::io::Result<PathBuf> {
    let path = std::env::current_exe()?.into_os_string().into_string();
    let path = path.map_err(|_| std::io::Error::other("the path of this program is not UTF-8"))?;
    Ok(PathBuf::from(path.trim_end_matches(" (deleted)")))
}
