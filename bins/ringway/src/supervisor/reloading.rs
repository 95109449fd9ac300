//! The outcome of a file that was read again: its client is answered when all of it was tried.
//!
//! How: everything that was begun for it has a share in one [`Report`]; when no other share is
//! left, all is done. Limits: after [`PATIENCE`] the answer says that it is not known yet.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Supervisor;
use super::control_client::ClientId;
use super::order::Report;
use crate::config::{PortSpec, Settings, difference};
use crate::control::{PROTOCOL_VERSION, ReloadReply, refusal, reply_line};

/// Longest wait for the data plane: the client's own is a second longer.
const PATIENCE: Duration = Duration::from_secs(4);

/// A file that is being carried out for a client.
pub(super) struct Reloading {
    client: ClientId,
    report: Rc<Report>,
    /// The ports and the settings of the file before.
    before: (Vec<PortSpec>, Settings),
    since: Instant,
}

impl Supervisor {
    /// A client asks to read the file again.
    pub(super) fn begin_reload(&mut self, client: ClientId) -> Result<(), Vec<String>> {
        if self.reloading.is_some() {
            return Err(vec!["the file is just being carried out: reload once more".to_owned()]);
        }
        let before = (self.ports_of_file(), self.settings.clone());
        let report = Rc::default();
        self.read_again(&report)?;
        self.reloading = Some(Reloading { client, report, before, since: Instant::now() });
        Ok(())
    }

    /// Answers the client whose file is carried out, as far as that was possible.
    pub(super) fn answer_reload(&mut self) {
        let now = Instant::now();
        let is_over =
            |it: &mut Reloading| Rc::strong_count(&it.report) == 1 || it.since + PATIENCE <= now;
        if let Some(reloading) = self.reloading.take_if(is_over) {
            self.failed_reloads += u64::from(!reloading.report.failures().is_empty());
            let reply = self.reload_reply(&reloading);
            self.answer_client(reloading.client, &reply);
        }
    }

    fn reload_reply(&self, reloading: &Reloading) -> String {
        let Reloading { report, before: (ports, settings), .. } = reloading;
        let mut failures = report.failures();
        if Rc::strong_count(report) > 1 {
            failures.push("the data plane does not answer yet: ask ringway stats".to_owned());
            return refusal(&failures);
        }
        if !failures.is_empty() {
            let file = self.file.as_deref().unwrap_or("the file".as_ref()).display();
            failures.push(format!(
                "everything else in {file} is carried out: reload again when that is mended"
            ));
            return refusal(&failures);
        }
        let changes = difference((ports, settings), (&self.ports_of_file(), &self.settings));
        let warnings = report.warnings();
        reply_line(&ReloadReply { version: PROTOCOL_VERSION, ok: true, changes, warnings })
    }
}
