//! Input from the runtime: the network's configuration at standard input, and the call in the
//! environment.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::answer::{Code, Failure, VERSIONS};

/// Where a ringway answers that was installed as a service.
const CONTROL: &str = "/run/ringway/ringway.sock";

/// Longest name of a network or a container: it is a label of a port.
const NAME_LEN_MAX: usize = 128;

/// Longest name of an interface, as the kernel has it (`IFNAMSIZ`, without its end).
const INTERFACE_LEN_MAX: usize = 15;

/// One network.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    pub cni_version: String,
    pub name: String,
    /// The control socket of ringway.
    #[serde(default = "default_control")]
    pub control: String,
    #[serde(default)]
    pub attachment: Kind,
    /// Where sockets are made; otherwise ringway chooses.
    pub socket_directory: Option<String>,
    /// Options of each port, as in ringway's file.
    #[serde(default)]
    pub options: Map<String, Value>,
    pub ipam: Option<Ipam>,
    /// Of the plugins before this one in a chain.
    pub prev_result: Option<Map<String, Value>>,
    #[serde(default)]
    pub runtime_config: RuntimeConfiguration,
    /// For GC.
    #[serde(rename = "cni.dev/valid-attachments", default, deserialize_with = "told")]
    valid_attachments: Option<Vec<Valid>>,
    /// The same by the name that it had in the specification at first.
    #[serde(rename = "cni.dev/attachments", default, deserialize_with = "told")]
    attachments: Option<Vec<Valid>>,
}

/// Runtimes write null where there are none.
fn told<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Valid>>, D::Error> {
    Ok(Some(Option::deserialize(input)?.unwrap_or_default()))
}

fn default_control() -> String {
    CONTROL.to_string()
}

/// The kind of an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A vhost-user socket for a virtual machine.
    #[default]
    Socket,
    /// An interface in the container.
    Tap,
}

/// The plugin that gives addresses.
#[derive(Debug, Deserialize)]
pub struct Ipam {
    #[serde(rename = "type")]
    pub kind: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
pub struct RuntimeConfiguration {
    /// Where to say what the device is.
    #[serde(rename = "CNIDeviceInfoFile")]
    pub device_info_file: Option<String>,
    pub mac: Option<String>,
}

/// An attachment that the runtime knows.
#[derive(Debug, Deserialize)]
pub struct Valid {
    #[serde(rename = "containerID")]
    pub container: String,
    #[serde(rename = "ifname")]
    pub interface: String,
}

impl Configuration {
    /// Parses the configuration that the runtime wrote.
    ///
    /// # Errors
    /// It cannot be read, or makes no sense.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let wrong = |why: String| Failure::new(Code::Configuration, why);
        let parsed: Self = serde_json::from_str(text)
            .map_err(|why| Failure::new(Code::Parse, format!("the configuration: {why}")))?;
        if !VERSIONS.contains(&parsed.cni_version.as_str()) {
            let why =
                format!("cniVersion {}: use one of {}", parsed.cni_version, VERSIONS.join(" "));
            return Err(Failure::new(Code::Version, why));
        }
        check_name("name", &parsed.name).map_err(wrong)?;
        for key in ["name", "vm", "vm-connect", "tap", "tap-fd", "nat", "label"] {
            if parsed.options.contains_key(key) {
                return Err(wrong(format!("options: {key} is for the plugin to say")));
            }
        }
        Ok(parsed)
    }

    /// All attachments that the runtime knows; what is not among them goes.
    ///
    /// # Errors
    /// It does not say: to take that for none would end all of them.
    pub fn valid_attachments(&self) -> Result<&[Valid], Failure> {
        let told = self.valid_attachments.as_deref().or(self.attachments.as_deref());
        told.ok_or_else(|| {
            let why = "cni.dev/valid-attachments is missing: GC needs all that are to stay";
            Failure::new(Code::Configuration, why)
        })
    }

    /// The plugin that gives addresses, if there is one.
    pub fn ipam(&self) -> Option<&str> {
        self.ipam.as_ref()?.kind.as_deref()
    }
}

/// The verb, and the attachment that it is about; empty where a verb has none.
#[derive(Debug)]
pub struct Call {
    pub command: String,
    pub container: String,
    pub interface: String,
    /// The container's network namespace.
    pub namespace: Option<String>,
}

impl Call {
    /// From the environment.
    ///
    /// # Errors
    /// Something that the verb needs is missing.
    pub fn of_environment(command: &str) -> Result<Self, Failure> {
        let keys = ["CNI_CONTAINERID", "CNI_IFNAME", "CNI_NETNS"];
        let values = keys.iter().filter_map(|key| Some((*key, std::env::var(key).ok()?)));
        Self::of(command, &values.collect())
    }

    fn of(command: &str, values: &BTreeMap<&str, String>) -> Result<Self, Failure> {
        let get = |key: &str| values.get(key).cloned().unwrap_or_default();
        let wrong = |why: String| Failure::new(Code::Environment, why);
        let call = Self {
            command: command.to_string(),
            container: get("CNI_CONTAINERID"),
            interface: get("CNI_IFNAME"),
            namespace: Some(get("CNI_NETNS")).filter(|path| !path.is_empty()),
        };
        match command {
            "ADD" | "DEL" | "CHECK" => {
                check_name("CNI_CONTAINERID", &call.container).map_err(wrong)?;
                check_name("CNI_IFNAME", &call.interface).map_err(wrong)?;
                if call.interface.len() > INTERFACE_LEN_MAX {
                    let why = format!(
                        "CNI_IFNAME: {:?} is too long: at most {INTERFACE_LEN_MAX} bytes",
                        call.interface
                    );
                    return Err(wrong(why));
                }
                Ok(call)
            }
            "STATUS" | "GC" => Ok(call),
            other => Err(wrong(format!("CNI_COMMAND {other:?}: there is no such verb"))),
        }
    }
}

fn check_name(what: &str, name: &str) -> Result<(), String> {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if starts && name.len() <= NAME_LEN_MAX && name.bytes().all(is_fine) {
        return Ok(());
    }
    Err(format!("{what}: {name:?} is no name: letters, digits, -, _ and ., at most {NAME_LEN_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_says_what_there_is() {
        let text = r#"{"cniVersion":"1.1.0","name":"blue","type":"ringway-cni","attachment":"tap",
            "options":{"vlan":7},"ipam":{"type":"host-local"},
            "cni.dev/valid-attachments":[{"containerID":"c1","ifname":"net1"}]}"#;
        let read = Configuration::parse(text).expect("a configuration");
        assert_eq!((read.attachment, read.ipam()), (Kind::Tap, Some("host-local")));
        assert_eq!(read.control.as_str(), CONTROL);
        assert_eq!(read.valid_attachments().map(<[Valid]>::len).ok(), Some(1));
    }

    /// libcni writes both names, and null where there is none.
    #[test]
    fn what_stays_is_told_by_each_name_and_never_guessed() {
        for (told, count) in [
            ("", None),
            (r#","cni.dev/valid-attachments":null"#, Some(0)),
            (r#","cni.dev/attachments":[{"containerID":"c","ifname":"e"}]"#, Some(1)),
            (r#","cni.dev/attachments":[],"cni.dev/valid-attachments":[]"#, Some(0)),
        ] {
            let text = format!(r#"{{"cniVersion":"1.1.0","name":"a"{told}}}"#);
            let read = Configuration::parse(&text).expect("a configuration");
            assert_eq!(read.valid_attachments().map(<[Valid]>::len).ok(), count, "{told}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for text in [
            "",
            "{}",
            r#"{"cniVersion":"0.4.0","name":"a"}"#,
            r#"{"cniVersion":"1.1.0","name":"a/b"}"#,
            r#"{"cniVersion":"1.1.0","name":"a","options":{"label":"x:y"}}"#,
            r#"{"cniVersion":"1.1.0","name":"a","attachment":"wire"}"#,
        ] {
            assert!(Configuration::parse(text).is_err(), "{text}");
        }
        let values = BTreeMap::from([("CNI_CONTAINERID", "c".into()), ("CNI_IFNAME", "e".into())]);
        assert!(Call::of("ADD", &values).is_ok());
        assert!(Call::of("ADD", &BTreeMap::new()).is_err());
        for (name, is_fine) in [("a23456789012345", true), ("a234567890123456", false)] {
            let named = values.iter().map(|(key, value)| (*key, value.clone()));
            let named = named.chain([("CNI_IFNAME", name.to_owned())]).collect();
            assert_eq!(Call::of("ADD", &named).is_ok(), is_fine, "{name}");
        }
        assert!(Call::of("GC", &BTreeMap::new()).is_ok());
        assert!(Call::of("PAINT", &values).is_err());
    }
}
