//! The resolvers that answer this machine's questions for names.

use rustix::net::{AddressFamily, SocketType, netdevice, socket};

use crate::config::resolver::Resolver;

/// Where they are listed (resolv.conf(5)).
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The resolvers of this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listed {
    /// With the numbers of their interfaces.
    pub resolvers: Vec<Resolver>,
    /// Words that are listed as resolvers and cannot be asked.
    pub unusable: Vec<String>,
}

/// The resolvers of this machine, as they are now.
pub fn of_this_machine() -> Listed {
    listed(&std::fs::read_to_string(RESOLV_CONF).unwrap_or_default(), interface)
}

/// The same before anything was said of it.
pub fn at_start() -> Listed {
    Listed { unusable: Vec::new(), ..of_this_machine() }
}

/// The number of an interface of that name.
pub fn interface(name: &str) -> Option<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .or_else(|_| socket(AddressFamily::INET6, SocketType::DGRAM, None));
    netdevice::name_to_index(any.ok()?, name).ok()
}

/// The resolvers that a file names.
fn listed(text: &str, number: impl Fn(&str) -> Option<u32>) -> Listed {
    let mut listed = Listed::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some("nameserver"), Some(named)) = (words.next(), words.next()) else { continue };
        let resolver = named.parse::<Resolver>().ok().and_then(|it| it.with_number(&number));
        match resolver {
            Some(resolver) => listed.resolvers.push(resolver),
            None => listed.unusable.push(named.to_owned()),
        }
    }
    listed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read() {
        let text = "# nameserver 9.9.9.9\nsearch a b\nnameserver 10.0.0.1\n nameserver ::1 # x\n\
                    nameserver\nnameserver nowhere\nnameserver fe80::1%wlan0\n\
                    nameserver fe80::2%gone\nnameserver fe80::3\n";
        let Listed { resolvers, unusable } = listed(text, |name| (name == "wlan0").then_some(3));
        let known: Vec<String> = resolvers.iter().map(Resolver::to_string).collect();
        assert_eq!(known, ["10.0.0.1", "::1", "fe80::1%3"]);
        assert_eq!(unusable, ["nowhere", "fe80::2%gone", "fe80::3"]);
    }

    #[test]
    fn loopback_has_a_number() {
        assert_eq!(interface("lo"), Some(1));
        assert_eq!(interface("no-such-link"), None);
    }
}
