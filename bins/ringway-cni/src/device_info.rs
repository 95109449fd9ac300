//! A device's description, for Multus and its like, in a file that the runtime names
//! (device-info-spec 1.1.0).
//!
//! A network's configuration may come from people who may not write files of this machine. So the
//! file is made in the directory that is for such files only, never in the place of another one,
//! and only what this plugin has written is deleted.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::answer::{Code, Failure};

/// Where such files are, by both of its names.
const DIRECTORIES: [&str; 2] =
    ["/var/run/k8s.cni.cncf.io/devinfo/cni", "/run/k8s.cni.cncf.io/devinfo/cni"];

/// Names another directory: only the runtime sets variables.
const DIRECTORY_VARIABLE: &str = "RINGWAY_CNI_DEVICE_INFO";

/// Longest file of ours.
const LEN_MAX: u64 = 16 << 10;

/// The file about one port.
#[derive(Debug)]
pub struct DeviceInfo<'a> {
    file: &'a Path,
    port: &'a str,
}

impl<'a> DeviceInfo<'a> {
    /// # Errors
    /// The file is not where such files are.
    pub fn new(file: &'a str, port: &'a str) -> Result<Self, Failure> {
        let place = Path::new(file);
        let own = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
        let all = DIRECTORIES.iter().map(PathBuf::from).chain(own);
        let is_file = place.file_name().is_some() && !file.ends_with('/');
        if is_file && all.into_iter().any(|directory| place.parent() == Some(&directory)) {
            return Ok(Self { file: place, port });
        }
        let [directory, _] = DIRECTORIES;
        let why = format!("CNIDeviceInfoFile {file:?}: such files are in {directory}");
        Err(Failure::new(Code::Configuration, why))
    }

    /// Says where the port's socket is: the guest connects to one that is there.
    ///
    /// # Errors
    /// It cannot be written, or another file is there.
    pub fn write(&self, socket: Option<&str>) -> Result<(), Failure> {
        // Of an attempt that was killed.
        self.delete();
        let device = json!({ "mode": "client", "path": socket });
        let text = json!({ "type": "vhost-user", "version": "1.1.0", "vhost-user": device });
        // This follows no link, and takes no other file's place.
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.file);
        let written = opened.and_then(|mut file| file.write_all(text.to_string().as_bytes()));
        written.map_err(|why| Failure::new(Code::Io, format!("{}: {why}", self.file.display())))
    }

    /// Takes it away, if it is about this port.
    pub fn delete(&self) {
        if self.is_ours() == Some(true) {
            let _ = std::fs::remove_file(self.file);
        }
    }

    fn is_ours(&self) -> Option<bool> {
        let is_file = self.file.symlink_metadata().ok()?.is_file();
        let mut text = String::new();
        let file = is_file.then(|| std::fs::File::open(self.file).ok()).flatten()?;
        file.take(LEN_MAX).read_to_string(&mut text).ok()?;
        // One that was being written when the plugin was killed.
        if text.is_empty() {
            return Some(true);
        }
        let told: Value = serde_json::from_str(&text).ok()?;
        let socket = Path::new(told["vhost-user"]["path"].as_str()?);
        Some(socket.file_name()?.to_str()? == format!("{}.sock", self.port))
    }
}
