//! `./x unikernel`: builds the bare-metal example and boots it under QEMU with user networking.
//!
//! How: the example is a workspace of its own with flags of its own, so cargo runs in its folder.
//! QEMU forwards ports of this machine to the guest; nothing needs root.
//!
//! Limits: software emulation; only release builds of the example link.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use ringway_guests::shell;

use crate::paths::Paths;

pub const PROGRAM: &str = "qemu-system-x86_64";

pub const MAC: &str = "52:54:00:12:34:03";

const MEMORY: &str = "128M";

/// Ports of the guest, and how far behind the first port of this machine they are forwarded.
const SERVICES: [(&str, u16, u16); 4] =
    [("statistics", 0, 80), ("echo", 1, 7), ("sink", 2, 9), ("source", 3, 19)];

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MachineType {
    /// On PCI.
    Q35,
    /// Behind memory-mapped registers.
    Microvm,
}

#[derive(Debug, Args)]
pub struct UnikernelOptions {
    /// The machine to emulate
    #[arg(long, value_enum, default_value = "q35")]
    machine: MachineType,
    /// The first of four ports of this machine that are forwarded to the guest
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Build only
    #[arg(long)]
    build: bool,
    /// Words for the guest, such as packed=off
    words: Vec<String>,
}

pub fn command(paths: &Paths, options: &UnikernelOptions) -> anyhow::Result<()> {
    let image = build(paths)?;
    let len = std::fs::metadata(&image)?.len();
    println!("{}: {} KiB", image.display(), len.div_ceil(1024));
    if options.build {
        return Ok(());
    }
    ensure!(shell::find_program(PROGRAM).is_some(), "{PROGRAM} is not installed: see ./x setup");
    ensure!(options.port <= u16::MAX - 3, "--port {}: there are no four ports", options.port);
    for (name, behind, _) in SERVICES {
        println!("{name:>10}: 127.0.0.1:{}", options.port + behind);
    }
    println!("for example: curl http://127.0.0.1:{}/; end with Ctrl-C", options.port);
    let device = Device { netdev: &user_netdev(options.port), options: "", memory: "" };
    shell::run(&mut qemu(&image, options.machine, &device, &options.words.join(" ")))
}

pub fn build(paths: &Paths) -> anyhow::Result<PathBuf> {
    shell::run(&mut cargo_here(paths, "build"))?;
    let image = image(paths);
    ensure!(image.is_file(), "{}: not built", image.display());
    Ok(image)
}

/// Lints of the example, which the workspace's do not reach.
pub fn lint(paths: &Paths) -> anyhow::Result<()> {
    shell::run(cargo_here(paths, "clippy").args(["--", "-D", "warnings"]))?;
    let mut format = paths.cargo("fmt");
    shell::run(format.arg("--check").current_dir(folder(paths))).context("examples/unikernel")
}

pub fn image(paths: &Paths) -> PathBuf {
    paths.target.join("unikernel/x86_64-unknown-linux-gnu/release/unikernel")
}

/// User networking with the services forwarded from this port on.
pub fn user_netdev(port: u16) -> String {
    let forward = |(_, behind, to): (&str, u16, u16)| {
        format!(",hostfwd=tcp:127.0.0.1:{}-:{to}", port + behind)
    };
    format!("user,id=n0{}", SERVICES.map(forward).concat())
}

#[derive(Debug, Clone, Copy)]
pub struct Device<'a> {
    /// The QEMU network back-end that it is connected to; its id is `n0`.
    pub netdev: &'a str,
    /// More options, such as `,packed=on`.
    pub options: &'a str,
    /// A memory object for the guest's memory, whose id is `mem`; empty for ordinary memory.
    pub memory: &'a str,
}

pub fn qemu(image: &Path, machine: MachineType, device: &Device<'_>, words: &str) -> Command {
    let mut command = shell::command(&[PROGRAM]);
    command.args(["-accel", "tcg", "-m", MEMORY, "-smp", "1", "-nodefaults", "-no-user-config"]);
    command.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    let (machine, model) = match machine {
        MachineType::Q35 => ("q35", "virtio-net-pci,romfile="),
        MachineType::Microvm => {
            command.args(["-global", "virtio-mmio.force-legacy=false"]);
            ("microvm", "virtio-net-device")
        }
    };
    if device.memory.is_empty() {
        command.args(["-machine", machine]);
    } else {
        command.args(["-object", device.memory]);
        command.args(["-machine", &format!("{machine},memory-backend=mem")]);
    }
    command.arg("-kernel").arg(image).args(["-append", words, "-netdev", device.netdev]);
    command.args(["-device", &format!("{model},netdev=n0,mac={MAC}{}", device.options)]);
    command
}

/// A memory object that can be shared with another process.
pub fn shared_memory() -> String {
    format!("memory-backend-memfd,id=mem,size={MEMORY},share=on")
}

fn folder(paths: &Paths) -> PathBuf {
    paths.root.join("examples/unikernel")
}

fn cargo_here(paths: &Paths, subcommand: &str) -> Command {
    let mut command = paths.cargo(subcommand);
    command.args(["--release", "--target-dir"]).arg(paths.target.join("unikernel"));
    // Its own flags count, not those in our own environment.
    command.current_dir(folder(paths)).env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_is_forwarded() {
        let netdev = user_netdev(8080);
        assert!(netdev.contains(",hostfwd=tcp:127.0.0.1:8080-:80,"), "{netdev}");
        assert!(netdev.ends_with(",hostfwd=tcp:127.0.0.1:8083-:19"), "{netdev}");
    }
}
