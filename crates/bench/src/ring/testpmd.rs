//! DPDK's `dpdk-testpmd` as an end: its virtio driver (`net_virtio_user`), or its vhost-user device
//! (`net_vhost`), in a process of its own on the same core.
//!
//! How: its own forwarding modes send, receive or send back. Rates come from its port statistics,
//! the cost of a packet from its count of processor cycles; both by its own clock.
//!
//! Limits: packets of up to [`PACKET_LEN_MAX`] bytes: it gives lengths in 16 bits, and a packet
//! must fit one of its buffers here. It sends without filling the payload in, and receives without
//! copying it out: it copies each packet once where a driver or device of ringway's copies it, and
//! not at all elsewhere.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{env, fs, thread};

use anyhow::{Context, anyhow};
use ringway_virtq::Format;

use crate::process::{Program, show};

/// Longest packet, in bytes.
pub(super) const PACKET_LEN_MAX: usize = 9000;

/// Names a directory with the files of Debian's packages in it, unpacked and not installed.
pub const DIRECTORY_VARIABLE: &str = "RINGWAY_DPDK";

const PROGRAM: &str = "dpdk-testpmd";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";
const DRIVERS: [&str; 4] =
    ["librte_bus_vdev", "librte_mempool_ring", "librte_net_virtio", "librte_net_vhost"];

/// Makes a program print line by line although nobody types at a terminal (part of coreutils).
const LINE_BUFFER: &str = "/usr/libexec/coreutils/libstdbuf.so";

const PROMPT: &str = "testpmd> ";
/// It clears its memory before it prompts: a second or two, and many more where others want the
/// processors too.
const START_LIMIT: Duration = Duration::from_secs(60);
const COMMAND_LIMIT: Duration = Duration::from_secs(5);

/// Bytes of a buffer beyond the packet: headroom, and what the device's header needs.
const BUFFER_EXTRA: usize = 256;
const BUFFER_LEN_MIN: usize = 2176;

/// The installed or unpacked program.
#[derive(Debug, Clone)]
pub(super) struct Dpdk {
    program: PathBuf,
    /// Only where it is unpacked: where its libraries are, and the drivers among them.
    unpacked: Option<(PathBuf, Vec<PathBuf>)>,
}

/// Which side of the ring it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Driver,
    Device,
}

/// What it does with packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forward {
    Send,
    Receive,
    Echo,
}

/// How it is started.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting<'a> {
    pub part: Part,
    pub forward: Forward,
    pub format: Format,
    pub packet_len: usize,
    pub queue_size: u16,
    pub processor: usize,
    pub socket: &'a Path,
}

impl Dpdk {
    /// Looks for it.
    ///
    /// # Errors
    /// It is not there, or not all of it.
    pub fn find() -> anyhow::Result<Self> {
        if let Some(directory) = env::var_os(DIRECTORY_VARIABLE) {
            return Self::unpacked(Path::new(&directory));
        }
        let path = env::var_os("PATH").unwrap_or_default();
        let program = env::split_paths(&path).map(|directory| directory.join(PROGRAM));
        let program = program.chain([Path::new("/usr/bin").join(PROGRAM)]).find(|at| at.is_file());
        let missing = "dpdk-testpmd is not installed (Debian: apt-get install dpdk-dev)";
        Ok(Self { program: program.context(missing)?, unpacked: None })
    }

    fn unpacked(directory: &Path) -> anyhow::Result<Self> {
        let program = directory.join("usr/bin").join(PROGRAM);
        let libraries = directory.join(LIBRARIES);
        let names: Vec<PathBuf> = fs::read_dir(&libraries)
            .with_context(|| libraries.display().to_string())?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        let driver = |name: &&str| {
            let prefix = format!("{name}.so.");
            let is_it = |path: &&PathBuf| {
                let version =
                    path.file_name().and_then(|name| name.to_str()?.strip_prefix(&prefix));
                version.is_some_and(|version| version.bytes().all(|byte| byte.is_ascii_digit()))
            };
            let found = names.iter().find(is_it).cloned();
            found.ok_or_else(|| anyhow!("{}: no {name}", libraries.display()))
        };
        let drivers = DRIVERS.iter().map(driver).collect::<anyhow::Result<_>>()?;
        Ok(Self { program, unpacked: Some((libraries, drivers)) })
    }

    fn command(&self, setting: &Setting<'_>, runtime: &Path) -> Command {
        let mut command = Command::new(&self.program);
        let mut preload = Vec::new();
        if let Some((libraries, drivers)) = &self.unpacked {
            command.env("LD_LIBRARY_PATH", libraries);
            preload.extend(drivers.iter().map(|path| path.display().to_string()));
        }
        preload.push(LINE_BUFFER.to_string());
        command.env("LD_PRELOAD", preload.join(":")).env("_STDBUF_O", "L");
        command.env("RUNTIME_DIRECTORY", runtime);
        command.args("-v --no-huge -m 256 --no-pci --no-telemetry --no-shconf".split(' '));
        let core = setting.processor;
        command.args(["--iova-mode=va", "--lcores", &format!("0@{core},1@{core}")]);
        command.args(["--vdev", &setting.device(), "--"]);
        command.args("--interactive --disable-link-check --total-num-mbufs=8192".split(' '));
        let buffer_len = (setting.packet_len + BUFFER_EXTRA).max(BUFFER_LEN_MIN);
        command.arg(format!("--mbuf-size={buffer_len}"));
        command.args([
            format!("--txd={}", setting.queue_size),
            format!("--rxd={}", setting.queue_size),
            format!("--txpkts={}", setting.packet_len),
            format!("--max-pkt-len={}", setting.packet_len.max(1518)),
            format!("--forward-mode={}", setting.forward.name()),
        ]);
        command
    }
}

impl Forward {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "txonly",
            Self::Receive => "rxonly",
            Self::Echo => "io",
        }
    }
}

impl Setting<'_> {
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

/// A running testpmd.
#[derive(Debug)]
pub(super) struct Testpmd {
    program: Program,
    /// How it was started.
    pub command: String,
}

impl Testpmd {
    /// Starts it and lets it forward. As a device it waits for its driver, as a driver it attaches.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(dpdk: &Dpdk, setting: &Setting<'_>) -> anyhow::Result<Self> {
        // Even without shared configuration it creates a directory for it.
        let runtime = setting.socket.parent().unwrap_or(Path::new("/tmp"));
        let command = dpdk.command(setting, runtime);
        let shown = show(&command);
        let program = Program::start(PROGRAM, command)?;
        let mut testpmd = Self { program, command: shown };
        let part = setting.part;
        let started = testpmd.program.wait_for(PROMPT, 0, START_LIMIT);
        started.with_context(|| format!("DPDK's {part:?} does not start, or is kept waiting"))?;
        testpmd.run("set record-core-cycles on")?;
        testpmd.run("start")?;
        Ok(testpmd)
    }

    /// Its version.
    pub fn version(&self) -> Option<String> {
        let printed = self.program.printed();
        let (_, rest) = printed.split_once("RTE Version: 'DPDK ")?;
        rest.split_once('\'').map(|(version, _)| version.to_string())
    }

    /// Packets per second that it receives, over `duration`.
    ///
    /// # Errors
    /// It has ended, or prints something else.
    pub fn rate(&mut self, duration: Duration) -> anyhow::Result<f64> {
        self.run("show port stats 0")?;
        thread::sleep(duration);
        let text = self.run("show port stats 0")?;
        let name = "Rx-pps:";
        number_after(&text, name).with_context(|| format!("testpmd: no {name} in:\n{text}"))
    }

    /// Forgets the time that packets have cost so far.
    ///
    /// # Errors
    /// It has ended.
    pub fn forget_cost(&mut self) -> anyhow::Result<()> {
        self.run("clear fwd stats all").map(|_| ())
    }

    /// Ns of its processor per packet since then. Rounds that find nothing to receive do not
    /// count; rounds that find no room to send do.
    ///
    /// # Errors
    /// It has ended.
    pub fn cost_ns(&mut self) -> anyhow::Result<Option<f64>> {
        let text = self.run("show fwd stats all")?;
        let cycles = number_after(&text, "CPU cycles/packet=");
        let mhz = text.split_once(" MHz").and_then(|(before, _)| before.rsplit(' ').next());
        let mhz: Option<f64> = mhz.and_then(|mhz| mhz.parse().ok());
        Ok(cycles.zip(mhz).map(|(cycles, mhz)| cycles * 1000.0 / mhz))
    }

    fn run(&mut self, command: &str) -> anyhow::Result<String> {
        let mark = self.program.printed().len();
        self.program.type_line(command)?;
        // The prompt comes at once, the output behind it may lie in a buffer: ask for one more.
        self.program.type_line("show fwd noop")?;
        self.program.wait_for("Bad arguments", mark, COMMAND_LIMIT)
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
    fn numbers_are_read_from_its_tables() {
        let text = "  Rx-pps:      7650213          Rx-bps:   3917\n\
                    CPU cycles/packet=28.50 (total cycles=1 / total TX packets=2) at 2600 MHz";
        assert_eq!(number_after(text, "Rx-pps:"), Some(7_650_213.0));
        assert_eq!(number_after(text, "CPU cycles/packet="), Some(28.5));
        assert_eq!(number_after(text, "Tx-pps:"), None);
    }
}
