//! One port, checked: [`LowPort`] is what was written down, in whatever syntax, and becomes a
//! [`PortSpec`]. Nothing is opened here.
//!
//! Limits: those of single values are in [`values`](super::values).

use std::fmt;
use std::path::{Path, PathBuf};

use ringway_net::moderation::Policy;
use ringway_net::{Features, MacAddress};

use super::error::{Origin, SpecError};
use super::options::{DEFAULT, OPTIONS, PortOption, Ports, find, keys};
use super::rules::Rules;
use super::values::{check_name, is_same_path, parse_interface, parse_socket, parse_tap_fd};
use crate::places;

/// The words for kinds of ports; the other half of each is where the port leads.
pub const KINDS: [&str; 4] = ["vm", "vm-connect", "tap", "tap-fd"];

/// Whether the place of this kind of port is text, and never a number.
pub fn needs_text(kind: &str) -> bool {
    KINDS.contains(&kind) && kind != "tap-fd"
}

/// What to do about a kind that does not exist.
pub const KIND_ADVICE: &str =
    "write vm:SOCKET, vm-connect:SOCKET, tap:IFNAME or tap-fd:NUMBER after the =";

/// A port as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowPort {
    /// Where the port is written down.
    pub origin: Origin,
    /// What it is called.
    pub name: String,
    /// Kind and place; there must be exactly one.
    pub kinds: Vec<LowOption>,
    /// Everything else.
    pub options: Vec<LowOption>,
}

/// A key with its value as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowOption {
    /// Where it is written down.
    pub origin: Origin,
    /// The key.
    pub key: String,
    /// The value as it would be on a command line.
    pub value: String,
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
    /// Whether the port carries anything.
    pub is_link_up: bool,
    /// When the guest is notified.
    pub notify: Policy,
    /// Features that are not offered to the guest.
    pub features_off: Features,
    /// What the switch allows it.
    pub rules: Rules,
    /// Features that are offered only because they were asked for.
    pub features_on: Features,
    /// Queue pairs, at least 1.
    pub queues: u16,
    /// Permissions of the socket's file; `None`: its owner's.
    pub socket_mode: Option<u32>,
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

/// What two ports cannot both have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// A name.
    Name,
    /// A socket, an interface or a file descriptor.
    Place,
    /// A MAC address.
    Mac,
}

impl PortSpec {
    /// A port with nothing but defaults.
    pub fn new(name: &str, kind: PortKind) -> Self {
        Self {
            name: name.to_string(),
            kind,
            mac: None,
            mtu: None,
            is_link_up: true,
            notify: Policy::default(),
            features_off: Features::empty(),
            rules: Rules::default(),
            features_on: Features::empty(),
            queues: 1,
            socket_mode: None,
        }
    }

    /// Checks what was written down.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn resolve(low: &LowPort) -> Result<Self, Vec<SpecError>> {
        let name = check_name(&low.origin, &low.name);
        let kind = low.kind();
        let (Ok(()), Ok(kind)) = (&name, &kind) else {
            return Err(name.err().into_iter().chain(kind.err()).collect());
        };
        let mut spec = Self::new(&low.name, kind.clone());
        let errors = spec.change(&low.options);
        if errors.is_empty() { Ok(spec) } else { Err(errors) }
    }

    /// Sets options; gives everything that is wrong with them. After an error it is half done.
    pub fn change(&mut self, options: &[LowOption]) -> Vec<SpecError> {
        let mut errors = Vec::new();
        let mut seen: Vec<&str> = Vec::new();
        for option in options {
            if seen.contains(&option.key.as_str()) {
                let wrong = format!("{} is given twice", option.key);
                errors.push(option.origin.wrong(wrong, "keep one"));
                continue;
            }
            seen.push(&option.key);
            errors.extend(self.set_option(option).err());
        }
        if errors.is_empty() {
            errors.extend(self.contradictions(options));
        }
        errors
    }

    fn set_option(&mut self, option: &LowOption) -> Result<(), SpecError> {
        let LowOption { origin, key, value } = option;
        if key.is_empty() {
            let wrong = "an option is missing after a comma";
            return Err(origin.wrong(wrong, "write KEY=VALUE, or remove the comma"));
        }
        if KINDS.contains(&key.as_str()) {
            let wrong = format!("{key} says where a port leads, which stays");
            return Err(origin.wrong(wrong, "remove the port and add it again"));
        }
        let Some(known) = find(key) else {
            return Err(origin.unknown_key("option", key, &keys()));
        };
        let wrong = match known.ports {
            Ports::Guests if !self.kind.is_guest() => {
                Some(format!("{key} belongs to guests, and a tap is none"))
            }
            Ports::Listening if !matches!(self.kind, PortKind::Vm { .. }) => {
                Some(format!("{key} belongs to vm, which makes a socket"))
            }
            Ports::Guests | Ports::Listening | Ports::All => None,
        };
        if let Some(wrong) = wrong {
            return Err(origin.wrong(wrong, format!("remove {}", origin.assign(key, value))));
        }
        known.set(self, origin, value)
    }

    /// Options that each are fine and together make no sense.
    fn contradictions(&self, options: &[LowOption]) -> Vec<SpecError> {
        let possible = self.features_offered().drop_unmet();
        let is_asked_for = |option: &&LowOption| option.value != DEFAULT && option.value == "on";
        let unmet = options.iter().filter(is_asked_for).filter(|option| {
            let feature = find(&option.key).and_then(PortOption::feature);
            feature.is_some_and(|feature| !possible.contains(feature))
        });
        let complain = |option: &LowOption| {
            let wrong = format!("{} needs another feature, which is off", option.key);
            let off = OPTIONS.iter().filter_map(|other| {
                let is_off = other.feature().is_some_and(|it| self.features_off.contains(it));
                is_off.then_some(other.key)
            });
            let off: Vec<&str> = off.collect();
            option.origin.wrong(wrong, format!("turn it off too, or turn on {}", off.join(" or ")))
        };
        let queues = options.iter().find(|option| option.key == "queues");
        let queues =
            queues.filter(|_| self.queues > 1 && matches!(self.kind, PortKind::TapFd { .. }));
        let queues = queues.map(|option| {
            let wrong = "a tap that is given as a file descriptor has one queue";
            option.origin.wrong(wrong, "leave queues out, or give the tap by its name")
        });
        let rules = self.rules.contradiction().zip(options.last());
        let rules = rules.map(|((wrong, advice), last)| last.origin.wrong(wrong, advice));
        unmet.map(complain).chain(queues).chain(rules).collect()
    }

    /// What the guest is offered, as far as it has what it needs.
    pub fn features_offered(&self) -> Features {
        let several = if self.queues > 1 { Features::MQ } else { Features::empty() };
        (Features::OFFERED | self.features_on | several) - self.features_off
    }

    /// Whether both cannot exist in one ringway: because of what, why not, and what to do.
    pub fn conflict_with(&self, other: &Self) -> Option<(Clash, String, &'static str)> {
        if other.name == self.name {
            let text = format!("another port is called {} already", self.name);
            return Some((Clash::Name, text, "choose another name"));
        }
        if other.kind.is_same_place(&self.kind) {
            let text = format!("port {} is at {} already", other.name, other.kind.address());
            return Some((Clash::Place, text, "every port needs its own"));
        }
        if other.mac.is_some() && other.mac == self.mac {
            let text = format!("port {} has this MAC address already", other.name);
            return Some((Clash::Mac, text, "every guest needs its own"));
        }
        None
    }
}

impl LowPort {
    /// Where the half of it is written down that another port has too.
    pub fn origin_of(&self, clash: Clash) -> &Origin {
        let option = match clash {
            Clash::Name => None,
            Clash::Place => self.kinds.first(),
            Clash::Mac => self.options.iter().find(|option| option.key == "mac"),
        };
        option.map_or(&self.origin, |option| &option.origin)
    }

    fn kind(&self) -> Result<PortKind, SpecError> {
        match self.kinds.as_slice() {
            [] => {
                let wrong = format!("port {:?} leads nowhere", self.name);
                let example = self.origin.assign("vm", "/run/vm0.sock");
                let advice = format!("add one of {}, such as {example}", KINDS.join(" "));
                Err(self.origin.wrong(wrong, advice))
            }
            [one] => PortKind::parse(&one.origin, &self.name, &one.key, &one.value),
            [one, another, ..] => {
                let wrong = format!("it leads to {} already", one.key);
                Err(another.origin.wrong(wrong, "keep one"))
            }
        }
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

    fn parse(origin: &Origin, name: &str, kind: &str, place: &str) -> Result<Self, SpecError> {
        match kind {
            "vm" if place.is_empty() => Ok(Self::Vm { socket: places::guest_socket(name) }),
            "vm" => Ok(Self::Vm { socket: parse_socket(origin, place)? }),
            "vm-connect" => Ok(Self::VmConnect { socket: parse_socket(origin, place)? }),
            "tap" => Ok(Self::Tap { name: parse_interface(origin, place)? }),
            "tap-fd" => Ok(Self::TapFd { fd: parse_tap_fd(origin, place)? }),
            _ => {
                let wrong = format!("there is no kind of port called {kind:?}");
                Err(origin.wrong(wrong, KIND_ADVICE))
            }
        }
    }

    /// Whether a virtual machine is at its end.
    pub fn is_guest(&self) -> bool {
        matches!(self, Self::Vm { .. } | Self::VmConnect { .. })
    }

    /// Its vhost-user socket.
    pub fn socket(&self) -> Option<&Path> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::flags;
    use crate::config::values::SOCKET_PATH_LEN_MAX;

    fn parse(typed: &str) -> Result<PortSpec, Vec<SpecError>> {
        let low = flags::parse_port(typed).map_err(|error| vec![error])?;
        PortSpec::resolve(&low)
    }

    fn ok(typed: &str) -> PortSpec {
        parse(typed).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    #[test]
    fn a_port_without_options_leaves_everything_open() {
        let kind = PortKind::Vm { socket: "/run/vm0.sock".into() };
        assert_eq!(ok("vm0=vm:/run/vm0.sock"), PortSpec::new("vm0", kind));
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
        assert!(!ok("t=tap:tap0,link=down").is_link_up);
    }

    #[test]
    fn an_option_can_be_taken_back() {
        let mut spec = ok("v=vm:s,mtu=9000,packed=off,link=down,mac=52:54:00:12:34:56");
        let back = flags::parse_options(
            &["mtu", "packed", "link", "mac"].map(|key| format!("{key}={DEFAULT}")),
        );
        assert_eq!(spec.change(&back), []);
        assert_eq!(spec, ok("v=vm:s"));
    }

    #[test]
    fn every_feature_key_turns_off_one_feature_that_is_offered() {
        let mut off = Features::empty();
        for option in OPTIONS {
            let Some(feature) = option.feature() else { continue };
            let key = option.key;
            let offered = |value: &str| ok(&format!("v=vm:s,{key}={value}")).features_offered();
            assert_eq!(offered("on") - offered("off"), feature, "{key}");
            let is_default_on = Features::OFFERED.contains(feature);
            assert_eq!(offered(DEFAULT).contains(feature), is_default_on, "{key}");
            assert!(is_default_on || Features::ON_REQUEST.contains(feature), "{key}");
            assert!(!off.intersects(feature), "{}", option.key);
            off |= feature;
        }
        assert!(!off.is_empty());
    }

    #[test]
    fn what_needs_a_feature_that_is_off_cannot_be_asked_for() {
        assert!(parse("v=vm:s,csum=off").is_ok(), "what needs it goes off with it");
        let errors = parse("v=vm:s,csum=off,host_tso4=on").expect_err("a contradiction");
        assert!(errors[0].to_string().contains("turn on csum"), "{errors:?}");
    }

    #[test]
    fn a_tap_given_as_a_descriptor_has_one_queue() {
        assert_eq!(ok("t=tap:tap0,queues=2").queues, 2);
        assert_eq!(ok("t=tap-fd:3,queues=1").queues, 1);
        let errors = parse("t=tap-fd:3,queues=2").expect_err("it has one");
        assert!(errors[0].to_string().contains("give the tap by its name"), "{errors:?}");
        let more = flags::parse_options(&["queues=2".to_string()]);
        assert_eq!(ok("t=tap-fd:3").change(&more).len(), 1);
    }

    #[test]
    fn a_path_may_be_as_long_as_a_socket_allows_and_no_longer() {
        let longest = "x".repeat(SOCKET_PATH_LEN_MAX);
        assert!(parse(&format!("v=vm:{longest}")).is_ok());
        assert!(parse(&format!("v=vm:{longest}x")).is_err());
    }

    #[test]
    fn all_mistakes_of_a_port_are_told() {
        assert_eq!(parse("v=vm:s,mtu=1,paked=on,mtu=2").expect_err("three").len(), 3);
    }
}
