//! One option of a port: how it is read from text, and how it is written.
//!
//! Limits: a value is text as on the command line; files and requests are brought into that form.

use ringway_net::Features;
use ringway_net::moderation::Policy;

use super::error::{Origin, SpecError};
use super::labels;
use super::literal::Literal;
use super::nat::NatField;
use super::port::PortSpec;
use super::rules::Rule;
use super::values::{
    Account, parse_count, parse_group, parse_link, parse_mac, parse_mirror, parse_mode,
};
use super::values::{parse_mtu, parse_notify, parse_switch, parse_sync, parse_user};

/// The value that stands for an option that was not given.
pub const DEFAULT: &str = "default";

/// The MTU that ringway finds out.
const AUTO: &str = "auto";

/// Most queue pairs of one port.
const QUEUES_MAX: u16 = 64;

/// One option of a port.
#[derive(Debug)]
pub struct PortOption {
    /// What it is called, in every syntax.
    pub key: &'static str,
    /// What it takes, for people.
    pub value: &'static str,
    /// What holds without it, for people.
    pub default: &'static str,
    /// Which ports may have it.
    pub ports: Ports,
    /// When a change of a running port is felt.
    pub effect: Effect,
    /// What it does.
    pub about: &'static str,
    pub(super) field: Field,
}

/// Which ports an option makes sense for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// Those with a virtual machine.
    Guests,
    /// Those that make Unix sockets to which others connect.
    Listening,
    /// Taps.
    Taps,
    /// Routers.
    Routers,
    /// All.
    All,
}

/// When a change of a running port is felt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At once; a guest is told by a configuration change where it can be.
    Now,
    /// By the next guest that connects: a driver has accepted what was offered before.
    NextConnection,
}

/// What an option changes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Field {
    Mac,
    Mtu,
    Link,
    Notify,
    Queues,
    SocketMode,
    SocketUser,
    SocketGroup,
    Feature(Features),
    Rule(Rule),
    Nat(NatField),
    Mirror,
    Announce,
    Fdb,
    Neighbours,
    Offloads,
    Histograms,
    Labels,
    FeatureOnRequest(Features),
}
impl PortOption {
    /// Sets the option from text; [`DEFAULT`] takes it back.
    ///
    /// # Errors
    /// The text is not a value of it.
    pub fn set(&self, spec: &mut PortSpec, origin: &Origin, text: &str) -> Result<(), SpecError> {
        let text = Some(text).filter(|text| *text != DEFAULT);
        match self.field {
            Field::Mac => spec.mac = text.map(|text| parse_mac(origin, text)).transpose()?,
            Field::Mtu => {
                let is_auto = text == Some(AUTO);
                if is_auto && !spec.kind.is_guest() {
                    let wrong = "mtu=auto belongs to guests";
                    return Err(origin.wrong(wrong, "write a number of bytes"));
                }
                let text = text.filter(|_| !is_auto);
                spec.mtu = text.map(|text| parse_mtu(origin, text)).transpose()?;
                spec.has_mtu_of_uplinks = is_auto;
            }
            Field::Link => {
                let is_up = text.map(|text| parse_link(origin, text)).transpose()?;
                spec.is_link_up = is_up.unwrap_or(true);
            }
            Field::Rule(rule) => rule.set(&mut spec.rules, origin, self.key, text)?,
            Field::Nat(field) => field.set(&mut spec.nat, origin, text)?,
            Field::Mirror => {
                let mirror = text.map(|text| parse_mirror(origin, &spec.name, text));
                spec.mirror = mirror.transpose()?;
            }
            Field::Announce => {
                let is_on = text.map(|text| parse_switch(origin, self.key, text)).transpose()?;
                spec.announces = is_on.unwrap_or(true);
            }
            Field::Fdb => spec.syncs_fdb = parse_sync(origin, self.key, text)?,
            Field::Neighbours => spec.syncs_neighbours = parse_sync(origin, self.key, text)?,
            Field::Labels => {
                let labels = text.map(|text| labels::parse(origin, text)).transpose()?;
                spec.labels = labels.unwrap_or_default();
            }
            Field::Offloads => {
                let is_on = text.map(|text| parse_switch(origin, self.key, text)).transpose()?;
                spec.offloads = is_on.unwrap_or(true);
            }
            Field::Histograms => {
                let is_on = text.map(|text| parse_switch(origin, self.key, text)).transpose()?;
                spec.has_histograms = is_on.unwrap_or(false);
            }
            Field::Notify => {
                let policy = text.map(|text| parse_notify(origin, text)).transpose()?;
                spec.notify = policy.unwrap_or_default();
            }
            Field::Queues => {
                let queues = text.map(|text| parse_count(origin, self.key, text, QUEUES_MAX));
                spec.queues = queues.transpose()?.unwrap_or(1);
            }
            Field::SocketMode => {
                let mode = text.map(|text| parse_mode(origin, text)).transpose()?;
                spec.socket_mode = mode;
            }
            Field::SocketUser => {
                spec.socket_user = text.map(|text| parse_user(origin, text)).transpose()?;
            }
            Field::SocketGroup => {
                spec.socket_group = text.map(|text| parse_group(origin, text)).transpose()?;
            }
            Field::FeatureOnRequest(feature) => {
                let is_on = text.map(|text| parse_switch(origin, self.key, text)).transpose()?;
                spec.features_on.set(feature, is_on.unwrap_or(false));
            }
            Field::Feature(feature) => {
                let is_on = text.map(|text| parse_switch(origin, self.key, text)).transpose()?;
                spec.features_off.set(feature, !is_on.unwrap_or(true));
            }
        }
        Ok(())
    }

    /// What a port has; `None`: the default.
    pub fn value_of(&self, spec: &PortSpec) -> Option<Literal> {
        match self.field {
            Field::Mac => spec.mac.map(|mac| Literal::Text(mac.to_string())),
            Field::Mtu if spec.has_mtu_of_uplinks => Some(Literal::Text(AUTO.into())),
            Field::Mtu => spec.mtu.map(|mtu| Literal::Number(mtu.into())),
            Field::Link => (!spec.is_link_up).then(|| Literal::Text("down".into())),
            Field::Rule(rule) => rule.value_of(&spec.rules),
            Field::Nat(field) => field.value_of(&spec.nat),
            Field::Notify => {
                (spec.notify != Policy::default()).then(|| Literal::Text(spec.notify.to_string()))
            }
            Field::Announce => (!spec.announces).then_some(Literal::Switch(false)),
            Field::Fdb => spec.syncs_fdb.then(|| Literal::Text("sync".into())),
            Field::Neighbours => spec.syncs_neighbours.then(|| Literal::Text("sync".into())),
            Field::Labels => labels::written(&spec.labels),
            Field::Offloads => (!spec.offloads).then_some(Literal::Switch(false)),
            Field::Histograms => spec.has_histograms.then_some(Literal::Switch(true)),
            Field::Mirror => spec.mirror.clone().map(Literal::Text),
            Field::Queues => (spec.queues != 1).then(|| Literal::Number(spec.queues.into())),
            Field::SocketMode => spec.socket_mode.map(|mode| Literal::Text(format!("{mode:04o}"))),
            Field::SocketUser => name_of(spec.socket_user.as_ref()),
            Field::SocketGroup => name_of(spec.socket_group.as_ref()),
            Field::FeatureOnRequest(feature) => {
                spec.features_on.contains(feature).then_some(Literal::Switch(true))
            }
            Field::Feature(feature) => {
                spec.features_off.contains(feature).then_some(Literal::Switch(false))
            }
        }
    }

    /// The feature it turns on and off.
    pub fn feature(&self) -> Option<Features> {
        match self.field {
            Field::Feature(feature) | Field::FeatureOnRequest(feature) => Some(feature),
            _ => None,
        }
    }
}

fn name_of(account: Option<&Account>) -> Option<Literal> {
    account.map(|account| Literal::Text(account.name.clone()))
}

impl Effect {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Now => "at once",
            Self::NextConnection => "next guest",
        }
    }
}

impl Ports {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guests => "guests",
            Self::Listening => "`vm`, `nat`",
            Self::Taps => "taps",
            Self::Routers => "`nat`",
            Self::All => "all",
        }
    }
}
