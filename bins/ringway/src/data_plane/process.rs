//! The data plane as a process: its sandbox, its age, and how it ends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::sandbox::Sandbox;

/// See proc_pid_oom_score_adj(5): as if half of the memory were its own.
const OOM_SCORE: &str = "/proc/self/oom_score_adj";
const KILLED_FIRST: i32 = 500;

/// Figures of this process for the statistics.
pub(super) struct Process {
    pub(super) sandbox: Option<Sandbox>,
    pub(super) started: Instant,
    /// Workers that the data plane before left in the midst of a visit: so many packets may have
    /// come twice.
    pub(super) replayed: u64,
}

impl Process {
    pub(super) fn new(sandbox: Option<Sandbox>) -> Self {
        Self { sandbox, started: Instant::now(), replayed: 0 }
    }
}

/// A panic of any thread ends the process by a signal, as other faults do, so that the supervisor
/// knows whom to blame. In the sandbox there is no backtrace: files would be opened for it.
pub(super) fn end_at_panics(is_sandboxed: bool) {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        match is_sandboxed {
            true => eprintln!("thread {:?} {panic}", std::thread::current().name().unwrap_or("")),
            false => usual(panic),
        }
        std::process::abort();
    }));
}

/// Where memory is short the kernel ends this process, and not the supervisor, which starts the
/// next one: guests see nothing of that. To be more likely to be chosen needs no right.
pub(super) fn be_killed_first() {
    let now = std::fs::read_to_string(OOM_SCORE).unwrap_or_default();
    if now.trim().parse::<i32>().is_ok_and(|now| now < KILLED_FIRST) {
        // It is only better so.
        let _ = std::fs::write(OOM_SCORE, KILLED_FIRST.to_string());
    }
}

/// The supervisor decides when this process ends: what a terminal sends to both is for it.
pub(super) fn ignore_signals() -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))
            .context("ignoring signals")?;
    }
    Ok(())
}
