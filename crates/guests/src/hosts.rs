//! Several hosts on one machine: each is a network namespace of its own, which a process keeps.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use crate::process::Process;
use crate::shell;
use crate::stage::Stage;

const LIMIT: Duration = Duration::from_secs(10);

/// Starts ringway on that host; what asks it needs no network.
const WRAPPER: &str = "#!/bin/sh\n\
    [ \"$1\" = run ] || exec BINARY \"$@\"\n\
    exec nsenter --net=/proc/KEEPER/ns/net BINARY \"$@\"\n";

/// A network namespace beside ours.
#[derive(Debug)]
pub struct NetworkNamespace {
    keeper: Process,
}

impl NetworkNamespace {
    /// A new one, with nothing but a loopback interface that is up.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(stage: &Stage, name: &str) -> anyhow::Result<Self> {
        let command = shell::command(&["unshare", "--net", "sleep", "infinity"]);
        let mut keeper = Process::start(stage, name, command)?;
        let own = fs::read_link("/proc/self/ns/net")?;
        keeper.wait_until("apart", LIMIT, |keeper| {
            let its = fs::read_link(format!("/proc/{}/ns/net", keeper.id()));
            its.is_ok_and(|its| its != own)
        })?;
        let network = Self { keeper };
        network.run("ip link set lo up")?;
        Ok(network)
    }

    /// The process id of the host, for `ip link … netns`.
    pub fn id(&self) -> u32 {
        self.keeper.id()
    }

    /// A command that runs there.
    pub fn enter(&self, words: &[&str]) -> Command {
        let place = format!("--net=/proc/{}/ns/net", self.id());
        let mut command = shell::command(&["nsenter", &place]);
        command.args(words);
        command
    }

    /// Runs a line of the shell there; what it printed.
    ///
    /// # Errors
    /// It fails.
    pub fn run(&self, line: &str) -> anyhow::Result<String> {
        shell::output(&mut self.enter(&["sh", "-c", line]))
    }

    /// The same stage, whose ringway is on that host.
    ///
    /// # Errors
    /// No file can be written.
    pub fn stage(&self, stage: &Stage) -> anyhow::Result<Stage> {
        let wrapper = stage.file(&format!("{}-ringway", self.keeper.name()));
        let mut programs = stage.programs.clone();
        let binary = programs.ringway.display().to_string();
        let text = WRAPPER.replace("BINARY", &binary).replace("KEEPER", &self.id().to_string());
        fs::write(&wrapper, text)?;
        fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
        programs.ringway = wrapper;
        Ok(Stage::new(programs, stage.logs.clone(), &stage.directory))
    }
}
