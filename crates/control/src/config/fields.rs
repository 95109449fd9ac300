//! Fields of a port whose values are read and written in ways of their own.

use ringway_net::moderation::Policy;

use super::error::SpecError;
use super::kind::{OptionText, written_list};
use super::literal::Literal;
use super::port::PortSpec;
use super::values::{check_name, parse_count, parse_mode, parse_mtu, parse_notify};

/// The MTU that ringway finds out.
const AUTO: &str = "auto";

/// Most queue pairs of one port.
const QUEUES_MAX: u16 = 64;

/// The MTU, or that it is found out.
pub fn read_mtu(spec: &mut PortSpec, text: &OptionText<'_>) -> Result<(), SpecError> {
    let is_auto = text.text == Some(AUTO);
    if is_auto && !spec.kind.is_guest() {
        let wrong = "mtu=auto belongs to guests";
        return Err(text.origin.wrong(wrong, "write a number of bytes"));
    }
    spec.mtu = if is_auto { None } else { text.parse(parse_mtu)? };
    spec.has_mtu_of_uplinks = is_auto;
    Ok(())
}

pub fn write_mtu(spec: &PortSpec, _: &str) -> Option<Literal> {
    match spec.has_mtu_of_uplinks {
        true => Some(Literal::Text(AUTO.into())),
        false => spec.mtu.map(|mtu| Literal::Number(mtu.into())),
    }
}

/// The name of another port.
pub fn read_mirror(spec: &mut PortSpec, text: &OptionText<'_>) -> Result<(), SpecError> {
    spec.mirror = text.parse(|origin, name| {
        check_name(origin, name)?;
        if name == spec.name {
            let wrong = "a port cannot be the mirror of itself";
            return Err(origin.wrong(wrong, "write the name of the port that gets the copies"));
        }
        Ok(name.to_owned())
    })?;
    Ok(())
}

pub fn write_mirror(spec: &PortSpec, _: &str) -> Option<Literal> {
    spec.mirror.clone().map(Literal::Text)
}

/// The guests' networks.
pub fn read_range(spec: &mut PortSpec, text: &OptionText<'_>) -> Result<(), SpecError> {
    spec.nat.read_range(text)
}

pub fn write_range(spec: &PortSpec, _: &str) -> Option<Literal> {
    written_list(spec.nat.ranges())
}

/// When a guest is notified.
pub fn notify(text: &OptionText<'_>) -> Result<Policy, SpecError> {
    text.parse(parse_notify).map(Option::unwrap_or_default)
}

pub fn written_notify(policy: &Policy) -> Option<Literal> {
    (*policy != Policy::default()).then(|| Literal::Text(policy.to_string()))
}

/// How many queue pairs a port has.
pub fn queues(text: &OptionText<'_>) -> Result<u16, SpecError> {
    let count = text.parse(|origin, typed| parse_count(origin, text.key, typed, QUEUES_MAX))?;
    Ok(count.unwrap_or(1))
}

pub fn written_queues(count: &u16) -> Option<Literal> {
    (*count != 1).then(|| Literal::Number((*count).into()))
}

/// Permissions of a socket's file.
pub fn socket_mode(text: &OptionText<'_>) -> Result<Option<u32>, SpecError> {
    text.parse(parse_mode)
}

pub fn written_socket_mode(mode: &Option<u32>) -> Option<Literal> {
    mode.map(|mode| Literal::Text(format!("{mode:04o}")))
}
