//! Answers to requests on the control socket.

use std::collections::btree_map::Entry;
use std::time::{Duration, Instant};

use ringway_supervisor::outbox::Owed;
use ringway_supervisor::wire::{Bytes, ToData};
use ringway_switch::PortId;
use serde_json::{Map, Value};
use tracing::warn;

use super::Supervisor;
use super::captures::CaptureFds;
use super::control_client::ClientId;
use super::descriptors::explained;
use super::order::Requester;
use super::ports::Port;
use super::source::Source;
use crate::config::error::no_port;
use crate::config::routers::second_router;
use crate::config::{PortSpec, SpecError, json, resolve_beside};
use crate::control::{
    ListedPort, PROTOCOL_VERSION, PortListReply, Request, StatsReply, StopReply, refusal,
    reply_line,
};
use crate::{bridge_rights, log, log_filter, socket_reach};

/// Longest wait for an answer of the data plane.
const PATIENCE: Duration = Duration::from_secs(4);

/// Why a request is refused, one line per reason.
type Refused = Vec<String>;

/// A question to the data plane for a client.
pub(super) struct Question {
    client: ClientId,
    about: About,
    since: Instant,
}

/// The use of the data plane's answer.
enum About {
    /// Of statistics: what the supervisor knows is added.
    Stats,
    /// The same, as a list of ports.
    List,
    /// The client is told what the data plane says to this line.
    Line(String),
    /// The same, and this process logs so, too.
    Log(String, String),
    /// The same as for a line, and both get file descriptors.
    Capture(String, CaptureFds),
}

impl Supervisor {
    /// Takes one line of a client, without the newline; it is answered with one, now or later.
    pub(super) fn answer(&mut self, client: ClientId, line: &str) {
        let asked = Requester { client: Some(client), ..Requester::default() };
        let done = match Request::parse(line) {
            Err(why) => return self.answer_client(client, &refusal(&[why])),
            Ok(Request::Stats) => {
                self.see_bridges_of_taps();
                return self.ask(client, About::Stats);
            }
            Ok(Request::PortList) => return self.ask(client, About::List),
            Ok(Request::PortAdd { port, until_restart: false }) => {
                self.add_port(&port, Source::Added, asked)
            }
            Ok(Request::PortAdd { port, until_restart: true }) => {
                self.add_port(&port, Source::UntilRestart, asked)
            }
            Ok(Request::PortRemove(name)) => {
                self.known(&name).map(|id| self.remove_port(id, asked))
            }
            Ok(Request::PortSet { name, options }) => self.set_port(&name, &options, asked),
            Ok(Request::Fdb(question)) => {
                let known = question.name.as_deref().map(|name| self.known(name)).transpose();
                known.map(|_| self.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::FdbFlush(question)) => {
                let known = question.name.as_deref().map(|name| self.known(name)).transpose();
                known.map(|_| self.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::PortShow(question)) => {
                let guest = question.guest.as_deref().map(|name| self.known(name)).transpose();
                let known = self.known(&question.name).and(guest);
                known.map(|_| self.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::Log(question)) => {
                match log_filter::read(&question.level, &question.level) {
                    Err(why) => Err(vec![why.to_string()]),
                    Ok(_) => {
                        let line = Request::Log(question.clone()).to_line();
                        self.ask(client, About::Log(line, question.level));
                        Ok(())
                    }
                }
            }
            Ok(Request::Reload) => self.begin_reload(client),
            Ok(Request::Stop) => self.begin_stop(client),
            Ok(Request::Trace(question)) => {
                let known = self.known(&question.name);
                known.map(|_| self.ask(client, About::Line(line.to_owned())))
            }
            Ok(Request::Capture(question)) => {
                let known = question.ports().iter().try_for_each(|name| self.known(name).map(drop));
                known.and_then(|()| self.begin_capture(client, line))
            }
            Ok(Request::Upgrade { program }) => self.begin_upgrade(client, program.as_deref()),
        };
        if let Err(why) = done {
            for why in &why {
                self.control.chatter.say_of(None, || warn!("refused: {why}"));
            }
            self.answer_client(client, &refusal(&why));
        }
    }

    /// A client asks for the end. A service manager might start it again at once.
    fn begin_stop(&mut self, client: ClientId) -> Result<(), Refused> {
        if self.fd_store.is_of_service() {
            let advice = "systemctl stop ringway, with --user if it is a user's";
            return Err(vec![format!("a service manager runs it: {advice}")]);
        }
        let (version, pid) = (PROTOCOL_VERSION, std::process::id());
        self.answer_client(client, &reply_line(&StopReply { version, ok: true, pid }));
        self.is_to_stop = true;
        Ok(())
    }

    fn ask(&mut self, client: ClientId, about: About) {
        self.next_ask = self.next_ask.wrapping_add(1);
        let question = Question { client, about, since: Instant::now() };
        self.questions.insert(self.next_ask, question);
    }

    /// Asks the data plane what it was not asked yet: in each turn, as requests are handed over.
    pub(super) fn ask_open_questions(&mut self) {
        let Some(plane) = self.planes.running() else { return };
        for (&ask, question) in &self.questions {
            if let Entry::Vacant(place) = plane.asks.entry(ask) {
                place.insert(Vec::new());
                let (line, fds) = match &question.about {
                    About::Stats | About::List => (Request::Stats.to_line(), vec![]),
                    About::Line(line) | About::Log(line, _) => (line.clone(), vec![]),
                    About::Capture(line, fds) => (line.clone(), fds.sent.clone()),
                };
                // A line of a client is shorter than what is told in one piece.
                let bytes = Bytes::new(line.into_bytes()).unwrap_or_default();
                plane.tell(&ToData::Ask { ask, bytes }, fds);
            }
        }
    }

    /// The data plane has answered.
    pub(super) fn answered(&mut self, ask: u32) {
        let Some(plane) = self.planes.serving() else { return };
        plane.is_answered(Owed::Ask(ask));
        let text = plane.asks.remove(&ask).unwrap_or_default();
        let Some(Question { client, about, .. }) = self.questions.remove(&ask) else { return };
        let impossible = |why| refusal(&[format!("the data plane says what cannot be: {why}")]);
        let reply = match about {
            About::Stats => serde_json::from_slice(&text)
                .map_or_else(impossible, |told| reply_line(&self.stats(told))),
            About::List => serde_json::from_slice(&text)
                .map_or_else(impossible, |told| reply_line(&self.list_ports(told))),
            About::Line(_) => String::from_utf8_lossy(&text).into_owned(),
            About::Log(_, level) => {
                log::set_level(&level);
                String::from_utf8_lossy(&text).into_owned()
            }
            About::Capture(_, fds) => {
                return self.answer_with(client, &String::from_utf8_lossy(&text), fds.handed);
            }
        };
        self.answer_client(client, &reply);
    }

    /// When the next client is told that no data plane answers.
    pub(super) fn next_giving_up(&self) -> Option<Instant> {
        self.questions.values().map(|question| question.since + PATIENCE).min()
    }

    /// Clients whose questions no data plane answers are told so.
    pub(super) fn give_up_questions(&mut self) {
        let now = Instant::now();
        let late = self.questions.extract_if(.., |_, question| question.since + PATIENCE <= now);
        let why = "the data plane does not answer: it is being started anew";
        for (_, question) in late.collect::<Vec<_>>() {
            self.answer_client(question.client, &refusal(&[why.to_owned()]));
        }
    }

    fn begin_capture(&mut self, client: ClientId, line: &str) -> Result<(), Refused> {
        let fds = CaptureFds::new(self.workers).map_err(|why| vec![explained(&why)])?;
        self.ask(client, About::Capture(line.to_owned(), fds));
        Ok(())
    }

    fn add_port(
        &mut self,
        port: &Map<String, Value>,
        source: Source,
        asked: Requester,
    ) -> Result<(), Refused> {
        let low = json::read_port(port).map_err(texts)?.placed_beside(self.identity.control());
        let spec = resolve_beside(&low, self.specs(), &self.settings.control).map_err(texts)?;
        self.open_port((spec, source), asked).map_err(|why| vec![explained(&why)])
    }

    fn set_port(
        &mut self,
        name: &str,
        options: &Map<String, Value>,
        asked: Requester,
    ) -> Result<(), Refused> {
        let id = self.known(name)?;
        let options = json::read_options(options).map_err(texts)?;
        let Some(port) = self.ports.get(&id) else { return self.known(name).map(drop) };
        let mut spec = port.spec.clone();
        let errors = spec.change(&options);
        if !errors.is_empty() {
            return Err(texts(errors));
        }
        let mut others = self.specs().filter(|other| other.name != name);
        if let Some((_, wrong, advice)) = others.find_map(|other| spec.conflict_with(other)) {
            return Err(vec![format!("port {name:?}: {wrong}: {advice}")]);
        }
        drop(others);
        let from_file = self.ports.get(&id).and_then(|port| port.from_file.clone());
        let changed = self.change_port(id, spec, from_file, asked);
        changed.map_err(|why| vec![explained(&why)])
    }

    /// Says that a port's guest has the address of another one's, if it has.
    pub(super) fn warn_of_shared_mac(&self, spec: &PortSpec) -> Option<String> {
        let warning = self.identity.shared_mac(spec, self.specs())?;
        warn!("{warning}");
        Some(warning)
    }

    /// Warnings about a port that was asked for, where something is probably not meant.
    pub(super) fn warnings_about(&self, spec: &PortSpec) -> Vec<String> {
        let names: Vec<&str> = self.specs().map(|spec| spec.name.as_str()).collect();
        let lost = spec.nat.lost_forward(&names);
        let second = second_router(spec, self.specs());
        let closed = socket_reach::barrier(spec);
        let deaf = bridge_rights::missing(spec, self.sandbox.may_administer_networks());
        for why in closed.iter().chain(&deaf) {
            warn!(port = spec.name, "{why}");
        }
        let shared = self.warn_of_shared_mac(spec).into_iter();
        shared.chain(lost).chain(second).chain(closed).chain(deaf).collect()
    }

    fn known(&self, name: &str) -> Result<PortId, Refused> {
        let names = || self.specs().map(|spec| spec.name.as_str());
        self.find_port(name).ok_or_else(|| vec![no_port(name, names())])
    }

    fn list_ports(&self, told: StatsReply) -> PortListReply {
        let stats = self.stats(told);
        let ports = self.ports.values().filter(|port| !port.is_leaving());
        let ports = ports.zip(stats.ports).map(|(port, stats)| ListedPort {
            port: json::write_port(&port.spec),
            state: stats.state,
            mac: port.vm.as_ref().map(|vm| vm.mac.to_string()),
            socket: socket(port),
            added: port.source != Source::Configuration,
        });
        PortListReply { version: PROTOCOL_VERSION, ok: true, ports: ports.collect() }
    }
}

fn texts(errors: Vec<SpecError>) -> Refused {
    errors.iter().map(ToString::to_string).collect()
}

fn socket(port: &Port) -> Option<String> {
    let PortSpec { kind, .. } = &port.spec;
    let path = std::path::absolute(kind.socket()?).ok()?;
    Some(path.display().to_string())
}
