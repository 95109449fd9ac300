//! DPDK's `dpdk-testpmd` as an end: its virtio driver (`net_virtio_user`), or its vhost-user device
//! (`net_vhost`), in a process of its own on the same core.
//!
//! How: its own forwarding modes send or receive. Rates come from its port statistics,
//! the cost of a packet from its count of processor cycles; both by its own clock.
//!
//! Limits: packets of up to [`PACKET_LEN_MAX`] bytes: it gives lengths in 16 bits, and a packet
//! must fit one of its buffers here. It sends without filling the payload in, and receives without
//! copying it out.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ringway_guests::console::Console;
use ringway_guests::dpdk_files::DpdkFiles;
use ringway_guests::stage::{Programs, Stage};
use ringway_guests::testpmd::{ANSWER, ASK};
use ringway_virtq::Format;

use super::end::Role;
use crate::programs;

pub(super) const PACKET_LEN_MAX: usize = 9000;

/// Makes a program print line by line although it is not on a terminal (part of coreutils).
const LINE_BUFFER: &str = "/usr/libexec/coreutils/libstdbuf.so";

/// It clears its memory before it prompts: a second or two, and many more where others want the
/// processors too.
const START_LIMIT: Duration = Duration::from_secs(60);
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of a buffer beyond the packet: headroom, and what the device's header needs.
const BUFFER_EXTRA: usize = 256;
const BUFFER_LEN_MIN: usize = 2176;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Driver,
    Device,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    pub part: Part,
    pub role: Role,
    pub format: Format,
    pub packet_len: usize,
    pub queue_size: u16,
    pub processor: usize,
    pub socket: &'a Path,
}

impl Setting<'_> {
    fn command(&self, dpdk: &DpdkFiles, runtime: &Path) -> Command {
        let mut command = dpdk.command(&[LINE_BUFFER]);
        command.env("_STDBUF_O", "L");
        command.env("RUNTIME_DIRECTORY", runtime);
        command.args("-v --no-huge -m 256 --no-pci --no-telemetry --no-shconf".split(' '));
        let core = self.processor;
        command.args(["--iova-mode=va", "--lcores", &format!("0@{core},1@{core}")]);
        command.args(["--vdev", &self.device(), "--"]);
        command.args("--interactive --disable-link-check --total-num-mbufs=8192".split(' '));
        let forward = if self.role == Role::Send { "txonly" } else { "rxonly" };
        let buffer_len = (self.packet_len + BUFFER_EXTRA).max(BUFFER_LEN_MIN);
        command.arg(format!("--mbuf-size={buffer_len}"));
        command.args([
            format!("--txd={}", self.queue_size),
            format!("--rxd={}", self.queue_size),
            format!("--txpkts={}", self.packet_len),
            format!("--max-pkt-len={}", self.packet_len.max(1518)),
            format!("--forward-mode={forward}"),
        ]);
        command
    }

    fn device(&self) -> String {
        let socket = self.socket.display();
        let packed = u8::from(self.format == Format::Packed);
        let size = self.queue_size;
        match self.part {
            Part::Driver => format!(
                "net_virtio_user0,path={socket},queues=1,queue_size={size},packed_vq={packed},\
                 in_order=1,mrg_rxbuf=1"
            ),
            Part::Device => format!("net_vhost0,iface={socket},queues=1"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Testpmd {
    console: Console,
    /// Where what it prints is kept.
    logs: [PathBuf; 2],
}

impl Testpmd {
    /// Starts it and lets it forward. As a device it waits for its driver, as a driver it attaches.
    pub fn start(dpdk: &DpdkFiles, setting: &Setting<'_>) -> anyhow::Result<Self> {
        // Even without shared configuration it creates a directory for it.
        let runtime = setting.socket.parent().unwrap_or(Path::new("/tmp"));
        let part = setting.part;
        let name = format!("testpmd-{part:?}");
        Self::start_command(&name, setting.command(dpdk, runtime), runtime)
            .with_context(|| format!("DPDK's {part:?} does not start, or is kept waiting"))
    }

    fn start_command(name: &str, command: Command, directory: &Path) -> anyhow::Result<Self> {
        let [qemu, kernel, uml] = [(); 3].map(|()| programs::root());
        let programs = Programs { ringway: "ringway".into(), qemu, kernel, uml, dpdk: None };
        let stage = Stage::new(programs, directory.to_path_buf(), directory);
        let console = Console::start(&stage, name, command)?;
        let logs = ["", "-errors"].map(|end| stage.file(&format!("{name}{end}.log")));
        let mut testpmd = Self { console, logs };
        testpmd.run_within("set record-core-cycles on", START_LIMIT)?;
        testpmd.run("start")?;
        Ok(testpmd)
    }

    pub fn command(&self) -> &str {
        self.console.command()
    }

    pub fn version(&self) -> Option<String> {
        let text = |log| std::fs::read_to_string(log).unwrap_or_default();
        let printed = self.logs.each_ref().map(text).concat();
        let (_, rest) = printed.split_once("RTE Version: 'DPDK ")?;
        rest.split_once('\'').map(|(version, _)| version.to_string())
    }

    /// Packets per second that it receives, over `duration`.
    pub fn rate(&mut self, duration: Duration) -> anyhow::Result<f64> {
        self.run("show port stats 0")?;
        thread::sleep(duration);
        let text = self.run("show port stats 0")?;
        let name = "Rx-pps:";
        number_after(&text, name).with_context(|| format!("testpmd: no {name} in:\n{text}"))
    }

    /// Forgets the time that packets have cost so far.
    pub fn forget_cost(&mut self) -> anyhow::Result<()> {
        self.run("clear fwd stats all").map(|_| ())
    }

    /// Ns of its processor per packet since then. Rounds that find nothing to receive do not
    /// count; rounds that find no room to send do.
    pub fn cost_ns(&mut self) -> anyhow::Result<Option<f64>> {
        let text = self.run("show fwd stats all")?;
        let cycles = number_after(&text, "CPU cycles/packet=");
        let mhz = text.split_once(" MHz").and_then(|(before, _)| before.rsplit(' ').next());
        let mhz: Option<f64> = mhz.and_then(|mhz| mhz.parse().ok());
        Ok(cycles.zip(mhz).map(|(cycles, mhz)| cycles * 1000.0 / mhz))
    }

    fn run(&mut self, command: &str) -> anyhow::Result<String> {
        self.run_within(command, COMMAND_LIMIT)
    }

    /// What is typed before it looks waits for it.
    fn run_within(&mut self, command: &str, limit: Duration) -> anyhow::Result<String> {
        let mark = self.console.mark();
        self.console.send(command)?;
        self.console.send(ASK)?;
        self.console.wait_for(ANSWER, mark, limit)
    }
}

fn number_after(text: &str, name: &str) -> Option<f64> {
    let (_, rest) = text.split_once(name)?;
    let end = |character: char| !character.is_ascii_digit() && character != '.';
    rest.trim_start().split(end).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_that_is_torn_apart_does_not_matter() {
        let mut shell = Command::new("sh");
        shell.args([
            "-c",
            "printf t\necho 'Error during enabling promiscuous mode for port 0: \
             Operation not supported - ignore' >&2\nprintf 'estpmd> '\n\
             while read line; do test \"$line\" = 'show fwd noop' && echo 'Bad arguments'; done",
        ]);
        let directory = tempfile::tempdir().expect("a directory");
        Testpmd::start_command("sh", shell, directory.path()).expect("it takes commands");
    }

    #[test]
    fn numbers_are_read_from_its_tables() {
        let text = "  Rx-pps:      7650213          Rx-bps:   3917\n\
                    CPU cycles/packet=28.50 (total cycles=1 / total TX packets=2) at 2600 MHz";
        assert_eq!(number_after(text, "Rx-pps:"), Some(7_650_213.0));
        assert_eq!(number_after(text, "CPU cycles/packet="), Some(28.5));
        assert_eq!(number_after(text, "Tx-pps:"), None);
    }
}
