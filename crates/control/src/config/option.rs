//! One option of a port: a row that says what it is called, which field of [`PortSpec`] it sets,
//! and how a value is read and written ([`Kind`]).

use ringway_net::Features;

use super::error::{Origin, SpecError};
use super::kind::{Kind, OptionText, SWITCH};
use super::literal::Literal;
use super::port::PortSpec;

/// The value that stands for an option that was not given.
pub const DEFAULT: &str = "default";

/// One option of a port.
#[derive(Debug)]
pub struct PortOption {
    /// The name of the option, in every syntax.
    pub key: &'static str,
    /// The values that it takes, for people.
    pub value: &'static str,
    /// The value without it, for people.
    pub default: &'static str,
    /// The ports that may have it.
    pub ports: Ports,
    /// When a change of a running port is felt.
    pub effect: EffectTime,
    /// The effect of the option, for people.
    pub about: &'static str,
    target: Target,
}

/// The ports that an option makes sense for.
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
pub enum EffectTime {
    /// At once; a guest is told by a configuration change where it can be.
    Now,
    /// By the next guest that connects: a driver has accepted what was offered before.
    NextConnection,
}

/// Reads a value into a port.
pub(super) type Read = fn(&mut PortSpec, &OptionText<'_>) -> Result<(), SpecError>;

/// Writes the value of a port; `None`: it is the default, whose word comes with it.
pub(super) type Write = fn(&PortSpec, &str) -> Option<Literal>;

/// The part of a port that an option sets.
#[derive(Debug, Clone, Copy)]
pub(super) enum Target {
    /// One field, or several that belong together.
    Field(Read, Write),
    /// A feature that is offered, or not.
    Feature(Features),
}

/// A row for all ports, of which a change is felt at once.
pub(super) const fn row(key: &'static str, target: Target) -> PortOption {
    let (ports, effect) = (Ports::All, EffectTime::Now);
    PortOption { key, value: "", default: "", ports, effect, about: "", target }
}

/// A row for a feature of a guest's device.
pub(super) const fn feature(
    key: &'static str,
    feature: Features,
    about: &'static str,
) -> PortOption {
    let default = if is_on_request(feature) { "off" } else { "on" };
    let row = row(key, Target::Feature(feature)).takes("on or off", default).about(about);
    row.of(Ports::Guests).at(EffectTime::NextConnection)
}

/// Whether a feature is offered only if it is asked for.
const fn is_on_request(feature: Features) -> bool {
    Features::ON_REQUEST.contains(feature)
}

/// A row whose values are all in one field: the key, the field, and the kind of its values.
macro_rules! option {
    ($key:expr, $($field:ident).+, $kind:expr) => {{
        let read: Read = |spec, text| {
            spec.$($field).+ = Kind::read(&$kind, text)?;
            Ok(())
        };
        let write: Write = |spec, default| Kind::write(&$kind, &spec.$($field).+, default);
        row($key, Target::Field(read, write))
    }};
}
pub(super) use option;

impl PortOption {
    /// The same row with what it takes, and what holds without it.
    pub(super) const fn takes(self, value: &'static str, default: &'static str) -> Self {
        Self { value, default, ..self }
    }

    /// The same row with what it does.
    pub(super) const fn about(self, about: &'static str) -> Self {
        Self { about, ..self }
    }

    /// The same row for those ports only.
    pub(super) const fn of(self, ports: Ports) -> Self {
        Self { ports, ..self }
    }

    /// The same row with a change felt at another time.
    pub(super) const fn at(self, effect: EffectTime) -> Self {
        Self { effect, ..self }
    }

    /// Sets the option from text; [`DEFAULT`] takes it back.
    ///
    /// # Errors
    /// The text is not a value of it.
    pub fn set(&self, spec: &mut PortSpec, origin: &Origin, text: &str) -> Result<(), SpecError> {
        let text = Some(text).filter(|text| *text != DEFAULT);
        let text = OptionText { origin, key: self.key, default: self.default, text };
        match self.target {
            Target::Field(read, _) => read(spec, &text),
            Target::Feature(feature) => {
                let is_on = SWITCH.read(&text)?;
                let is_on_request = is_on_request(feature);
                spec.features_on.set(feature, is_on && is_on_request);
                spec.features_off.set(feature, !is_on && !is_on_request);
                Ok(())
            }
        }
    }

    /// The value of a port; `None`: the default.
    pub fn value_of(&self, spec: &PortSpec) -> Option<Literal> {
        match self.target {
            Target::Field(_, write) => write(spec, self.default),
            Target::Feature(feature) if spec.features_on.contains(feature) => {
                Some(Literal::Switch(true))
            }
            Target::Feature(feature) => {
                spec.features_off.contains(feature).then_some(Literal::Switch(false))
            }
        }
    }

    /// The feature it turns on and off.
    pub fn feature(&self) -> Option<Features> {
        match self.target {
            Target::Feature(feature) => Some(feature),
            Target::Field(..) => None,
        }
    }
}

impl EffectTime {
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
