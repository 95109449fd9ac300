//! SIGHUP, or `ringway reload`: the file is read again, and what has changed in it is carried out.
//!
//! Ports whose lines say the same as before are not touched, nor are ports that were added through
//! the control socket; workers, their processors and the sandbox stay, which is said. A file with
//! any mistake changes nothing, nor does one without any port, unless it says that it has none.
//! What only shows when it is tried, such as a tap that may not be opened, is reported and leaves
//! that port out, as at the start.

use ringway_supervisor::wire::ToData;
use tracing::{error, info, warn};

use super::control_socket::ControlSocket;
use super::order::Asked;
use super::{Supervisor, Wake};
use crate::config::{PortSpec, RunConfig, Settings, SpecError, difference};
use crate::control::{PROTOCOL_VERSION, ReloadReply};
use crate::{places, spec_text};

const NO_FILE: &str = "there is no file to read again: start with --config FILE";

impl Supervisor {
    /// SIGHUP asks to read the file again.
    pub(super) fn reload(&mut self) {
        let Some(file) = self.file.clone() else {
            return warn!("SIGHUP: {NO_FILE}");
        };
        if let Err(errors) = self.read_again() {
            errors.iter().for_each(|why| error!("{why}"));
            error!("{}: nothing has changed", file.display());
        }
    }

    /// Reads the file again, and says what it says otherwise.
    ///
    /// # Errors
    /// Everything that is wrong with it; nothing has changed then.
    pub(super) fn read_again(&mut self) -> Result<ReloadReply, Vec<String>> {
        let file = self.file.clone().ok_or_else(|| vec![NO_FILE.to_owned()])?;
        let shown = file.display();
        // Of a pipe the supervisor would wait for a writer.
        if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            return Err(vec![format!("{shown}: is no file any more: put one there")]);
        }
        let config = RunConfig::load(&file, &self.over, places::control_socket());
        let texts = |errors: Vec<SpecError>| errors.iter().map(ToString::to_string).collect();
        let config = config.map_err(|errors| -> Vec<String> { texts(errors) })?;
        if let Some(why) = self.objection(&config) {
            return Err(vec![format!("{shown}: {why}")]);
        }
        let running = self.ports.values().filter(|port| !port.is_leaving());
        let before: Vec<PortSpec> = running.filter_map(|port| port.from_file.clone()).collect();
        let changes = difference((&before, &self.settings), (&config.ports, &config.settings));
        self.take_over(config);
        info!("{shown}: read again");
        Ok(ReloadReply { version: PROTOCOL_VERSION, ok: true, changes })
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

    /// Ports that were added while we run are not in the file, and may be in its way.
    fn conflict_with_added(&self, ports: &[PortSpec]) -> Option<String> {
        let running = self.ports.values().filter(|port| !port.is_leaving());
        let mut added = running.filter(|port| port.from_file.is_none()).map(|port| &port.spec);
        added.find_map(|added| {
            let (_, wrong, advice) = ports.iter().find_map(|spec| spec.conflict_with(added))?;
            Some(format!("{wrong}: {advice}"))
        })
    }

    fn take_over(&mut self, config: RunConfig) {
        self.remove_surplus(&config.ports);
        for spec in config.ports {
            self.bring_about(spec);
        }
        self.change_settings(config.settings);
    }

    /// Ports that are not in the file any more, or lead elsewhere, go first: their places may be
    /// needed.
    fn remove_surplus(&mut self, wanted: &[PortSpec]) {
        for id in self.ids() {
            let Some(port) = self.ports.get(&id) else { continue };
            let stays = |spec: &PortSpec| {
                spec.name == port.spec.name && spec.kind == port.spec.kind && port.failure.is_none()
            };
            if port.from_file.is_some() && !port.is_leaving() && !wanted.iter().any(stays) {
                self.remove_port(id, Asked::default());
            }
        }
    }

    /// A port that is there gets the file's options if those have changed; others are opened.
    fn bring_about(&mut self, spec: PortSpec) {
        let Some(id) = self.find_port(&spec.name) else { return self.open_configured(spec) };
        let Some(port) = self.ports.get_mut(&id) else { return };
        let before = port.from_file.replace(spec.clone());
        if before.as_ref() == Some(&spec) {
            return;
        }
        if let Err(why) = self.change_port(id, spec, before.clone(), Asked::default()) {
            error!(port = self.name(id), "{why:#}");
            // The next time it may be possible, so the file still says something new.
            if let Some(port) = self.ports.get_mut(&id) {
                port.from_file = before;
            }
        }
    }

    fn change_settings(&mut self, mut settings: Settings) {
        self.keep_what_stays(&mut settings);
        if settings == self.settings {
            return;
        }
        let told = spec_text::settings(&settings, self.workers, self.has_routers());
        if let Some(plane) = self.planes.serving().filter(|plane| plane.is_loaded()) {
            plane.tell(&ToData::Config { settings: told }, vec![]);
        }
        let outcome = match settings.control == self.settings.control {
            true => self.control.change_permissions(&settings),
            false => self.move_control_socket(&settings),
        };
        match outcome {
            Ok(()) => self.settings = settings,
            Err(why) => {
                error!("the control socket stays as it is: {why:#}");
                let Settings { control, control_mode, control_group, .. } = self.settings.clone();
                self.settings = Settings { control, control_mode, control_group, ..settings };
            }
        }
    }

    /// Workers and the sandbox stay as they are while we run; a request for others is answered with
    /// a warning.
    fn keep_what_stays(&self, wanted: &mut Settings) {
        let now = &self.settings;
        let changed = [
            ("workers", wanted.workers != now.workers),
            ("pin", wanted.pins != now.pins),
            ("sandbox", wanted.sandbox != now.sandbox),
        ];
        for (key, _) in changed.into_iter().filter(|(_, is_changed)| *is_changed) {
            warn!("{key} stays as it is until ringway is started again");
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
