//! The single values in what was typed after `--port`: names, paths, numbers, addresses.
//!
//! Limits: a name has at most [`NAME_LEN_MAX`] bytes, a socket path [`SOCKET_PATH_LEN_MAX`].

use std::path::{Path, PathBuf};

use ringway_net::MacAddress;

use crate::spec_error::SpecError;

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

/// Whether `name` can be the name of a port.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn check_name(typed: &str, name: &str) -> Result<(), SpecError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !name.is_empty() && name.len() <= NAME_LEN_MAX && name.bytes().all(is_good) {
        return Ok(());
    }
    let wrong = match name.is_empty() {
        true => "the name before the = is missing".to_string(),
        false => format!("{name:?} cannot be the name of a port"),
    };
    let advice = format!("use 1 to {NAME_LEN_MAX} letters, digits, and any of - _ .");
    Err(SpecError::new(typed, wrong, advice))
}

/// The path of a socket.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_socket(typed: &str, path: &str) -> Result<PathBuf, SpecError> {
    if path.is_empty() {
        let advice = "write where it is, such as vm:/run/vm0.sock";
        return Err(SpecError::new(typed, "the path of the socket is missing", advice));
    }
    let path = PathBuf::from(path);
    check_socket(&path, typed)?;
    Ok(path)
}

/// Whether a path fits into a socket address.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn check_socket(path: &Path, typed: &str) -> Result<(), SpecError> {
    let len = path.as_os_str().len();
    if len <= SOCKET_PATH_LEN_MAX {
        return Ok(());
    }
    let wrong =
        format!("the path has {len} bytes, and a socket's has at most {SOCKET_PATH_LEN_MAX}");
    Err(SpecError::new(typed, wrong, "choose a shorter one"))
}

/// The name of a network interface.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_interface(typed: &str, name: &str) -> Result<String, SpecError> {
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
    Err(SpecError::new(typed, wrong, advice))
}

/// The number of a file descriptor that was passed in.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_tap_fd(typed: &str, number: &str) -> Result<i32, SpecError> {
    let fd = number.parse().ok().filter(|&fd| fd >= TAP_FD_MIN);
    fd.ok_or_else(|| {
        let wrong = format!("{number:?} is not the number of a passed file descriptor");
        SpecError::new(typed, wrong, format!("write a number from {TAP_FD_MIN} on"))
    })
}

/// The MAC address of one station.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_mac(typed: &str, text: &str) -> Result<MacAddress, SpecError> {
    let advice = "write six two-digit hexadecimal numbers, such as mac=52:54:00:12:34:56";
    let Ok(mac) = text.parse::<MacAddress>() else {
        let wrong = format!("{text:?} is not a MAC address");
        return Err(SpecError::new(typed, wrong, advice));
    };
    if !mac.is_station() {
        let wrong = format!("{mac} is not the address of one station");
        let advice = "the first number must be even, and not all may be 0";
        return Err(SpecError::new(typed, wrong, advice));
    }
    Ok(mac)
}

/// An MTU in bytes.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_mtu(typed: &str, text: &str) -> Result<u16, SpecError> {
    let mtu = text.parse().ok().filter(|&mtu: &u16| mtu >= MTU_MIN);
    mtu.ok_or_else(|| {
        let wrong = format!("{text:?} is not an MTU");
        let advice = format!("write bytes from {MTU_MIN} to {}, such as mtu=9000", u16::MAX);
        SpecError::new(typed, wrong, advice)
    })
}

/// `on` or `off`.
///
/// # Errors
/// Starts with `typed`, all of what was typed.
pub fn parse_switch(typed: &str, key: &str, text: &str) -> Result<bool, SpecError> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => {
            let wrong = format!("{key} can be on or off, and not {text:?}");
            Err(SpecError::new(typed, wrong, format!("write {key}=on or {key}=off")))
        }
    }
}

/// Whether two paths lead to one place, as far as can be told without looking there.
pub fn is_same_path(one: &Path, other: &Path) -> bool {
    match (std::path::absolute(one), std::path::absolute(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}
