//! Questions of clients that the data plane answers.

pub mod captures;
pub mod stats;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringway_supervisor::outbox::Owed;
use ringway_supervisor::wire::{Bytes, ToData};

use self::captures::CaptureFds;
use crate::config::{PortSpec, json};
use crate::control::{
    ListedPort, PROTOCOL_VERSION, PortListReply, Request, StatsReply, refusal, reply_line,
};
use crate::log;
use crate::supervisor::clients::control_client::ClientId;
use crate::supervisor::clients::control_socket::ControlSocket;
use crate::supervisor::planes::Planes;
use crate::supervisor::ports::Ports;
use crate::supervisor::ports::port::SupervisedPort;
use crate::supervisor::setup::source::PortSource;

/// Longest wait for an answer of the data plane.
const PATIENCE: Duration = Duration::from_secs(4);

/// A question to the data plane for a client.
pub struct Question {
    pub client: ClientId,
    pub about: About,
    since: Instant,
}

/// The use of the data plane's answer.
pub enum About {
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

impl Question {
    /// The answer for its client, and file descriptors that go with it. `complete` adds to the data
    /// plane's statistics what only this process knows.
    pub fn reply(
        self,
        text: &[u8],
        ports: &Ports,
        complete: impl FnOnce(StatsReply) -> StatsReply,
    ) -> (String, Vec<OwnedFd>) {
        let read = || serde_json::from_slice::<StatsReply>(text);
        let impossible = |why| refusal(&[format!("the data plane says what cannot be: {why}")]);
        let as_said = || String::from_utf8_lossy(text).into_owned();
        match self.about {
            About::Stats => {
                let told = read().map(complete);
                (told.map_or_else(impossible, |stats| reply_line(&stats)), vec![])
            }
            About::List => {
                let told = read().map(complete);
                (told.map_or_else(impossible, |stats| reply_line(&list(ports, stats))), vec![])
            }
            About::Line(_) => (as_said(), vec![]),
            About::Log(_, level) => {
                log::set_level(&level);
                (as_said(), vec![])
            }
            About::Capture(_, fds) => (as_said(), fds.handed),
        }
    }
}

fn list(ports: &Ports, stats: StatsReply) -> PortListReply {
    let ports = ports.values().filter(|port| !port.is_leaving());
    let ports = ports.zip(stats.ports).map(|(port, stats)| ListedPort {
        port: json::write_port(&port.spec),
        state: stats.state,
        mac: port.vm.as_ref().map(|vm| vm.mac.to_string()),
        socket: socket(port),
        added: port.source != PortSource::Configuration,
    });
    PortListReply { version: PROTOCOL_VERSION, ok: true, ports: ports.collect() }
}

fn socket(port: &SupervisedPort) -> Option<String> {
    let PortSpec { kind, .. } = &port.spec;
    let path = std::path::absolute(kind.socket()?).ok()?;
    Some(path.display().to_string())
}

/// Those that are not answered yet, by number.
#[derive(Default)]
pub struct Questions {
    open: BTreeMap<u32, Question>,
    pub last: u32,
}

impl Questions {
    pub fn ask(&mut self, client: ClientId, about: About) {
        self.last = self.last.wrapping_add(1);
        let question = Question { client, about, since: Instant::now() };
        self.open.insert(self.last, question);
    }

    /// Asks the data plane what it was not asked yet: in each turn, as requests are handed over.
    pub fn hand_over(&self, planes: &mut Planes) {
        let Some(plane) = planes.running() else { return };
        for (&ask, question) in &self.open {
            if let Entry::Vacant(place) = plane.debts.asks.entry(ask) {
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

    /// The data plane has answered that one, with this text. `None`: it was given up.
    pub fn answered(&mut self, ask: u32, planes: &mut Planes) -> Option<(Question, Vec<u8>)> {
        let plane = planes.serving()?;
        plane.is_answered(Owed::Ask(ask));
        let text = plane.debts.asks.remove(&ask).unwrap_or_default();
        Some((self.open.remove(&ask)?, text))
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// When the next client is told that no data plane answers.
    pub fn next_giving_up(&self) -> Option<Instant> {
        self.open.values().map(|question| question.since + PATIENCE).min()
    }

    /// Clients whose questions no data plane answers are told so.
    pub fn give_up(&mut self, control: &mut ControlSocket) {
        let now = Instant::now();
        let late = self.open.extract_if(.., |_, question| question.since + PATIENCE <= now);
        let why = "the data plane does not answer: it is being started anew";
        for (_, question) in late.collect::<Vec<_>>() {
            control.answer_client(question.client, &refusal(&[why.to_owned()]));
        }
    }
}
