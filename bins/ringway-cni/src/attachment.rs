//! One attachment and its port: the names and labels by which they find each other.

use ringway_control::protocol::ListedPort;
use serde_json::{Map, Value};

use crate::configuration::{Call, Configuration, Kind};

const NETWORK: &str = "cni.network";
const CONTAINER: &str = "cni.container";
const INTERFACE: &str = "cni.interface";

/// The values that tell attachments apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key<'a> {
    pub network: &'a str,
    pub container: &'a str,
    pub interface: &'a str,
}

impl<'a> Key<'a> {
    pub fn of(configuration: &'a Configuration, call: &'a Call) -> Self {
        Self {
            network: &configuration.name,
            container: &call.container,
            interface: &call.interface,
        }
    }

    /// Of a port that this plugin has made.
    pub fn of_port(port: &'a ListedPort) -> Option<Self> {
        let find = |wanted: &str| {
            let mut labels = port.texts("label").filter_map(|label| label.split_once(':'));
            labels.find(|(key, _)| *key == wanted).map(|(_, value)| value)
        };
        let (network, container) = (find(NETWORK)?, find(CONTAINER)?);
        Some(Self { network, container, interface: find(INTERFACE)? })
    }

    fn labels(&self) -> Vec<String> {
        let Self { network, container, interface } = self;
        vec![
            format!("{NETWORK}:{network}"),
            format!("{CONTAINER}:{container}"),
            format!("{INTERFACE}:{interface}"),
        ]
    }

    /// The same in each call (FNV-1a, 64 bits), and short enough for an interface.
    fn number(&self) -> u64 {
        let parts = [self.network, "\0", self.container, "\0", self.interface];
        let bytes = parts.iter().flat_map(|part| part.bytes());
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// The name of its port.
    pub fn port(&self) -> String {
        format!("cni-{:016x}", self.number())
    }

    /// The name of its tap, until that is in the container.
    pub fn tap(&self) -> String {
        format!("rw{:012x}", self.number() & 0xffff_ffff_ffff)
    }

    /// The port that is to be added.
    pub fn request(&self, configuration: &Configuration) -> Map<String, Value> {
        let mut port = configuration.options.clone();
        let name = self.port();
        match (configuration.attachment, &configuration.socket_directory) {
            (Kind::Tap, _) => port.insert("tap".into(), self.tap().into()),
            (Kind::Socket, None) => port.insert("vm".into(), "".into()),
            (Kind::Socket, Some(directory)) => {
                port.insert("vm".into(), format!("{directory}/{name}.sock").into())
            }
        };
        if let (Kind::Socket, Some(mac)) =
            (configuration.attachment, &configuration.runtime_config.mac)
        {
            port.insert("mac".into(), mac.clone().into());
        }
        port.insert("name".into(), name.into());
        port.insert("label".into(), self.labels().into());
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_found_again_by_its_labels() {
        let key = Key { network: "blue", container: "c1", interface: "net1" };
        let options = [("name", key.port().into()), ("label", key.labels().into())];
        let port = ListedPort {
            port: options.map(|(option, value)| (option.to_owned(), value)).into_iter().collect(),
            state: String::new(),
            mac: None,
            socket: None,
            added: false,
        };
        assert_eq!(Key::of_port(&port), Some(key));
        assert!(key.tap().len() <= 15);
        let other = Key { container: "c1net1", interface: "", ..key };
        assert_ne!(other.port(), key.port());
    }
}
