//! Talking to a program through its console: wait for words, give commands, read answers.
//!
//! How: a thread copies what the program prints to a log and to memory. A guest runs
//! [`AGENT_LOOP`], which obeys one command per line and says when each is done.
//!
//! Limits: one command at a time; a line has at most 4,000 bytes (that of the terminal); every
//! wait has a limit.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::process::{LOOK_EVERY, Process, tail};
use super::stage::Stage;

/// The line that a guest prints when it obeys.
pub const READY: &str = "RINGWAY-READY";

/// The rest of a guest's script: obeys commands for ever.
pub(crate) const AGENT_LOOP: &str = "\
stty -echo
echo RINGWAY-READY
while read -r number line; do
    eval \"$line\" </dev/null 2>&1
    echo \"RINGWAY-DONE $number $?\"
done
";

/// A program with a console.
#[derive(Debug)]
pub struct Console {
    process: Process,
    input: ChildStdin,
    screen: Arc<Screen>,
    commands: u64,
}

/// Everything that was printed.
#[derive(Debug, Default)]
struct Screen {
    output: Mutex<ConsoleOutput>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ConsoleOutput {
    text: String,
    ended: bool,
}

impl Console {
    /// Starts a program; what it prints also goes to `NAME.log`.
    ///
    /// # Errors
    /// No such program, or no log file.
    pub fn start(stage: &Stage, name: &str, command: Command) -> anyhow::Result<Self> {
        let path = stage.logs.join(format!("{name}.log"));
        let log = File::create(&path).with_context(|| path.display().to_string())?;
        let (process, input, output) = Process::start_piped(stage, name, command)?;
        let screen = Arc::new(Screen::default());
        let copy = Arc::clone(&screen);
        thread::spawn(move || copy.fill(output, log));
        Ok(Self { process, input, screen, commands: 0 })
    }

    /// How it was started, as one would type it.
    pub fn command(&self) -> &str {
        self.process.command()
    }

    /// The program's number.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// A place in what is printed: right after everything so far.
    pub fn mark(&self) -> usize {
        self.screen.lock().text.len()
    }

    /// Sends one line.
    ///
    /// # Errors
    /// The program has ended.
    pub fn send(&mut self, line: &str) -> anyhow::Result<()> {
        let result = self.input.write_all(format!("{line}\n").as_bytes());
        result.with_context(|| self.failure("does not take commands"))
    }

    /// Waits for `words` after `mark`, and returns what came between the two.
    ///
    /// # Errors
    /// The program ends, or does not say it in time.
    pub fn wait_for(&self, words: &str, mark: usize, limit: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + limit;
        let mut output = self.screen.lock();
        loop {
            let since = output.text.get(mark..).unwrap_or_default();
            if let Some((before, _)) = since.split_once(words) {
                return Ok(before.to_string());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (ended, timed_out) = (output.ended, left.is_zero());
            if ended || timed_out {
                drop(output);
                let why = if ended { "ended" } else { "took too long" };
                bail!("{}", self.failure(&format!("{why}, waiting {limit:?} for {words:?}")));
            }
            let waited = self.screen.changed.wait_timeout(output, left);
            output = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets a guest carry out a command; returns its status and what it printed.
    ///
    /// # Errors
    /// The guest ends, or does not finish in time.
    pub fn run(&mut self, command: &str, limit: Duration) -> anyhow::Result<(i32, String)> {
        self.commands += 1;
        let number = self.commands;
        let mark = self.mark();
        self.send(&format!("{number} {command}"))?;
        let done = format!("RINGWAY-DONE {number} ");
        let printed = self.wait_for(&done, mark, limit).with_context(|| command.to_string())?;
        let after = mark + printed.len() + done.len();
        let status = self.wait_for("\n", after, Duration::from_secs(5))?;
        let status = status.trim().parse().with_context(|| format!("{command}: {status}"))?;
        Ok((status, printed.replace('\r', "")))
    }

    /// Waits until a guest obeys.
    ///
    /// # Errors
    /// It ends, or takes too long.
    pub fn wait_ready(&self, mark: usize, limit: Duration) -> anyhow::Result<()> {
        self.wait_for(READY, mark, limit)?;
        Ok(())
    }

    /// Waits until the program has ended; returns how, and what it printed after `mark`.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn wait_end(
        &mut self,
        mark: usize,
        limit: Duration,
    ) -> anyhow::Result<(ExitStatus, String)> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.process.has_ended()?
                && self.screen.lock().ended
            {
                let text = self.screen.lock().text.get(mark..).unwrap_or_default().to_string();
                return Ok((status, text));
            }
            if Instant::now() > deadline {
                bail!("{}", self.failure(&format!("not at its end after {limit:?}")));
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// The program.
    #[cfg(test)]
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    fn failure(&self, why: &str) -> String {
        let text = tail(&self.screen.lock().text, 20);
        format!("{}: {why}; the end of its console:\n{text}", self.process.name())
    }
}

impl Screen {
    fn lock(&self) -> std::sync::MutexGuard<'_, ConsoleOutput> {
        self.output.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, mut output: ChildStdout, mut log: File) {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = output.read(&mut bytes) {
            let new = bytes.get(..len).unwrap_or_default();
            // A log that cannot be written is no reason to fail.
            let _ = log.write_all(new);
            self.lock().text.push_str(&String::from_utf8_lossy(new));
            self.changed.notify_all();
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::command;

    fn agent() -> (tempfile::TempDir, Console) {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stage = Stage::for_test(directory.path());
        let script = AGENT_LOOP.replace("stty -echo\n", "");
        let console = Console::start(&stage, "agent", command(&["sh", "-c", &script]));
        (directory, console.expect("sh starts"))
    }

    #[test]
    fn an_agent_obeys_and_answers() {
        let (_directory, mut agent) = agent();
        let limit = Duration::from_secs(10);
        agent.wait_ready(0, limit).expect("it is ready");
        assert_eq!(agent.run("echo a; echo b", limit).ok(), Some((0, "a\nb\n".to_string())));
        assert_eq!(agent.run("printf c; false", limit).ok(), Some((1, "c".to_string())));
        assert_eq!(agent.run("cat", limit).ok(), Some((0, String::new())));
    }

    #[test]
    fn an_end_and_a_silence_are_told() {
        let (_directory, mut agent) = agent();
        let silence = agent.run("sleep 5", Duration::from_millis(200));
        assert!(format!("{:#}", silence.expect_err("too slow")).contains("took too long"));
        agent.process().kill();
        let end = agent.wait_for("never", 0, Duration::from_secs(10));
        assert!(format!("{:#}", end.expect_err("it ended")).contains("ended"));
    }
}
