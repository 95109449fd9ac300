//! The options of a router (`nat:`): each is set and written by itself.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ringway_host::Forward;
use ringway_nat::{MTU_MIN, Plan, Prefix4, Prefix6, Protocol};

use super::error::{Origin, SpecError};
use super::literal::Literal;

/// Between the items of a list on a command line.
const SEPARATOR: char = '+';

/// Bytes of a domain's name (RFC 1035 §2.3.4).
const DOMAIN_LEN_MAX: usize = 253;

/// The guests' domain, unless another one is named. It is reserved for private use.
const DOMAIN: &str = "internal";

/// Domains that fit into a lease.
const DOMAINS_MAX: usize = 8;

/// Ports of one range.
const FORWARDS_MAX: u16 = 256;

/// Numbers below this one are never leased to guests.
const NUMBER_FREE_MAX: u8 = 15;

/// What is said about a router.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NatSpec {
    /// The guests' networks, as they were written; empty: the default.
    range: Vec<String>,
    /// The IPv4 network; `None`: the default.
    pub prefix4: Option<Prefix4>,
    /// The IPv6 network; `None`: the default, or none if there is an IPv4 network.
    pub prefix6: Option<Prefix6>,
    /// The address by which guests reach the host's loopback.
    pub host: Option<IpAddr>,
    /// Domains of the guests.
    pub domains: Vec<String>,
    /// Resolvers.
    pub dns: Dns,
    /// Ports of this machine that lead into guests.
    pub forwards: Vec<ForwardSpec>,
}

/// Ports of this machine that lead into a guest: `tcp:[ADDRESS:]PORT[-PORT]:GUEST:PORT`, or `udp:`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardSpec {
    /// As it was written.
    text: String,
    protocol: Protocol,
    /// Where the machine listens; empty: on its loopback.
    addresses: Vec<IpAddr>,
    /// Its ports, from the first to the last.
    ports: (u16, u16),
    guest: String,
    /// The guest's port for the first one.
    to: u16,
}

/// Who answers the guests' questions for names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Dns {
    /// The host's resolvers.
    #[default]
    Host,
    /// None.
    Off,
    /// These.
    Servers(Vec<IpAddr>),
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NatField {
    /// `range`
    Range,
    /// `host`
    Host,
    /// `domain`
    Domain,
    /// `dns`
    Dns,
    /// `forward`
    Forward,
}

impl NatField {
    /// Sets the option; `None` is the default.
    ///
    /// # Errors
    /// The text is not a value of it.
    pub fn set(
        self,
        nat: &mut NatSpec,
        origin: &Origin,
        text: Option<&str>,
    ) -> Result<(), SpecError> {
        let items = || text.into_iter().flat_map(|text| text.split(SEPARATOR));
        match self {
            Self::Range => {
                (nat.range, nat.prefix4, nat.prefix6) = (Vec::new(), None, None);
                for item in items() {
                    nat.add_range(origin, item)?;
                }
            }
            Self::Host => nat.host = text.map(|text| address(origin, text)).transpose()?,
            Self::Domain => {
                let domains: Result<_, _> = items().map(|item| domain(origin, item)).collect();
                nat.domains = domains?;
                if nat.domains.len() > DOMAINS_MAX {
                    let wrong = format!("{} domains are too many", nat.domains.len());
                    return Err(origin.wrong(wrong, format!("write {DOMAINS_MAX} at most")));
                }
            }
            Self::Forward => {
                let forwards: Result<_, _> =
                    items().map(|item| ForwardSpec::parse(origin, item)).collect();
                nat.forwards = forwards?;
            }
            Self::Dns => {
                nat.dns = match text {
                    None | Some("auto") => Dns::Host,
                    Some("off") => Dns::Off,
                    Some(_) => {
                        let all: Result<_, _> = items().map(|item| address(origin, item)).collect();
                        Dns::Servers(all?)
                    }
                };
            }
        }
        Ok(())
    }

    /// What a port has; `None`: the default.
    pub fn value_of(self, nat: &NatSpec) -> Option<Literal> {
        let list = |texts: Vec<String>| (!texts.is_empty()).then_some(Literal::List(texts));
        match self {
            Self::Range => list(nat.range.clone()),
            Self::Host => nat.host.map(|host| Literal::Text(host.to_string())),
            Self::Domain => list(nat.domains.clone()),
            Self::Forward => list(nat.forwards.iter().map(|it| it.text.clone()).collect()),
            Self::Dns => match &nat.dns {
                Dns::Host => None,
                Dns::Off => Some(Literal::Switch(false)),
                Dns::Servers(servers) => list(servers.iter().map(IpAddr::to_string).collect()),
            },
        }
    }
}

impl NatSpec {
    fn add_range(&mut self, origin: &Origin, text: &str) -> Result<(), SpecError> {
        let wrong = |why: String| {
            let advice = "write networks such as 10.0.2.0/24 and fd12:3456:789a::/64";
            origin.wrong(format!("{text:?} is not a network for guests{why}"), advice)
        };
        let parts = text.split_once('/').and_then(|(address, len)| {
            Some((address.parse::<IpAddr>().ok()?, len.parse::<u8>().ok()?))
        });
        let because = |why: ringway_nat::PlanError| wrong(format!(": {why}"));
        match parts {
            Some((IpAddr::V4(network), len)) if self.prefix4.is_none() => {
                self.prefix4 = Some(Prefix4::new(network, len).map_err(because)?);
            }
            Some((IpAddr::V6(network), 64)) if self.prefix6.is_none() => {
                self.prefix6 = Some(Prefix6::new(network).map_err(because)?);
            }
            Some((IpAddr::V6(_), 64) | (IpAddr::V4(_), _)) => {
                return Err(wrong(": one of that family is given already".into()));
            }
            Some((IpAddr::V6(_), len)) => return Err(wrong(format!(": /{len} is not /64"))),
            None => return Err(wrong(String::new())),
        }
        self.range.push(text.to_owned());
        Ok(())
    }

    /// The guests' networks that were named.
    pub fn ranges(&self) -> &[String] {
        &self.range
    }

    /// The same with everything said that depends on the machine: the networks, with `local6` if no
    /// IPv6 network is given, and the resolvers.
    pub fn told(&self, local6: Prefix6, resolvers: impl FnOnce() -> Vec<IpAddr>) -> Self {
        let mut told = self.clone();
        if self.range.is_empty() {
            told.prefix6 = Some(local6);
            told.range = vec![format!("{}/64", local6.network())];
        }
        if self.dns == Dns::Host {
            told.dns = match resolvers() {
                none if none.is_empty() => Dns::Off,
                servers => Dns::Servers(servers),
            };
        }
        told
    }

    /// The addresses; `local6`: the IPv6 network if none is given.
    pub fn plan(&self, local6: Prefix6, mtu: Option<u16>) -> Plan {
        let default = Plan::default();
        let prefix6 = match (self.prefix4, self.prefix6) {
            (Some(_), None) => None,
            (_, prefix6) => Some(prefix6.unwrap_or(local6)),
        };
        Plan {
            prefix4: self.prefix4.unwrap_or(default.prefix4),
            prefix6,
            has_dns: self.dns != Dns::Off,
            mtu: mtu.unwrap_or(default.mtu),
            domains: match self.domains.as_slice() {
                [] => vec![DOMAIN.to_owned()],
                domains => domains.to_vec(),
            },
            host: self.host,
            ..default
        }
    }

    /// Options that each are fine and together make no sense: what is wrong, and what to do.
    pub fn contradiction(&self, mtu: Option<u16>) -> Option<(String, String)> {
        if let Some(mtu) = mtu.filter(|mtu| *mtu < MTU_MIN) {
            let advice = format!("write mtu={MTU_MIN} or more");
            return Some((format!("a router has no networks with an MTU of {mtu}"), advice));
        }
        let plan = self.plan(Prefix6::local(0), mtu);
        let number = |host: IpAddr| match host {
            IpAddr::V4(host) => host.octets()[3],
            IpAddr::V6(host) => host.octets()[15],
        };
        let is_leased = |host: &IpAddr| plan.is_inside(*host) && number(*host) >= NUMBER_FREE_MAX;
        let host = self.host.filter(is_leased)?;
        let advice = format!("write host={} for example", plan.gateway4());
        Some((format!("a guest may get the address {host} of the host"), advice))
    }
}

impl ForwardSpec {
    fn parse(origin: &Origin, text: &str) -> Result<Self, SpecError> {
        Self::read(text).ok_or_else(|| {
            let advice = "write tcp:[ADDRESS:]PORT[-PORT]:GUEST:PORT, or udp:, such as \
                          tcp:8080:vm0:80";
            origin.wrong(format!("{text:?} says no port that leads into a guest"), advice)
        })
    }

    fn read(text: &str) -> Option<Self> {
        let (protocol, rest) = match text.split_once(':')? {
            ("tcp", rest) => (Protocol::Tcp, rest),
            ("udp", rest) => (Protocol::Udp, rest),
            _ => return None,
        };
        let (rest, to) = rest.rsplit_once(':')?;
        let (listen, guest) = rest.rsplit_once(':')?;
        let (address, ports) = listen
            .rsplit_once(':')
            .map_or((None, listen), |(address, ports)| (Some(address), ports));
        let addresses = match address {
            None => Vec::new(),
            Some("*") => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
            Some(address) => {
                let inside = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let is_right = |it: &IpAddr| it.is_ipv6() == inside.is_some();
                vec![inside.unwrap_or(address).parse().ok().filter(is_right)?]
            }
        };
        let port = |text: &str| text.parse().ok().filter(|port: &u16| *port > 0);
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let (ports, to) = ((port(first)?, port(last)?), port(to)?);
        let more = ports.1.checked_sub(ports.0).filter(|more| *more < FORWARDS_MAX)?;
        to.checked_add(more)?;
        (!guest.is_empty()).then(|| Self {
            text: text.to_owned(),
            protocol,
            addresses,
            ports,
            guest: guest.to_owned(),
            to,
        })
    }

    /// One for each address and port.
    pub fn forwards(&self) -> impl Iterator<Item = Forward> + '_ {
        let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
        let addresses =
            if self.addresses.is_empty() { loopback.to_vec() } else { self.addresses.clone() };
        addresses.into_iter().flat_map(move |address| {
            (self.ports.0..=self.ports.1).zip(self.to..).map(move |(port, to)| Forward {
                protocol: self.protocol,
                at: SocketAddr::new(address, port),
                guest: self.guest.clone(),
                to,
            })
        })
    }

    /// Whether the machine may lack one of the addresses.
    pub fn is_by_default(&self) -> bool {
        self.addresses.is_empty()
    }
}

fn address(origin: &Origin, text: &str) -> Result<IpAddr, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} is not an address");
        origin.wrong(wrong, "write an IP address, such as 10.0.2.2")
    })
}

fn domain(origin: &Origin, text: &str) -> Result<String, SpecError> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_good);
    if text.len() <= DOMAIN_LEN_MAX && text.split('.').all(is_label) {
        return Ok(text.to_ascii_lowercase());
    }
    let wrong = format!("{text:?} is not the name of a domain");
    Err(origin.wrong(wrong, "write letters, digits and -, with dots between, such as lab.internal"))
}

#[cfg(test)]
mod tests {
    use super::super::{flags, port::PortSpec};

    fn parse(typed: &str) -> Result<PortSpec, String> {
        let low = flags::parse_port(typed).map_err(|error| error.to_string())?;
        PortSpec::resolve(&low).map_err(|errors| errors[0].to_string())
    }

    #[test]
    fn networks_are_of_both_families_unless_said_otherwise() {
        let plan = |typed: &str| {
            let local6 = ringway_nat::Prefix6::local(7);
            parse(typed).unwrap().nat.plan(local6, None)
        };
        assert!(plan("net=nat:").prefix6.is_some());
        assert_eq!(plan("net=nat:,range=10.9.0.0/16").prefix6, None);
        let both = plan("net=nat:,range=10.9.0.0/16+fd12::/64");
        assert_eq!(both.gateway4().to_string(), "10.9.0.2");
        assert_eq!(both.gateway6().unwrap().to_string(), "fd12::2");
        assert_eq!(plan("net=nat:,range=fd12::/64").gateway4().to_string(), "10.0.2.2");
    }

    #[test]
    fn forwards_are_one_for_each_address_and_port() {
        let all = |text: &str| -> Vec<String> {
            let nat = parse(&format!("net=nat:,forward={text}")).unwrap().nat;
            let forwards = nat.forwards.iter().flat_map(super::ForwardSpec::forwards);
            forwards.map(|it| format!("{} {} {}", it.at, it.guest, it.to)).collect()
        };
        assert_eq!(all("tcp:8080:vm0:80"), ["127.0.0.1:8080 vm0 80", "[::1]:8080 vm0 80"]);
        assert_eq!(all("udp:5353:a:53"), ["127.0.0.1:5353 a 53", "[::1]:5353 a 53"]);
        assert_eq!(all("tcp:*:22:a:22"), ["0.0.0.0:22 a 22", "[::]:22 a 22"]);
        let several = all("tcp:10.0.0.1:90-91:a:9+tcp:[fd1::1]:7:b:8");
        assert_eq!(several, ["10.0.0.1:90 a 9", "10.0.0.1:91 a 10", "[fd1::1]:7 b 8"]);
    }

    #[test]
    fn mistakes_are_told() {
        for (typed, part) in [
            ("net=nat:10.0.2.0/24", "range=10.0.2.0/24"),
            ("net=nat:,range=10.0.2.1/24", "bits behind the prefix"),
            ("net=nat:,range=10.0.2.0/24+10.0.3.0/24", "one of that family"),
            ("net=nat:,range=fd12::/48", "/48 is not /64"),
            ("net=nat:,host=10.0.2.15", "a guest may get"),
            ("net=nat:,host=here", "not an address"),
            ("net=nat:,forward=8080:vm0:80", "tcp:8080:vm0:80"),
            ("net=nat:,forward=tcp:0:vm0:80", "leads into a guest"),
            ("net=nat:,forward=tcp:80-70:vm0:80", "leads into a guest"),
            ("net=nat:,forward=tcp:::1:80:vm0:80", "leads into a guest"),
            ("net=nat:,domain=a..b", "name of a domain"),
            ("net=nat:,mtu=600", "mtu=1280"),
            ("net=nat:,queues=2", "queues"),
            ("net=nat:,mac=52:54:00:12:34:56", "mac belongs to guests"),
            ("v=vm:s,dns=off", "dns belongs to nat"),
        ] {
            let error = parse(typed).expect_err(typed);
            assert!(error.contains(part), "{typed}: {error}");
        }
        assert!(parse("net=nat:,host=10.0.2.2,dns=off,domain=lab.internal+b").is_ok());
    }
}
