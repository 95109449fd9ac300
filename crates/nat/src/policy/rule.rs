//! One rule of a policy: a service, and where it is.
//!
//! `[tcp:PORTS|udp:PORTS|tls:PORTS] NAME|*.NAME|.NAME|NETWORK|private`, with `PORTS` as `443+8443`.

use std::fmt;
use std::str::FromStr;

use super::name::NamePattern;
use crate::networks::Network;

/// Most ports of one rule.
pub const RULE_PORTS_MAX: usize = 16;

/// Networks that `private` means (RFC 1918, RFC 6598, RFC 4193); the networks of this machine are
/// added by those who know them.
pub const PRIVATE: [Network; 5] = [
    Network::v4(10, 0, 0, 0, 8),
    Network::v4(172, 16, 0, 0, 12),
    Network::v4(192, 168, 0, 0, 16),
    Network::v4(100, 64, 0, 0, 10),
    Network::v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

/// How a guest speaks with a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ServiceKind {
    /// TCP, whatever it carries.
    Tcp,
    /// UDP, whatever it carries.
    Udp,
    /// TCP whose first bytes name the host (`server_name`, RFC 6066 §3).
    Tls,
}

impl ServiceKind {
    const ALL: [(&'static str, Self); 3] =
        [("tcp", Self::Tcp), ("udp", Self::Udp), ("tls", Self::Tls)];
}

/// Ports that are reached in one way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Service {
    /// How it is spoken with.
    pub kind: ServiceKind,
    /// [`RULE_PORTS_MAX`] at most.
    pub ports: Vec<u16>,
}

/// The hosts that a rule means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulePlace {
    /// Hosts with such names.
    Name(NamePattern),
    /// All of a network.
    Network(Network),
    /// Networks that are not the internet's, and those of this machine.
    Private,
}

/// A service that a guest may reach, or must not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// `None`: TLS on port 443 of a name that is allowed, and everything in all other rules.
    pub service: Option<Service>,
    /// The hosts.
    pub place: RulePlace,
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let mut words = text.split_whitespace();
        let (first, second, more) = (words.next(), words.next(), words.next());
        if more.is_some() {
            return Err(RuleError::Words);
        }
        let (service, place) = match (first, second) {
            (Some(service), Some(place)) => (Some(service.parse()?), place),
            (Some(place), None) => (None, place),
            _ => return Err(RuleError::Words),
        };
        let rule = Self { service, place: place.parse()? };
        let is_tls = rule.service.as_ref().is_some_and(|it| it.kind == ServiceKind::Tls);
        if is_tls && !matches!(rule.place, RulePlace::Name(_)) {
            return Err(RuleError::TlsWithoutName);
        }
        Ok(rule)
    }
}

impl FromStr for Service {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        let (kind, ports) = text.split_once(':').ok_or_else(|| RuleError::service(text))?;
        let kind = ServiceKind::ALL.into_iter().find(|(name, _)| *name == kind);
        let (_, kind) = kind.ok_or_else(|| RuleError::service(text))?;
        let port = |port: &str| port.parse().ok().filter(|port| *port > 0);
        let ports: Option<Vec<u16>> = ports.split('+').map(port).collect();
        let ports = ports.filter(|ports| ports.len() <= RULE_PORTS_MAX);
        Ok(Self { kind, ports: ports.ok_or_else(|| RuleError::service(text))? })
    }
}

impl FromStr for RulePlace {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text == "private" {
            return Ok(Self::Private);
        }
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        // A network with a mistake in it is no name: 10.0.0.1/8, 10.0.0.256.
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_name = name.rsplit('.').next().is_some_and(|label| {
            !label.is_empty() && !label.bytes().all(|byte| byte.is_ascii_digit())
        });
        let pattern = NamePattern::parse(text).filter(|_| is_name);
        pattern.map(Self::Name).ok_or_else(|| RuleError::Place(text.to_owned()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Service { kind, ports }) = &self.service {
            let name =
                ServiceKind::ALL.into_iter().find(|(_, it)| it == kind).map_or("", |it| it.0);
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            write!(f, "{name}:{} ", ports.join("+"))?;
        }
        match &self.place {
            RulePlace::Name(pattern) => pattern.fmt(f),
            RulePlace::Network(network) => network.fmt(f),
            RulePlace::Private => f.write_str("private"),
        }
    }
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleError {
    /// It has not one or two words.
    Words,
    /// The service that it names.
    Service(String),
    /// The place that it names.
    Place(String),
    /// A hello names a host, never a network.
    TlsWithoutName,
}

impl RuleError {
    fn service(text: &str) -> Self {
        Self::Service(text.to_owned())
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Words => f.write_str("a rule is `PLACE` or `SERVICE PLACE`"),
            Self::Service(text) => write!(
                f,
                "`{text}` is no service: it is tcp:PORT, udp:PORT or tls:PORT, and of several \
                 ports ({RULE_PORTS_MAX} at most) tcp:PORT+PORT"
            ),
            Self::Place(text) => write!(
                f,
                "`{text}` is no place: it is a name (x.org, *.x.org for all below it, .x.org for \
                 both), a network (192.0.2.0/24, 2001:db8::/32) or `private`"
            ),
            Self::TlsWithoutName => f.write_str(
                "tls: needs a name, which is what the guest says first; for a network it is tcp:",
            ),
        }
    }
}

impl std::error::Error for RuleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_written() {
        for text in [
            "pypi.org",
            ".pythonhosted.org",
            "tcp:22 github.com",
            "udp:123 192.0.2.0/24",
            "tls:443+8443 *.example.net",
            "private",
            "tcp:5432 private",
            "2001:db8::/32",
        ] {
            assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
        }
        assert_eq!(" PyPI.org. ".parse::<Rule>().unwrap().to_string(), "pypi.org");
        assert_eq!("192.0.2.1".parse::<Rule>().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn a_mistake_is_named() {
        let error = |text: &str| text.parse::<Rule>().unwrap_err().to_string();
        for text in ["", "a b c", "tcp:22 a.b c"] {
            assert!(error(text).starts_with("a rule is"), "{text}");
        }
        let many = format!("tcp:{} a.b", ["1"; RULE_PORTS_MAX + 1].join("+"));
        for text in ["tcp a.b", "sctp:1 a.b", "tcp:0 a.b", "tcp:x a.b", "tcp:70000 a.b", &many] {
            assert!(error(text).contains("is no service"), "{text}");
        }
        for text in [
            "10.0.0.1/8",
            "10.0.0.256",
            "10.0.0.256.",
            "a..b",
            "http://a.b",
            "*",
            "a.b:443",
            "::ffff:x",
        ] {
            assert!(error(text).contains("is no place"), "{text}");
        }
        assert!(error("tls:443 10.0.0.0/8").starts_with("tls: needs a name"));
    }
}
