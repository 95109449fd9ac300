//! DPDK's `dpdk-testpmd` with the libraries it needs, unpacked below `target/guest`.
//!
//! How: the program is in Debian's `dpdk-dev`, which depends on all of DPDK. Instead of installing
//! that, `ldd` says which libraries are missing, and the packages of just these are unpacked beside
//! it, until none is missing.
//!
//! Limits: a library's package is guessed from its file name, as Debian's policy has it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use ringway_guests::dpdk_files::{DRIVERS, DpdkFiles, TAP_DRIVER, find_driver, libraries, testpmd};

use crate::apt::Apt;
use crate::paths::Paths;
use ringway_guests::shell;

/// Names the directory with the files to programs that look for them.
const VARIABLE: &str = "RINGWAY_DPDK";

/// The package with the program.
pub const PACKAGE: &str = "dpdk-dev";

/// Rounds of finding what is missing: each goes at least one library deeper.
const ROUNDS_MAX: usize = 12;

/// Makes sure that the program can be started.
pub fn prepare(paths: &Paths) -> anyhow::Result<()> {
    if find(paths).is_some_and(|files| files.has_tap()) {
        return Ok(());
    }
    println!("downloading DPDK's testpmd");
    let directory = directory(paths);
    if !testpmd(&directory).is_file() {
        Apt::of_machine().download_and_unpack(&[PACKAGE], &directory)?;
    }
    let mut packages = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let wanted = wanted_packages(&directory)?;
        if wanted.is_empty() {
            fs::write(directory.join("complete"), packages.join("\n"))?;
            return Ok(());
        }
        if let Some(again) = wanted.iter().find(|package| packages.contains(*package)) {
            bail!("{again}: does not contain what its name promises");
        }
        let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
        Apt::of_machine().download_and_unpack(&names, &directory)?;
        packages.extend(wanted);
    }
    bail!("still incomplete after {ROUNDS_MAX} rounds: {}", packages.join(" "))
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

/// Where it is unpacked.
pub fn directory(paths: &Paths) -> PathBuf {
    paths.guest().join("dpdk")
}

/// Also the driver for taps, which only measurements use.
fn drivers() -> impl Iterator<Item = &'static str> {
    DRIVERS.into_iter().chain([TAP_DRIVER])
}

/// The packages of all libraries that the dynamic linker does not find.
fn wanted_packages(directory: &Path) -> anyhow::Result<Vec<String>> {
    let mut objects = vec![testpmd(directory)];
    objects.extend(drivers().filter_map(|name| find_driver(directory, name)));
    let mut listing = shell::command(&["ldd"]);
    let listing =
        shell::output(listing.args(objects).env("LD_LIBRARY_PATH", libraries(directory)))?;
    let mut missing: Vec<String> = missing_libraries(&listing).map(str::to_string).collect();
    // The drivers have the version of everything else.
    if let Some(version) = listing.lines().find_map(eal_version) {
        let absent = drivers().filter(|name| find_driver(directory, name).is_none());
        missing.extend(absent.map(|name| format!("{name}.so.{version}")));
    }
    let mut packages: Vec<String> = missing.iter().map(|name| package_of(name)).collect();
    packages.sort();
    packages.dedup();
    Ok(packages)
}

fn eal_version(line: &str) -> Option<&str> {
    line.trim().strip_prefix("librte_eal.so.")?.split_whitespace().next()
}

fn missing_libraries(listing: &str) -> impl Iterator<Item = &str> {
    let missing = listing.lines().filter(|line| line.contains("=> not found"));
    missing.filter_map(|line| line.split_whitespace().next())
}

/// The Debian package of a library: its name and version, with a dash between two digits.
fn package_of(library: &str) -> String {
    if library.starts_with("libmlx") {
        return "ibverbs-providers".to_string();
    }
    let (name, version) = library.split_once(".so.").unwrap_or((library, ""));
    let name = name.replace('_', "-").to_lowercase();
    let dash = if name.ends_with(|last: char| last.is_ascii_digit()) { "-" } else { "" };
    format!("{name}{dash}{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_follow_from_library_names() {
        for (library, package) in [
            ("librte_net_virtio.so.23", "librte-net-virtio23"),
            ("librte_common_mlx5.so.23", "librte-common-mlx5-23"),
            ("libpcap.so.0.8", "libpcap0.8"),
            ("libnl-3.so.200", "libnl-3-200"),
            ("libmlx5.so.1", "ibverbs-providers"),
        ] {
            assert_eq!(package_of(library), package);
        }
    }

    #[test]
    fn missing_libraries_are_read_from_ldd() {
        let listing = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibrte_eal.so.23 => not found\n\
                       \tlibm.so.6 => /lib/libm.so.6 (0x00007f)\n";
        assert_eq!(missing_libraries(listing).collect::<Vec<_>>(), ["librte_eal.so.23"]);
        assert_eq!(listing.lines().find_map(eal_version), Some("23"));
    }
}
