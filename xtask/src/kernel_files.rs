//! The kernel that the QEMU guests run: Debian's cloud kernel, unpacked below `target/guest`.
//!
//! How: the package that the meta package depends on is downloaded and unpacked, never installed.
//!
//! Limits: whatever version the package lists have; an older one that was unpacked before stays.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ringway_guests::kernel_files::{self, KernelFiles};

use crate::paths::Paths;
use crate::shell;

/// The package that depends on the current cloud kernel.
pub const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Downloads and unpacks the kernel if it is not there.
///
/// # Errors
/// No such package, no network, or no room.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    if find(paths).is_some() {
        return Ok(());
    }
    println!("downloading the guests' kernel");
    let depends = shell::output(&mut shell::command(&["apt-cache", "depends", META_PACKAGE]))?;
    let package = concrete_package(&depends)
        .ok_or_else(|| anyhow!("{META_PACKAGE}: depends on no kernel: {depends}"))?;
    let directory = directory(paths);
    download_and_unpack(&[package], &directory)?;
    find(paths).map(|_| ()).ok_or_else(|| anyhow!("{package}: no kernel inside"))
}

/// The kernel, if it is unpacked.
fn find(paths: &Paths) -> Option<KernelFiles> {
    kernel_files::find(&directory(paths))
}

/// Downloads packages and unpacks them into `directory`, which appears in one step.
///
/// # Errors
/// Unknown package, no network, or no room.
pub fn download_and_unpack(packages: &[&str], directory: &Path) -> anyhow::Result<()> {
    let parent = directory.parent().unwrap_or(directory);
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let downloads = tempfile::tempdir_in(parent)?;
    let mut download = shell::command(&["apt-get", "download", "-q"]);
    shell::output(download.args(packages).current_dir(downloads.path()))?;
    let unpacked = downloads.path().join("unpacked");
    for archive in entries(downloads.path()) {
        let mut unpack = shell::command(&["dpkg-deb", "-x"]);
        shell::run(unpack.arg(archive).arg(&unpacked))?;
    }
    if directory.exists() {
        let mut copy = shell::command(&["cp", "-a", "-T"]);
        return shell::run(copy.arg(unpacked).arg(directory));
    }
    fs::rename(&unpacked, directory).with_context(|| directory.display().to_string())
}

/// Where it is unpacked.
pub fn directory(paths: &Paths) -> PathBuf {
    paths.guest().join("kernel")
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The kernel package in what `apt-cache depends` prints.
fn concrete_package(depends: &str) -> Option<&str> {
    let packages = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    packages.into_iter().find(|name| name.starts_with("linux-image-") && *name != META_PACKAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_concrete_kernel_is_what_the_meta_package_depends_on() {
        let depends = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-56-cloud-amd64\n";
        assert_eq!(concrete_package(depends), Some("linux-image-6.1.0-56-cloud-amd64"));
        assert_eq!(concrete_package("linux-image-cloud-amd64\n"), None);
    }
}
