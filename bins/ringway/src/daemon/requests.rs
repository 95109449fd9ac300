//! What is asked on the control socket, answered.

use ringway_switch::PortId;
use serde_json::{Map, Value};
use tracing::warn;

use super::Daemon;
use super::ports::{Changed, Port};
use crate::config::error::nearest;
use crate::config::{PortSpec, SpecError, json, resolve_beside};
use crate::control::{
    ChangeReply, ListedPort, PROTOCOL_VERSION, PortListReply, Request, refusal, reply_line,
};

/// Why a request is refused, one line per reason.
type Refused = Vec<String>;

impl Daemon {
    /// Answers one line with one line, both without the newline.
    pub(super) fn answer(&mut self, line: &str) -> String {
        let request = match Request::parse(line) {
            Ok(request) => request,
            Err(why) => return refusal(&[why]),
        };
        let changed = match request {
            Request::Stats => return reply_line(&self.stats()),
            Request::PortList => return reply_line(&self.list_ports()),
            Request::PortAdd(port) => self.add_port(&port),
            Request::PortRemove(name) => self.known(&name).map(|id| {
                self.remove_port(id);
                Changed::default()
            }),
            Request::PortSet { name, options } => self.set_port(&name, &options),
        };
        match changed {
            Ok(changed) => reply_line(&reply(&changed)),
            Err(why) => {
                for why in &why {
                    self.control.chatter.say_of(None, || warn!("refused: {why}"));
                }
                refusal(&why)
            }
        }
    }

    fn add_port(&mut self, port: &Map<String, Value>) -> Result<Changed, Refused> {
        let low = json::read_port(port).map_err(texts)?;
        let spec = resolve_beside(&low, self.specs(), &self.settings.control).map_err(texts)?;
        self.open_port(spec).map_err(|why| vec![format!("{why:#}")])
    }

    fn set_port(&mut self, name: &str, options: &Map<String, Value>) -> Result<Changed, Refused> {
        let id = self.known(name)?;
        let options = json::read_options(options).map_err(texts)?;
        let Some(port) = self.ports.get(&id) else { return Err(unknown(name)) };
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
        self.change_port(id, spec).map_err(|why| vec![format!("{why:#}")])
    }

    fn known(&self, name: &str) -> Result<PortId, Refused> {
        self.find_port(name).ok_or_else(|| {
            let names: Vec<&str> = self.specs().map(|spec| spec.name.as_str()).collect();
            let advice = match nearest(name, names.iter().copied()) {
                Some(near) => format!("did you mean {near}?"),
                None if names.is_empty() => "there are none".to_string(),
                None => {
                    format!("use one of {}", names[..names.len().min(NAMES_SHOWN_MAX)].join(" "))
                }
            };
            vec![format!("{}: {advice}", unknown(name).join(""))]
        })
    }

    fn list_ports(&self) -> PortListReply {
        let stats = self.stats();
        let ports = self.ports.values().filter(|port| !port.is_leaving());
        let ports = ports.zip(stats.ports).map(|(port, stats)| ListedPort {
            port: json::write_port(&port.spec),
            state: stats.state,
            mac: port.vm.as_ref().map(|vm| vm.mac.to_string()),
            socket: socket(port),
        });
        PortListReply { version: PROTOCOL_VERSION, ok: true, ports: ports.collect() }
    }
}

/// Names of ports in one error.
const NAMES_SHOWN_MAX: usize = 16;

fn unknown(name: &str) -> Refused {
    vec![format!("there is no port called {name:?}")]
}

fn texts(errors: Vec<SpecError>) -> Refused {
    errors.iter().map(ToString::to_string).collect()
}

fn reply(changed: &Changed) -> ChangeReply {
    ChangeReply {
        version: PROTOCOL_VERSION,
        ok: true,
        guest_told: changed.guest_told,
        at_next_connection: changed.at_next_connection.iter().map(ToString::to_string).collect(),
        warnings: changed.warnings.clone(),
    }
}

fn socket(port: &Port) -> Option<String> {
    let PortSpec { kind, .. } = &port.spec;
    let path = std::path::absolute(kind.socket()?).ok()?;
    Some(path.display().to_string())
}
