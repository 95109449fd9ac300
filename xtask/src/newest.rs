//! Guests of the distribution's newest release: its kernel for QEMU, and its User Mode Linux.
//!
//! How: what is called `stable` on the mirror that this machine's packages come from, with package
//! lists of their own below `target/guest`: neither the machine's lists nor its sources change.
//! User Mode Linux brings the C library along that it was built for.
//!
//! Limits: where there is no such suite, or no source for this machine's own, these are left out,
//! and so are the scenarios that need them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use ringway_guests::{kernel_files, uml_files};

use crate::apt::Apt;
use crate::apt_sources;
use crate::kernel_files::META_PACKAGE;
use crate::paths::Paths;

/// The distribution's newest release, whatever its name.
const SUITE: &str = "stable";

/// User Mode Linux, and what it is linked with.
const UML_PACKAGES: [&str; 2] = ["user-mode-linux", "libc6"];

/// Downloads and unpacks what is not there.
///
/// # Errors
/// There is no such suite, no network, or no room.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    let (kernel, uml) = (kernel(paths), uml(paths));
    let has_kernel = kernel_files::find(&kernel).is_some();
    let has_uml = uml_files::find(&uml).is_some();
    if has_kernel && has_uml {
        return Ok(());
    }
    println!("downloading guests of the newest release");
    let apt = apt(paths)?;
    if !has_kernel {
        let package = apt.kernel_of(META_PACKAGE)?;
        apt.download_and_unpack(&[&package], &kernel)?;
        kernel_files::find(&kernel).ok_or_else(|| anyhow!("{package}: no kernel inside"))?;
    }
    if !has_uml {
        let unpacked = apt.unpacked(&UML_PACKAGES, &uml)?;
        uml_files::use_own_loader(&unpacked.root)?;
        unpacked.move_to(&uml)?;
        uml_files::find(&uml).context("no User Mode Linux inside")?;
    }
    Ok(())
}

/// Where the kernel of QEMU guests is unpacked.
pub fn kernel(paths: &Paths) -> PathBuf {
    paths.guest().join("kernel-newest")
}

/// Where User Mode Linux is unpacked.
pub fn uml(paths: &Paths) -> PathBuf {
    paths.guest().join("uml-newest")
}

/// The package lists of the newest release, fetched anew.
fn apt(paths: &Paths) -> anyhow::Result<Apt> {
    let os_release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let installed = apt_sources::installed_suite(&os_release);
    let installed = installed.context("/etc/os-release: no VERSION_CODENAME")?;
    let files = apt_sources::files(Path::new("/etc/apt"));
    let source = apt_sources::source_of(&files, installed, SUITE);
    let source = source.ok_or_else(|| anyhow!("/etc/apt: no source of {installed}"))?;
    let apt = Apt::apart(&paths.guest().join("apt-newest"), &source)?;
    apt.update()?;
    Ok(apt)
}
