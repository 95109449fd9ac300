//! Names of hosts, and the ones that a rule means.

use std::fmt;

/// Longest name, without the dot at its end, in bytes (RFC 1035 §2.3.4).
pub const NAME_LEN_MAX: usize = 253;
const LABEL_LEN_MAX: usize = 63;

/// A name of a host in lower case, without the dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Box<str>);

impl HostName {
    /// Reads a name; `None`: no host can have it.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
            (1..=LABEL_LEN_MAX).contains(&label.len()) && label.bytes().all(is_good)
        };
        let is_name = text.len() <= NAME_LEN_MAX && text.split('.').all(is_label);
        is_name.then(|| Self(text.to_ascii_lowercase().into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name itself, and all that it is below, the longest first.
    pub fn with_parents(&self) -> impl Iterator<Item = &str> {
        std::iter::successors(Some(self.as_str()), |name| name.split_once('.').map(|it| it.1))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How far below a name a rule reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NameReach {
    /// `x`: the name alone.
    Only,
    /// `*.x`: all names below it, at any depth.
    Below,
    /// `.x`: the name, and all names below it.
    WithBelow,
}

/// The names that a rule means.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern {
    /// The name, or the one below which they are.
    pub name: HostName,
    /// How far below it they are.
    pub reach: NameReach,
}

impl NamePattern {
    /// Reads `x`, `*.x` or `.x`; `None`: it is none of them.
    pub fn parse(text: &str) -> Option<Self> {
        let (reach, name) = match (text.strip_prefix("*."), text.strip_prefix('.')) {
            (Some(name), _) => (NameReach::Below, name),
            (None, Some(name)) => (NameReach::WithBelow, name),
            (None, None) => (NameReach::Only, text),
        };
        Some(Self { name: HostName::parse(name)?, reach })
    }

    /// Whether it means its own name, or one below it.
    pub fn means(&self, is_its_own: bool) -> bool {
        match self.reach {
            NameReach::Only => is_its_own,
            NameReach::Below => !is_its_own,
            NameReach::WithBelow => true,
        }
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let begin = match self.reach {
            NameReach::Only => "",
            NameReach::Below => "*.",
            NameReach::WithBelow => ".",
        };
        write!(f, "{begin}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_hosts_can_have() {
        assert_eq!(HostName::parse("PyPI.org.").unwrap().as_str(), "pypi.org");
        assert_eq!(HostName::parse("_dmarc.x-1").unwrap().as_str(), "_dmarc.x-1");
        let long = format!("{}.org", "a".repeat(64));
        for wrong in ["", ".", "a..b", "a b", "a/b", "ä.de", "*", "a.*", &long, &"a.".repeat(128)]
        {
            assert_eq!(HostName::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_pattern_is_read_as_it_is_written() {
        for text in ["pypi.org", "*.pypi.org", ".pypi.org"] {
            assert_eq!(NamePattern::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["*pypi.org", "**.a", "*.", "a.*.b", "..a", "*"] {
            assert_eq!(NamePattern::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn parents_come_longest_first() {
        let name = HostName::parse("a.b.c").unwrap();
        assert_eq!(name.with_parents().collect::<Vec<_>>(), ["a.b.c", "b.c", "c"]);
    }
}
