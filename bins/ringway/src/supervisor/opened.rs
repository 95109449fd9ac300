//! Whether a start was one: which ports have to work, and what is said where not all do.

use anyhow::bail;

use super::Supervisor;
use super::ports::Port;
use super::source::Source;
use crate::units;

impl Supervisor {
    /// Whether enough ports of the configuration could be opened.
    ///
    /// # Errors
    /// None, or one of them where all are needed.
    pub(super) fn check_ports(&self, needs_all: bool) -> anyhow::Result<()> {
        let configured = |port: &&Port| port.source == Source::Configuration;
        let ports = || self.ports.values().filter(configured);
        let failed = ports().filter(|port| port.failure.is_some()).count();
        if failed > 0 && failed == ports().count() {
            bail!("no port could be opened");
        }
        if failed > 0 && needs_all {
            let ports = units::counted(failed as u64, "port");
            bail!("{ports} could not be opened (--keep-going serves the others)");
        }
        Ok(())
    }

    /// That sockets can be connected to, and how many ports work, if not all do.
    pub(super) fn ready(&self) -> String {
        let failed = self.ports.values().filter(|port| port.failure.is_some()).count();
        match (failed, self.ports.len()) {
            (0, _) => "ready".to_owned(),
            (failed, all) => format!("ready: {} of {all} ports", all - failed),
        }
    }
}
