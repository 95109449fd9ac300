//! A User Mode Linux guest: this machine's file system, read-only, and one script.
//!
//! Limits: its memory lies in `/dev/shm`; it ignores SIGTERM, so it is always killed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;

use super::console::{AGENT_LOOP, Console};
use super::stage::Stage;
use crate::shell;
use crate::uml_files::{self, UmlFiles};

/// Longest time until the guest obeys.
const BOOT_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for a short command in a guest.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

const PROLOGUE: &str = "\
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /mnt
export TMPDIR=/mnt
cd /mnt
for module in net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
    insmod MODULES/$module.ko
done
ip link set lo up
";

/// A shared library (ELF, x86-64, 4 KB) that comes in front of the C library's `ptrace`, without
/// which User Mode Linux does not start where the processor has AMX (`preload/xstate.rs`, ADR 27).
/// To be written to a file of its own, which `LD_PRELOAD` names: no space and no colon may be in
/// its path, and a running program has it mapped.
pub const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/xstate.so"));

/// The reason why this machine cannot run such guests, if there is one; below `root` is User Mode
/// Linux.
pub fn missing(root: &Path) -> Option<String> {
    let no_uml = || {
        let missing = uml_files::find(root).is_none();
        missing.then(|| format!("no User Mode Linux with modules below {}", root.display()))
    };
    shell::missing(&["iperf3", "ping", "ip", "insmod"]).or_else(no_uml)
}

/// Starts a guest on a vhost-user socket; [`wait_booted`] waits for it.
///
/// # Errors
/// User Mode Linux is not installed.
pub fn start(stage: &Stage, name: &str, socket: &Path) -> anyhow::Result<Console> {
    let device = format!("virtio_uml.device={}:1", socket.display());
    start_with(stage, name, &["mem=256M".to_string(), device])
}

/// The same with these words for its memory and its device.
///
/// # Errors
/// User Mode Linux is not installed, or there is no room for what it needs beside it.
pub fn start_with(stage: &Stage, name: &str, words: &[String]) -> anyhow::Result<Console> {
    let (script, preload) = (stage.file(&format!("{name}.sh")), stage.file(&format!("{name}.so")));
    let uml = files(stage)?;
    fs::write(&preload, PRELOAD).with_context(|| preload.display().to_string())?;
    let prologue = PROLOGUE.replace("MODULES", &uml.modules.to_string_lossy());
    fs::write(&script, format!("{prologue}{AGENT_LOOP}"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    let arguments = [
        "root=/dev/root rootfstype=hostfs rootflags=/ ro".to_string(),
        format!("init={}", script.display()),
        "con=null con0=fd:0,fd:1 quiet loglevel=1".to_string(),
        format!("uml_dir={}/ umid={name}", stage.directory.display()),
    ];
    let mut command = uml.command();
    command.env("LD_PRELOAD", preload);
    command.args(arguments.iter().flat_map(|words| words.split(' '))).args(words);
    // The memory must be in /dev/shm and not where the user keeps temporary files.
    command.env_remove("TMPDIR").env_remove("TMP").env_remove("TEMP");
    Console::start(stage, name, command)
}

/// Waits until the guest obeys, and configures its interface.
///
/// # Errors
/// It does not boot, or finds no network device.
pub fn wait_booted(guest: &mut Console, address: &str) -> anyhow::Result<()> {
    wait_booted_with(guest, "eth0", address)
}

/// The same for an interface of this name.
///
/// # Errors
/// It does not boot, or finds no network device.
pub fn wait_booted_with(guest: &mut Console, device: &str, address: &str) -> anyhow::Result<()> {
    guest.wait_ready(0, BOOT_LIMIT)?;
    let configure = format!("ip addr add {address}/24 dev {device} && ip link set {device} up");
    must(guest, &configure).with_context(|| format!("the guest's {device}"))?;
    Ok(())
}

/// Starts a guest on a tap of this machine, which its own driver opens.
///
/// # Errors
/// User Mode Linux is not installed.
pub fn start_on_tap(stage: &Stage, name: &str, tap: &str) -> anyhow::Result<Console> {
    let device = format!("vec0:transport=tap,ifname={tap},depth=128,gro=1");
    start_with(stage, name, &["mem=256M".to_string(), device])
}

/// Runs a short command in a guest; what it printed.
///
/// # Errors
/// It takes too long, or fails.
pub fn must(guest: &mut Console, line: &str) -> anyhow::Result<String> {
    let (status, text) = guest.run(line, COMMAND_LIMIT)?;
    anyhow::ensure!(status == 0, "{line}: status {status}:\n{text}");
    Ok(text)
}

/// The User Mode Linux of this stage.
///
/// # Errors
/// There is none.
pub fn files(stage: &Stage) -> anyhow::Result<UmlFiles> {
    let root = &stage.programs.uml;
    uml_files::find(root).with_context(|| format!("{}: no User Mode Linux", root.display()))
}
