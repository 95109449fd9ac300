//! FRR's routing daemons (`zebra`, `bgpd`): a pair for each host of a scenario, with places of its
//! own, and asked in JSON.
//!
//! Limits: the daemons want a group that their user belongs to, and a directory in `/var/tmp`: both
//! are there in the scenario's own view of the file system only.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;

use crate::frr_files::{ASKER, DAEMONS, FrrFiles};
use crate::hosts::NetworkNamespace;
use crate::process::Process;
use crate::shell;
use crate::stage::Stage;

/// The group that may talk to the daemons, which end if there are two of that name.
const GROUP: &str = "frrvty:";
/// The rest of its line, with a number that no other group has.
const MEMBERS: &str = "x:64999:root";

/// Longest wait until a daemon answers.
const LIMIT: Duration = Duration::from_secs(20);

/// The groups with that of the daemons, once, also where FRR is installed.
fn with_group(groups: &str) -> String {
    let others = groups.lines().filter(|line| !line.starts_with(GROUP));
    others.map(|line| format!("{line}\n")).chain([format!("{GROUP}{MEMBERS}\n")]).collect()
}

/// The routing daemons of one host.
#[derive(Debug)]
pub struct Frr {
    files: FrrFiles,
    directory: PathBuf,
    daemons: Vec<Process>,
}

impl Frr {
    /// Makes the places that all daemons look at, for this scenario only.
    ///
    /// # Errors
    /// We may not change our view of the file system.
    pub fn prepare(stage: &Stage) -> anyhow::Result<()> {
        let groups = stage.file("group");
        let text = fs::read_to_string("/etc/group").context("/etc/group")?;
        fs::write(&groups, with_group(&text))?;
        let groups = groups.display().to_string();
        shell::output(&mut shell::command(&["mount", "--bind", &groups, "/etc/group"]))?;
        shell::output(&mut shell::command(&["mount", "-t", "tmpfs", "none", "/var/tmp"]))?;
        Ok(())
    }

    /// Starts both on a host with this configuration of `bgpd`, and waits until they answer.
    ///
    /// # Errors
    /// They do not: the text has what they printed.
    pub fn start(
        stage: &Stage,
        network: Option<&NetworkNamespace>,
        name: &str,
        bgpd: &str,
    ) -> anyhow::Result<Self> {
        let files = stage.programs.frr.clone().context("FRR is not unpacked")?;
        let directory = stage.file(&format!("frr-{name}"));
        fs::create_dir(&directory)?;
        fs::write(directory.join("zebra.conf"), format!("hostname {name}\n"))?;
        fs::write(directory.join("bgpd.conf"), bgpd)?;
        fs::write(directory.join("vtysh.conf"), "username root nopassword\n")?;
        let mut frr = Self { files, directory, daemons: Vec::new() };
        for daemon in DAEMONS {
            let process = frr.daemon(stage, network, name, daemon)?;
            frr.daemons.push(process);
        }
        Ok(frr)
    }

    fn daemon(
        &self,
        stage: &Stage,
        network: Option<&NetworkNamespace>,
        host: &str,
        path: &str,
    ) -> anyhow::Result<Process> {
        let program = self.files.program(path);
        let kind = path.rsplit('/').next().unwrap_or(path);
        let place = |name: &str| self.directory.join(name);
        let mut command = network.map_or_else(|| shell::command(&["env"]), |it| it.enter(&["env"]));
        command.arg(format!("LD_LIBRARY_PATH={}", self.files.libraries())).arg(program);
        command.args(["-u", "root", "-g", "root", "-P", "0", "--log", "stdout"]);
        command.arg("-z").arg(place("zserv.api")).arg("--vty_socket").arg(&self.directory);
        command.arg("-i").arg(place(&format!("{kind}.pid")));
        command.arg("-f").arg(place(&format!("{kind}.conf")));
        let mut process = Process::start(stage, &format!("{host}-{kind}"), command)?;
        let socket = place(&format!("{kind}.vty"));
        process.wait_until("answering", LIMIT, |_| socket.exists())?;
        Ok(process)
    }

    /// The answer of a daemon (`zebra`, `bgpd`) to a line that asks for JSON.
    ///
    /// # Errors
    /// It does not answer so.
    pub fn ask(&self, daemon: &str, line: &str) -> anyhow::Result<Value> {
        let mut command = Command::new(self.files.program(ASKER));
        command.env("LD_LIBRARY_PATH", self.files.libraries());
        command.arg("--config_dir").arg(&self.directory);
        command.arg("--vty_socket").arg(&self.directory).args(["-d", daemon, "-c", line]);
        let text = shell::output(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("{line}: {text}"))
    }

    /// Whether there is an EVPN route whose name begins so, such as `[2]:[0]:[48]:[MAC]`.
    ///
    /// # Errors
    /// `bgpd` does not answer.
    pub fn has_route(&self, name: &str) -> anyhow::Result<bool> {
        let all = self.ask("bgpd", "show bgp l2vpn evpn route json")?;
        // By router and network, and then by name.
        let routes =
            all.as_object().into_iter().flatten().filter_map(|(_, routes)| routes.as_object());
        Ok(routes.flatten().any(|(route, _)| route.starts_with(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemons_group_is_there_once() {
        let own = "root:x:0:\nfrrvty:x:64999:root\n";
        assert_eq!(with_group("root:x:0:\n"), own);
        assert_eq!(with_group("root:x:0:\nfrrvty:x:111:frr\n"), own);
        assert_eq!(with_group("frrvty:x:111:frr\nroot:x:0:"), own);
    }
}
