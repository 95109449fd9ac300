//! Needs that this machine has to meet so that guests behind a router (`nat:`) reach others: looked
//! at by `ringway doctor`, and by a running ringway for `ringway why`.
//!
//! Limits: whether a route leads on, and whether a resolver answers, is not tried.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use rustix::net::{AddressFamily, SocketType, ipproto, socket};

use crate::resolvers;

/// Places that only a default route leads to. Nothing is sent there.
const FAR4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const FAR6: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 1);

/// Something that guests need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Ping,
    Resolver,
    Route4,
    Route6,
}

impl Need {
    pub const ALL: [Self; 4] = [Self::Ping, Self::Resolver, Self::Route4, Self::Route6];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ping => "ping of guests",
            Self::Resolver => "names for guests",
            Self::Route4 => "IPv4 for guests",
            Self::Route6 => "IPv6 for guests",
        }
    }

    /// How it is where this machine has it.
    pub fn fine(self) -> &'static str {
        match self {
            Self::Ping => "this user may open sockets for echo",
            Self::Resolver => "/etc/resolv.conf names a resolver",
            Self::Route4 | Self::Route6 => "there is a default route",
        }
    }

    /// How it is where this machine lacks it.
    pub fn lack(self) -> &'static str {
        match self {
            Self::Ping => "not permitted",
            Self::Resolver => "no resolver is in /etc/resolv.conf",
            Self::Route4 | Self::Route6 => "no default route",
        }
    }

    /// The remedy then.
    pub fn mend(self) -> &'static str {
        match self {
            Self::Ping => "sudo sysctl net.ipv4.ping_group_range='0 2147483647'",
            Self::Resolver => {
                "write a nameserver there, or name one to the router: ringway port set net dns=…"
            }
            Self::Route4 => "connect this machine; ip route shows what it has",
            Self::Route6 => "ip -6 route shows what this machine has; guests use IPv4 meanwhile",
        }
    }
}

/// The things that this machine lacks now.
pub fn lacking() -> Vec<Need> {
    let is_there = |need: &Need| match need {
        Need::Ping => may_ping(),
        Need::Resolver => !resolvers::of_this_machine().resolvers.is_empty(),
        Need::Route4 => leads_to(FAR4.into()),
        Need::Route6 => leads_to(FAR6.into()),
    };
    Need::ALL.into_iter().filter(|need| !is_there(need)).collect()
}

/// Whether this user may open such a socket (icmp(7)).
fn may_ping() -> bool {
    socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::ICMP)).is_ok()
}

/// Whether a route of this machine does.
fn leads_to(place: IpAddr) -> bool {
    let any: IpAddr = match place {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((place, 9))).is_ok()
}
