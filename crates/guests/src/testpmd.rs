//! DPDK's `dpdk-testpmd`: its driver on ringway's device, or its device under ringway's driver; no
//! kernel in between.
//!
//! Limits: 256 MB of ordinary memory, one queue pair; its forwarding thread never sleeps.

use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::console::Console;
use super::process::processors;
use super::stage::Stage;

/// A command that does nothing: its [`ANSWER`] shows that all commands before it are done. The
/// prompt would not do: it comes letter by letter, so that a message on the other stream can tear
/// it apart; the answer is one piece.
const ASK: &str = "show fwd noop";
/// The answer of testpmd to [`ASK`].
const ANSWER: &str = "Bad arguments";

/// The line that it prints for a port whose link is up.
const LINK_UP: &str = "Link status: up";

/// Makes a program print line by line although it is not on a terminal (part of coreutils).
const LINE_BUFFER: &str = "/usr/libexec/coreutils/libstdbuf.so";

/// Longest time until it takes commands: it clears 256 MB of ordinary memory before, which takes
/// a second or two, and many more where others want the processors too.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Longest time for a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

/// A running testpmd.
#[derive(Debug)]
pub struct Testpmd {
    console: Console,
}

/// How one of several is started.
#[derive(Debug, Clone, Copy)]
pub struct Setting<'a> {
    /// The name of its logs.
    pub name: &'a str,
    /// Where it forwards.
    pub processor: usize,
    /// Options of DPDK itself, for its device.
    pub device: &'a [String],
    /// Its own.
    pub options: &'a str,
}

/// The counters of its port.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Packets received, without those missed.
    pub received: u64,
    /// Packets that it had no buffer for.
    pub missed: u64,
    /// Packets sent.
    pub sent: u64,
}

impl Testpmd {
    /// Starts it on a vhost-user socket, with options for its device and for itself.
    ///
    /// # Errors
    /// It is not unpacked, or does not come up.
    pub fn start(
        stage: &Stage,
        socket: &Path,
        device_options: &str,
        options: &str,
    ) -> anyhow::Result<Self> {
        let device = format!("net_virtio_user0,path={},queues=1", socket.display());
        let device = format!("{device}{device_options}");
        Self::start_with(stage, &["--vdev".to_string(), device], options)
    }

    /// The same with these options of DPDK itself for its device.
    ///
    /// # Errors
    /// It is not unpacked, or does not come up.
    pub fn start_with(stage: &Stage, device: &[String], options: &str) -> anyhow::Result<Self> {
        // Guests get the first processors.
        let processor = processors().last().copied().unwrap_or(0);
        Self::start_at(stage, &Setting { name: "testpmd", processor, device, options })
    }

    /// The same with a name and a processor of its own.
    ///
    /// # Errors
    /// It is not unpacked, or does not come up.
    pub fn start_at(stage: &Stage, setting: &Setting<'_>) -> anyhow::Result<Self> {
        let files = stage.programs.dpdk.as_ref().context("testpmd is not there")?;
        let has_buffer = Path::new(LINE_BUFFER).is_file();
        let mut command = files.command(if has_buffer { &[LINE_BUFFER] } else { &[] });
        // Even without shared configuration it creates a directory for it.
        command.env("_STDBUF_O", "L").env("RUNTIME_DIRECTORY", &stage.directory);
        command.args("-v --no-huge -m 256 --no-pci --no-telemetry --no-shconf".split(' '));
        // The thread that takes commands only waits for them.
        let lcores = format!("0@{0},1@{0}", setting.processor);
        command.args(["--iova-mode=va", "--lcores", &lcores]);
        command.args(setting.device).args(["--", "--interactive"]);
        command.arg("--total-num-mbufs=8192").args(setting.options.split_whitespace());
        Self::start_command(stage, setting.name, command)
    }

    fn start_command(stage: &Stage, name: &str, command: Command) -> anyhow::Result<Self> {
        let mut testpmd = Self { console: Console::start(stage, name, command)? };
        testpmd.run_within("start", START_LIMIT).context("testpmd does not start")?;
        Ok(testpmd)
    }

    /// How it was started, as one would type it.
    pub fn command(&self) -> &str {
        self.console.command()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.console.id()
    }

    /// Lets it forward, or stop: it needs a processor to itself only while it forwards.
    ///
    /// # Errors
    /// It has ended.
    pub fn forward(&mut self, is_on: bool) -> anyhow::Result<()> {
        self.run(if is_on { "start" } else { "stop" }).map(drop)
    }

    /// Lets it detach and end, and returns what it has counted on its first port.
    ///
    /// # Errors
    /// It does not end as it should.
    pub fn finish(self) -> anyhow::Result<Counted> {
        let text = self.end()?;
        counted(&text).with_context(|| format!("testpmd: no counts in:\n{text}"))
    }

    /// The same, and its link is up.
    ///
    /// # Errors
    /// It is not, or testpmd does not end as it should.
    pub fn finish_up(self) -> anyhow::Result<Counted> {
        let text = self.end()?;
        ensure!(text.contains(LINK_UP), "testpmd: its link is not up:\n{text}");
        counted(&text).with_context(|| format!("testpmd: no counts in:\n{text}"))
    }

    fn end(mut self) -> anyhow::Result<String> {
        let mark = self.console.mark();
        for command in ["show port info 0", "show port stats 0", "stop", "quit"] {
            self.console.send(command)?;
        }
        // Its output goes through a buffer that is only sure to be written when it ends.
        let (status, text) = self.console.wait_end(mark, COMMAND_LIMIT)?;
        ensure!(status.success(), "testpmd: {status}:\n{text}");
        Ok(text)
    }

    /// Types a command; what is printed until it is done.
    ///
    /// # Errors
    /// It has ended, or takes too long.
    pub fn run(&mut self, command: &str) -> anyhow::Result<String> {
        self.run_within(command, COMMAND_LIMIT)
    }

    /// A command that is typed before testpmd reads waits for it.
    fn run_within(&mut self, command: &str, limit: Duration) -> anyhow::Result<String> {
        let mark = self.console.mark();
        self.console.send(command)?;
        self.console.send(ASK)?;
        self.console.wait_for(ANSWER, mark, limit)
    }
}

fn counted(text: &str) -> Option<Counted> {
    let number = |name: &str| number_after::<u64>(text, name);
    Some(Counted {
        received: number("RX-packets:")?,
        missed: number("RX-missed:")? + number("RX-nombuf:")?,
        sent: number("TX-packets:")?,
    })
}

/// Words for its vhost-user device of this number on a socket, with more options.
pub fn vhost(number: usize, socket: &Path, options: &str) -> [String; 2] {
    let device = format!("net_vhost{number},iface={},queues=1{options}", socket.display());
    ["--vdev".to_string(), device]
}

/// The number behind a name in what it prints.
pub fn number_after<T: FromStr>(text: &str, name: &str) -> Option<T> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
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
        let stage = Stage::for_test(directory.path());
        Testpmd::start_command(&stage, "sh", shell).expect("it takes commands");
    }

    #[test]
    fn numbers_are_read_from_its_tables() {
        let text = "  Rx-pps:      7650213          Rx-bps:   3917\n\
                    CPU cycles/packet=28.50 (total cycles=1 / total TX packets=2) at 2600 MHz";
        assert_eq!(number_after(text, "Rx-pps:"), Some(7_650_213.0));
        assert_eq!(number_after(text, "CPU cycles/packet="), Some(28.5));
        assert_eq!(number_after::<f64>(text, "Tx-pps:"), None);
    }

    #[test]
    fn counts_are_read_from_its_table() {
        let text = "  RX-packets: 200        RX-missed: 1          RX-bytes:  300\n\
                    \x20 RX-nombuf:  2\n  TX-packets: 7          TX-errors: 0\n";
        assert_eq!(counted(text), Some(Counted { received: 200, missed: 3, sent: 7 }));
        assert_eq!(counted("RX-packets: 200"), None);
    }
}
