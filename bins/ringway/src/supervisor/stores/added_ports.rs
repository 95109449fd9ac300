//! Ports that were added while ringway ran are there again when it is started again: after an
//! orderly restart, and after a kill where no service manager has kept them.
//!
//! How: a file in the state directory of the service (`$STATE_DIRECTORY`, from systemd), written
//! anew whenever one of them comes, goes or changes, and read at the start. Limits: as long as the
//! machine runs: guests end with it, so their ports do, too; none that was asked for until the next
//! restart only; no tap that was given as a file descriptor. Without a state directory, as where
//! ringway is no service, added ports end with it.

use std::fs;
use std::path::PathBuf;

use anyhow::{bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::{error, warn};

use super::state_file;
use crate::config::{PortKind, PortSpec, SpecError, json, resolve_beside};
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::setup::Setup;
use crate::supervisor::setup::source::PortSource;

const FILE: &str = "added-ports.json";
const VERSION: u32 = 1;

/// Names this start of the machine: from the unit, whose service does not see the kernel's file.
const BOOT_VARIABLE: &str = "RINGWAY_BOOT";
const BOOT_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// The file's content.
#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    boot: String,
    ports: Vec<Map<String, Value>>,
}

/// The file, and whether it is to be written.
#[derive(Debug, Default)]
pub struct AddedPorts {
    file: Option<PathBuf>,
    pub is_changed: bool,
    /// Those that could not be opened again: perhaps the next time.
    pub unopened: Vec<Map<String, Value>>,
    /// It cannot be read: it stays as it is until a port is added.
    is_unread: bool,
    /// The log says that it cannot be written.
    is_told: bool,
}

impl AddedPorts {
    /// The one of this service, if it has a state directory.
    pub fn of_environment() -> Self {
        let file = state_file::of_service().map(|directory| directory.join(FILE));
        Self { file, ..Self::default() }
    }

    /// Those that were there.
    fn recall(&mut self) -> anyhow::Result<Vec<Map<String, Value>>> {
        let found = self.read();
        self.is_unread = found.is_err();
        found
    }

    fn read(&self) -> anyhow::Result<Vec<Map<String, Value>>> {
        let Some(file) = &self.file else { return Ok(vec![]) };
        let text = match fs::read_to_string(file) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
            text => text?,
        };
        let document: Document = serde_json::from_str(&text)?;
        ensure!(document.version == VERSION, "version {} is not known here", document.version);
        Ok(if document.boot == boot() { document.ports } else { vec![] })
    }

    fn write(&self, ports: Vec<Map<String, Value>>) -> anyhow::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let document = Document { version: VERSION, boot: boot(), ports };
        Ok(state_file::replace(file, &serde_json::to_vec_pretty(&document)?)?)
    }

    /// Those that were there when ringway ended; the log says if they are not known.
    pub fn recall_all(&mut self) -> Vec<Map<String, Value>> {
        self.recall().unwrap_or_else(|why| {
            let shown = self.file.as_deref().unwrap_or("".as_ref()).display();
            error!("{shown}: ports that were added are not there: {why:#}");
            Vec::new()
        })
    }

    /// The supervisor before had all ports that are there; what else was added could not be opened.
    pub fn recall_unopened(&mut self, ports: &Ports) {
        let found = self.recall().unwrap_or_default();
        let is_here =
            |it: &Map<String, Value>| name_of(it).is_some_and(|it| ports.find(it).is_some());
        self.unopened = found.into_iter().filter(|object| !is_here(object)).collect();
        self.is_changed = true;
    }

    /// Writes down what the next start needs, if that is something else than before.
    pub fn keep(&mut self, all: &Ports) {
        if !std::mem::take(&mut self.is_changed) {
            return;
        }
        let is_kept = |port: &&SupervisedPort| {
            let has_place = !matches!(port.spec.kind, PortKind::TapFd { .. });
            port.source == PortSource::Added && !port.is_leaving() && has_place
        };
        let written = |spec: &PortSpec| json::write_port(&absolute(spec));
        let ports = all.values().filter(is_kept).map(|port| written(&port.spec));
        let mut ports: Vec<_> = ports.collect();
        // One that was added since counts more.
        let is_there = |name: &str| ports.iter().any(|port| name_of(port) == Some(name));
        self.unopened.retain(|object| name_of(object).is_none_or(|name| !is_there(name)));
        ports.extend(self.unopened.iter().cloned());
        if self.is_unread && ports.is_empty() {
            return;
        }
        let outcome = self.write(ports);
        self.is_unread &= outcome.is_err();
        if let Err(why) = &outcome
            && !self.is_told
        {
            warn!("ports that were added end with ringway: they cannot be written down: {why:#}");
        }
        self.is_told = outcome.is_err();
    }
}

fn boot() -> String {
    let told = std::env::var(BOOT_VARIABLE).ok().filter(|it| !it.is_empty());
    let read = || fs::read_to_string(BOOT_FILE).ok();
    told.or_else(read).unwrap_or_default().trim().to_owned()
}

/// A port that was added, as it is to be opened again. `None`: it is there.
///
/// # Errors
/// It cannot be, as the configuration is now.
pub fn again(
    object: &Map<String, Value>,
    ports: &Ports,
    setup: &Setup,
) -> anyhow::Result<Option<PortSpec>> {
    let all = |errors: Vec<SpecError>| {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", texts.join("; "))
    };
    let low = json::read_port(object).map_err(all)?.placed_beside(setup.identity.control());
    if let Some(there) = ports.find(&low.name).and_then(|id| ports.get(&id)) {
        let kind = &there.spec.kind;
        match low.kind() {
            Ok(its) if its.is_same_place(kind) => return Ok(None),
            _ => bail!("the configuration has {}={kind}", low.name),
        }
    }
    resolve_beside(&low, ports.specs(), &setup.settings.control).map_err(all).map(Some)
}

pub fn name_of(object: &Map<String, Value>) -> Option<&str> {
    object.get("name")?.as_str()
}

/// The next one may be started in another directory.
fn absolute(spec: &PortSpec) -> PortSpec {
    let mut spec = spec.clone();
    if let PortKind::Vm { socket } | PortKind::VmConnect { socket } = &mut spec.kind
        && let Ok(path) = std::path::absolute(&*socket)
    {
        *socket = path;
    }
    spec
}
