//! What was typed after `--port`, checked: `NAME=KIND:ARG[,KEY=VALUE…]` becomes a [`PortSpec`].
//!
//! How: the text is split at single commas (two stand for one that is meant, as in QEMU), the
//! first part is the port, the others are its options. Nothing is opened here.
//!
//! Limits: there are at most as many ports as the switch has; those of single values are in
//! [`port_values`](crate::port_values).

use std::fmt;
use std::path::{Path, PathBuf};

use ringway_net::{Features, MacAddress};
use ringway_switch::PORTS_MAX;

use crate::port_values::{
    check_name, check_socket, is_same_path, parse_interface, parse_mac, parse_mtu, parse_socket,
    parse_switch, parse_tap_fd,
};
use crate::spec_error::{SpecError, nearest};

const KIND_ADVICE: &str =
    "write vm:SOCKET, vm-connect:SOCKET, tap:IFNAME or tap-fd:NUMBER after the =";

/// Features by the names that QEMU gives them.
const FEATURE_KEYS: [(&str, Features); 21] = [
    ("packed", Features::RING_PACKED),
    ("mrg_rxbuf", Features::MRG_RXBUF),
    ("event_idx", Features::EVENT_IDX),
    ("indirect_desc", Features::INDIRECT_DESC),
    ("in_order", Features::IN_ORDER),
    ("notify_on_empty", Features::NOTIFY_ON_EMPTY),
    ("csum", Features::CSUM),
    ("guest_csum", Features::GUEST_CSUM),
    ("guest_tso4", Features::GUEST_TSO4),
    ("guest_tso6", Features::GUEST_TSO6),
    ("guest_ecn", Features::GUEST_ECN),
    ("host_tso4", Features::HOST_TSO4),
    ("host_tso6", Features::HOST_TSO6),
    ("host_ecn", Features::HOST_ECN),
    ("ctrl_vq", Features::CTRL_VQ),
    ("ctrl_mac_addr", Features::CTRL_MAC_ADDR),
    ("ctrl_rx", Features::CTRL_RX),
    ("ctrl_rx_extra", Features::CTRL_RX_EXTRA),
    ("ctrl_vlan", Features::CTRL_VLAN),
    ("ctrl_guest_offloads", Features::CTRL_GUEST_OFFLOADS),
    ("status", Features::STATUS),
];

/// Every key an option can have.
pub fn keys() -> impl Iterator<Item = &'static str> {
    ["mac", "mtu"].into_iter().chain(FEATURE_KEYS.iter().map(|&(key, _)| key))
}

/// Everything `ringway run` needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunConfig {
    /// The ports; names, sockets, interfaces and fixed MAC addresses are unique.
    pub ports: Vec<PortSpec>,
    /// Where to answer questions, if at all.
    pub control: Option<PathBuf>,
}

/// One port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSpec {
    /// What it is called in logs and statistics.
    pub name: String,
    /// Where it leads.
    pub kind: PortKind,
    /// The guest's MAC address; `None`: ringway chooses.
    pub mac: Option<MacAddress>,
    /// MTU in bytes, advised to the guest or set on the tap; `None`: neither.
    pub mtu: Option<u16>,
    /// Features that are not offered to the guest.
    pub features_off: Features,
}

/// Where a port leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PortKind {
    /// A virtual machine connects here.
    Vm {
        /// The vhost-user socket to create.
        socket: PathBuf,
    },
    /// A virtual machine listens there.
    VmConnect {
        /// The vhost-user socket to connect to.
        socket: PathBuf,
    },
    /// A tap of the host, used or created.
    Tap {
        /// Name of the network interface.
        name: String,
    },
    /// A tap that is already open.
    TapFd {
        /// Number of the file descriptor.
        fd: i32,
    },
}

impl RunConfig {
    /// Checks every port by itself and against the others.
    ///
    /// # Errors
    /// Everything that is wrong, in the order typed.
    pub fn parse(ports: &[String], control: PathBuf) -> Result<Self, Vec<SpecError>> {
        let mut errors = Vec::new();
        errors.extend(check_socket(&control, &control.to_string_lossy()).err());
        if ports.len() > PORTS_MAX {
            let wrong = format!("{} ports, but a switch has {PORTS_MAX}", ports.len());
            errors.push(SpecError::new("--port", wrong, "start a second ringway for the others"));
        }
        let mut specs: Vec<PortSpec> = Vec::new();
        for typed in ports {
            let checked = PortSpec::parse(typed).and_then(|spec| {
                spec.check_unique(typed, &specs, &control)?;
                Ok(spec)
            });
            match checked {
                Ok(spec) => specs.push(spec),
                Err(error) => errors.push(error),
            }
        }
        match errors.is_empty() {
            true => Ok(Self { ports: specs, control: Some(control) }),
            false => Err(errors),
        }
    }
}

impl PortSpec {
    /// Parses `NAME=KIND:ARG[,KEY=VALUE…]`.
    ///
    /// # Errors
    /// The first thing that is wrong, starting with what was typed.
    pub fn parse(typed: &str) -> Result<Self, SpecError> {
        let mut parts = split_at_commas(typed).into_iter();
        let port = parts.next().unwrap_or_default();
        let example = "write NAME=KIND:ARG, such as vm0=vm:/run/vm0.sock";
        let Some((name, rest)) = port.split_once('=') else {
            return Err(SpecError::new(typed, "a port needs a name and a kind", example));
        };
        check_name(typed, name)?;
        let kind = PortKind::parse(typed, rest)?;
        let mut spec = Self {
            name: name.to_string(),
            kind,
            mac: None,
            mtu: None,
            features_off: Features::empty(),
        };
        let mut seen = Vec::new();
        for option in parts {
            let key = spec.set_option(typed, &option)?;
            if seen.contains(&key) {
                return Err(SpecError::new(typed, format!("{key} is given twice"), "keep one"));
            }
            seen.push(key);
        }
        Ok(spec)
    }

    /// Applies one `KEY=VALUE` and returns the key.
    fn set_option(&mut self, typed: &str, option: &str) -> Result<&'static str, SpecError> {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        let Some(key) = keys().find(|&known| known == key) else {
            return Err(unknown_key(typed, key));
        };
        if key != "mtu" && !self.kind.is_guest() {
            let wrong = format!("{key} belongs to guests, and a tap is none");
            return Err(SpecError::new(typed, wrong, format!("remove {option}")));
        }
        match key {
            "mac" => self.mac = Some(parse_mac(typed, value)?),
            "mtu" => self.mtu = Some(parse_mtu(typed, value)?),
            _ => {
                let is_off = !parse_switch(typed, key, value)?;
                let features = FEATURE_KEYS.iter().filter(|(name, _)| *name == key);
                features.for_each(|&(_, feature)| self.features_off.set(feature, is_off));
            }
        }
        Ok(key)
    }

    fn check_unique(&self, typed: &str, others: &[Self], control: &Path) -> Result<(), SpecError> {
        let wrong = |wrong: String, advice: &str| Err(SpecError::new(typed, wrong, advice));
        if others.iter().any(|other| other.name == self.name) {
            let text = format!("another port is called {} already", self.name);
            return wrong(text, "choose another name");
        }
        if let Some(other) = others.iter().find(|other| other.kind.is_same_place(&self.kind)) {
            let text = format!("port {} is at {} already", other.name, other.kind.address());
            return wrong(text, "every port needs its own");
        }
        if self.kind.socket().is_some_and(|socket| is_same_path(socket, control)) {
            let text = format!("{} is the control socket", self.kind.address());
            return wrong(text, "choose another path here or with --control");
        }
        let same_mac = |other: &&Self| other.mac.is_some() && other.mac == self.mac;
        if let Some(other) = others.iter().find(same_mac) {
            let text = format!("port {} has this MAC address already", other.name);
            return wrong(text, "every guest needs its own");
        }
        Ok(())
    }
}

impl PortKind {
    /// The word before the colon.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Vm { .. } => "vm",
            Self::VmConnect { .. } => "vm-connect",
            Self::Tap { .. } => "tap",
            Self::TapFd { .. } => "tap-fd",
        }
    }

    /// What stands after the colon: socket path, interface name or number.
    pub fn address(&self) -> String {
        match self {
            Self::Vm { socket } | Self::VmConnect { socket } => socket.display().to_string(),
            Self::Tap { name } => name.clone(),
            Self::TapFd { fd } => fd.to_string(),
        }
    }

    fn parse(typed: &str, text: &str) -> Result<Self, SpecError> {
        let Some((kind, place)) = text.split_once(':') else {
            let wrong = format!("{text:?} is not a kind of port and its place");
            return Err(SpecError::new(typed, wrong, KIND_ADVICE));
        };
        match kind {
            "vm" => Ok(Self::Vm { socket: parse_socket(typed, place)? }),
            "vm-connect" => Ok(Self::VmConnect { socket: parse_socket(typed, place)? }),
            "tap" => Ok(Self::Tap { name: parse_interface(typed, place)? }),
            "tap-fd" => Ok(Self::TapFd { fd: parse_tap_fd(typed, place)? }),
            _ => {
                let wrong = format!("there is no kind of port called {kind:?}");
                Err(SpecError::new(typed, wrong, KIND_ADVICE))
            }
        }
    }

    fn is_guest(&self) -> bool {
        matches!(self, Self::Vm { .. } | Self::VmConnect { .. })
    }

    fn socket(&self) -> Option<&Path> {
        match self {
            Self::Vm { socket } | Self::VmConnect { socket } => Some(socket),
            Self::Tap { .. } | Self::TapFd { .. } => None,
        }
    }

    fn is_same_place(&self, other: &Self) -> bool {
        match (self.socket(), other.socket()) {
            (Some(one), Some(other)) => is_same_path(one, other),
            _ => self == other,
        }
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name(), self.address())
    }
}

/// Splits at single commas; two commas stand for one that belongs to the text.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(',') {
        let last = parts.len() - 1;
        parts[last].push_str(before);
        rest = match after.strip_prefix(',') {
            Some(after) => {
                parts[last].push(',');
                after
            }
            None => {
                parts.push(String::new());
                after
            }
        };
    }
    let last = parts.len() - 1;
    parts[last].push_str(rest);
    parts
}

fn unknown_key(typed: &str, key: &str) -> SpecError {
    if key.is_empty() {
        let wrong = "an option is missing after a comma";
        return SpecError::new(typed, wrong, "write KEY=VALUE, or remove the comma");
    }
    let advice = match nearest(key, keys()) {
        Some(word) => format!("did you mean {word}?"),
        None => format!("use one of {}", keys().collect::<Vec<_>>().join(" ")),
    };
    SpecError::new(typed, format!("there is no option called {key:?}"), advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_values::SOCKET_PATH_LEN_MAX;

    fn ok(typed: &str) -> PortSpec {
        PortSpec::parse(typed).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn a_port_without_options_leaves_everything_open() {
        let spec = ok("vm0=vm:/run/vm0.sock");
        assert_eq!(spec.name, "vm0");
        assert_eq!(spec.kind, PortKind::Vm { socket: "/run/vm0.sock".into() });
        assert_eq!((spec.mac, spec.mtu, spec.features_off), (None, None, Features::empty()));
    }

    #[test]
    fn each_kind_is_shown_as_it_was_typed() {
        for kind in ["vm:/run/a.sock", "vm-connect:b.sock", "tap:tap0", "tap-fd:7"] {
            assert_eq!(ok(&format!("p={kind}")).kind.to_string(), kind);
        }
    }

    #[test]
    fn options_are_taken_over() {
        let spec = ok("v=vm:s,mac=52:54:00:12:34:56,mtu=9000,packed=off,csum=on,host_ecn=off");
        assert_eq!(spec.mac, Some(MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56])));
        assert_eq!(spec.mtu, Some(9000));
        assert_eq!(spec.features_off, Features::RING_PACKED | Features::HOST_ECN);
        assert_eq!(ok("t=tap:tap0,mtu=68").mtu, Some(68));
    }

    #[test]
    fn every_feature_key_turns_off_one_feature_that_is_offered() {
        let mut off = Features::empty();
        for (key, feature) in FEATURE_KEYS {
            assert_eq!(ok(&format!("v=vm:s,{key}=off")).features_off, feature, "{key}");
            assert!(Features::OFFERED.contains(feature), "{key}");
            assert!(!off.intersects(feature), "{key}");
            off |= feature;
        }
    }

    #[test]
    fn two_commas_and_the_equals_sign_can_be_part_of_a_path() {
        let spec = ok("v=vm:/a,,b=c.sock,mtu=1500");
        assert_eq!(spec.kind.address(), "/a,b=c.sock");
        assert_eq!(spec.mtu, Some(1500));
        assert_eq!(split_at_commas("a,,,b"), ["a,", "b"]);
        assert_eq!(split_at_commas(""), [""]);
    }

    #[test]
    fn a_path_may_be_as_long_as_a_socket_allows_and_no_longer() {
        let longest = "x".repeat(SOCKET_PATH_LEN_MAX);
        assert!(PortSpec::parse(&format!("v=vm:{longest}")).is_ok());
        assert!(PortSpec::parse(&format!("v=vm:{longest}x")).is_err());
    }

    #[test]
    fn all_mistakes_are_told_at_once_and_good_ports_raise_none() {
        let ports = ["a=vm:a.sock", "b", "a=vm:c.sock", "d=tap:tap0"].map(String::from);
        let Err(errors) = RunConfig::parse(&ports, "control.sock".into()) else {
            panic!("accepted");
        };
        assert_eq!(errors.len(), 2);
        let good = ["a=vm:a.sock", "d=tap:tap0"].map(String::from);
        let config = RunConfig::parse(&good, "control.sock".into()).expect("good");
        assert_eq!(config.ports.len(), 2);
        assert_eq!(config.control, Some("control.sock".into()));
    }

    #[test]
    fn no_more_ports_than_the_switch_has() {
        let many = |count| -> Vec<String> {
            (0..count).map(|number| format!("p{number}=vm:{number}.sock")).collect()
        };
        assert!(RunConfig::parse(&many(PORTS_MAX), "c".into()).is_ok());
        assert!(RunConfig::parse(&many(PORTS_MAX + 1), "c".into()).is_err());
    }
}
