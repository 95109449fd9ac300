//! The policy of moderation that a user chooses, as text: `every`, `on-empty`, `timer:150us`,
//! `coalesce:16/50us`, `adaptive`.

use core::fmt;
use core::str::FromStr;

use crate::coalescing::{CoalesceLimits, usecs_in};

/// A policy by name, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Policy {
    /// Notify at every visit, and ask to be notified of every buffer.
    Every,
    /// Notify when nothing more is at hand, and ask when everything was taken.
    OnEmpty,
    /// The scheme of 2008: notifications are suppressed while a timer runs.
    Timer {
        /// How long it runs, in microseconds.
        usecs: u32,
    },
    /// `VIRTIO_NET_F_NOTF_COAL`: after so many packets or so much time.
    Coalesce(CoalesceLimits),
    /// Holds that follow the traffic.
    #[default]
    Adaptive,
}

/// The text names no policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyError;

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "not a policy: use every, on-empty, timer:150us, coalesce:16/50us or adaptive \
             (at most 32768 packets and 1000000us)",
        )
    }
}

impl core::error::Error for PolicyError {}

impl FromStr for Policy {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let policy = match text.split_once(':').unwrap_or((text, "")) {
            ("every", "") => Some(Self::Every),
            ("on-empty", "") => Some(Self::OnEmpty),
            ("adaptive", "") => Some(Self::Adaptive),
            ("timer", usecs) => usecs_in(usecs).map(|usecs| Self::Timer { usecs }),
            ("coalesce", limits) => CoalesceLimits::from_text(limits).map(Self::Coalesce),
            _ => None,
        };
        policy.filter(|policy| *policy != Self::Timer { usecs: 0 }).ok_or(PolicyError)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every"),
            Self::OnEmpty => f.write_str("on-empty"),
            Self::Timer { usecs } => write!(f, "timer:{usecs}us"),
            Self::Coalesce(limits) => write!(f, "coalesce:{limits}"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn what_is_printed_is_read_again() {
        for text in ["every", "on-empty", "timer:150us", "coalesce:16/50us", "adaptive"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "none",
            "every:1",
            "timer",
            "timer:0us",
            "timer:5",
            "timer:1000001us",
            "coalesce:16",
            "coalesce:16/50",
            "coalesce:32769/50us",
            "coalesce:-1/50us",
        ] {
            assert_eq!(text.parse::<Policy>(), Err(PolicyError), "{text}");
        }
    }
}
