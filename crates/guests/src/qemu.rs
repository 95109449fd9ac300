//! A QEMU guest under software emulation, with one device.
//!
//! Limits: one processor; QEMU before version 8 gets a device without MSI-X, with which it would
//! crash.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::console::Console;
use super::initramfs;
use super::monitor::Monitor;
use super::stage::Stage;
use crate::qemu_files::PROGRAM;
use crate::{kernel_files, qemu_files, shell};

/// Longest time until a guest obeys; a busy machine emulates slowly.
pub const BOOT_LIMIT: Duration = Duration::from_secs(60);

/// The usual processor, and one without `cmpxchg16b`: behind one, Linux 6.12 was found with a
/// register of flags that had parts of an address in it, and ended (QEMU 7.2). Linux 6.1 was not.
const PROCESSOR: &str = "qemu64";
const PROCESSOR_WITHOUT_CX16: &str = "qemu64,-cx16";

/// Guest memory, shared with ringway.
const MEMORY: &str = "256M";

/// Words for each guest's kernel.
const KERNEL_WORDS: &str = "console=ttyS0 quiet loglevel=1 panic=-1";

/// Hardware address of the device.
pub const MAC: &str = "52:54:00:12:34:01";

/// The first version that does not crash with MSI-X under software emulation.
const VERSION_WITH_VECTORS: u32 = 8;

/// The hardware of a guest's machine.
#[derive(Debug, Default)]
pub struct Machine<'a> {
    /// Options of the vhost-user device, such as `,packed=on`.
    pub device_options: &'a str,
    /// Options of its other end, such as `,queues=2`.
    pub netdev_options: &'a str,
    /// Where its [`Monitor`] is.
    pub monitor: Option<&'a Path>,
    /// How much memory it has, such as `1G`; nothing: 256 MiB.
    pub memory: &'a str,
    /// Further arguments of QEMU.
    pub more: &'a [&'a str],
    /// Further words for the guest's kernel.
    pub kernel_words: &'a str,
}

/// The reason why this machine cannot run such guests, if there is one: below `qemu` is QEMU, and
/// below `kernel` their kernel.
pub fn missing(qemu: &Path, kernel: &Path) -> Option<String> {
    let programs = [&["busybox"], &initramfs::PROGRAMS[..]].concat();
    let no_qemu = || {
        let missing = qemu_files::find(qemu).is_none();
        missing.then(|| format!("no {PROGRAM} below {}", qemu.display()))
    };
    let no_kernel = || {
        let missing = kernel_files::find(kernel).is_none();
        missing.then(|| format!("no kernel for guests below {}", kernel.display()))
    };
    shell::missing(&programs).or_else(no_qemu).or_else(no_kernel)
}

/// Starts a guest and waits until it obeys.
///
/// # Errors
/// Something is not installed, or the guest does not boot.
pub fn boot(stage: &Stage, socket: &Path, machine: &Machine<'_>) -> anyhow::Result<Console> {
    let guest = start(stage, "guest", socket, machine)?;
    guest.wait_ready(0, BOOT_LIMIT)?;
    Ok(guest)
}

/// Starts QEMU with a console of this name, for a guest that boots or comes from another QEMU.
///
/// # Errors
/// Something is not installed.
pub fn start(
    stage: &Stage,
    name: &str,
    socket: &Path,
    machine: &Machine<'_>,
) -> anyhow::Result<Console> {
    start_with(stage, name, arguments(socket, machine), machine.kernel_words)
}

/// The options of QEMU for a machine whose device is at this socket.
fn arguments(socket: &Path, machine: &Machine<'_>) -> Vec<String> {
    let size = if machine.memory.is_empty() { MEMORY } else { machine.memory };
    let memory = format!("memory-backend-memfd,id=mem,size={size},share=on");
    let chardev = format!("socket,id=c0,path={},reconnect=1", socket.display());
    let options = machine.device_options;
    let device = format!("virtio-net-pci,netdev=n0,mac={MAC}{options}");
    let mut arguments: Vec<String> = ["-m", size, "-machine", "memory-backend=mem", "-netdev"]
        .into_iter()
        .map(String::from)
        .collect();
    arguments.push(format!("vhost-user,id=n0,chardev=c0{}", machine.netdev_options));
    arguments.extend(machine.monitor.into_iter().flat_map(Monitor::arguments));
    arguments.extend(machine.more.iter().map(ToString::to_string));
    let more = [["-object", &memory], ["-chardev", &chardev], ["-device", &device]];
    arguments.extend(more.as_flattened().iter().map(ToString::to_string));
    arguments
}

/// Starts a guest whose only device is on a tap that QEMU serves itself, and waits until it obeys.
///
/// # Errors
/// Something is not installed, or the guest does not boot.
pub fn boot_on_tap(stage: &Stage, tap: &str) -> anyhow::Result<Console> {
    let netdev = format!("tap,id=n0,ifname={tap},script=no,downscript=no,vnet_hdr=on");
    let device = format!("virtio-net-pci,netdev=n0,mac={MAC}");
    let words = ["-m", MEMORY, "-netdev", &netdev, "-device", &device];
    boot_with(stage, words.map(String::from).to_vec())
}

/// Starts a guest whose only device has this other end (as after `-netdev`, with the id `n0`) and
/// whose memory is a file, as that of guests on vhost-user is; waits until it obeys.
///
/// # Errors
/// Something is not installed, or the guest does not boot.
pub fn boot_on(stage: &Stage, netdev: &str) -> anyhow::Result<Console> {
    let memory = format!("memory-backend-memfd,id=mem,size={MEMORY},share=on");
    let device = format!("virtio-net-pci,netdev=n0,mac={MAC}");
    let words = ["-m", MEMORY, "-machine", "memory-backend=mem", "-object", &memory];
    let words = [&words[..], &["-netdev", netdev, "-device", &device]].concat();
    boot_with(stage, words.into_iter().map(String::from).collect())
}

/// The same with these arguments for its memory and its device, which is the last of them.
///
/// # Errors
/// Something is not installed, or the guest does not boot.
pub fn boot_with(stage: &Stage, arguments: Vec<String>) -> anyhow::Result<Console> {
    let guest = start_with(stage, "guest", arguments, "")?;
    guest.wait_ready(0, BOOT_LIMIT)?;
    Ok(guest)
}

fn start_with(
    stage: &Stage,
    name: &str,
    mut arguments: Vec<String>,
    kernel_words: &str,
) -> anyhow::Result<Console> {
    let kernel = kernel_files::find(&stage.programs.kernel).context("no kernel for guests")?;
    let qemu = qemu_files::find(&stage.programs.qemu).context("no QEMU")?;
    let initramfs = stage.file("initramfs");
    fs::write(&initramfs, initramfs::build(&kernel, &stage.guest_programs)?)?;
    let has_vectors = qemu.major_version()? >= VERSION_WITH_VECTORS;
    let vectors = if has_vectors { "" } else { ",vectors=0" };
    let mut command = qemu.command();
    command.args(["-accel", "tcg", "-smp", "1", "-nodefaults", "-no-user-config"]);
    command.args(["-cpu", processor(&kernel.image)]);
    command.args(["-display", "none", "-serial", "stdio", "-monitor", "none"]);
    command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(&initramfs);
    command.arg("-append").arg(format!("{KERNEL_WORDS} {kernel_words}"));
    if let Some(device) = arguments.last_mut() {
        device.push_str(&format!(",romfile={vectors}"));
    }
    command.args(arguments);
    Console::start(stage, name, command)
}

/// Gives the guest's device with this hardware address an address, and switches it on.
///
/// # Errors
/// It has no such device.
pub fn set_up(guest: &mut Console, mac: &str, address: &str, mtu: u32) -> anyhow::Result<()> {
    let line = format!(
        "device=$(basename $(dirname $(grep -l {mac} /sys/class/net/eth*/address))) && \
         ip addr add {address}/24 dev $device && ip link set $device mtu {mtu} up"
    );
    let (status, text) = guest.run(&line, Duration::from_secs(20))?;
    anyhow::ensure!(status == 0, "the guest has no device {mac}:\n{text}");
    Ok(())
}

/// The processor model that a kernel runs on.
fn processor(image: &Path) -> &'static str {
    let name = image.file_name().unwrap_or_default().to_string_lossy();
    match name.starts_with("vmlinuz-6.1.") {
        true => PROCESSOR,
        false => PROCESSOR_WITHOUT_CX16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_linux_6_1_is_trusted_with_cmpxchg16b() {
        assert_eq!(processor(Path::new("/boot/vmlinuz-6.1.0-56-cloud-amd64")), PROCESSOR);
        let newer = Path::new("/boot/vmlinuz-6.12.107+deb13-cloud-amd64");
        assert_eq!(processor(newer), PROCESSOR_WITHOUT_CX16);
    }
}
