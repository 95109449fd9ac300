//! SIGHUP, or `ringway reload`: the file is read again, and what has changed in it is carried out.
//!
//! Ports whose lines say the same as before are not touched, nor are ports that were added through
//! the control socket, unless the file has them now: then they are the file's; workers, their
//! processors and the sandbox stay, which is said. A file with any mistake changes nothing, nor
//! does one without any port, unless it says that it has none. What only shows when it is tried is
//! reported: a port stays as it was, and a new one, such as a tap that may not be opened, is left
//! out, as at the start.

use std::rc::Rc;

use anyhow::Context;
use ringway_supervisor::wire::ToData;
use ringway_switch::PortId;
use tracing::{error, info, warn};

use super::control_socket::ControlSocket;
use super::descriptors::explained;
use super::order::{Report, Requester};
use super::ports::{Port, TOO_MANY};
use super::source::Source;
use super::{Supervisor, Wake};
use crate::config::{PortSpec, RunConfig, Settings, SpecError};
use crate::{places, spec_text};

const NO_FILE: &str = "there is no file to read again: start with --config FILE";

impl Supervisor {
    /// SIGHUP asks to read the file again.
    pub(super) fn reload(&mut self) {
        let Some(file) = self.file.clone() else { return };
        if let Err(errors) = self.read_again(&Rc::default()) {
            errors.iter().for_each(|why| error!("{why}"));
            error!("{}: nothing has changed", file.display());
        }
    }

    /// Reads the file again, and begins to carry out what it says otherwise; the report says what
    /// cannot be.
    ///
    /// # Errors
    /// Everything that is wrong with it; nothing has changed then.
    pub(super) fn read_again(&mut self, report: &Rc<Report>) -> Result<(), Vec<String>> {
        let outcome = self.try_to_read_again(report);
        self.failed_reloads += u64::from(outcome.is_err());
        outcome
    }

    fn try_to_read_again(&mut self, report: &Rc<Report>) -> Result<(), Vec<String>> {
        let file = self.file.clone().ok_or_else(|| vec![NO_FILE.to_owned()])?;
        let shown = file.display();
        // Of a pipe the supervisor would wait for a writer.
        if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(vec![format!("{shown}: is no file any more: put one there")]);
        }
        let home = Some(self.identity.control());
        let config = RunConfig::load(&file, &self.over, (places::control_socket(), home));
        let texts = |errors: Vec<SpecError>| errors.iter().map(ToString::to_string).collect();
        let config = config.map_err(|errors| -> Vec<String> { texts(errors) })?;
        if let Some(why) = self.objection(&config) {
            return Err(vec![format!("{shown}: {why}")]);
        }
        self.take_over(config, &Requester::by(report));
        info!("{shown}: read again");
        Ok(())
    }

    /// Ports as the file has them.
    pub(super) fn ports_of_file(&self) -> Vec<PortSpec> {
        let running = self.ports.values().filter(|port| !port.is_leaving());
        running.filter_map(|port| port.from_file.clone()).collect()
    }

    /// Why a file without mistakes is not carried out all the same.
    fn objection(&self, config: &RunConfig) -> Option<String> {
        let has_any = self.ports.values().any(|port| port.from_file.is_some());
        // It is probably being written at this moment, or the disk is full.
        if has_any && config.ports.is_empty() && !config.settings.no_ports {
            let advice = "write no_ports = true below [ringway] if all are to be removed";
            return Some(format!("there is no port in it any more: {advice}"));
        }
        self.conflict_with_added(&config.ports)
    }

    /// Ports that were added while we run, and are not in the file, may be in its way.
    fn conflict_with_added(&self, ports: &[PortSpec]) -> Option<String> {
        let running = self.ports.values().filter(|port| !port.is_leaving());
        let is_in_file = |port: &&Port| ports.iter().any(|spec| spec.name == port.spec.name);
        let added = running.filter(|port| port.from_file.is_none() && !is_in_file(port));
        let mut added = added.map(|port| &port.spec);
        added.find_map(|added| {
            let (_, wrong, advice) = ports.iter().find_map(|spec| spec.conflict_with(added))?;
            Some(format!("{wrong}: {advice}"))
        })
    }

    /// Ports that were added and are in the file now are the file's from now on.
    fn adopt(&mut self, specs: &[PortSpec], asked: &Requester) {
        let running = self.ports.values_mut().filter(|port| !port.is_leaving());
        for port in running.filter(|port| port.source != Source::Configuration) {
            let name = port.spec.name.clone();
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else { continue };
            (port.source, self.added.is_changed) = (Source::Configuration, true);
            info!(port = name, "it was added, and is the file's now");
            if port.spec.kind.is_same_place(&spec.kind) {
                // However it is spelled.
                port.spec.kind = spec.kind.clone();
            }
            if port.spec != *spec {
                asked.warns([format!("port {name}: it was added, and is as the file says now")]);
            }
            // As it is: what the file says otherwise is carried out next, or tried the next time.
            port.from_file = Some(port.spec.clone());
        }
    }

    fn take_over(&mut self, config: RunConfig, asked: &Requester) {
        self.adopt(&config.ports, asked);
        self.remove_surplus(|port| !config.ports.iter().any(|spec| spec.name == port.spec.name));
        self.remove_surplus(|port| port.failure.is_some());
        self.release_places(&config.ports, asked);
        let (mut moves, others): (Vec<_>, Vec<_>) =
            config.ports.into_iter().partition(|spec| self.leads_elsewhere(spec));
        // First those that wait for no other one. Where one stays, so do those that wait for it.
        while let Some(at) = moves.iter().position(|spec| !self.waits(spec, &moves)) {
            let spec = moves.remove(at);
            self.bring_about(spec, asked);
        }
        // Ports that take each other's places are closed first.
        self.remove_surplus(|port| moves.iter().any(|spec| spec.name == port.spec.name));
        for spec in moves.into_iter().chain(others) {
            self.bring_about(spec, asked);
        }
        self.change_settings(config.settings, asked);
    }

    /// Ports of the file that go first: their places may be needed.
    fn remove_surplus(&mut self, is_surplus: impl Fn(&Port) -> bool) {
        for id in self.ids() {
            let Some(port) = self.ports.get(&id) else { continue };
            if port.from_file.is_some() && !port.is_leaving() && is_surplus(port) {
                self.remove_port(id, Requester::default());
            }
        }
    }

    /// Whether a port that is still to move is where this one leads: another one, or itself, if the
    /// place is only spelled in another way.
    fn waits(&self, spec: &PortSpec, moves: &[PortSpec]) -> bool {
        let is_there = |it: &&PortSpec| it.kind.is_same_place(&spec.kind);
        let is_to_move = |it: &PortSpec| moves.iter().any(|other| other.name == it.name);
        self.specs().filter(is_there).any(is_to_move)
    }

    /// Whether the port of that name leads elsewhere.
    fn leads_elsewhere(&self, spec: &PortSpec) -> bool {
        self.specs().any(|port| port.name == spec.name && port.kind != spec.kind)
    }

    /// A port that is there gets the file's options if those have changed; others are opened.
    fn bring_about(&mut self, spec: PortSpec, asked: &Requester) {
        let id = self.find_port(&spec.name);
        let Some((id, port)) = id.and_then(|id| Some((id, self.ports.get_mut(&id)?))) else {
            return self.open_configured(spec, asked);
        };
        if port.spec.kind != spec.kind {
            let kind = port.spec.kind.to_string();
            if let Err(why) = self.move_port(id, spec, asked) {
                self.note_refusal(id, &format!("stays {kind}: {}", explained(&why)), asked);
            }
            return;
        }
        let before = port.from_file.replace(spec.clone());
        if before.as_ref() == Some(&spec) {
            return;
        }
        if let Err(why) = self.change_port(id, spec, before.clone(), asked.clone()) {
            self.note_refusal(id, &format!("stays as it was: {}", explained(&why)), asked);
            // The next time it may be possible, so the file still says something new.
            if let Some(port) = self.ports.get_mut(&id) {
                port.from_file = before;
            }
        }
    }

    /// Opens a port of the configuration that leads elsewhere than the one of its name, which goes
    /// then.
    ///
    /// # Errors
    /// It cannot be opened; the other one stays.
    fn move_port(&mut self, from: PortId, spec: PortSpec, asked: &Requester) -> anyhow::Result<()> {
        let id = self.free_id().context(TOO_MANY)?;
        let mut port = Port::new(spec.clone(), Some(spec));
        self.open_end(id, &mut port)?;
        self.remove_port(from, Requester::default());
        self.ports.insert(id, port);
        self.order_open(id, asked.clone());
        Ok(())
    }

    fn note_refusal(&self, id: PortId, how: &str, asked: &Requester) {
        let name = self.name(id);
        error!(port = name, "{how}");
        asked.has_failed(|| format!("port {name} {how}"));
    }

    fn change_settings(&mut self, mut settings: Settings, asked: &Requester) {
        self.keep_what_stays(&mut settings, asked);
        if settings == self.settings {
            return;
        }
        let told = spec_text::settings(&settings, self.workers, self.has_routers());
        if let Some(plane) = self.planes.loaded() {
            plane.tell(&ToData::Config { settings: told }, vec![]);
        }
        let outcome = match settings.control == self.settings.control {
            true => self.control.change_permissions(&settings),
            false => self.move_control_socket(&settings),
        };
        match outcome {
            Ok(()) => self.settings = settings,
            Err(why) => {
                let why = format!("the control socket stays as it is: {why:#}");
                error!("{why}");
                asked.has_failed(|| why);
                let Settings { control, control_mode, control_group, .. } = self.settings.clone();
                self.settings = Settings { control, control_mode, control_group, ..settings };
            }
        }
    }

    /// Workers and the sandbox stay as they are while we run; a request for others is answered with
    /// a warning.
    fn keep_what_stays(&self, wanted: &mut Settings, asked: &Requester) {
        let now = &self.settings;
        let changed = [
            ("workers", wanted.workers != now.workers),
            ("pin", wanted.pins != now.pins),
            ("sandbox", wanted.sandbox != now.sandbox),
        ];
        for (key, _) in changed.into_iter().filter(|(_, is_changed)| *is_changed) {
            let text = format!("{key} stays as it is until ringway is started again");
            warn!("{text}");
            asked.warns([text]);
        }
        (wanted.workers, wanted.pins) = (now.workers, now.pins.clone());
        wanted.sandbox = now.sandbox;
    }

    fn move_control_socket(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let control = ControlSocket::bind(settings)?;
        self.poller.add(control.as_fd(), Wake::Control.token())?;
        self.drop_control_clients();
        let _ = self.poller.remove(self.control.as_fd());
        self.control = control;
        Ok(())
    }
}
