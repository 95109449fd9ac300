//! The verbs of CNI. Each may be killed at any moment: what it leaves behind, the next one takes
//! away.

use ringway_control::protocol::ListedPort;
use serde_json::{Value, json};

use crate::answer::{Code, Failure};
use crate::attachment::Key;
use crate::configuration::{Call, Configuration, Kind, Valid};
use crate::control::Control;
use crate::device_info::DeviceInfo;
use crate::{ipam, tap};

/// Carries out what is asked; what is to be printed.
///
/// # Errors
/// It cannot be done.
pub fn carry_out(
    call: &Call,
    configuration: &Configuration,
    input: &str,
) -> Result<String, Failure> {
    let control = Control { socket: &configuration.control };
    let verbs = Verbs { call, configuration, input, control };
    match call.command.as_str() {
        "ADD" => verbs.add(),
        "DEL" => verbs.delete().map(|()| String::new()),
        "CHECK" => verbs.check().map(|()| String::new()),
        "GC" => verbs.collect().map(|()| String::new()),
        // Others are refused before.
        _ => verbs.status().map(|()| String::new()),
    }
}

const OF_ANOTHER: &str = "it belongs to another attachment";

struct Verbs<'a> {
    call: &'a Call,
    configuration: &'a Configuration,
    input: &'a str,
    control: Control<'a>,
}

impl Verbs<'_> {
    fn key(&self) -> Key<'_> {
        Key::of(self.configuration, self.call)
    }

    fn ask_ipam(&self, verb: &str) -> Result<Value, Failure> {
        match self.configuration.ipam() {
            Some(kind) => ipam::ask(kind, verb, self.input),
            None => Ok(Value::Null),
        }
    }

    fn find(&self, name: &str) -> Result<Option<ListedPort>, Failure> {
        Ok(self.control.ports()?.into_iter().find(|port| port.name() == name))
    }

    /// A name is a short hash: only its labels say whose a port is.
    fn is_own(&self, port: &ListedPort) -> bool {
        Key::of_port(port) == Some(self.key())
    }

    fn missing(&self, why: &str) -> Failure {
        Failure::new(Code::Missing, format!("port {}: {why}", self.key().port()))
    }

    fn add(&self) -> Result<String, Failure> {
        let addresses = self.ask_ipam("ADD")?;
        self.add_port(&addresses).inspect_err(|_| {
            // Undoes what was begun as far as possible; DEL does the rest.
            let _ = self.remove_own();
            let _ = self.ask_ipam("DEL");
        })
    }

    fn add_port(&self, addresses: &Value) -> Result<String, Failure> {
        let (key, configuration) = (self.key(), self.configuration);
        let name = key.port();
        let info = self.device_info(&name)?;
        match self.find(&name)? {
            // Of an attempt that was killed: a runtime adds an attachment once.
            Some(port) if self.is_own(&port) => self.control.remove(&name)?,
            Some(_) => return Err(self.missing(OF_ANOTHER)),
            None => {}
        }
        self.control.add(key.request(configuration))?;
        let missing = || Failure::new(Code::Ringway, format!("port {name} is gone"));
        let port = self.find(&name)?.ok_or_else(missing)?;
        let mut interface = json!({ "name": key.interface });
        let own_mac = match configuration.attachment {
            Kind::Socket => {
                interface["socketPath"] = port.socket.clone().into();
                info.map_or(Ok(()), |info| info.write(port.socket.as_deref()))?;
                port.mac.clone()
            }
            Kind::Tap => {
                let none = || Failure::new(Code::Environment, "CNI_NETNS is missing");
                let namespace = self.call.namespace.as_deref().ok_or_else(none)?;
                let mac = configuration.runtime_config.mac.as_deref();
                Some(tap::move_into(&key.tap(), namespace, key.interface, mac, addresses)?)
            }
        };
        interface["mac"] = own_mac.into();
        if let Some(mtu) = port.port.get("mtu").and_then(Value::as_u64) {
            interface["mtu"] = mtu.into();
        }
        if let Some(namespace) = &self.call.namespace {
            interface["sandbox"] = namespace.clone().into();
        }
        Ok(result(configuration, interface, addresses))
    }

    /// The file that the runtime wants of an attachment, if it does.
    fn device_info<'a>(&'a self, port: &'a str) -> Result<Option<DeviceInfo<'a>>, Failure> {
        let file = self.configuration.runtime_config.device_info_file.as_deref();
        file.map(|file| DeviceInfo::new(file, port)).transpose()
    }

    /// The port, if a ringway runs that has it.
    fn find_left(&self, name: &str) -> Result<Option<ListedPort>, Failure> {
        Ok(self.control.ports_left()?.into_iter().find(|port| port.name() == name))
    }

    /// It may be called again, and succeeds where the port is gone already. A plugin for addresses
    /// that fails does not stop the rest.
    fn delete(&self) -> Result<(), Failure> {
        let name = self.key().port();
        let given_back = self.ask_ipam("DEL").map(drop);
        // A file anywhere else was refused when the port was added.
        if let Ok(Some(info)) = self.device_info(&name) {
            info.delete();
        }
        let removed = self.remove_own();
        // Of a ringway that was killed, perhaps just now; none that a port has.
        if let (Kind::Socket, Some(directory)) =
            (self.configuration.attachment, &self.configuration.socket_directory)
            && removed.is_ok()
            && self.find_left(&name)?.is_none()
        {
            let _ = std::fs::remove_file(format!("{directory}/{name}.sock"));
        }
        removed.and(given_back)
    }

    fn remove_own(&self) -> Result<(), Failure> {
        let name = self.key().port();
        match self.find_left(&name)? {
            Some(port) if self.is_own(&port) => self.remove(&name),
            _ => Ok(()),
        }
    }

    /// Another call may have done it at the same time, or ringway has ended.
    fn remove(&self, name: &str) -> Result<(), Failure> {
        self.control.remove(name).or_else(|failure| match self.find_left(name)? {
            Some(_) => Err(failure),
            None => Ok(()),
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let port = self.find(&self.key().port())?.ok_or_else(|| self.missing("it is gone"))?;
        if !self.is_own(&port) {
            return Err(self.missing(OF_ANOTHER));
        }
        if port.state == "failed" {
            return Err(self.missing("it has failed"));
        }
        self.ask_ipam("CHECK").map(drop)
    }

    /// Ports of this network that the runtime does not know any more go; no others. What cannot go
    /// keeps neither others nor their addresses.
    fn collect(&self) -> Result<(), Failure> {
        let valid = self.configuration.valid_attachments()?;
        let removed = self.remove_all_but(valid);
        self.ask_ipam("GC")?;
        removed
    }

    fn remove_all_but(&self, valid: &[Valid]) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for port in self.control.ports_left()? {
            let Some(key) = Key::of_port(&port) else { continue };
            let is_known = valid.iter().any(|it| {
                (it.container.as_str(), it.interface.as_str()) == (key.container, key.interface)
            });
            if key.network == self.configuration.name && !is_known {
                outcome = outcome.and(self.remove(port.name()));
            }
        }
        outcome
    }

    fn status(&self) -> Result<(), Failure> {
        let ports = self.control.ports();
        ports.map_err(|failure| failure.with_code(Code::NotAvailable))?;
        self.ask_ipam("STATUS").map(drop)
    }
}

/// The result of the plugins before this one in a chain, with our own interface and addresses.
fn result(configuration: &Configuration, interface: Value, addresses: &Value) -> String {
    let mut result = Value::Object(configuration.prev_result.clone().unwrap_or_default());
    result["cniVersion"] = configuration.cni_version.clone().into();
    let own = append(&mut result["interfaces"], vec![interface]);
    let list = |key: &str| addresses[key].as_array().cloned().unwrap_or_default();
    let mut ips = list("ips");
    for ip in &mut ips {
        ip["interface"] = own.into();
    }
    for (key, more) in [("ips", ips), ("routes", list("routes"))] {
        if !more.is_empty() || addresses[key].is_array() {
            append(&mut result[key], more);
        }
    }
    if !addresses["dns"].is_null() {
        result["dns"] = addresses["dns"].clone();
    }
    format!("{result}\n")
}

/// Adds to a list, which may be missing; how many were there before.
fn append(list: &mut Value, more: Vec<Value>) -> usize {
    let mut all = list.as_array().cloned().unwrap_or_default();
    let before = all.len();
    all.extend(more);
    *list = all.into();
    before
}
