//! The QEMU that command lines are for: the one of this machine, unless another one is named.
//!
//! Limits: only what differs between versions is told apart.

use std::fmt;
use std::process::{Command, Stdio};
use std::str::FromStr;

/// The program that is asked.
const PROGRAM: &str = "qemu-system-x86_64";

/// A version, without what stands behind the second number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QemuVersion {
    major: u32,
    minor: u32,
}

impl QemuVersion {
    /// The first one whose sockets take `reconnect-ms`; `reconnect` was removed in 10.2.
    const WITH_RECONNECT_MS: Self = Self { major: 9, minor: 2 };

    /// The first one that emulates a processor whose guests use vectors of interrupts (MSI-X) of
    /// vhost-user devices; others end.
    const WITH_VECTORS: Self = Self { major: 8, minor: 0 };

    /// Whether vectors work with KVM only.
    pub fn needs_kvm_for_vectors(self) -> bool {
        self < Self::WITH_VECTORS
    }

    /// The one that is installed, if one is.
    pub fn installed() -> Option<Self> {
        let output = Command::new(PROGRAM).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, rest) = text.split_once("version ")?;
        rest.split_whitespace().next()?.parse().ok()
    }

    /// How a socket that connects says that it tries again every second.
    pub fn reconnect(self) -> &'static str {
        match self >= Self::WITH_RECONNECT_MS {
            true => "reconnect-ms=1000",
            false => "reconnect=1",
        }
    }
}

impl fmt::Display for QemuVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for QemuVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut numbers = text.split('.').map(|digits| digits.parse().ok());
        match (numbers.next().flatten(), numbers.next()) {
            (Some(major), None) => Ok(Self { major, minor: 0 }),
            (Some(major), Some(Some(minor))) => Ok(Self { major, minor }),
            _ => Err("write two numbers, such as 9.2".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_connect_again_as_each_version_says_it() {
        let of = |text: &str| text.parse::<QemuVersion>().map(QemuVersion::reconnect);
        for old in ["7.2", "7.2.22", "8", "9.1.3"] {
            assert_eq!(of(old), Ok("reconnect=1"), "{old}");
        }
        for new in ["9.2", "9.2.0", "10", "10.2.1"] {
            assert_eq!(of(new), Ok("reconnect-ms=1000"), "{new}");
        }
        for text in ["", "nine", "9.x", ".2"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
