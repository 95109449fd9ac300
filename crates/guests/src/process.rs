//! Processes that never outlive their owner.
//!
//! How: each is the leader of a process group of its own; dropping it sends SIGKILL to that group
//! and waits. Only ids of processes that were started here are ever used.
//!
//! Limits: a process that leaves its group escapes the drop, but not the namespace.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::shell;
use super::stage::Stage;

/// Between two looks at something that gives no notice.
pub const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The processors that the calling thread, and whatever it starts, may use, in rising order.
pub fn processors() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// A running process and its group.
#[derive(Debug)]
pub struct Process {
    name: String,
    command: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts it; what it prints goes to `NAME.log`.
    ///
    /// # Errors
    /// No such program, or no log file.
    pub fn start(stage: &Stage, name: &str, mut command: Command) -> anyhow::Result<Self> {
        let (log, file) = create_log(stage, name)?;
        command.stdout(file.try_clone()?).stderr(file);
        Self::spawn(name, log, command.stdin(Stdio::null()))
    }

    /// Starts it with its input and output in our hands; errors it prints go to `NAME-errors.log`.
    ///
    /// # Errors
    /// No such program, or no log file.
    pub(crate) fn start_piped(
        stage: &Stage,
        name: &str,
        mut command: Command,
    ) -> anyhow::Result<(Self, ChildStdin, ChildStdout)> {
        let (_, errors) = create_log(stage, &format!("{name}-errors"))?;
        let log = stage.logs.join(format!("{name}.log"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(errors);
        let mut process = Self::spawn(name, log, &mut command)?;
        let input = process.child.stdin.take().context("standard input")?;
        let output = process.child.stdout.take().context("standard output")?;
        Ok((process, input, output))
    }

    fn spawn(name: &str, log: PathBuf, command: &mut Command) -> anyhow::Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.process_group(0).spawn().with_context(|| program)?;
        Ok(Self { name: name.to_string(), command: shell::show(command), child, log })
    }

    /// The name of the process in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How it was started, as one would type it.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Its number, which is also that of its group.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The output of the process up to now.
    pub fn printed(&self) -> String {
        let bytes = std::fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// The operating system does not know it.
    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Waits until `is_so`; the process must go on meanwhile.
    ///
    /// # Errors
    /// It took too long, or the process ended: the text has the end of what it printed.
    pub fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        mut is_so: impl FnMut(&mut Self) -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while !is_so(self) {
            if let Some(status) = self.child.try_wait()? {
                bail!(
                    "{}: {status} before it was {what}:\n{}",
                    self.name,
                    tail(&self.printed(), 20)
                );
            }
            if Instant::now() > deadline {
                bail!("{}: not {what} within {limit:?}:\n{}", self.name, tail(&self.printed(), 20));
            }
            thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }

    /// Asks it to end, and waits.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn terminate(&mut self, limit: Duration) -> anyhow::Result<ExitStatus> {
        if self.child.try_wait()?.is_none() {
            kill_process(pid(&self.child)?, Signal::TERM)?;
        }
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("{}: still there {limit:?} after SIGTERM", self.name)
    }

    /// Ends it and its group at once.
    pub fn kill(&mut self) {
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), pid(&self.child)) {
            // The group can be gone between the look and the signal: then there is nothing to do.
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pid(child: &Child) -> anyhow::Result<Pid> {
    let number = i32::try_from(child.id()).context("process id")?;
    Pid::from_raw(number).context("process id")
}

fn create_log(stage: &Stage, name: &str) -> anyhow::Result<(PathBuf, File)> {
    let path = stage.logs.join(format!("{name}.log"));
    let file = File::options().create(true).append(true).open(&path);
    let file = file.with_context(|| path.display().to_string())?;
    Ok((path, file))
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.get(all.len().saturating_sub(lines)..).unwrap_or_default().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::command;

    fn stage(directory: &tempfile::TempDir) -> Stage {
        Stage::for_test(directory.path())
    }

    #[test]
    fn a_dropped_process_is_gone_with_its_children() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let stage = stage(&directory);
        let script = "sleep 1000 & echo child $!; wait";
        let mut process =
            Process::start(&stage, "p", command(&["sh", "-c", script])).expect("sh starts");
        let limit = Duration::from_secs(10);
        process
            .wait_until("running", limit, |process| process.printed().contains("child "))
            .expect("it runs");
        let printed = process.printed();
        let child: u32 = printed.trim().trim_start_matches("child ").parse().expect("a process id");
        drop(process);
        // Gone, or a zombie that was not waited for yet. It was told before `drop` returned,
        // and still has to obey.
        let is_gone = || {
            let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            status.is_empty() || status.contains(") Z ")
        };
        let deadline = Instant::now() + limit;
        while !is_gone() {
            assert!(Instant::now() < deadline, "{child} lives on");
            thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn an_early_end_is_told_with_its_last_words() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let command = command(&["sh", "-c", "echo because; exit 3"]);
        let mut process = Process::start(&stage(&directory), "p", command).expect("sh starts");
        let result = process.wait_until("ready", Duration::from_secs(10), |_| false);
        let text = format!("{:#}", result.expect_err("it ended"));
        assert!(text.contains("because") && text.contains("before it was ready"), "{text}");
    }

    #[test]
    fn tails_are_the_last_lines() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc");
        assert_eq!(tail("a", 2), "a");
    }
}
