//! DPDK's `dpdk-testpmd` with the libraries it needs, unpacked below `target/guest`.
//!
//! How: the program is in Debian's `dpdk-dev`, which depends on all of DPDK. Instead of installing
//! that, it is unpacked with what it depends on and this machine does not have (33 MB).
//!
//! Limits: what the machine has in an older version stays.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};
use ringway_guests::dpdk_files::DpdkFiles;
use ringway_guests::shell;

use crate::apt::Apt;
use crate::paths::Paths;

/// Names the directory with the files to programs that look for them.
const VARIABLE: &str = "RINGWAY_DPDK";

/// The package with the program.
pub const PACKAGE: &str = "dpdk-dev";

/// Makes sure that the program can be started.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    if find(paths).is_some_and(|files| files.has_tap()) {
        return Ok(());
    }
    println!("downloading DPDK's testpmd");
    let (apt, directory) = (Apt::of_machine(), directory(paths));
    let packages = apt.with_dependencies(PACKAGE)?;
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    apt.download_and_unpack(&packages, &directory)?;
    let mut help = DpdkFiles::unpacked(&directory)?.command(&[]);
    let help = shell::output(help.arg("--help")).context("DPDK's testpmd does not start")?;
    ensure!(help.contains("EAL"), "DPDK's testpmd: {help}");
    fs::write(directory.join("complete"), packages.join("\n"))?;
    Ok(())
}

/// Tells a program where it is, if it is complete.
pub fn name_to(command: &mut Command, paths: &Paths) {
    if find(paths).is_some() {
        command.env(VARIABLE, directory(paths));
    }
}

/// The program, if it is complete.
pub fn find(paths: &Paths) -> Option<DpdkFiles> {
    let directory = directory(paths);
    let is_complete = directory.join("complete").is_file();
    is_complete.then(|| DpdkFiles::unpacked(&directory).ok()).flatten()
}

pub fn directory(paths: &Paths) -> PathBuf {
    paths.guest().join("dpdk")
}
