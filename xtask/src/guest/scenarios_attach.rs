//! The arguments that `ringway attach` and README print are those that each program takes: it is
//! started with exactly them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use anyhow::{Context, ensure};
use ringway_guests::{Console, Process, Side, Stage, Testpmd, qemu, qemu_files, shell, uml};

use super::scene::Scene;

/// The host's end and the guest's.
const ADDRESSES: [&str; 2] = ["10.95.0.1", "10.95.0.2"];

/// The port's own MAC address, which the guest must have.
const MAC: &str = "52:54:00:95:00:02";

const MTU: u32 = 1400;

/// The file that newcomers read first, and paste from.
const README: &str = include_str!("../../../README.md");

/// Longest time until a ringway without a name is ready, and until it has ended.
const SHORT_LIMIT: Duration = Duration::from_secs(20);

/// A port with so many queue pairs, and an uplink.
fn start(stage: &Stage, queues: u16) -> anyhow::Result<Scene<'_>> {
    let options = format!(",mac={MAC},mtu={MTU},queues={queues}");
    Scene::with_tap(stage, &options, ADDRESSES[0], MTU)
}

pub fn uml(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = start(stage, 1)?;
    let words = scene.ringway.attach("vm0", "uml")?;
    stage.step(&words.join(" "));
    scene.guests.push(uml::start_with(stage, "vm0", &words)?);
    uml::wait_booted(&mut scene.guests[0], ADDRESSES[1])?;
    let shown = scene.must(0, "cat /sys/class/net/eth0/address /sys/class/net/eth0/mtu")?;
    ensure!(shown.contains(MAC) && shown.contains(&MTU.to_string()), "not as configured: {shown}");
    scene.must(0, &format!("ping -c 3 -i 0.2 {}", ADDRESSES[0]))?;
    scene.finish()
}

pub fn qemu(stage: &Stage) -> anyhow::Result<()> {
    let mut scene = start(stage, 2)?;
    let files = qemu_files::find(&stage.programs.qemu).context("no QEMU")?;
    let version = files.major_version()?.to_string();
    let arguments = scene.ringway.attach_with("vm0", "qemu", &["--qemu-version", &version])?;
    stage.step(&format!("QEMU {version}: {}", arguments.join(" ")));
    let mut guest = qemu::boot_with(stage, arguments)?;
    qemu::set_up(&mut guest, MAC, ADDRESSES[1], MTU)?;
    ping(&mut guest, ADDRESSES[0])?;
    scene.guests.push(guest);
    scene.port(0)?.check_negotiated("split", &[("MTU", true), ("MQ", true)])?;
    scene.finish()
}

fn ping(guest: &mut Console, address: &str) -> anyhow::Result<()> {
    Side::Guest(guest).must(&format!("ping -c 3 {address}")).map(drop)
}

/// Two guests that were pasted from README talk: its first lines, as a shell takes them.
pub fn readme(stage: &Stage) -> anyhow::Result<()> {
    let shell = ReadmeShell::new(stage)?;
    let command = shell.command(line("ringway run ")?);
    let mut ringway = Process::start(stage, "ringway", command)?;
    ringway.wait_until("ready", SHORT_LIMIT, |it| it.printed().contains(" ready "))?;
    let arguments = [shell.qemu("disk0.img")?, shell.qemu("disk1.img")?];
    let macs = [mac(&arguments[0])?, mac(&arguments[1])?];
    ensure!(macs[0] != macs[1], "two guests with one address: {}", macs[0]);
    let mut guests = Vec::new();
    for ((arguments, mac), address) in arguments.into_iter().zip(&macs).zip(ADDRESSES) {
        stage.step(&arguments.join(" "));
        let mut guest = qemu::boot_with(stage, arguments)?;
        qemu::set_up(&mut guest, mac, address, MTU)?;
        // The next one is called the same.
        fs::rename(stage.logs.join("guest.log"), stage.logs.join(format!("{address}.log")))?;
        guests.push(guest);
    }
    ping(&mut guests[0], ADDRESSES[1])?;
    ping(&mut guests[1], ADDRESSES[0])?;
    drop(guests);
    let status = ringway.terminate(SHORT_LIMIT)?;
    ensure!(status.success(), "ringway: {status}");
    Ok(())
}

fn line(begin: &str) -> anyhow::Result<&'static str> {
    let mut lines = README.lines();
    lines.find(|line| line.starts_with(begin)).with_context(|| format!("README: no {begin}"))
}

fn mac(arguments: &[String]) -> anyhow::Result<String> {
    let options = arguments.iter().flat_map(|argument| argument.split(','));
    let mac = options.filter_map(|option| option.strip_prefix("mac=")).next();
    mac.map(str::to_owned).context("no mac=")
}

/// A shell with a runtime directory of its own, in whose path `ringway` is, and in place of QEMU a
/// script that writes down its arguments: the guests of scenarios need a few more.
struct ReadmeShell<'a> {
    stage: &'a Stage,
    path: String,
}

impl<'a> ReadmeShell<'a> {
    fn new(stage: &'a Stage) -> anyhow::Result<Self> {
        let script = stage.file(qemu_files::PROGRAM);
        let qemu = qemu_files::find(&stage.programs.qemu).context("no QEMU")?.command();
        let (qemu, arguments) = (shell::show(&qemu), stage.file("arguments"));
        let text = format!(
            "#!/bin/sh\n[ \"$1\" != --version ] || exec {qemu} --version\n\
             printf '%s\\n' \"$@\" > '{}'\n",
            arguments.display()
        );
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        let ringway = stage.programs.ringway.parent().context("ringway has a directory")?;
        let inherited = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{inherited}", stage.directory.display(), ringway.display());
        Ok(Self { stage, path })
    }

    fn command(&self, line: &str) -> std::process::Command {
        let mut command = shell::command(&["sh", "-c", &format!("exec {line}")]);
        if line.starts_with("eval ") {
            command = shell::command(&["sh", "-c", line]);
        }
        command.env("PATH", &self.path).env("XDG_RUNTIME_DIR", &self.stage.directory);
        command
    }

    /// The arguments that the line with that disk gives to QEMU, without the disk, which these
    /// guests have none of.
    fn qemu(&self, disk: &str) -> anyhow::Result<Vec<String>> {
        let pasted = line(&format!("eval qemu-system-x86_64 {disk} "))?;
        shell::output(&mut self.command(pasted))?;
        let text = fs::read_to_string(self.stage.file("arguments"))?;
        let arguments: Vec<String> = text.lines().map(str::to_owned).collect();
        let first = arguments.first().context("no arguments")?;
        ensure!(first == disk, "{first}: not the disk");
        Ok(arguments[1..].to_vec())
    }
}

pub fn dpdk(stage: &Stage) -> anyhow::Result<()> {
    let scene = start(stage, 1)?;
    let options = scene.ringway.attach("vm0", "dpdk")?;
    stage.step(&options.join(" "));
    let testpmd = Testpmd::start_with(stage, &options, "--forward-mode=5tswap")?;
    scene.port(0)?.check_negotiated("packed", &[("VERSION_1", true)])?;
    testpmd.finish()?;
    scene.finish()
}
