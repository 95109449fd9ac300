//! Where the programs are that take part in measurements.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ringway_guests::stage::Programs;
use ringway_guests::{DpdkFiles, OvsFiles, OwnLoader, Stage, shell};
use ringway_testkit::BINARY_VARIABLE;

/// The advice where no ringway can be started.
pub(crate) const NO_DAEMON: &str = "no daemon: RINGWAY_BIN can name the program";

/// Names a directory with the files of a kernel's Debian package in it, unpacked.
const KERNEL_VARIABLE: &str = "RINGWAY_GUEST_KERNEL";

/// Another router or switch for guests, by its name: unpacked or installed.
pub(crate) fn peer(name: &str) -> anyhow::Result<OwnLoader> {
    OwnLoader::find(&peer_root(name), name).with_context(|| format!("{name} is not installed"))
}

pub(crate) fn ovs() -> Option<OvsFiles> {
    OvsFiles::find(&peer_root("ovs"))
}

/// Below which a peer's files are: where a variable that is called after it says, unpacked and not
/// installed; or this machine's.
fn peer_root(name: &str) -> PathBuf {
    let name = name.trim_end_matches("_switch").to_uppercase();
    env::var_os(format!("RINGWAY_{name}")).map_or_else(root, PathBuf::from)
}

/// Name and version of each of these peers that is there, a name and a package: by their packages,
/// because not all of them say it.
pub(crate) fn peer_versions(peers: &[(&str, &str)]) -> Vec<(String, String)> {
    let version = |(name, package): &(&str, &str)| {
        let version = match std::fs::read_to_string(peer_root(name).join("packages")) {
            Ok(packages) => package_version(&packages, package)?.to_string(),
            Err(_) => {
                let query = ["dpkg-query", "-W", "-f", "${Version}", package];
                shell::output(&mut shell::command(&query)).ok()?
            }
        };
        Some(((*package).to_string(), version))
    };
    peers.iter().filter_map(version).collect()
}

/// The version in the name of a package's file: `NAME_VERSION_ARCHITECTURE.deb`.
fn package_version<'a>(packages: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = packages.lines().map(|file| file.split('_'));
    parts.find_map(|mut parts| if parts.next()? == name { parts.next() } else { None })
}

pub(crate) fn ringway() -> anyhow::Result<PathBuf> {
    if let Some(program) = env::var_os(BINARY_VARIABLE) {
        return Ok(program.into());
    }
    let beside = env::current_exe()?.with_file_name("ringway");
    let why = || format!("{}: not there; {BINARY_VARIABLE} can name another", beside.display());
    ensure!(beside.is_file(), why());
    Ok(beside)
}

pub(crate) fn dpdk() -> anyhow::Result<DpdkFiles> {
    match peer_root("dpdk") {
        root if root == self::root() => DpdkFiles::installed(),
        unpacked => DpdkFiles::unpacked(&unpacked),
    }
}

/// Below which the kernel of QEMU guests is: this machine's own, if nothing else is said.
pub(crate) fn kernel() -> PathBuf {
    env::var_os(KERNEL_VARIABLE).map_or_else(root, PathBuf::from)
}

/// Below which QEMU and User Mode Linux are: where they are installed.
pub(crate) fn root() -> PathBuf {
    PathBuf::from("/")
}

pub(crate) fn stage(directory: &Path, ringway: PathBuf, dpdk: Option<DpdkFiles>) -> Stage {
    let (kernel, uml) = (kernel(), root());
    let programs = Programs { ringway, qemu: root(), kernel, uml, dpdk, frr: None, ovs: ovs() };
    Stage::new(programs, directory.to_path_buf(), directory)
}

pub(crate) const OF_GUESTS: [&str; 3] = ["qemu-system-x86_64", "linux.uml", "iperf3"];

/// Name and version of each program that is installed.
pub(crate) fn versions(programs: &[&str]) -> Vec<(String, String)> {
    let version = |program: &&str| {
        let text = shell::output(&mut shell::command(&[program, "--version"])).ok()?;
        Some(((*program).to_string(), version_in(&text)?))
    };
    programs.iter().filter_map(version).collect()
}

/// The first word with a digit in front.
fn version_in(text: &str) -> Option<String> {
    let is_version = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    text.split_whitespace().find(is_version).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let version = |text| version_in(text);
        assert_eq!(version("QEMU emulator version 7.2.22 (Debian)").as_deref(), Some("7.2.22"));
        assert_eq!(version("iperf 3.12 (cJSON 1.7.15)").as_deref(), Some("3.12"));
        assert_eq!(version("6.1.176\n").as_deref(), Some("6.1.176"));
        assert_eq!(version("none"), None);
        let packages = "libc6_2.41-12_amd64.deb\npasst_0.0~git1-2_amd64.deb\n";
        assert_eq!(package_version(packages, "passt"), Some("0.0~git1-2"));
        assert_eq!(package_version(packages, "gvproxy"), None);
    }
}
