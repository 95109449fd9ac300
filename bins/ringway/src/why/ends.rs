//! The ends of a flow: from what was typed to a port and addresses.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use ringway_net::MacAddress;

use crate::config::error::no_port;
use crate::control::{FdbEntry, ListedPort, PortStats};
use crate::fdb;
use crate::port_command::ports;
use crate::trace::Fields;

/// One end of a flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct End {
    /// The text that was typed.
    pub typed: String,
    /// The port that it is behind, as far as that is known.
    pub port: Option<String>,
    /// Its MAC address, as far as that is known.
    pub mac: Option<MacAddress>,
    /// Its IP address, if that was typed.
    pub ip: Option<IpAddr>,
    /// Its number in TCP or UDP, if that was typed.
    pub number: Option<u16>,
}

/// The places of addresses that a running ringway knows.
pub struct AddressBook<'a> {
    pub ports: &'a [PortStats],
    pub listed: Vec<ListedPort>,
    pub addresses: Vec<FdbEntry>,
}

impl<'a> AddressBook<'a> {
    /// Asks for it.
    ///
    /// # Errors
    /// No ringway answers.
    pub fn ask(control: &Path, stats: &'a [PortStats]) -> anyhow::Result<Self> {
        let addresses = fdb::all(control, None, None)?.addresses;
        Ok(Self { ports: stats, listed: ports(control)?.ports, addresses })
    }

    /// Both ends of a flow of such packets. What a port with locked addresses would send comes from
    /// one of them.
    ///
    /// # Errors
    /// As for [`end`](Self::end).
    pub fn ends(&self, from: &str, to: &str, packets: &Fields) -> anyhow::Result<[End; 2]> {
        let [mut from, mut to] = [self.end(from)?, self.end(to)?];
        let [source, destination] = packets.ips();
        (from.ip, to.ip) = (source.or(from.ip), destination.or(to.ip));
        let is_v6 = |other: &End| packets.is_v6().or(other.ip.map(|ip| ip.is_ipv6()));
        let own_ip = |end: &End, is_v6| Some(self.own_ip(end.port.as_deref()?, is_v6)?.0);
        from.ip = from.ip.or_else(|| own_ip(&from, is_v6(&to)));
        to.ip = to.ip.or_else(|| own_ip(&to, is_v6(&from)));
        Ok([from, to])
    }

    /// An address that the guest of a port uses, of that family if one is named, and how that is
    /// known.
    pub fn own_ip(&self, port: &str, is_v6: Option<bool>) -> Option<(IpAddr, &'static str)> {
        let is_it = |ip: &IpAddr| is_v6.is_none_or(|is_v6| is_v6 == ip.is_ipv6());
        let of_port = |listed: &&ListedPort| listed.name() == port;
        let listed = self.listed.iter().find(of_port);
        let locked = listed.and_then(|listed| locked_ips(listed).find(is_it));
        let routers = self.ports.iter().filter_map(|port| port.nat.as_ref());
        let leases = routers.filter_map(|nat| nat.leases.get(port)).flatten();
        let mut leased = leases.filter_map(|text| text.parse().ok()).filter(is_it);
        let locked = locked.map(|ip| (ip, "of its locked_ips"));
        let leased = locked.or_else(|| Some((leased.next()?, "which a router has leased to it")));
        let stats = self.ports.iter().find(|stats| stats.name == port);
        let mut seen = stats.into_iter().flat_map(seen_ips).filter(is_it);
        leased.or_else(|| Some((seen.next()?, "which it was seen to use")))
    }

    /// The end that was meant: the name of a port, or an address.
    ///
    /// # Errors
    /// There is no such port, or no port is known to have that IP address.
    pub fn end(&self, typed: &str) -> anyhow::Result<End> {
        let end = End { typed: typed.to_owned(), ..End::default() };
        if self.ports.iter().any(|port| port.name == typed) {
            let (port, mac) = (Some(typed.to_owned()), self.mac_of(typed));
            return Ok(End { port, mac, ..end });
        }
        if let Ok(mac) = typed.parse::<MacAddress>() {
            return Ok(End { port: self.port_of(mac), mac: Some(mac), ..end });
        }
        let alone = typed.parse::<IpAddr>().map(|ip| (ip, None));
        let both = || typed.parse::<SocketAddr>().map(|both| (both.ip(), Some(both.port())));
        let Ok((ip, number)) = alone.or_else(|_| both()) else {
            let names = self.ports.iter().map(|port| port.name.as_str());
            bail!("{} (and it is no address)", no_port(typed, names));
        };
        let unknown = || {
            format!(
                "{ip}: no port is known to have it (no router leased it, it is in no \
                 locked_ips, and neighbours=sync has not seen it): write the port, and src_ip=… \
                 or dst_ip=…"
            )
        };
        let port = self.port_of_ip(ip).with_context(unknown)?;
        Ok(End { mac: self.mac_of(&port), port: Some(port), ip: Some(ip), number, ..end })
    }

    /// The address of the guest of a port, or the one that was last heard there.
    fn mac_of(&self, name: &str) -> Option<MacAddress> {
        let port = self.ports.iter().find(|port| port.name == name)?;
        let own = port.mac.as_ref().and_then(|mac| mac.parse().ok());
        let there = self.addresses.iter().filter(|entry| entry.port == name);
        own.or_else(|| there.min_by_key(|entry| entry.age_s)?.mac.parse().ok())
    }

    fn port_of(&self, mac: MacAddress) -> Option<String> {
        let is_it = |text: &str| text.parse() == Ok(mac);
        let there = self.addresses.iter().find(|entry| is_it(&entry.mac));
        let own = || self.ports.iter().find(|port| port.mac.as_deref().is_some_and(is_it));
        there.map(|entry| entry.port.clone()).or_else(|| Some(own()?.name.clone()))
    }

    fn port_of_ip(&self, ip: IpAddr) -> Option<String> {
        let is_it = |text: &str| text.parse() == Ok(ip);
        let leases = self.ports.iter().filter_map(|port| port.nat.as_ref()).map(|nat| &nat.leases);
        let leased = leases.flatten().find(|(_, ips)| ips.iter().any(|text| is_it(text)));
        let has = |port: &&ListedPort| locked_ips(port).any(|locked| locked == ip);
        let locked = || Some(self.listed.iter().find(has)?.name().to_owned());
        let uses = |port: &&PortStats| seen_ips(port).any(|seen| seen == ip);
        let seen = || Some(self.ports.iter().find(uses)?.name.clone());
        leased.map(|(port, _)| port.clone()).or_else(locked).or_else(seen)
    }
}

fn seen_ips(port: &PortStats) -> impl Iterator<Item = IpAddr> {
    port.seen_ips.iter().filter_map(|text| text.parse().ok())
}

fn locked_ips(port: &ListedPort) -> impl Iterator<Item = IpAddr> {
    port.texts("locked_ips").filter_map(|ip| ip.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NatStats;

    fn book(ports: &[PortStats]) -> AddressBook<'_> {
        let locked = r#"{"name":"b","vm":"b.sock","locked_ips":["10.0.0.2","fd00::2"]}"#;
        let port = serde_json::from_str(locked).expect("JSON");
        let state = "waiting".into();
        let listed = vec![ListedPort { port, state, mac: None, socket: None, added: false }];
        let entry = |port: &str, number, age_s| FdbEntry {
            port: port.into(),
            mac: MacAddress::local(number).to_string(),
            age_s: Some(age_s),
            vlan: None,
            kind: "learned".into(),
        };
        AddressBook { ports, listed, addresses: vec![entry("up", 7, 9), entry("up", 8, 1)] }
    }

    #[test]
    fn ends_are_ports_and_addresses_that_are_known() {
        let port = |name: &str, mac: Option<u32>| PortStats {
            name: name.into(),
            mac: mac.map(|number| MacAddress::local(number).to_string()),
            ..PortStats::default()
        };
        let leases = [("a".to_owned(), vec!["10.0.2.15".to_owned()])].into();
        let nat = Some(NatStats { leases, ..NatStats::default() });
        let net = PortStats { nat, ..port("net", None) };
        let up = PortStats { seen_ips: vec!["10.0.0.7".into()], ..port("up", None) };
        let ports = [port("a", Some(1)), port("b", Some(2)), up, net];
        let book = book(&ports);
        for (typed, port, mac) in [
            ("a", Some("a"), Some(1)),
            // The address that was heard last is where packets go.
            ("up", Some("up"), Some(8)),
            ("net", Some("net"), None),
            ("52:54:00:00:00:07", Some("up"), Some(7)),
            ("52:54:00:00:00:02", Some("b"), Some(2)),
            ("52:54:00:00:00:09", None, Some(9)),
            ("10.0.2.15", Some("a"), Some(1)),
            ("10.0.0.7", Some("up"), Some(8)),
            ("10.0.0.2:80", Some("b"), Some(2)),
            ("[fd00::2]:80", Some("b"), Some(2)),
        ] {
            let end = book.end(typed).expect(typed);
            assert_eq!((end.port.as_deref(), end.mac), (port, mac.map(MacAddress::local)));
        }
        assert_eq!(book.end("10.0.0.2:80").expect("b").number, Some(80));
        for (field, source) in [
            ("dst_ip=10.0.0.9", "10.0.0.2"),
            ("dst_ip=fd00::9", "fd00::2"),
            ("type=ip6", "fd00::2"),
        ] {
            let packets = Fields::parse(&[field.to_owned()]).expect("a field");
            let [from, _] = book.ends("b", "a", &packets).expect("both");
            assert_eq!(from.ip, source.parse().ok(), "of the packet's family");
        }
        for (typed, why) in [("10.0.0.9", "no port is known to have it"), ("c", "no port called")] {
            let error = book.end(typed).expect_err(typed).to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
