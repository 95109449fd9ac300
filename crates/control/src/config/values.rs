//! Single values as text: names, paths, numbers, addresses. The same text means the same in every
//! syntax.
//!
//! Limits: a name has at most [`NAME_LEN_MAX`] bytes, a socket path [`SOCKET_PATH_LEN_MAX`].

use std::fmt;
use std::path::{Path, PathBuf};

use ringway_net::TapCalls;
use ringway_net::moderation::Policy;
use ringway_net::{MacAddress, PollMode};

use super::error::{Origin, SpecError};

/// Bytes of a port's name.
pub const NAME_LEN_MAX: usize = 32;

/// Bytes of a path that fit into `sockaddr_un` with the zero at its end (unix(7)).
pub const SOCKET_PATH_LEN_MAX: usize = 107;

/// Bytes of a network interface's name (`IFNAMSIZ` without the zero at its end).
const INTERFACE_NAME_LEN_MAX: usize = 15;

/// The smallest MTU a device may advise (virtio 1.2 §5.1.4.1).
const MTU_MIN: u16 = 68;

/// Standard input, output and error are never a tap.
const TAP_FD_MIN: i32 = 3;

/// The fastest rate that can be configured, per second: more is no limit.
pub const AMOUNT_MAX: u64 = 1_000_000_000_000_000;

/// A user, or a group of users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// As it was written.
    pub name: String,
    /// Its number.
    pub id: u32,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Whether `name` can be the name of a port.
pub(super) fn check_name(origin: &Origin, name: &str) -> Result<(), SpecError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_LEN_MAX && name.bytes().all(is_good) {
        return Ok(());
    }
    let wrong = match name.is_empty() {
        true => "the name before the = is missing".to_string(),
        false => format!("{name:?} cannot be the name of a port"),
    };
    let advice = format!("use 1 to {NAME_LEN_MAX} letters, digits, and any of - _ .");
    Err(origin.wrong(wrong, advice))
}

/// The path of a socket.
pub(super) fn parse_socket(origin: &Origin, path: &str) -> Result<PathBuf, SpecError> {
    if path.is_empty() {
        let advice = "write where it is, such as vm:/run/vm0.sock";
        return Err(origin.wrong("the path of the socket is missing", advice));
    }
    let path = PathBuf::from(path);
    check_socket(origin, &path)?;
    Ok(path)
}

/// Whether a path fits into a socket address.
pub(super) fn check_socket(origin: &Origin, path: &Path) -> Result<(), SpecError> {
    let len = path.as_os_str().len();
    if len <= SOCKET_PATH_LEN_MAX {
        return Ok(());
    }
    let wrong =
        format!("the path has {len} bytes, and a socket's has at most {SOCKET_PATH_LEN_MAX}");
    Err(origin.wrong(wrong, "choose a shorter one"))
}

/// The name of a network interface.
pub(super) fn parse_interface(origin: &Origin, name: &str) -> Result<String, SpecError> {
    let is_bad = |byte: u8| !byte.is_ascii_graphic() || b"/%:".contains(&byte);
    let is_dots = name == "." || name == "..";
    let len_ok = (1..=INTERFACE_NAME_LEN_MAX).contains(&name.len());
    if len_ok && !is_dots && !name.bytes().any(is_bad) {
        return Ok(name.to_string());
    }
    let wrong = match name.is_empty() {
        true => "the name of the tap is missing".to_string(),
        false => format!("{name:?} cannot be the name of a network interface"),
    };
    let advice = format!("use 1 to {INTERFACE_NAME_LEN_MAX} characters without blanks / % :");
    Err(origin.wrong(wrong, advice))
}

/// The number of a file descriptor that was passed in.
pub(super) fn parse_tap_fd(origin: &Origin, number: &str) -> Result<i32, SpecError> {
    let fd = number.parse().ok().filter(|&fd| fd >= TAP_FD_MIN);
    fd.ok_or_else(|| {
        let wrong = format!("{number:?} is not the number of a passed file descriptor");
        origin.wrong(wrong, format!("write a number from {TAP_FD_MIN} on"))
    })
}

/// The MAC address of one station.
pub(super) fn parse_mac(origin: &Origin, text: &str) -> Result<MacAddress, SpecError> {
    let Ok(mac) = text.parse::<MacAddress>() else {
        let example = origin.assign("mac", "52:54:00:12:34:56");
        let advice = format!("write six two-digit hexadecimal numbers, such as {example}");
        let wrong = format!("{text:?} is not a MAC address");
        return Err(origin.wrong(wrong, advice));
    };
    if !mac.is_station() {
        let wrong = format!("{mac} is not the address of one station");
        let advice = "the first number must be even, and not all may be 0";
        return Err(origin.wrong(wrong, advice));
    }
    Ok(mac)
}

/// An MTU in bytes.
pub(super) fn parse_mtu(origin: &Origin, text: &str) -> Result<u16, SpecError> {
    let mtu = text.parse().ok().filter(|&mtu: &u16| mtu >= MTU_MIN);
    mtu.ok_or_else(|| {
        let wrong = format!("{text:?} is not an MTU");
        let example = origin.assign("mtu", "9000");
        let advice = format!("write bytes from {MTU_MIN} to {}, such as {example}", u16::MAX);
        origin.wrong(wrong, advice)
    })
}

/// A policy for notifications.
pub(super) fn parse_notify(origin: &Origin, text: &str) -> Result<Policy, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} is not a policy for notifications");
        let example = origin.assign("notify", "timer:150us");
        let names = "every, on-empty, timer:TIMEus, coalesce:PACKETS/TIMEus or adaptive";
        origin.wrong(wrong, format!("write {names}, such as {example}"))
    })
}

/// A number from 1 on.
pub(super) fn parse_count(
    origin: &Origin,
    key: &str,
    text: &str,
    max: u16,
) -> Result<u16, SpecError> {
    let count = text.parse().ok().filter(|count| (1..=max).contains(count));
    count.ok_or_else(|| {
        let wrong = format!("{text:?} cannot be the number of {key}");
        origin.wrong(
            wrong,
            format!("write a number from 1 to {max}, such as {}", origin.assign(key, "2")),
        )
    })
}

/// Numbers of processors, separated by commas or plus signs.
pub(super) fn parse_processors(origin: &Origin, text: &str) -> Result<Vec<u16>, SpecError> {
    let numbers: Result<Vec<u16>, _> = text.split([',', '+']).map(str::parse).collect();
    numbers.map_err(|_| {
        let wrong = format!("{text:?} is not a list of processors");
        origin.wrong(wrong, "write their numbers, such as 0,1")
    })
}

/// When a worker polls.
pub(super) fn parse_poll(origin: &Origin, text: &str) -> Result<PollMode, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} does not say when to poll");
        origin.wrong(wrong, "write auto, always or never")
    })
}

/// How packets are carried to taps, or from them.
pub(super) fn parse_tap_calls(origin: &Origin, text: &str) -> Result<TapCalls, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} is no way to carry packets");
        origin.wrong(wrong, "write auto, plain or io_uring")
    })
}

/// A share in percent, with or without its sign.
pub(super) fn parse_percent(origin: &Origin, key: &str, text: &str) -> Result<u8, SpecError> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    percent.filter(|percent| *percent <= 100).ok_or_else(|| {
        let wrong = format!("{text:?} is not a share");
        origin.wrong(wrong, format!("write 0% to 100%, such as {}", origin.assign(key, "10%")))
    })
}

/// One of two words, each with what it stands for.
pub(super) fn parse_choice<T: Copy>(
    origin: &Origin,
    key: &str,
    text: &str,
    words: [(&str, T); 2],
) -> Result<T, SpecError> {
    let found = words.iter().find(|(word, _)| *word == text);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let [one, other] = words.map(|(word, _)| word);
        let wrong = format!("{key} can be {one} or {other}, and not {text:?}");
        let [one, other] = [one, other].map(|word| origin.assign(key, word));
        origin.wrong(wrong, format!("write {one} or {other}"))
    })
}

/// A number with k, M, G or T behind it, powers of 1000.
pub(super) fn parse_amount(origin: &Origin, key: &str, text: &str) -> Result<u64, SpecError> {
    let digits = text.trim_end_matches(['k', 'M', 'G', 'T']);
    let unit = match &text[digits.len()..] {
        "" => Some(1),
        "k" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "T" => Some(1_000_000_000_000),
        _ => None,
    };
    // The parser alone would take "+5".
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_plain);
    let value = number.zip(unit).and_then(|(number, unit): (u64, u64)| number.checked_mul(unit));
    value.filter(|&value| value <= AMOUNT_MAX).ok_or_else(|| {
        let example = origin.assign(key, "100M");
        let advice = format!("write a whole number, with k, M, G or T if you like: {example}");
        origin.wrong(format!("{text:?} is not an amount for {key}"), advice)
    })
}

/// Permissions of a file, as octal digits.
pub(super) fn parse_mode(origin: &Origin, text: &str) -> Result<u32, SpecError> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let is_octal = digits.bytes().all(|byte| (b'0'..=b'7').contains(&byte));
    match u32::from_str_radix(digits, 8).ok().filter(|_| is_octal) {
        Some(mode) if mode <= 0o777 => Ok(mode),
        Some(_) => {
            let wrong = format!("{text:?} is more than a file's permissions");
            Err(origin.wrong(wrong, "write octal digits up to 0777"))
        }
        None => {
            let wrong = format!("{text:?} is not a file's permissions");
            Err(origin.wrong(wrong, "write octal digits, such as 0660 (in quotes in a file)"))
        }
    }
}

/// A group of users, by its number or by its name, wherever this machine keeps names
/// (nsswitch.conf(5)).
pub(super) fn parse_group(origin: &Origin, text: &str) -> Result<Account, SpecError> {
    let by_name = || nix::unistd::Group::from_name(text).ok().flatten();
    let id = number_of(text).or_else(|| by_name().map(|group| group.gid.as_raw()));
    id.map(|id| Account { name: text.to_string(), id }).ok_or_else(|| {
        let wrong = format!("this machine knows no group called {text:?}");
        origin.wrong(wrong, "write another (getent group lists them), or the number of one")
    })
}

/// A user, as [`parse_group`] finds groups.
pub(super) fn parse_user(origin: &Origin, text: &str) -> Result<Account, SpecError> {
    let by_name = || nix::unistd::User::from_name(text).ok().flatten();
    let id = number_of(text).or_else(|| by_name().map(|user| user.uid.as_raw()));
    id.map(|id| Account { name: text.to_string(), id }).ok_or_else(|| {
        let wrong = format!("this machine knows no user called {text:?}");
        origin.wrong(wrong, "write another (getent passwd lists them), or the number of one")
    })
}

/// The number of a user or a group; the largest one stands for none (chown(2)).
fn number_of(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&id| id != u32::MAX)
}

/// Whether two paths lead to one place, as far as can be told without looking there.
pub fn is_same_path(one: &Path, other: &Path) -> bool {
    match (std::path::absolute(one), std::path::absolute(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_and_limits() {
        let origin = Origin::flag("typed");
        let parse = |text: &str| parse_amount(&origin, "rate_to_guest", text).ok();
        let units = ["7", "10k", "100M", "2G", "1T"].map(parse);
        let right = [7, 10_000, 100_000_000, 2_000_000_000, 1_000_000_000_000];
        assert_eq!(units, right.map(Some));
        for text in ["", "M", "+5", "-1", "1.5G", "1kk", "1 G", "18446744073709551615", "2000T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn permissions_are_octal_and_no_more_than_nine_bits() {
        let origin = Origin::flag("typed");
        let parse = |text: &str| parse_mode(&origin, text).ok();
        assert_eq!(
            [parse("0660"), parse("0o600"), parse("0")],
            [Some(0o660), Some(0o600), Some(0)]
        );
        for text in ["", "8", "1777", "+600", "rw", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn users_are_found_by_name_and_number() {
        let origin = Origin::flag("typed");
        assert_eq!(parse_user(&origin, "1234").map(|user| user.id), Ok(1234));
        assert_eq!(parse_user(&origin, "root").map(|user| user.id), Ok(0));
        for text in ["no-such-user-here", "4294967295", "-1", ""] {
            assert!(parse_user(&origin, text).is_err() && parse_group(&origin, text).is_err());
        }
    }

    #[test]
    fn groups_are_found_by_name_and_number() {
        let origin = Origin::flag("typed");
        let numbered = parse_group(&origin, "1234").expect("a number is a group");
        assert_eq!(numbered.id, 1234);
        assert_eq!(parse_group(&origin, "root").map(|group| group.id), Ok(0));
        assert!(parse_group(&origin, "no-such-group-here").is_err());
    }
}
