//! Running one scenario: in namespaces of its own, for a limited time, with its logs kept.
//!
//! How: this same program is started again in namespaces of its own ([`namespaces`]).
//!
//! Limits: where there are no namespaces, scenarios are skipped, with the reason.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::Context;

use super::namespaces::{self, unshare};
use super::plan::{Needs, Scenario};
use super::process::tail;
use super::{logs_of, qemu, stage, uml};
use crate::counts::Counts;
use crate::paths::Paths;
use crate::{dpdk_files, shell, unikernel};

/// Lines of each log that are shown when a scenario fails.
const TAIL_LINES: usize = 30;

/// What this machine lacks, by need; the text is the reason for skipping.
#[derive(Debug)]
pub struct Machine {
    namespaces: Option<String>,
    taps: Option<String>,
    uml: Option<String>,
    newest_uml: Option<String>,
    qemu: Option<String>,
    newest_qemu: Option<String>,
    newest_kernel: Option<String>,
    dpdk: Option<String>,
    unikernel: Option<String>,
}

impl Machine {
    /// Looks at the machine.
    pub fn look(paths: &Paths) -> Self {
        let advise = |missing: String| format!("{missing}: see ./x setup");
        let qemu = |needs| {
            let [qemu, kernel] = [super::qemu_of, super::kernel_of].map(|find| find(paths, needs));
            qemu::missing(&qemu, &kernel).map(advise)
        };
        let unpacked = dpdk_files::find(paths).is_some();
        let dpdk = (!unpacked).then(|| "testpmd is not unpacked: see ./x setup".to_string());
        Self {
            namespaces: namespaces::missing(),
            taps: namespaces::missing_taps(),
            uml: uml::missing(&super::uml_of(paths, Needs::Uml)).map(advise),
            newest_uml: uml::missing(&super::uml_of(paths, Needs::NewestUml)).map(advise),
            qemu: qemu(Needs::Qemu),
            newest_qemu: qemu(Needs::NewestQemu),
            newest_kernel: qemu(Needs::NewestKernel),
            dpdk,
            unikernel: shell::missing(&[unikernel::PROGRAM, "ping", "ip"]).map(advise),
        }
    }

    fn why_not(&self, needs: Needs) -> Option<&str> {
        let (taps, program) = match needs {
            Needs::UmlAndQemu => {
                let taps = self.why_not(Needs::Qemu);
                return taps.or_else(|| self.why_not(Needs::Uml));
            }
            Needs::Uml => (&None, &self.uml),
            Needs::NewestUml => (&None, &self.newest_uml),
            Needs::Qemu => (&self.taps, &self.qemu),
            Needs::NewestQemu => (&self.taps, &self.newest_qemu),
            Needs::NewestKernel => (&self.taps, &self.newest_kernel),
            Needs::Dpdk => (&self.taps, &self.dpdk),
            Needs::DpdkDevice => (&None, &self.dpdk),
            Needs::Unikernel => (&self.taps, &self.unikernel),
        };
        [&self.namespaces, taps, program].into_iter().find_map(Option::as_deref)
    }
}

/// Runs one scenario and says what became of it.
pub fn run(paths: &Paths, machine: &Machine, scenario: &Scenario) -> Counts {
    print!("test guest::{} ... ", scenario.name);
    // A line that appears late is no reason to fail.
    let _ = std::io::stdout().flush();
    if let Some(reason) = machine.why_not(scenario.needs) {
        println!("skipped: {reason}");
        return Counts { skipped: 1, ..Counts::default() };
    }
    let started = Instant::now();
    let result = run_in_namespaces(paths, scenario);
    let seconds = started.elapsed().as_secs_f64();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    println!("{verdict} ({seconds:.1} s)");
    let logs = logs_of(paths, &scenario.name);
    match &result {
        Ok(()) => show_notes(&logs),
        Err(error) => show_failure(&logs, error),
    }
    Counts::one(result.is_ok())
}

fn run_in_namespaces(paths: &Paths, scenario: &Scenario) -> anyhow::Result<()> {
    let logs = logs_of(paths, &scenario.name);
    if logs.exists() {
        fs::remove_dir_all(&logs).with_context(|| logs.display().to_string())?;
    }
    fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
    // Short, because a socket's path has at most 107 bytes.
    let directory = tempfile::Builder::new().prefix("rw-").tempdir()?;
    let log = fs::File::create(log_of(&logs))?;
    let mut command = unshare();
    command.arg(&paths.program);
    command.args(["guest-one", &scenario.name, "--directory"]).arg(directory.path());
    dpdk_files::name_to(&mut command, paths);
    // Nothing is ever written there: its end tells the scenario that we are gone.
    command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
    let mut child = command.spawn().context("unshare")?;
    match namespaces::wait(&mut child, scenario.limit)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => anyhow::bail!("{status}"),
        None => anyhow::bail!("killed: it took longer than {:?}", scenario.limit),
    }
}

fn log_of(logs: &Path) -> std::path::PathBuf {
    logs.join("scenario.log")
}

fn show_notes(logs: &Path) {
    let text = fs::read_to_string(log_of(logs)).unwrap_or_default();
    for note in text.lines().filter_map(|line| line.strip_prefix(stage::NOTE)) {
        println!("    {note}");
    }
}

fn show_failure(logs: &Path, error: &anyhow::Error) {
    println!("    {error:#}; all logs: {}", logs.display());
    for name in ["scenario.log", "ringway.log"] {
        let bytes = fs::read(logs.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        println!("    the end of {name}:");
        tail(&text, TAIL_LINES).lines().for_each(|line| println!("    | {line}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_general_reason_comes_first() {
        let mut machine = Machine {
            namespaces: None,
            taps: Some("no taps".to_string()),
            uml: None,
            newest_uml: Some("no newest UML".to_string()),
            qemu: Some("no QEMU".to_string()),
            newest_qemu: None,
            newest_kernel: None,
            dpdk: None,
            unikernel: None,
        };
        assert_eq!(machine.why_not(Needs::Uml), None);
        assert_eq!(machine.why_not(Needs::NewestUml), Some("no newest UML"));
        assert_eq!(machine.why_not(Needs::NewestQemu), Some("no taps"));
        assert_eq!(machine.why_not(Needs::Dpdk), Some("no taps"));
        assert_eq!(machine.why_not(Needs::DpdkDevice), None);
        machine.taps = None;
        assert_eq!(machine.why_not(Needs::Qemu), Some("no QEMU"));
        assert_eq!(machine.why_not(Needs::UmlAndQemu), Some("no QEMU"));
        (machine.qemu, machine.uml) = (None, Some("no UML".to_string()));
        assert_eq!(machine.why_not(Needs::UmlAndQemu), Some("no UML"));
        machine.qemu = Some("no QEMU".to_string());
        machine.namespaces = Some("no namespaces".to_string());
        assert_eq!(machine.why_not(Needs::Qemu), Some("no namespaces"));
        assert_eq!(machine.why_not(Needs::Uml), Some("no namespaces"));
    }
}
