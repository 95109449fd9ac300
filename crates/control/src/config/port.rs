//! One port: [`LowPort`] is what was written down, in whatever syntax; checked against the tables
//! it becomes a [`PortSpec`]. Nothing is opened here.
//!
//! Limits: those of single values are in [`values`](super::values).

use std::fmt;
use std::path::{Path, PathBuf};

use ringway_net::moderation::Policy;
use ringway_net::{Features, MacAddress};
use ringway_switch::PortPolicy;

use super::error::{Origin, SpecError};
use super::labels::Labels;
use super::nat::NatSpec;
use super::rules::Rules;
use super::values::{Account, is_same_path, parse_interface, parse_socket, parse_tap_fd};
use crate::places;

/// The words for kinds of ports; the other half of each is where the port leads.
pub const KINDS: [&str; 5] = ["vm", "vm-connect", "tap", "tap-fd", "nat"];

/// Permissions of a port's socket if nothing else is said: its owner's.
const SOCKET_MODE: u32 = 0o600;

/// The mode bits that a group needs to connect.
const GROUP_MAY_CONNECT: u32 = 0o060;

/// Whether the place of this kind of port is text, and never a number.
pub fn needs_text(kind: &str) -> bool {
    KINDS.contains(&kind) && kind != "tap-fd"
}

/// The advice about a kind that does not exist.
pub const KIND_ADVICE: &str =
    "write vm:SOCKET, vm-connect:SOCKET, tap:IFNAME, tap-fd:NUMBER or nat: after the =";

/// The users that may open the file of a port's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SocketAccess {
    /// Its permissions, at most 0777.
    pub mode: u32,
    /// Its owner; `None`: the one it was made with.
    pub user: Option<u32>,
    /// Its group; `None`: the one it was made with.
    pub group: Option<u32>,
}

/// A port as it was written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LowPort {
    /// Where the port is written down.
    pub origin: Origin,
    /// The name of the port.
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
    /// The name of the port in logs and statistics.
    pub name: String,
    /// Where it leads.
    pub kind: PortKind,
    /// The guest's MAC address; `None`: ringway chooses.
    pub mac: Option<MacAddress>,
    /// MTU in bytes, advised to the guest or set on the tap; `None`: neither.
    pub mtu: Option<u16>,
    /// Instead: the smallest MTU behind the uplinks of its VLAN.
    pub has_mtu_of_uplinks: bool,
    /// Whether the port carries anything.
    pub is_link_up: bool,
    /// When the guest is notified.
    pub notify: Policy,
    /// Features that are not offered to the guest.
    pub features_off: Features,
    /// The rules of the switch for it.
    pub rules: Rules,
    /// Features that are offered only because they were asked for.
    pub features_on: Features,
    /// Queue pairs, at least 1.
    pub queues: u16,
    /// Permissions of the socket's file; `None`: its owner's, and a named group's.
    pub socket_mode: Option<u32>,
    /// Its owner; `None`: the user that ringway is.
    pub socket_user: Option<Account>,
    /// Its group; `None`: the one that new files have.
    pub socket_group: Option<Account>,
    /// Of a router.
    pub nat: NatSpec,
    /// The name of a port that gets copies of this one's packets.
    pub mirror: Option<String>,
    /// Whether networks behind uplinks are told where its guest is.
    pub announces: bool,
    /// Whether stations that leave are taken out of the bridge behind a tap.
    pub syncs_fdb: bool,
    /// Whether the bridge behind a tap is told the IP addresses of guests.
    pub syncs_neighbours: bool,
    /// Whether checksums and segments may be left undone in packets that leave by it.
    pub offloads: bool,
    /// Whether it is counted how long packets of its guest wait.
    pub has_histograms: bool,
    /// Whether the state of its guest's device may be saved and loaded.
    pub has_device_state: bool,
    /// The labels of the port.
    pub labels: Labels,
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
    /// A router to what this machine reaches.
    Nat,
}

/// A property that two ports cannot both have.
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
            has_mtu_of_uplinks: false,
            is_link_up: true,
            notify: Policy::default(),
            features_off: Features::empty(),
            rules: Rules::default(),
            features_on: Features::empty(),
            queues: 1,
            socket_mode: None,
            socket_user: None,
            socket_group: None,
            nat: NatSpec::default(),
            mirror: None,
            announces: true,
            syncs_fdb: false,
            syncs_neighbours: false,
            offloads: true,
            has_histograms: false,
            has_device_state: true,
            labels: Labels::new(),
        }
    }

    /// The features that the guest is offered, as far as it has what they need.
    pub fn features_offered(&self) -> Features {
        let several = if self.queues > 1 { Features::MQ } else { Features::empty() };
        let offloads = if self.offloads { Features::empty() } else { Features::GUEST_OFFLOADS };
        (Features::OFFERED | self.features_on | several) - self.features_off - offloads
    }

    /// The policy for the switch: the rules, and what a tap asks for.
    pub fn policy(&self) -> PortPolicy {
        PortPolicy { notes_ips: self.syncs_neighbours, ..self.rules.policy() }
    }

    /// The users that may open the socket's file.
    pub fn socket_access(&self) -> SocketAccess {
        let mode = match self.socket_group {
            Some(_) => SOCKET_MODE | GROUP_MAY_CONNECT,
            None => SOCKET_MODE,
        };
        SocketAccess {
            mode: self.socket_mode.unwrap_or(mode),
            user: self.socket_user.as_ref().map(|user| user.id),
            group: self.socket_group.as_ref().map(|group| group.id),
        }
    }

    /// The fault, if a user or a group is named and cannot open the socket's file.
    pub fn locked_out(&self) -> Option<String> {
        let mode = self.socket_access().mode;
        let owner = self.socket_user.as_ref().filter(|_| mode & SOCKET_MODE != SOCKET_MODE);
        let group = self.socket_group.as_ref();
        let group = group.filter(|_| mode & GROUP_MAY_CONNECT != GROUP_MAY_CONNECT);
        let (what, account) = owner.map(|it| ("user", it)).or(group.map(|it| ("group", it)))?;
        Some(format!("{what} {} may use a socket that it cannot open", account.name))
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

    /// A socket without a path lies beside that control socket.
    pub fn placed_beside(mut self, control: &Path) -> Self {
        let place = places::guest_socket(&self.name, control);
        let Some(place) = place.to_str() else { return self };
        let unsaid = self.kinds.iter_mut().filter(|it| it.key == "vm" && it.value.is_empty());
        unsaid.for_each(|it| place.clone_into(&mut it.value));
        self
    }

    /// The kind that it is of.
    ///
    /// # Errors
    /// None is written down, or two are, or it is unknown.
    pub fn kind(&self) -> Result<PortKind, SpecError> {
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
            Self::Nat => "nat",
        }
    }

    /// The text after the colon: socket path, interface name or number.
    pub fn address(&self) -> String {
        match self {
            Self::Vm { socket } | Self::VmConnect { socket } => socket.display().to_string(),
            Self::Tap { name } => name.clone(),
            Self::TapFd { fd } => fd.to_string(),
            Self::Nat => String::new(),
        }
    }

    fn parse(origin: &Origin, name: &str, kind: &str, place: &str) -> Result<Self, SpecError> {
        match kind {
            "vm" if place.is_empty() => {
                let control = places::control_socket();
                Ok(Self::Vm { socket: places::guest_socket(name, &control) })
            }
            "vm" => Ok(Self::Vm { socket: parse_socket(origin, place)? }),
            "vm-connect" => Ok(Self::VmConnect { socket: parse_socket(origin, place)? }),
            "tap" => Ok(Self::Tap { name: parse_interface(origin, place)? }),
            "tap-fd" => Ok(Self::TapFd { fd: parse_tap_fd(origin, place)? }),
            "nat" if place.is_empty() => Ok(Self::Nat),
            "nat" => {
                let wrong = format!("{place:?} stands where a router needs nothing");
                Err(origin.wrong(wrong, "write nat:, and networks as an option: range=10.0.2.0/24"))
            }
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

    /// Whether an interface of the host is at its end.
    pub fn is_tap(&self) -> bool {
        matches!(self, Self::Tap { .. } | Self::TapFd { .. })
    }

    /// Its vhost-user socket.
    pub fn socket(&self) -> Option<&Path> {
        match self {
            Self::Vm { socket } | Self::VmConnect { socket } => Some(socket),
            Self::Tap { .. } | Self::TapFd { .. } | Self::Nat => None,
        }
    }

    /// Whether it is the same place, which only one port can have.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self.socket(), other.socket()) {
            (Some(one), Some(other)) => is_same_path(one, other),
            // Two routers may serve two VLANs.
            _ if *self == Self::Nat => false,
            _ => self == other,
        }
    }
}

impl fmt::Display for PortKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name(), self.address())
    }
}
