//! The resolvers that answer questions for names.

use std::fmt;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::str::FromStr;

const DNS_PORT: u16 = 53;

/// A resolver: its address, and the interface behind which it is, if the address is one of a link
/// (`fe80::1%wlan0`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolver {
    /// Where it is asked.
    pub address: IpAddr,
    /// Its name, or its number.
    pub interface: Option<String>,
}

impl From<IpAddr> for Resolver {
    fn from(address: IpAddr) -> Self {
        Self { address, interface: None }
    }
}

impl FromStr for Resolver {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let Some((address, interface)) = text.split_once('%') else {
            return text.parse::<IpAddr>().map(Self::from).map_err(drop);
        };
        let address: IpAddr = address.parse().map_err(drop)?;
        let has_link = match address {
            IpAddr::V4(_) => false,
            IpAddr::V6(it) => it.is_unicast_link_local(),
        };
        let is_name = |text: &str| (1..16).contains(&text.len()) && !text.contains('/');
        let interface = Some(interface.to_owned()).filter(|it| has_link && is_name(it));
        interface.map(|it| Self { address, interface: Some(it) }).ok_or(())
    }
}

impl fmt::Display for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.interface {
            Some(interface) => write!(f, "{}%{interface}", self.address),
            None => self.address.fmt(f),
        }
    }
}

impl Resolver {
    /// The same with its interface as a number; `number` finds that of a name. `None`: there is no
    /// such interface, or the address needs one.
    pub fn with_number(&self, number: impl FnOnce(&str) -> Option<u32>) -> Option<Self> {
        let Some(interface) = &self.interface else {
            let needs_one =
                matches!(self.address, IpAddr::V6(address) if address.is_unicast_link_local());
            return (!needs_one).then(|| self.clone());
        };
        let number = interface.parse().ok().or_else(|| number(interface))?;
        Some(Self { address: self.address, interface: Some(number.to_string()) })
    }

    /// Where it is asked; its interface is a number.
    pub fn socket_address(&self) -> SocketAddr {
        let scope = self.interface.as_ref().and_then(|number| number.parse().ok());
        match (self.address, scope) {
            (IpAddr::V6(address), Some(scope)) => {
                SocketAddrV6::new(address, DNS_PORT, 0, scope).into()
            }
            (address, _) => SocketAddr::new(address, DNS_PORT),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_as_they_are_written() {
        for text in ["10.0.0.1", "fd00::1", "fe80::1%wlan0", "fe80::1%3", "fe80::1"] {
            assert_eq!(text.parse::<Resolver>().unwrap().to_string(), text);
        }
        for text in ["", "x", "10.0.0.1%eth0", "fd00::1%eth0", "fe80::1%", "fe80::1%a/b"] {
            assert_eq!(text.parse::<Resolver>(), Err(()), "{text}");
        }
    }

    #[test]
    fn interfaces_are_told_by_their_number() {
        let number = |name: &str| (name == "wlan0").then_some(7);
        let of = |text: &str| {
            let known = text.parse::<Resolver>().unwrap().with_number(number)?;
            Some((known.to_string(), known.socket_address().to_string()))
        };
        let told = |text: &str, at: &str| Some((text.to_owned(), at.to_owned()));
        assert_eq!(of("fe80::1%wlan0"), told("fe80::1%7", "[fe80::1%7]:53"));
        assert_eq!(of("fe80::1%9"), told("fe80::1%9", "[fe80::1%9]:53"));
        assert_eq!((of("fe80::1%wlan1"), of("fe80::1")), (None, None));
        assert_eq!(of("10.0.0.1"), told("10.0.0.1", "10.0.0.1:53"));
    }
}
