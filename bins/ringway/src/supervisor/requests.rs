//! Requests of clients, and the file that is read again: see [`reload`](super::reload).

use std::rc::Rc;
use std::time::Instant;

use anyhow::Context;
use ringway_supervisor::wire::ToData;
use ringway_switch::PortId;
use serde_json::{Map, Value};
use tracing::{error, info};

use super::captures::CaptureFds;
use super::control_client::ClientId;
use super::control_socket::ControlSocket;
use super::descriptors::explained;
use super::order::{Report, Requester};
use super::port::{Port, TOO_MANY};
use super::questions::About;
use super::reload::Reloading;
use super::source::Source;
use super::{Supervisor, Wake};
use crate::config::reload::{Reload, Step};
use crate::config::{PortSpec, RunConfig, Settings, SpecError, json, resolve_beside};
use crate::control::{PROTOCOL_VERSION, Request, StopReply, refusal, reply_line};
use crate::{log_filter, spec_text};

/// Why a request is refused, one line per reason.
type Refused = Vec<String>;

impl Supervisor {
    /// Takes one line of a client, without the newline; it is answered with one, now or later.
    pub(super) fn answer(&mut self, client: ClientId, line: &str) {
        let asked = Requester { client: Some(client), ..Requester::default() };
        let done = match Request::parse(line) {
            Err(why) => return self.control.answer_client(client, &refusal(&[why])),
            Ok(Request::Stats) => {
                self.ports.see_bridges_of_taps();
                return self.questions.ask(client, About::Stats);
            }
            Ok(Request::PortList) => return self.questions.ask(client, About::List),
            Ok(Request::PortAdd { port, until_restart: false }) => {
                self.add_port(&port, Source::Added, asked)
            }
            Ok(Request::PortAdd { port, until_restart: true }) => {
                self.add_port(&port, Source::UntilRestart, asked)
            }
            Ok(Request::PortRemove(name)) => {
                self.ports.known(&name).map(|id| self.remove_port(id, asked))
            }
            Ok(Request::PortSet { name, options }) => self.set_port(&name, &options, asked),
            Ok(Request::Fdb(question)) => {
                let known = question.name.as_deref().map(|name| self.ports.known(name)).transpose();
                known.map(|_| self.questions.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::FdbFlush(question)) => {
                let known = question.name.as_deref().map(|name| self.ports.known(name)).transpose();
                known.map(|_| self.questions.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::PortShow(question)) => {
                let guest =
                    question.guest.as_deref().map(|name| self.ports.known(name)).transpose();
                let known = self.ports.known(&question.name).and(guest);
                known.map(|_| self.questions.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::Log(question)) => {
                match log_filter::read(&question.level, &question.level) {
                    Err(why) => Err(vec![why.to_string()]),
                    Ok(_) => {
                        let line = Request::Log(question.clone()).to_line();
                        self.questions.ask(client, About::Log(line, question.level));
                        Ok(())
                    }
                }
            }
            Ok(Request::Reload) => self.begin_reload(client),
            Ok(Request::Stop) => self.begin_stop(client),
            Ok(Request::Trace(question)) => {
                let known = self.ports.known(&question.name);
                known.map(|_| self.questions.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::Capture(question)) => {
                let known =
                    question.ports().iter().try_for_each(|name| self.ports.known(name).map(drop));
                known.and_then(|()| self.begin_capture(client, line))
            }
            Ok(Request::Upgrade { program }) => self.begin_upgrade(client, program.as_deref()),
        };
        if let Err(why) = done {
            for why in &why {
                self.control.say_refused(why);
            }
            self.control.answer_client(client, &refusal(&why));
        }
    }

    /// A client asks for the end. A service manager might start it again at once.
    fn begin_stop(&mut self, client: ClientId) -> Result<(), Refused> {
        if self.stores.fds.is_of_service() {
            let advice = "systemctl stop ringway, with --user if it is a user's";
            return Err(vec![format!("a service manager runs it: {advice}")]);
        }
        let (version, pid) = (PROTOCOL_VERSION, std::process::id());
        self.control.answer_client(client, &reply_line(&StopReply { version, ok: true, pid }));
        self.os.is_to_stop = true;
        Ok(())
    }

    fn begin_capture(&mut self, client: ClientId, line: &str) -> Result<(), Refused> {
        let fds = CaptureFds::new(self.setup.workers).map_err(|why| vec![explained(&why)])?;
        self.questions.ask(client, About::Capture(line.to_owned(), fds));
        Ok(())
    }

    fn add_port(
        &mut self,
        port: &Map<String, Value>,
        source: Source,
        asked: Requester,
    ) -> Result<(), Refused> {
        let home = self.setup.identity.control();
        let low = json::read_port(port).map_err(texts)?.placed_beside(home);
        let control = &self.setup.settings.control;
        let spec = resolve_beside(&low, self.ports.specs(), control).map_err(texts)?;
        self.open_port(spec, source, asked).map_err(|why| vec![explained(&why)])
    }

    fn set_port(
        &mut self,
        name: &str,
        options: &Map<String, Value>,
        asked: Requester,
    ) -> Result<(), Refused> {
        let id = self.ports.known(name)?;
        let options = json::read_options(options).map_err(texts)?;
        let spec = self.ports.changed(id, &options)?;
        let from_file = self.ports.get(&id).and_then(|port| port.from_file.clone());
        let changed = self.change_port(id, spec, from_file, asked);
        changed.map_err(|why| vec![explained(&why)])
    }

    /// A client asks to read the file again.
    fn begin_reload(&mut self, client: ClientId) -> Result<(), Refused> {
        if self.reloads.is_any() {
            return Err(vec!["the file is just being carried out: reload once more".to_owned()]);
        }
        let (ports, settings) = (self.ports.of_file(), self.setup.settings.clone());
        let report = Rc::default();
        self.read_again(&report)?;
        let since = Instant::now();
        self.reloads.reloading = Some(Reloading { client, report, ports, settings, since });
        Ok(())
    }

    /// Answers the client whose file is carried out, as far as that was possible.
    pub(super) fn answer_reload(&mut self) {
        if let Some(reloading) = self.reloads.take_finished(Instant::now()) {
            let reply = reloading.reply(&self.ports.of_file(), &self.setup);
            self.control.answer_client(reloading.client, &reply);
        }
    }

    /// SIGHUP asks to read the file again.
    pub(super) fn reload(&mut self) {
        if let Err(errors) = self.read_again(&Rc::default()) {
            errors.iter().for_each(|why| error!("{why}"));
            error!("{}: nothing has changed", self.setup.shown_file());
        }
    }

    /// Reads the file again, and begins to carry out what it says otherwise; the report says what
    /// cannot be.
    ///
    /// # Errors
    /// Everything that is wrong with it; nothing has changed then.
    fn read_again(&mut self, report: &Rc<Report>) -> Result<(), Refused> {
        let shown = self.setup.shown_file();
        let config = self.setup.read_again().and_then(|config| {
            let objection = self.ports.objection_to(&config);
            objection.map_or(Ok(config), |why| Err(vec![format!("{shown}: {why}")]))
        });
        self.reloads.failed += u64::from(config.is_err());
        self.apply(config?, &Requester::by(report));
        info!("{shown}: read again");
        Ok(())
    }

    fn apply(&mut self, config: RunConfig, asked: &Requester) {
        self.stores.added.is_changed |= self.ports.adopt(&config.ports, asked);
        let mut reload = Reload::new(config.ports);
        while let Some(step) = reload.next(&self.ports.running()) {
            match step {
                Step::Remove(number) => self.remove_port(PortId(number), Requester::default()),
                Step::GiveUp { number, spec, from_file } => {
                    self.give_up(PortId(number), *spec, from_file.map(|it| *it), asked);
                }
                Step::BringAbout(spec) => self.bring_about(*spec, asked),
            }
        }
        self.change_settings(config.settings, asked);
    }

    /// A router gives up places that others get, so that these find them free. `left`: as the file
    /// has it from then on.
    fn give_up(&mut self, id: PortId, spec: PortSpec, left: Option<PortSpec>, asked: &Requester) {
        let from_file = self.ports.get(&id).and_then(|port| port.from_file.clone());
        // An error here hinders the whole change, too, which says so.
        let is_done = self.change_port(id, spec, from_file, asked.clone()).is_ok();
        let Some(port) = self.ports.get_mut(&id) else { return };
        if is_done {
            port.from_file = left;
        }
        port.close_other_sockets();
    }

    /// A port that is there gets the file's options if those have changed; others are opened.
    fn bring_about(&mut self, spec: PortSpec, asked: &Requester) {
        let id = self.ports.find(&spec.name);
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
        let id = self.ports.free_id().context(TOO_MANY)?;
        let mut port = Port::new(spec.clone(), Some(spec));
        self.open_end(id, &mut port)?;
        self.remove_port(from, Requester::default());
        self.ports.insert(id, port);
        self.order_open(id, asked.clone());
        Ok(())
    }

    fn note_refusal(&self, id: PortId, how: &str, asked: &Requester) {
        let name = self.ports.name(id);
        error!(port = name, "{how}");
        asked.has_failed(|| format!("port {name} {how}"));
    }

    fn change_settings(&mut self, mut settings: Settings, asked: &Requester) {
        self.setup.keep_what_stays(&mut settings, asked);
        if settings == self.setup.settings {
            return;
        }
        let told = spec_text::settings(&settings, self.setup.workers, self.ports.has_routers());
        if let Some(plane) = self.planes.loaded() {
            plane.tell(&ToData::Config { settings: told }, vec![]);
        }
        let outcome = match settings.control == self.setup.settings.control {
            true => self.control.change_permissions(&settings),
            false => self.move_control_socket(&settings),
        };
        match outcome {
            Ok(()) => self.setup.settings = settings,
            Err(why) => {
                let why = format!("the control socket stays as it is: {why:#}");
                error!("{why}");
                asked.has_failed(|| why);
                let before = self.setup.settings.clone();
                let Settings { control, control_mode, control_group, .. } = before;
                self.setup.settings = Settings { control, control_mode, control_group, ..settings };
            }
        }
    }

    fn move_control_socket(&mut self, settings: &Settings) -> anyhow::Result<()> {
        let control = ControlSocket::bind(settings, &self.os.poller)?;
        self.os.poller.add(control.as_fd(), Wake::Control.token())?;
        self.control.drop_clients();
        let _ = self.os.poller.remove(self.control.as_fd());
        self.control = control;
        Ok(())
    }
}

fn texts(errors: Vec<SpecError>) -> Refused {
    errors.iter().map(ToString::to_string).collect()
}
