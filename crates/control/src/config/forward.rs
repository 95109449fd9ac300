//! Where this machine listens for guests: one item of a router's option `forward`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use ringway_nat::{Forward, ListenAddress, Protocol};

use super::error::{Origin, SpecError};
use super::values::SOCKET_PATH_LEN_MAX;

/// Ports of one range.
const FORWARDS_MAX: u16 = 256;

/// Unix sockets of one router: they travel to the data plane as queues of a tap do.
pub const SOCKETS_MAX: usize = 64;

/// Ports of this machine that lead into a guest: `tcp:[ADDRESS:]PORT[-PORT]:GUEST:PORT`, or `udp:`;
/// or a Unix socket that does: `unix:/PATH:GUEST:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSpec {
    /// As it was written.
    text: String,
    listens: Listens,
    guest: String,
    /// The guest's port, for the first one.
    to: u16,
}

/// Where.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Listens {
    Ports {
        protocol: Protocol,
        /// Empty: on the machine's loopback.
        addresses: Vec<IpAddr>,
        /// From the first to the last.
        ports: (u16, u16),
    },
    Unix(PathBuf),
}

impl ForwardSpec {
    pub(super) fn parse(origin: &Origin, text: &str) -> Result<Self, SpecError> {
        let spec = Self::read(text).ok_or_else(|| {
            let advice = "write tcp:[ADDRESS:]PORT[-PORT]:GUEST:PORT, or udp:, such as \
                          tcp:8080:vm0:80, or unix:/PATH:GUEST:PORT";
            origin.wrong(format!("{text:?} says no port that leads into a guest"), advice)
        })?;
        match spec.excess() {
            Some((wrong, advice)) => Err(origin.wrong(format!("{text:?} {wrong}"), advice)),
            None => Ok(spec),
        }
    }

    /// The excess of a range of ports, and what to do, if it is too long.
    fn excess(&self) -> Option<(String, String)> {
        let more = self.listens.more();
        if more >= FORWARDS_MAX {
            let wrong = format!("is a range of {} ports", u32::from(more) + 1);
            return Some((wrong, format!("write {FORWARDS_MAX} ports at most")));
        }
        let last = u16::MAX - more;
        let wrong = format!("leads behind the guest's last port, {}", u16::MAX);
        (self.to > last).then(|| (wrong, format!("write a guest's port of {last} at most")))
    }

    fn read(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let (rest, to) = rest.rsplit_once(':')?;
        let (place, guest) = rest.rsplit_once(':')?;
        let to = port(to)?;
        let listens = match kind {
            "tcp" => Listens::ports(Protocol::Tcp, place)?,
            "udp" => Listens::ports(Protocol::Udp, place)?,
            "unix" => Listens::unix(place)?,
            _ => return None,
        };
        let (text, guest) = (text.to_owned(), guest.to_owned());
        (!guest.is_empty()).then_some(Self { text, listens, guest, to })
    }

    /// The port that its guest is behind.
    pub fn guest(&self) -> &str {
        &self.guest
    }

    /// One for each address and port.
    pub fn forwards(&self) -> Vec<Forward> {
        let forward = |protocol, at, to| Forward { protocol, at, guest: self.guest.clone(), to };
        match &self.listens {
            Listens::Unix(path) => {
                vec![forward(Protocol::Tcp, ListenAddress::Unix(path.clone()), self.to)]
            }
            Listens::Ports { protocol, addresses, ports } => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let addresses = if addresses.is_empty() { &loopback[..] } else { addresses };
                let of_address = |address: &IpAddr| {
                    let address = *address;
                    (ports.0..=ports.1).zip(self.to..=u16::MAX).map(move |(port, to)| {
                        forward(
                            *protocol,
                            ListenAddress::Address(SocketAddr::new(address, port)),
                            to,
                        )
                    })
                };
                addresses.iter().flat_map(of_address).collect()
            }
        }
    }

    /// Whether the machine may lack one of the addresses.
    pub fn is_by_default(&self) -> bool {
        matches!(&self.listens, Listens::Ports { addresses, .. } if addresses.is_empty())
    }

    /// Whether both cannot be listened at at the same time, or perhaps not.
    pub fn is_in_way_of(&self, other: &Self) -> bool {
        match (&self.listens, &other.listens) {
            (Listens::Unix(one), Listens::Unix(other)) => one == other,
            (
                Listens::Ports { protocol, ports, .. },
                Listens::Ports { protocol: others, ports: its, .. },
            ) => protocol == others && ports.0 <= its.1 && its.0 <= ports.1,
            _ => false,
        }
    }

    /// Its Unix socket.
    pub fn socket(&self) -> Option<&Path> {
        match &self.listens {
            Listens::Unix(path) => Some(path),
            Listens::Ports { .. } => None,
        }
    }
}

/// As it was written.
impl fmt::Display for ForwardSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Listens {
    fn ports(protocol: Protocol, place: &str) -> Option<Self> {
        let (address, ports) =
            place.rsplit_once(':').map_or((None, place), |(address, ports)| (Some(address), ports));
        let addresses = match address {
            None => Vec::new(),
            Some("*") => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            Some(address) => {
                let inside = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let is_right = |it: &IpAddr| it.is_ipv6() == inside.is_some();
                vec![inside.unwrap_or(address).parse().ok().filter(is_right)?]
            }
        };
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let ports = (port(first)?, port(last)?);
        (ports.0 <= ports.1).then_some(Self::Ports { protocol, addresses, ports })
    }

    /// A whole path: the supervisor and the data plane need not be in the same directory.
    fn unix(place: &str) -> Option<Self> {
        let is_fine = place.starts_with('/') && place.len() <= SOCKET_PATH_LEN_MAX;
        is_fine.then(|| Self::Unix(place.into()))
    }

    /// How many ports there are behind the first one.
    fn more(&self) -> u16 {
        match self {
            Self::Ports { ports, .. } => ports.1 - ports.0,
            Self::Unix(_) => 0,
        }
    }
}

fn port(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_one_for_each_address_and_port() {
        let all = |texts: &str| -> Vec<String> {
            let specs = texts.split('+').map(|text| ForwardSpec::read(text).expect(text));
            let forwards = specs.flat_map(|spec| spec.forwards());
            forwards.map(|it| format!("{} {} {}", it.at, it.guest, it.to)).collect()
        };
        assert_eq!(all("tcp:8080:vm0:80"), ["127.0.0.1:8080 vm0 80", "[::1]:8080 vm0 80"]);
        assert_eq!(all("udp:5353:a:53"), ["127.0.0.1:5353 a 53", "[::1]:5353 a 53"]);
        assert_eq!(all("tcp:*:22:a:22"), ["0.0.0.0:22 a 22", "[::]:22 a 22"]);
        let several = all("tcp:10.0.0.1:90-91:a:9+tcp:[fd1::1]:7:b:8");
        assert_eq!(several, ["10.0.0.1:90 a 9", "10.0.0.1:91 a 10", "[fd1::1]:7 b 8"]);
        assert_eq!(all("unix:/run/a:b.sock:vm0:80"), ["/run/a:b.sock vm0 80"]);
        assert_eq!(all("udp:[::1]:65534-65535:a:65534").len(), 2, "the last ports that there are");
    }

    #[test]
    fn forwards_that_need_the_same_place_are_known() {
        let read = |text| ForwardSpec::read(text).expect(text);
        let clash = |one, other| read(one).is_in_way_of(&read(other));
        assert!(clash("tcp:80-90:a:1", "tcp:*:85:b:2") && clash("tcp:80:a:1", "tcp:[::1]:80:b:1"));
        assert!(clash("unix:/run/a:a:1", "unix:/run/a:b:2"));
        assert!(!clash("tcp:80:a:1", "udp:80:a:1") && !clash("unix:/a:a:1", "unix:/b:a:1"));
        assert!(!clash("tcp:80-90:a:1", "tcp:91:a:1") && !clash("unix:/a:a:1", "tcp:1:a:1"));
    }

    #[test]
    fn ranges_that_are_too_long_or_lead_too_far_are_told_apart() {
        let wrong = |text: &str| {
            let refused = ForwardSpec::parse(&Origin::flag(text), text);
            refused.expect_err(text).to_string()
        };
        assert!(wrong("tcp:1-257:a:1").ends_with("range of 257 ports: write 256 ports at most"));
        let far = wrong("tcp:1-2:a:65535");
        assert!(far.ends_with("last port, 65535: write a guest's port of 65534 at most"), "{far}");
        for text in ["tcp:2-1:a:1", "tcp:0:a:1", "tcp:1:a:65536", "tcp:1:a", "sctp:1:a:1"] {
            assert!(wrong(text).contains("says no port that leads into a guest"), "{text}");
        }
    }
}
