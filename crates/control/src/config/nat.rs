//! The configuration of a router (`nat:`), and how its options are read and written.

use std::net::IpAddr;
use std::path::Path;

use ringway_nat::{MTU_MIN, Network, Plan, Prefix4, Prefix6};

use super::error::{Origin, SpecError, no_port};
use super::forward::{ForwardSpec, SOCKETS_MAX};
use super::kind::{OptionText, written_list};
use super::literal::Literal;
use super::resolver::Resolver;

/// Bytes of a domain's name (RFC 1035 §2.3.4).
const DOMAIN_LEN_MAX: usize = 253;

/// The guests' domain, unless another one is named. It is reserved for private use.
const DOMAIN: &str = "internal";

/// Domains that fit into a lease.
const DOMAINS_MAX: usize = 8;

/// Networks that are looked at for each new flow.
const NETWORKS_MAX: usize = 64;

/// The options of a router.
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
    /// Where guests may go, beside what holds without that.
    pub allow: Vec<Network>,
    /// Where they may not.
    pub deny: Vec<Network>,
    /// Domains of the guests.
    pub domains: Vec<String>,
    /// Resolvers.
    pub dns: Dns,
    /// Ports of this machine that lead into guests.
    pub forwards: Vec<ForwardSpec>,
}

/// The resolvers that answer the guests' questions for names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Dns {
    /// The host's resolvers.
    #[default]
    Host,
    /// None.
    Off,
    /// These.
    Servers(Vec<Resolver>),
}

impl NatSpec {
    /// The guests' networks.
    ///
    /// # Errors
    /// An item is none, or there are two of one family.
    pub(super) fn read_range(&mut self, text: &OptionText<'_>) -> Result<(), SpecError> {
        (self.range, self.prefix4, self.prefix6) = (Vec::new(), None, None);
        text.items().try_for_each(|item| self.add_range(text.origin, item))
    }

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

    /// The complaint about the first forward that leads to none of these ports, if one does.
    pub fn lost_forward(&self, names: &[&str]) -> Option<String> {
        let lost = self.forwards.iter().find(|it| !names.contains(&it.guest()))?;
        let why = no_port(lost.guest(), names.iter().copied());
        Some(format!("forward={}: {why}", lost))
    }

    /// Unix sockets that lead into guests.
    pub fn sockets(&self) -> impl Iterator<Item = &Path> {
        self.forwards.iter().filter_map(ForwardSpec::socket)
    }

    /// The same with everything said that depends on the machine: the networks, with `local4` and
    /// `local6` if none are given, and the resolvers, whose interfaces have numbers.
    pub fn told(
        &self,
        local4: Option<Prefix4>,
        local6: Prefix6,
        resolvers: impl FnOnce() -> Vec<Resolver>,
        number: impl Fn(&str) -> Option<u32>,
    ) -> Self {
        let mut told = self.clone();
        if self.range.is_empty() {
            told.prefix6 = Some(local6);
            told.range = vec![format!("{}/64", local6.network())];
        }
        if let Some(local4) = local4.filter(|_| self.prefix4.is_none()) {
            told.prefix4 = Some(local4);
            told.range.insert(0, local4.to_string());
        }
        let known = match &self.dns {
            Dns::Host => resolvers(),
            Dns::Servers(servers) => servers.clone(),
            Dns::Off => return told,
        };
        let known = known.iter().filter_map(|it| it.with_number(&number)).collect();
        told.dns = Some(known).filter(|it: &Vec<_>| !it.is_empty()).map_or(Dns::Host, Dns::Servers);
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
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            ..default
        }
    }

    /// Whether guests do not reach an address outside, because of its networks.
    pub fn denies(&self, to: IpAddr) -> bool {
        self.plan(Prefix6::local(0), None).denies(to)
    }

    /// Options that each are fine and together make no sense: what is wrong, and what to do.
    pub fn contradiction(&self, mtu: Option<u16>) -> Option<(String, String)> {
        if let Some(mtu) = mtu.filter(|mtu| *mtu < MTU_MIN) {
            let advice = format!("write mtu={MTU_MIN} or more");
            return Some((format!("a router has no networks with an MTU of {mtu}"), advice));
        }
        let plan = self.plan(Prefix6::local(0), mtu);
        let host = self.host.filter(|host| plan.may_be_of_a_guest(*host))?;
        let advice = format!("write host={} for example", plan.gateway4());
        Some((format!("a guest may get the address {host} of the host"), advice))
    }
}

/// An address.
pub(super) fn address(origin: &Origin, text: &str) -> Result<IpAddr, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} is not an address");
        origin.wrong(wrong, "write an IP address, such as 10.0.2.2")
    })
}

/// The resolvers that answer.
pub(super) fn dns(text: &OptionText<'_>) -> Result<Dns, SpecError> {
    match text.text {
        None | Some("auto") => Ok(Dns::Host),
        Some("off") => Ok(Dns::Off),
        Some(_) => text.list(resolver).map(Dns::Servers),
    }
}

/// As it is written.
pub(super) fn written_dns(dns: &Dns) -> Option<Literal> {
    match dns {
        Dns::Host => None,
        Dns::Off => Some(Literal::Switch(false)),
        Dns::Servers(servers) => written_list(servers),
    }
}

fn resolver(origin: &Origin, text: &str) -> Result<Resolver, SpecError> {
    text.parse().map_err(|()| {
        let wrong = format!("{text:?} is not the address of a resolver");
        origin.wrong(wrong, "write an IP address, such as 10.0.0.1 or fe80::1%wlan0")
    })
}

/// Networks that guests reach, or do not.
pub(super) fn networks(text: &OptionText<'_>) -> Result<Vec<Network>, SpecError> {
    let networks = text.list(|origin, text| {
        text.parse::<Network>().map_err(|why| {
            let advice = "write networks such as 10.0.0.0/8 and fd00::/8, or single addresses";
            origin.wrong(format!("{text:?}: {why}"), advice)
        })
    })?;
    text.check_count("networks", networks.len(), NETWORKS_MAX)?;
    Ok(networks)
}

/// Domains of guests.
pub(super) fn domains(text: &OptionText<'_>) -> Result<Vec<String>, SpecError> {
    let domains = text.list(domain)?;
    text.check_count("domains", domains.len(), DOMAINS_MAX)?;
    Ok(domains)
}

/// Ports and sockets of this machine that lead into guests.
pub(super) fn forwards(text: &OptionText<'_>) -> Result<Vec<ForwardSpec>, SpecError> {
    let forwards = text.list(ForwardSpec::parse)?;
    let sockets = forwards.iter().filter_map(ForwardSpec::socket).count();
    text.check_count("Unix sockets", sockets, SOCKETS_MAX)?;
    Ok(forwards)
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
    use super::super::options::find;
    use super::super::{flags, port::PortSpec};
    use super::Literal;

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
    fn mistakes_are_told() {
        for (typed, part) in [
            ("net=nat:10.0.2.0/24", "range=10.0.2.0/24"),
            ("net=nat:,range=10.0.2.1/24", "bits behind the prefix"),
            ("net=nat:,range=10.0.2.0/24+10.0.3.0/24", "one of that family"),
            ("net=nat:,range=fd12::/48", "/48 is not /64"),
            ("net=nat:,host=10.0.2.15", "a guest may get"),
            ("net=nat:,range=10.9.0.0/16,host=10.9.1.5", "a guest may get"),
            ("net=nat:,range=fd12::/64,host=fd12::1:0:5", "a guest may get"),
            ("net=nat:,host=here", "not an address"),
            ("net=nat:,deny=10.0.0.1/8", "not a network"),
            ("net=nat:,allow=here", "single addresses"),
            ("net=nat:,forward=8080:vm0:80", "tcp:8080:vm0:80"),
            ("net=nat:,forward=tcp:0:vm0:80", "leads into a guest"),
            ("net=nat:,forward=tcp:80-70:vm0:80", "leads into a guest"),
            ("net=nat:,forward=tcp:::1:80:vm0:80", "leads into a guest"),
            ("net=nat:,forward=unix:web.sock:vm0:80", "leads into a guest"),
            ("net=nat:,forward=unix:/run/web.sock:vm0", "leads into a guest"),
            ("net=nat:,domain=a..b", "name of a domain"),
            ("net=nat:,mtu=600", "mtu=1280"),
            ("net=nat:,queues=2", "queues"),
            ("net=nat:,mac=52:54:00:12:34:56", "mac belongs to guests"),
            ("v=vm:s,dns=off", "dns belongs to nat"),
        ] {
            let error = parse(typed).expect_err(typed);
            assert!(error.contains(part), "{typed}: {error}");
        }
        let both = parse("net=nat:,deny=0.0.0.0/0+::/0,allow=9.9.9.9+fd00::/8").unwrap();
        let texts = |key: &str| match find(key).and_then(|option| option.value_of(&both)) {
            Some(Literal::List(texts)) => texts,
            other => panic!("{other:?}"),
        };
        assert_eq!(texts("deny"), ["0.0.0.0/0", "::/0"]);
        assert_eq!(texts("allow"), ["9.9.9.9/32", "fd00::/8"]);
        assert!(parse("net=nat:,host=10.0.2.2,dns=off,domain=lab.internal+b").is_ok());
        assert!(parse("net=nat:,range=10.0.2.32/27,host=10.0.2.34").is_ok(), "the gateway");
        assert!(parse("net=nat:,range=fd12::/64,host=fd12::e").is_ok());
    }
}
