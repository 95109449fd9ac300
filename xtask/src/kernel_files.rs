//! The kernel that the QEMU guests run: Debian's cloud kernel, unpacked below `target/guest`.
//!
//! How: the package that the meta package depends on is downloaded and unpacked, never installed.
//!
//! Limits: the version that the package lists have; an older one that was unpacked before stays.

use std::path::PathBuf;

use anyhow::ensure;
use ringway_guests::kernel_files;

use crate::apt::Apt;
use crate::paths::Paths;

/// Names the directory of a kernel to programs that look for one.
pub const VARIABLE: &str = "RINGWAY_GUEST_KERNEL";

/// The package that depends on the current cloud kernel.
pub const META_PACKAGE: &str = "linux-image-cloud-amd64";

/// Downloads and unpacks the kernel if it is not there.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    let is_there = || kernel_files::find(&directory(paths)).is_some();
    if is_there() {
        return Ok(());
    }
    println!("downloading the guests' kernel");
    let apt = Apt::of_machine();
    let package = apt.kernel_of(META_PACKAGE)?;
    apt.download_and_unpack(&[&package], &directory(paths))?;
    ensure!(is_there(), "{package}: no kernel inside");
    Ok(())
}

pub fn directory(paths: &Paths) -> PathBuf {
    paths.guest().join("kernel")
}
