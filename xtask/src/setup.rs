//! `./x setup`: everything from Debian that the tree needs and this machine lacks.
//!
//! How: programs are installed as packages. What would touch how this machine boots, or bring two
//! hundred packages along, is only unpacked ([`downloads`]).
//!
//! Limits: needs root for installing; without it, says what to run.

use std::process::Command;

use anyhow::{Context, bail};
use ringway_guests::shell;

use crate::apt::Apt;
use crate::downloads::{self, Download};
use crate::paths::Paths;

const DEMO_PACKAGES: [&str; 6] =
    ["user-mode-linux", "iperf3", "iputils-ping", "iproute2", "kmod", "mount"];

/// The packages that the tests need beyond that.
const TEST_PACKAGES: &str = "valgrind xz-utils qemu-system-x86 busybox-static ethtool tcpdump \
                             fping util-linux libc-bin tmux lintian zsh apparmor man-db \
                             tshark isc-dhcp-client chromium buildah";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum For {
    Demo,
    Test,
}

pub fn command(paths: &Paths) -> anyhow::Result<()> {
    if prepare(paths, For::Test)? {
        println!("everything is there");
        return Ok(());
    }
    bail!("something is missing: see above")
}

/// Makes sure that everything is there; `false`: something is missing, which was printed.
pub fn prepare(paths: &Paths, purpose: For) -> anyhow::Result<bool> {
    let missing = missing_packages(&wanted_packages(purpose))?;
    let mut complete = missing.is_empty() || install(&missing)?;
    if purpose == For::Test {
        for what in downloads::OF_MACHINE {
            complete &= unpack(paths, what);
        }
        // Not every distribution has them.
        for (what, result) in [
            ("guests of the newest release", downloads::prepare_newest(paths)),
            ("newer systemd", downloads::prepare_backports(paths)),
        ] {
            if let Err(error) = result {
                // The error of apt-get has many lines.
                let why = format!("{error:#}").replace('\n', " ");
                println!("no {what}: {why}");
            }
        }
    }
    Ok(complete)
}

/// Unpacks something that is not installed; a failure is told and skips the tests that need it.
fn unpack(paths: &Paths, what: Download) -> bool {
    let apt = Apt::default();
    let mut result = what.prepare(paths, &apt);
    // Old package lists name files that are gone.
    if result.is_err() && shell::is_root() && update().is_ok() {
        result = what.prepare(paths, &apt);
    }
    if let Err(error) = &result {
        let advice = format!("apt-get update && apt-get download {}", what.wanted());
        println!("{}: {error:#}: check as root that this works: {advice}", what.name());
    }
    result.is_ok()
}

fn wanted_packages(purpose: For) -> Vec<&'static str> {
    let mut packages = DEMO_PACKAGES.to_vec();
    if purpose == For::Test {
        packages.extend(TEST_PACKAGES.split(' '));
    }
    packages
}

fn missing_packages(wanted: &[&'static str]) -> anyhow::Result<Vec<&'static str>> {
    let mut query = shell::command(&["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\\n"]);
    // It fails if it has never heard of one of them, and still lists the others.
    let output = query.args(wanted).output().context("dpkg-query: is this Debian?")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_there =
        |package: &&str| listed.lines().any(|line| line == format!("{package} installed"));
    Ok(wanted.iter().copied().filter(|package| !is_there(package)).collect())
}

fn install(missing: &[&str]) -> anyhow::Result<bool> {
    let list = missing.join(" ");
    if !shell::is_root() {
        println!("not installed: {list}. Run as root:");
        println!("apt-get update && apt-get install --no-install-recommends -y {list}");
        return Ok(false);
    }
    println!("installing {list}");
    update()?;
    let words = ["apt-get", "install", "-q", "-y", "--no-install-recommends"];
    shell::run(quiet(shell::command(&words)).args(missing))?;
    Ok(true)
}

fn update() -> anyhow::Result<()> {
    shell::run(&mut quiet(shell::command(&["apt-get", "update", "-q"])))
}

/// No questions, no half-terminal output.
fn quiet(mut command: Command) -> Command {
    command.env("DEBIAN_FRONTEND", "noninteractive").stdout(std::io::stderr());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_demo_needs_less_than_the_tests() {
        let test = wanted_packages(For::Test);
        assert!(wanted_packages(For::Demo).iter().all(|package| test.contains(package)));
        assert!(!wanted_packages(For::Demo).contains(&"qemu-system-x86"));
    }
}
