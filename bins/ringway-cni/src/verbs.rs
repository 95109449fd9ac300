//! The verbs of CNI. Each may be killed at any moment: what it leaves behind, the next one takes
//! away.

use serde_json::{Value, json};

use crate::answer::{Code, Failure};
use crate::attachment::Key;
use crate::configuration::{Call, Configuration, Kind, Valid};
use crate::control::{Control, Port};
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

    fn find(&self, name: &str) -> Result<Option<Port>, Failure> {
        Ok(self.control.ports()?.into_iter().find(|port| port.name == name))
    }

    fn add(&self) -> Result<String, Failure> {
        let addresses = self.ask_ipam("ADD")?;
        self.add_port(&addresses).inspect_err(|_| {
            // What was begun is undone as far as possible; DEL does the rest.
            let _ = self.control.remove(&self.key().port());
            let _ = self.ask_ipam("DEL");
        })
    }

    fn add_port(&self, addresses: &Value) -> Result<String, Failure> {
        let (key, configuration) = (self.key(), self.configuration);
        let name = key.port();
        if self.find(&name)?.is_some() {
            // Of an attempt that was killed: a runtime adds an attachment once.
            self.control.remove(&name)?;
        }
        self.control.add(key.request(configuration))?;
        let missing = || Failure::new(Code::Ringway, format!("port {name} is gone"));
        let port = self.find(&name)?.ok_or_else(missing)?;
        let mut interface = json!({ "name": key.interface });
        let own_mac = match configuration.attachment {
            Kind::Socket => {
                interface["socketPath"] = port.socket.clone().into();
                self.write_device_info(&port)?;
                port.mac.clone()
            }
            Kind::Tap => {
                let none = || Failure::new(Code::Environment, "CNI_NETNS is missing");
                let namespace = self.call.namespace.as_deref().ok_or_else(none)?;
                let mac = configuration.runtime_config.mac.as_deref();
                Some(tap::move_into(&key.tap(), (namespace, key.interface), (mac, addresses))?)
            }
        };
        interface["mac"] = own_mac.into();
        if let Some(mtu) = port.mtu {
            interface["mtu"] = mtu.into();
        }
        if let Some(namespace) = &self.call.namespace {
            interface["sandbox"] = namespace.clone().into();
        }
        Ok(result(&configuration.cni_version, interface, addresses))
    }

    /// For Multus and its like (device-info-spec 1.1.0). The guest connects to a socket that is
    /// there.
    fn write_device_info(&self, port: &Port) -> Result<(), Failure> {
        let Some(file) = &self.configuration.runtime_config.device_info_file else { return Ok(()) };
        let device = json!({ "mode": "client", "path": port.socket });
        let text = json!({ "type": "vhost-user", "version": "1.1.0", "vhost-user": device });
        std::fs::write(file, text.to_string())
            .map_err(|why| Failure::new(Code::Io, format!("{file}: {why}")))
    }

    /// The port, if a ringway runs that has it.
    fn find_left(&self, name: &str) -> Result<Option<Port>, Failure> {
        Ok(self.control.ports_left()?.into_iter().find(|port| port.name == name))
    }

    /// Twice is as good as once, and what has ended by itself is gone.
    fn delete(&self) -> Result<(), Failure> {
        self.ask_ipam("DEL")?;
        let name = self.key().port();
        if let Some(file) = &self.configuration.runtime_config.device_info_file {
            let _ = std::fs::remove_file(file);
        }
        if self.find_left(&name)?.is_some() {
            self.remove(&name)?;
        }
        // Of a ringway that was killed, perhaps just now.
        if let (Kind::Socket, Some(directory)) =
            (self.configuration.attachment, &self.configuration.socket_directory)
        {
            let _ = std::fs::remove_file(format!("{directory}/{name}.sock"));
        }
        Ok(())
    }

    /// Another call may have done it at the same time, or ringway has ended.
    fn remove(&self, name: &str) -> Result<(), Failure> {
        self.control.remove(name).or_else(|failure| match self.find_left(name)? {
            Some(_) => Err(failure),
            None => Ok(()),
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let name = self.key().port();
        let missing = |why: &str| Failure::new(Code::Missing, format!("port {name}: {why}"));
        let port = self.find(&name)?.ok_or_else(|| missing("it is gone"))?;
        if Key::of_port(&port) != Some(self.key()) {
            return Err(missing("it belongs to another attachment"));
        }
        if port.state == "failed" {
            return Err(missing("it has failed"));
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
                outcome = outcome.and(self.remove(&port.name));
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

fn result(version: &str, interface: Value, addresses: &Value) -> String {
    let mut result = json!({ "cniVersion": version, "interfaces": [interface] });
    for key in ["ips", "routes", "dns"] {
        if !addresses[key].is_null() {
            result[key] = addresses[key].clone();
        }
    }
    for ip in result.get_mut("ips").and_then(Value::as_array_mut).into_iter().flatten() {
        ip["interface"] = 0.into();
    }
    format!("{result}\n")
}
