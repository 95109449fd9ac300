//! The machine that a measurement ran on, and the processors that it may use.
//!
//! Limits: what `/proc` and a program's own `--version` say.

use std::fs;
use std::io;

pub use ringway_guests::process::processors;
use ringway_guests::shell;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

/// Names the commit that this program was built from, where that is known.
const COMMIT_VARIABLE: &str = "RINGWAY_COMMIT";

#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    pub processor: String,
    pub processors: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    /// The congestion control of its TCP, which new network namespaces have, too.
    pub congestion_control: String,
    pub distribution: String,
    /// Processes ready to run when the measurement began, averaged over a minute: above the
    /// number of processors, nothing measured here means much.
    pub load: String,
    pub versions: Vec<(String, String)>,
}

impl Machine {
    pub fn look() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let release = text("/etc/os-release");
        let memory_kib = field(&text("/proc/meminfo"), "MemTotal", ':');
        let memory_kib = memory_kib.and_then(|it| it.trim_end_matches(" kB").parse::<u64>().ok());
        Self {
            processor: field(&text("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
            processors: processors().len(),
            memory_bytes: memory_kib.unwrap_or(0) * 1024,
            kernel: format!("Linux {}", text("/proc/sys/kernel/osrelease").trim()),
            congestion_control: text("/proc/sys/net/ipv4/tcp_congestion_control")
                .trim()
                .to_string(),
            distribution: field(&release, "PRETTY_NAME", '=').unwrap_or_default(),
            load: text("/proc/loadavg").split(' ').next().unwrap_or_default().to_string(),
            versions: vec![("ringway".to_string(), version(std::env::var(COMMIT_VARIABLE).ok()))],
        }
    }
}

/// This program's, with the commit if it is known.
fn version(commit: Option<String>) -> String {
    let version = env!("CARGO_PKG_VERSION");
    commit.map_or(version.to_string(), |commit| format!("{version} (commit {commit})"))
}

/// The value behind a name and a colon or an equals sign, without quotes.
fn field(text: &str, name: &str, behind: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(behind)?.1.trim().trim_matches('"').to_string())
}

pub fn pin(processor: usize) -> io::Result<()> {
    keep_to(&[processor])
}

fn keep_to(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    processors.iter().for_each(|&processor| set.set(processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Does something while the calling thread keeps to these processors: what it starts keeps to
/// them as well. Afterwards the thread is where it was.
pub fn keeping_to<T>(processors: &[usize], action: impl FnOnce() -> T) -> io::Result<T> {
    let before = sched_getaffinity(None)?;
    keep_to(processors)?;
    let done = action();
    sched_setaffinity(None, &before)?;
    Ok(done)
}

/// Now, as `2026-01-31 12:59 UTC`.
pub fn date() -> anyhow::Result<String> {
    let text = shell::output(shell::command(&["date"]).args(["-u", "+%Y-%m-%d %H:%M UTC"]))?;
    Ok(text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commit_is_behind_the_version() {
        assert_eq!(version(None), env!("CARGO_PKG_VERSION"));
        assert!(version(Some("1a2b".to_string())).ends_with(" (commit 1a2b)"));
    }

    #[test]
    fn fields_are_found_in_the_system_s_files() {
        let text = "model name\t: A processor: fast\nMemTotal:  16 kB\n";
        assert_eq!(field(text, "model name", ':').as_deref(), Some("A processor: fast"));
        assert_eq!(field(text, "MemTotal", ':').as_deref(), Some("16 kB"));
        assert_eq!(field("A=\"b c\"\n", "A", '=').as_deref(), Some("b c"));
    }

    #[test]
    fn what_is_started_keeps_to_its_processors_and_we_do_not() {
        let before = processors();
        let last = *before.last().expect("at least one");
        let child = || std::thread::spawn(processors).join().expect("it ends");
        assert_eq!(keeping_to(&[last], child).expect("one of ours"), [last]);
        assert_eq!(processors(), before);
    }

    #[test]
    fn a_thread_can_be_kept_on_one_of_its_processors() {
        let last = *processors().last().expect("at least one");
        pin(last).expect("one of ours");
        assert_eq!(processors(), [last]);
    }
}
