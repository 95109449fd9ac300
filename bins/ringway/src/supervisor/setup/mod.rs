//! This ringway as it was told to be: its settings, its file, its rights.

pub mod activation;
pub mod os;
pub mod reload;
pub mod source;
pub mod surroundings;
pub mod wake;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;

use ringway_host::Poller;
use ringway_switch::PortId;
use tracing::{error, warn};

use self::activation::Sockets;
use self::os::since_boot;
use self::wake::Wake;
use crate::config::options::{EffectTime, OPTIONS, PortOption};
use crate::config::routers::second_router;
use crate::config::{LowOption, PortKind, PortSpec, RunConfig, Settings, SpecError};
use crate::identity::Identity;
use crate::sandbox::Sandbox;
use crate::supervisor::planes::order::Requester;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::ports::vm_port::VmPort;
use crate::{bridge_rights, host_routes, places, socket_reach, spec_text};

/// At the start, for a tap that another process has.
const TAP_PATIENCE: Duration = Duration::from_secs(1);

const NO_FILE: &str = "there is no file to read again: start with --config FILE";

pub struct Setup {
    pub settings: Settings,
    pub workers: u16,
    /// The identity that default MAC addresses follow; it stays when the control socket moves.
    pub identity: Identity,
    /// The file to read again on SIGHUP.
    pub file: Option<PathBuf>,
    /// Settings that count more than the file's.
    pub over: Vec<LowOption>,
    /// By the clock that counts from the start of the machine.
    pub started_ms: u64,
    pub sandbox: Sandbox,
    /// Sockets on which a service manager listens, of no port yet.
    pub sockets: Sockets,
}

impl Setup {
    /// Opens what is the supervisor's: the socket, or the tap. `is_start`: of this ringway, where
    /// the data plane of one that was killed just now may still have the tap.
    ///
    /// # Errors
    /// It cannot be opened, or a range of a router leads nowhere.
    pub fn open_end(
        &mut self,
        id: PortId,
        port: &mut SupervisedPort,
        poller: &Poller,
        is_start: bool,
    ) -> anyhow::Result<()> {
        spec_text::port(&port.spec, None, &self.identity)?;
        host_routes::check(port.spec.nat.ranges())?;
        if !port.spec.kind.is_guest() {
            let name = &port.spec.name;
            port.sockets.open(&port.spec, |why| error!(port = name, "{why:#}: tried again"));
            let patience = if is_start { TAP_PATIENCE } else { Duration::ZERO };
            return port.tap.open(&port.spec, self.workers, patience);
        }
        let passed = match &port.spec.kind {
            PortKind::Vm { socket } => self.sockets.port(&port.spec.name, socket)?,
            _ => None,
        };
        let vm = match passed {
            Some(passed) => VmPort::over(&self.identity, &port.spec, passed)?,
            None => VmPort::open(&self.identity, &port.spec)?,
        };
        if let Some(listener) = vm.listener() {
            poller.add(listener.as_fd(), Wake::Listener(id).token())?;
        }
        port.vm = Some(vm);
        Ok(())
    }

    /// Says that a port's guest has the address of another one's, if it has.
    pub fn warn_of_shared_mac(&self, spec: &PortSpec, ports: &Ports) -> Option<String> {
        let warning = self.identity.shared_mac(spec, ports.specs())?;
        warn!("{warning}");
        Some(warning)
    }

    /// Warnings about a port that was asked for, where something is probably not meant.
    pub fn warnings_about(&self, spec: &PortSpec, ports: &Ports) -> Vec<String> {
        let names: Vec<&str> = ports.specs().map(|spec| spec.name.as_str()).collect();
        let lost = spec.nat.lost_forward(&names);
        let second = second_router(spec, ports.specs());
        let closed = socket_reach::barrier(spec);
        let deaf = bridge_rights::missing(spec, self.sandbox.may_administer_networks());
        for why in closed.iter().chain(&deaf) {
            warn!(port = spec.name, "{why}");
        }
        let shared = self.warn_of_shared_mac(spec, ports).into_iter();
        shared.chain(lost).chain(second).chain(closed).chain(deaf).collect()
    }

    /// Warnings about a change, and options that only the next guest will see.
    pub fn warn_of_change(
        &self,
        now: &PortSpec,
        before: &PortSpec,
        ports: &Ports,
        asked: &mut Requester,
    ) {
        let late = OPTIONS.iter().filter(|option| option.effect == EffectTime::NextConnection);
        let differs = |option: &&PortOption| option.value_of(before) != option.value_of(now);
        asked.at_next_connection = late.filter(differs).map(|option| option.key).collect();
        let is_led_elsewhere = now.nat.forwards != before.nat.forwards && asked.client.is_some();
        let syncs = |spec: &PortSpec| (spec.syncs_fdb, spec.syncs_neighbours);
        if now.mac != before.mac || is_led_elsewhere || syncs(now) != syncs(before) {
            asked.warnings = self.warnings_about(now, ports);
            asked.warns(asked.warnings.iter().cloned());
        }
        if asked.client.is_none() && !asked.at_next_connection.is_empty() {
            let (late, name) = (asked.at_next_connection.join(" "), &now.name);
            warn!(port = name, "for the next guest that connects: {late}");
            asked.warns([format!("port {name}: for the next guest that connects: {late}")]);
        }
    }

    /// Reads the file again.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read_again(&self) -> Result<RunConfig, Vec<String>> {
        let file = self.file.clone().ok_or_else(|| vec![NO_FILE.to_owned()])?;
        // Of a pipe the supervisor would wait for a writer.
        if std::fs::metadata(&file).is_ok_and(|found| !found.is_file()) {
            let shown = file.display();
            return Err(vec![format!("{shown}: is no file any more: put one there")]);
        }
        let home = Some(self.identity.control());
        let config = RunConfig::load(&file, &self.over, places::control_socket(), home);
        let texts = |errors: Vec<SpecError>| errors.iter().map(ToString::to_string).collect();
        config.map_err(|errors| -> Vec<String> { texts(errors) })
    }

    /// The file's name for people.
    pub fn shown_file(&self) -> String {
        self.file.as_deref().unwrap_or("the file".as_ref()).display().to_string()
    }

    /// Workers and the sandbox stay as they are while we run; a request for others is answered with
    /// a warning.
    pub fn keep_what_stays(&self, wanted: &mut Settings, asked: &Requester) {
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

    /// Follows other settings; `moved`: whether the control socket has.
    pub fn follow(&mut self, settings: Settings, moved: anyhow::Result<()>, asked: &Requester) {
        let before = std::mem::replace(&mut self.settings, settings);
        if let Err(why) = moved {
            let why = format!("the control socket stays as it is: {why:#}");
            error!("{why}");
            asked.has_failed(|| why);
            let Settings { control, control_mode, control_group, .. } = before;
            (self.settings.control, self.settings.control_mode) = (control, control_mode);
            self.settings.control_group = control_group;
        }
    }

    pub fn uptime(&self) -> Duration {
        since_boot().saturating_sub(Duration::from_millis(self.started_ms))
    }
}
