//! Programs that are measured: started, talked to over their console, and never left behind.
//!
//! How: each leads a process group of its own, which is killed when its owner is dropped. Whatever
//! it prints is collected by a thread.
//!
//! Limits: text output only.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

/// Between two looks at what was printed.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running program with its console.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    printed: Arc<Mutex<String>>,
}

impl Program {
    /// Starts it; standard output and standard error come together.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(name: &str, mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.process_group(0).spawn().with_context(|| show(&command))?;
        let printed = Arc::new(Mutex::new(String::new()));
        if let Some(output) = child.stdout.take() {
            collect(output, &printed);
        }
        if let Some(errors) = child.stderr.take() {
            collect(errors, &printed);
        }
        let input = child.stdin.take();
        Ok(Self { name: name.to_string(), child, input, printed })
    }

    /// Everything it has printed.
    pub fn printed(&self) -> String {
        self.printed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Types a line.
    ///
    /// # Errors
    /// It does not read any more.
    pub fn type_line(&mut self, line: &str) -> anyhow::Result<()> {
        let input = self.input.as_mut().context("no console")?;
        writeln!(input, "{line}").with_context(|| format!("{}: {line}", self.name))
    }

    /// Waits until it has printed `text` behind the byte `from`; returns all from there on.
    ///
    /// # Errors
    /// It ends before, or takes too long: the error has the end of what it printed.
    pub fn wait_for(&mut self, text: &str, from: usize, limit: Duration) -> anyhow::Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            // Before looking: what an ended process has printed is complete.
            let ended = self.child.try_wait()?;
            let printed = self.printed();
            let rest = printed.get(from..).unwrap_or_default();
            if rest.contains(text) {
                return Ok(rest.to_string());
            }
            let end: Vec<&str> = printed.lines().rev().take(8).collect();
            let end = end.into_iter().rev().collect::<Vec<_>>().join("\n");
            if let Some(status) = ended {
                bail!("{}: {status}:\n{end}", self.name);
            }
            if Instant::now() > deadline {
                bail!("{}: no {text:?} within {limit:?}:\n{end}", self.name);
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let (Ok(None), Some(pid)) = (self.child.try_wait(), pid) {
            // The group can be gone between the look and the signal: then there is nothing to do.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn collect(mut from: impl Read + Send + 'static, into: &Arc<Mutex<String>>) {
    let into = Arc::clone(into);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = from.read(&mut bytes) {
            let text = String::from_utf8_lossy(bytes.get(..len).unwrap_or_default()).into_owned();
            into.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
        }
    });
}

/// A command as one would type it.
pub(crate) fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_console_answers() {
        let mut program = Program::start("cat", Command::new("cat")).expect("cat starts");
        program.type_line("hello").expect("typed");
        assert_eq!(program.wait_for("hello\n", 0, LIMIT).expect("echoed"), "hello\n");
    }

    #[test]
    fn an_early_end_is_told_with_the_last_words() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo because >&2; exit 3"]);
        let mut program = Program::start("sh", command).expect("sh starts");
        let error = program.wait_for("never", 0, LIMIT).expect_err("it ends");
        // The words may come a moment after the end was noticed.
        assert!(error.to_string().contains("exit status: 3"), "{error}");
    }
}
