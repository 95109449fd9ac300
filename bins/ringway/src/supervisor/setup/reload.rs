//! SIGHUP, or `ringway reload`: the file is read again, and what has changed in it is carried out.
//!
//! Ports whose lines say the same as before are not touched, nor are ports that were added through
//! the control socket, unless the file has them now: then they are the file's; workers, their
//! processors and the sandbox stay, which is said. A file with any mistake changes nothing, nor
//! does one without any port, unless it says that it has none. What only shows when it is tried is
//! reported: a port stays as it was, and a new one, such as a tap that may not be opened, is left
//! out, as at the start.
//!
//! A client that asked for it is answered when all of it was tried: everything that was begun for
//! it has a share in one [`ReloadReport`]; when no other share is left, all is done. Limits: after
//! [`PATIENCE`] the answer says that it is not known yet.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Setup;
use crate::config::{PortSpec, RunConfig, Settings, difference};
use crate::control::{PROTOCOL_VERSION, ReloadReply, refusal, reply_line};
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::planes::order::ReloadReport;
use crate::supervisor::ports::Ports;

/// Longest wait for the data plane: the client's own is a second longer.
const PATIENCE: Duration = Duration::from_secs(4);

/// A file that is being carried out for a client.
pub struct Reloading {
    pub client: ClientId,
    pub report: Rc<ReloadReport>,
    /// As the file before had them.
    pub ports: Vec<PortSpec>,
    pub settings: Settings,
    pub since: Instant,
}

impl Reloading {
    /// `ports`: as the file has them now.
    pub fn reply(&self, ports: &[PortSpec], setup: &Setup) -> String {
        let mut failures = self.report.failures();
        if Rc::strong_count(&self.report) > 1 {
            failures.push("the data plane does not answer yet: ask ringway stats".to_owned());
            return refusal(&failures);
        }
        if !failures.is_empty() {
            let file = setup.shown_file();
            failures.push(format!(
                "everything else in {file} is carried out: reload again when that is mended"
            ));
            return refusal(&failures);
        }
        let changes = difference((&self.ports, &self.settings), (ports, &setup.settings));
        let warnings = self.report.warnings();
        reply_line(&ReloadReply { version: PROTOCOL_VERSION, ok: true, changes, warnings })
    }
}

/// The file that is being carried out, and how many were not.
#[derive(Default)]
pub struct Reloads {
    pub reloading: Option<Reloading>,
    pub failed: u64,
}

impl Reloads {
    pub fn is_any(&self) -> bool {
        self.reloading.is_some()
    }

    /// The file, read again.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(&mut self, setup: &Setup, ports: &Ports) -> Result<RunConfig, Vec<String>> {
        let config = setup.read_again().and_then(|config| {
            let why = ports.objection_to(&config);
            why.map_or(Ok(config), |why| Err(vec![format!("{}: {why}", setup.shown_file())]))
        });
        self.failed += u64::from(config.is_err());
        config
    }

    /// The one of which all was tried, or that takes too long.
    pub fn take_finished(&mut self, now: Instant) -> Option<Reloading> {
        let is_over =
            |it: &mut Reloading| Rc::strong_count(&it.report) == 1 || it.since + PATIENCE <= now;
        let finished = self.reloading.take_if(is_over)?;
        self.failed += u64::from(!finished.report.failures().is_empty());
        Some(finished)
    }
}
