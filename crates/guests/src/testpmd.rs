//! DPDK's `dpdk-testpmd`: its driver on ringway's device, or its device under ringway's driver; no
//! kernel in between.
//!
//! Limits: 256 MB of ordinary memory, one queue pair; its forwarding thread never sleeps.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::console::Console;
use super::process::processors;
use super::stage::Stage;

/// A command that does nothing: its [`ANSWER`] shows that all commands before it are done. The
/// prompt would not do: it comes letter by letter, so that a message on the other stream can tear
/// it apart; the answer is one piece.
pub const ASK: &str = "show fwd noop";
/// What it answers to [`ASK`].
pub const ANSWER: &str = "Bad arguments";

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

/// What it counted on its port.
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
        let files = stage.programs.dpdk.as_ref().context("testpmd is not there")?;
        let mut command = files.command(&[]);
        // Even without shared configuration it creates a directory for it.
        command.env("RUNTIME_DIRECTORY", &stage.directory);
        command.args("--no-huge -m 256 --no-pci --no-telemetry --no-shconf".split(' '));
        command.args(["--iova-mode=va", "--lcores", &lcores(&processors())]);
        command.args(device).args(["--", "--interactive"]);
        command.arg("--total-num-mbufs=8192").args(options.split_whitespace());
        let console = Console::start(stage, "testpmd", command)?;
        let mut testpmd = Self { console };
        testpmd.run("start", START_LIMIT).context("testpmd does not start")?;
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
        self.run(if is_on { "start" } else { "stop" }, COMMAND_LIMIT).map(drop)
    }

    /// Lets it detach and end, and returns what it has counted on its first port.
    ///
    /// # Errors
    /// It does not end as it should.
    pub fn finish(mut self) -> anyhow::Result<Counted> {
        let mark = self.console.mark();
        for command in ["show port stats 0", "stop", "quit"] {
            self.console.send(command)?;
        }
        // What it prints goes through a buffer that is only sure to be written when it ends.
        let (status, text) = self.console.wait_end(mark, COMMAND_LIMIT)?;
        ensure!(status.success(), "testpmd: {status}:\n{text}");
        counted(&text).with_context(|| format!("testpmd: no counts in:\n{text}"))
    }

    /// What is typed before it looks waits for it.
    fn run(&mut self, command: &str, limit: Duration) -> anyhow::Result<String> {
        let mark = self.console.mark();
        self.console.send(command)?;
        self.console.send(ASK)?;
        self.console.wait_for(ANSWER, mark, limit)
    }
}

/// Both of its threads on the last of these processors: guests get the first ones, and the thread
/// that takes commands only waits for them.
fn lcores(processors: &[usize]) -> String {
    let last = processors.last().copied().unwrap_or(0);
    format!("0@{last},1@{last}")
}

fn counted(text: &str) -> Option<Counted> {
    let number = |name: &str| number_after(text, name);
    Some(Counted {
        received: number("RX-packets:")?,
        missed: number("RX-missed:")? + number("RX-nombuf:")?,
        sent: number("TX-packets:")?,
    })
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(name)?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_to_processors_that_it_may_use() {
        assert_eq!(lcores(&[1, 5]), "0@5,1@5");
        assert_eq!(lcores(&[3]), "0@3,1@3");
    }

    #[test]
    fn counts_are_read_from_its_table() {
        let text = "  RX-packets: 200        RX-missed: 1          RX-bytes:  300\n\
                    \x20 RX-nombuf:  2\n  TX-packets: 7          TX-errors: 0\n";
        assert_eq!(counted(text), Some(Counted { received: 200, missed: 3, sent: 7 }));
        assert_eq!(counted("RX-packets: 200"), None);
    }
}
