//! Guests of the distribution's newest release: its kernel for QEMU, its User Mode Linux, and its
//! QEMU.
//!
//! How: what is called `stable` on the mirror that this machine's packages come from, with package
//! lists of their own below `target/guest`: neither the machine's lists nor its sources change.
//! User Mode Linux and QEMU bring along the loader and the libraries that they were built for, and
//! QEMU its firmware.
//!
//! Limits: where there is no such suite, or no source for this machine's own, these are left out,
//! and so are the scenarios that need them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use ringway_guests::own_loader::use_own_loader;
use ringway_guests::{kernel_files, qemu_files, uml_files};

use crate::apt::Apt;
use crate::apt_sources;
use crate::kernel_files::META_PACKAGE;
use crate::paths::Paths;

/// The distribution's newest release, by any name.
const SUITE: &str = "stable";

/// User Mode Linux, and what it is linked with.
const UML_PACKAGES: [&str; 2] = ["user-mode-linux", "libc6"];

/// QEMU; its libraries and its firmware are what it depends on.
const QEMU_PACKAGE: &str = "qemu-system-x86";

/// Downloads and unpacks what is not there.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    let has_kernel = || kernel_files::find(&kernel(paths)).is_some();
    let has_uml = || uml_files::find(&uml(paths)).is_some();
    let has_qemu = || qemu_files::find(&qemu(paths)).is_some();
    if has_kernel() && has_uml() && has_qemu() {
        return Ok(());
    }
    println!("fetching the package lists of the newest release");
    let apt = apt(paths)?;
    if !has_kernel() {
        println!("downloading the newest release's kernel");
        let package = apt.kernel_of(META_PACKAGE)?;
        apt.download_and_unpack(&[&package], &kernel(paths))?;
        ensure!(has_kernel(), "{package}: no kernel inside");
    }
    if !has_uml() {
        println!("downloading the newest release's User Mode Linux");
        unpack(&apt, &UML_PACKAGES, &uml(paths), uml_files::PROGRAM)?;
        ensure!(has_uml(), "no User Mode Linux inside");
    }
    if !has_qemu() {
        println!("downloading the newest release's QEMU, its libraries and its firmware");
        let packages = apt.with_dependencies(QEMU_PACKAGE)?;
        let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
        unpack(&apt, &packages, &qemu(paths), qemu_files::PROGRAM)?;
        ensure!(has_qemu(), "no QEMU inside");
    }
    Ok(())
}

/// A program that uses the loader that it was built for.
fn unpack(apt: &Apt, packages: &[&str], directory: &Path, program: &str) -> anyhow::Result<()> {
    let unpacked = apt.unpacked(packages, directory)?;
    use_own_loader(&unpacked.root, program)?;
    unpacked.move_to(directory)
}

/// Where the kernel of QEMU guests is unpacked.
pub fn kernel(paths: &Paths) -> PathBuf {
    paths.guest().join("kernel-newest")
}

pub fn qemu(paths: &Paths) -> PathBuf {
    paths.guest().join("qemu-newest")
}

/// Where User Mode Linux is unpacked.
pub fn uml(paths: &Paths) -> PathBuf {
    paths.guest().join("uml-newest")
}

/// The package lists of the newest release, fetched anew.
fn apt(paths: &Paths) -> anyhow::Result<Apt> {
    let os_release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let installed = apt_sources::value_of(&os_release, "VERSION_CODENAME");
    let installed = installed.context("/etc/os-release: no VERSION_CODENAME")?;
    let source = apt_sources::source_of(&apt_sources::targets()?, installed, SUITE);
    let mut source = source.ok_or_else(|| anyhow!("apt has no source of {installed}"))?;
    let keys = apt_sources::value_of(&os_release, "ID").and_then(apt_sources::keys);
    source.extend(keys.map(|keys| format!("Signed-By: {keys}\n")));
    let apt = Apt::apart(&paths.guest().join("apt-newest"), &source)?;
    apt.update()?;
    Ok(apt)
}
