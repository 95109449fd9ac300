//! Requests of clients, read and checked: commands, which are carried out elsewhere.

use ringway_switch::PortId;
use serde_json::{Map, Value};

use crate::config::{PortSpec, SpecError, json, resolve_beside};
use crate::control::Request;
use crate::log_filter;
use crate::supervisor::ports::Ports;
use crate::supervisor::processes::descriptors::explained;
use crate::supervisor::questions::About;
use crate::supervisor::questions::captures::CaptureFds;
use crate::supervisor::setup::Setup;
use crate::supervisor::setup::source::PortSource;

/// Why a request is refused, one line per reason.
pub type Refused = Vec<String>;

/// A request that makes sense, as things are now.
pub enum ControlCommand {
    /// A question to the data plane.
    Ask(About),
    Add(Box<PortSpec>, PortSource),
    Remove(PortId),
    Change(PortId, Box<PortSpec>),
    Reload,
    Stop,
    /// The program that is named.
    Upgrade(Option<String>),
}

impl ControlCommand {
    /// Reads one line of a client, without the newline.
    ///
    /// # Errors
    /// It is no request, or cannot be carried out.
    pub fn read(line: &str, ports: &Ports, setup: &Setup) -> Result<Self, Refused> {
        let known = |name: &Option<String>| match name {
            Some(name) => ports.known(name).map(drop),
            None => Ok(()),
        };
        let about = || About::Line(line.to_owned());
        match Request::parse(line).map_err(|why| vec![why])? {
            Request::Stats => return Ok(Self::Ask(About::Stats)),
            Request::PortList => return Ok(Self::Ask(About::List)),
            Request::PortAdd { port, until_restart } => {
                let source =
                    if until_restart { PortSource::UntilRestart } else { PortSource::Added };
                return Ok(Self::Add(Box::new(new_port(&port, ports, setup)?), source));
            }
            Request::PortRemove(name) => return Ok(Self::Remove(ports.known(&name)?)),
            Request::PortSet { name, options } => {
                let id = ports.known(&name)?;
                let options = json::read_options(&options).map_err(texts)?;
                return Ok(Self::Change(id, Box::new(ports.changed(id, &options)?)));
            }
            Request::Log(question) => {
                log_filter::read(&question.level, &question.level)
                    .map_err(|why| vec![why.to_string()])?;
                let line = Request::Log(question.clone()).to_line();
                return Ok(Self::Ask(About::Log(line, question.level)));
            }
            Request::Reload => return Ok(Self::Reload),
            Request::Stop => return Ok(Self::Stop),
            Request::Upgrade { program } => return Ok(Self::Upgrade(program)),
            Request::Fdb(question) => known(&question.name)?,
            Request::FdbFlush(question) => known(&question.name)?,
            Request::PortShow(question) => {
                ports.known(&question.name)?;
                known(&question.guest)?;
            }
            Request::Trace(question) => drop(ports.known(&question.name)?),
            Request::Capture(question) => {
                question.ports().iter().try_for_each(|name| ports.known(name).map(drop))?;
                let fds = CaptureFds::new(setup.workers).map_err(|why| vec![explained(&why)])?;
                return Ok(Self::Ask(About::Capture(line.to_owned(), fds)));
            }
        }
        Ok(Self::Ask(about()))
    }
}

fn new_port(port: &Map<String, Value>, ports: &Ports, setup: &Setup) -> Result<PortSpec, Refused> {
    let low = json::read_port(port).map_err(texts)?.placed_beside(setup.identity.control());
    resolve_beside(&low, ports.specs(), &setup.settings.control).map_err(texts)
}

fn texts(errors: Vec<SpecError>) -> Refused {
    errors.iter().map(ToString::to_string).collect()
}
