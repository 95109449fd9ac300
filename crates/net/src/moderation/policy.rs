//! What a user chooses, as text: `every`, `on-empty`, `timer:150us`, `coalesce:16/50us`,
//! `adaptive`.

use core::fmt;
use core::str::FromStr;

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

/// The two limits, named as in `struct virtio_net_ctrl_coal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoalesceLimits {
    /// Packets before a notification.
    pub max_packets: u32,
    /// Microseconds before a notification.
    pub max_usecs: u32,
}

impl CoalesceLimits {
    /// Most packets that a driver may ask for: no queue has more entries.
    pub const PACKETS_MAX: u32 = 32_768;
    /// Longest delay in microseconds that a driver may ask for: beyond a second a guest looks dead.
    pub const USECS_MAX: u32 = 1_000_000;

    /// Whether a driver may ask for this.
    pub const fn is_in_range(self) -> bool {
        self.max_packets <= Self::PACKETS_MAX && self.max_usecs <= Self::USECS_MAX
    }

    /// The time limit in nanoseconds.
    pub(super) const fn hold_ns(self) -> u64 {
        self.max_usecs as u64 * 1000
    }
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
        let (name, parameters) = text.split_once(':').unwrap_or((text, ""));
        match (name, parameters) {
            ("every", "") => Ok(Self::Every),
            ("on-empty", "") => Ok(Self::OnEmpty),
            ("adaptive", "") => Ok(Self::Adaptive),
            ("timer", usecs) => {
                let usecs = usecs_in(usecs).filter(|usecs| *usecs > 0).ok_or(PolicyError)?;
                Ok(Self::Timer { usecs })
            }
            ("coalesce", limits) => {
                let (packets, usecs) = limits.split_once('/').ok_or(PolicyError)?;
                let max_packets = packets.parse().map_err(|_| PolicyError)?;
                let max_usecs = usecs_in(usecs).ok_or(PolicyError)?;
                let limits = CoalesceLimits { max_packets, max_usecs };
                limits.is_in_range().then_some(Self::Coalesce(limits)).ok_or(PolicyError)
            }
            _ => Err(PolicyError),
        }
    }
}

fn usecs_in(text: &str) -> Option<u32> {
    let usecs = text.strip_suffix("us")?.parse().ok()?;
    (usecs <= CoalesceLimits::USECS_MAX).then_some(usecs)
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every"),
            Self::OnEmpty => f.write_str("on-empty"),
            Self::Timer { usecs } => write!(f, "timer:{usecs}us"),
            Self::Coalesce(CoalesceLimits { max_packets, max_usecs }) => {
                write!(f, "coalesce:{max_packets}/{max_usecs}us")
            }
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
