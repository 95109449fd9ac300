//! What the switch allows a port, as options: each is set and written by itself, and all together
//! become one [`PortPolicy`].

use std::net::IpAddr;

use ringway_switch::{PortPolicy, Vlan, VlanId, VlanSet, WhenFull};

use super::error::{Origin, SpecError};
use super::literal::Literal;
use super::values::{parse_mac, parse_switch};

/// The fastest rate that can be configured, per second: more is no limit.
const RATE_MAX: u64 = 1_000_000_000_000_000;

/// Between the items of a list on a command line.
const SEPARATOR: char = '+';

/// The rules of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The VLAN of a port that sends and receives without tags.
    vlan: Option<VlanId>,
    /// The VLANs of a port that tells them apart by tags.
    trunk: Option<VlanSet>,
    /// The VLAN of what a trunk sends without a tag.
    native: Option<VlanId>,
    /// Everything else; its VLAN is not used.
    rest: PortPolicy,
}

/// One rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `vlan`
    Vlan,
    /// `trunk`
    Trunk,
    /// `native`
    Native,
    /// A number of the policy.
    Number(Number),
    /// `when_full`
    WhenFull,
    /// `isolated`
    Isolated,
    /// `uplink`
    Uplink,
    /// `locked_mac`
    LockedMac,
    /// `locked_ips`
    LockedIps,
    /// `static_macs`
    StaticMacs,
}

/// A number of the policy; 0 is the default of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Number {
    /// Bits per second towards the guest.
    BitsToGuest,
    /// Packets per second towards the guest.
    PacketsToGuest,
    /// Burst towards the guest, in microseconds.
    BurstToGuest,
    /// Bits per second from the guest.
    BitsFromGuest,
    /// Packets per second from the guest.
    PacketsFromGuest,
    /// Burst from the guest, in microseconds.
    BurstFromGuest,
    /// Packets per second to groups and unknown stations.
    Storm,
}

impl Rules {
    /// What the switch is told.
    pub fn policy(&self) -> PortPolicy {
        let vlan = match (self.vlan, &self.trunk) {
            (Some(vlan), _) => Vlan::Access(vlan),
            (None, Some(tagged)) => Vlan::Trunk { tagged: tagged.clone(), native: self.native },
            (None, None) => Vlan::None,
        };
        PortPolicy { vlan, ..self.rest.clone() }
    }

    /// Rules that each are fine and together make no sense: what is wrong, and what to do.
    pub fn contradiction(&self) -> Option<(String, &'static str)> {
        if self.vlan.is_some() && self.trunk.is_some() {
            let wrong = "vlan and trunk exclude each other".to_string();
            return Some((wrong, "keep vlan for one VLAN without tags, or trunk for tags"));
        }
        if self.native.is_some() && self.trunk.is_none() {
            return Some(("native belongs to a trunk".into(), "add trunk, or write vlan instead"));
        }
        self.policy().check().err().map(|why| (why.to_string(), "change one of these options"))
    }

    fn number(&mut self, number: Number) -> NumberOf<'_> {
        let rest = &mut self.rest;
        match number {
            Number::BitsToGuest => NumberOf::Wide(&mut rest.rate_to_guest.bits_per_second),
            Number::PacketsToGuest => NumberOf::Wide(&mut rest.rate_to_guest.packets_per_second),
            Number::BurstToGuest => NumberOf::Narrow(&mut rest.rate_to_guest.burst_us),
            Number::BitsFromGuest => NumberOf::Wide(&mut rest.rate_from_guest.bits_per_second),
            Number::PacketsFromGuest => {
                NumberOf::Wide(&mut rest.rate_from_guest.packets_per_second)
            }
            Number::BurstFromGuest => NumberOf::Narrow(&mut rest.rate_from_guest.burst_us),
            Number::Storm => NumberOf::Wide(&mut rest.storm_packets_per_second),
        }
    }
}

enum NumberOf<'a> {
    Wide(&'a mut u64),
    Narrow(&'a mut u32),
}

impl Rule {
    /// Sets the rule; `None` is the default.
    ///
    /// # Errors
    /// The text is not a value of it.
    pub fn set(
        self,
        rules: &mut Rules,
        origin: &Origin,
        key: &str,
        text: Option<&str>,
    ) -> Result<(), SpecError> {
        let switch = |text: Option<&str>| {
            text.map(|text| parse_switch(origin, key, text))
                .transpose()
                .map(Option::unwrap_or_default)
        };
        match self {
            Self::Vlan => rules.vlan = text.map(|text| vlan(origin, key, text)).transpose()?,
            Self::Native => rules.native = text.map(|text| vlan(origin, key, text)).transpose()?,
            Self::Trunk => rules.trunk = text.map(|text| vlans(origin, key, text)).transpose()?,
            Self::Number(number) => {
                let value = text.map(|text| amount(origin, key, text)).transpose()?;
                match rules.number(number) {
                    NumberOf::Wide(wide) => *wide = value.unwrap_or(0),
                    NumberOf::Narrow(narrow) => {
                        *narrow = u32::try_from(value.unwrap_or(0)).map_err(|_| {
                            let wrong = format!("{key} is longer than an hour");
                            origin.wrong(wrong, format!("write at most {}", u32::MAX))
                        })?;
                    }
                }
            }
            Self::WhenFull => {
                let when = text.map(|text| when_full(origin, key, text)).transpose()?;
                rules.rest.when_full = when.unwrap_or_default();
            }
            Self::Isolated => rules.rest.isolated = switch(text)?,
            Self::Uplink => rules.rest.is_uplink = switch(text)?,
            Self::LockedMac => {
                rules.rest.locked_mac = text.map(|text| parse_mac(origin, text)).transpose()?;
            }
            Self::LockedIps => rules.rest.locked_ips = list(text, |text| ip(origin, text))?,
            Self::StaticMacs => {
                rules.rest.static_macs = list(text, |text| parse_mac(origin, text))?;
            }
        }
        Ok(())
    }

    /// What a port has; `None`: the default.
    pub fn value_of(self, rules: &Rules) -> Option<Literal> {
        let switch = |is_on: bool| is_on.then_some(Literal::Switch(true));
        let number = |vlan: Option<VlanId>| Some(Literal::Number(vlan?.raw().into()));
        let rest = &rules.rest;
        match self {
            Self::Vlan => number(rules.vlan),
            Self::Native => number(rules.native),
            Self::Trunk => rules.trunk.as_ref().map(|vlans| Literal::List(ranges(vlans))),
            Self::Number(number) => {
                let value = match rules.clone().number(number) {
                    NumberOf::Wide(wide) => *wide,
                    NumberOf::Narrow(narrow) => u64::from(*narrow),
                };
                (value > 0).then_some(Literal::Number(value))
            }
            Self::WhenFull => {
                (rest.when_full == WhenFull::Drop).then(|| Literal::Text("drop".into()))
            }
            Self::Isolated => switch(rest.isolated),
            Self::Uplink => switch(rest.is_uplink),
            Self::LockedMac => rest.locked_mac.map(|mac| Literal::Text(mac.to_string())),
            Self::LockedIps => texts(&rest.locked_ips),
            Self::StaticMacs => texts(&rest.static_macs),
        }
    }
}

fn texts(list: &[impl ToString]) -> Option<Literal> {
    let texts = list.iter().map(ToString::to_string).collect();
    (!list.is_empty()).then_some(Literal::List(texts))
}

fn list<T>(
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, SpecError>,
) -> Result<Vec<T>, SpecError> {
    text.map_or(Ok(Vec::new()), |text| text.split(SEPARATOR).map(parse).collect())
}

fn vlan(origin: &Origin, key: &str, text: &str) -> Result<VlanId, SpecError> {
    text.parse().ok().and_then(VlanId::new).ok_or_else(|| {
        let example = origin.assign(key, "10");
        let advice = format!("write a number from 1 to {}, such as {example}", VlanId::MAX);
        origin.wrong(format!("{text:?} is not a VLAN"), advice)
    })
}

/// Numbers and ranges of numbers, or all.
fn vlans(origin: &Origin, key: &str, text: &str) -> Result<VlanSet, SpecError> {
    if text == "all" {
        return Ok(VlanSet::all());
    }
    let mut set = VlanSet::none();
    for part in text.split(SEPARATOR) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (vlan(origin, key, first)?, vlan(origin, key, last)?);
        if first > last {
            let advice = format!("write {last}-{first}");
            return Err(origin.wrong(format!("{part:?} runs backwards"), advice));
        }
        (first.raw()..=last.raw()).filter_map(VlanId::new).for_each(|vlan| set.insert(vlan));
    }
    Ok(set)
}

/// As few numbers and ranges as say the same.
fn ranges(vlans: &VlanSet) -> Vec<String> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for vlan in vlans.iter().map(VlanId::raw) {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == vlan => *last = vlan,
            _ => ranges.push((vlan, vlan)),
        }
    }
    let text = |(first, last): (u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect()
}

/// A number with k, M, G or T behind it, powers of 1000.
fn amount(origin: &Origin, key: &str, text: &str) -> Result<u64, SpecError> {
    let digits = text.trim_end_matches(['k', 'M', 'G', 'T']);
    let unit = match &text[digits.len()..] {
        "" => Some(1),
        "k" => Some(1_000),
        "M" => Some(1_000_000),
        "G" => Some(1_000_000_000),
        "T" => Some(1_000_000_000_000),
        _ => None,
    };
    // The parser alone would take "+5".
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits.parse::<u64>().ok().filter(|_| is_plain);
    let value = number.zip(unit).and_then(|(number, unit): (u64, u64)| number.checked_mul(unit));
    value.filter(|&value| value <= RATE_MAX).ok_or_else(|| {
        let example = origin.assign(key, "100M");
        let advice = format!("write a whole number, with k, M, G or T if you like: {example}");
        origin.wrong(format!("{text:?} is not an amount for {key}"), advice)
    })
}

fn when_full(origin: &Origin, key: &str, text: &str) -> Result<WhenFull, SpecError> {
    match text {
        "hold" => Ok(WhenFull::Hold),
        "drop" => Ok(WhenFull::Drop),
        _ => {
            let [hold, drop] = ["hold", "drop"].map(|value| origin.assign(key, value));
            let wrong = format!("{key} can be hold or drop, and not {text:?}");
            Err(origin.wrong(wrong, format!("write {hold} or {drop}")))
        }
    }
}

fn ip(origin: &Origin, text: &str) -> Result<IpAddr, SpecError> {
    text.parse().map_err(|_| {
        let wrong = format!("{text:?} is not an IP address");
        origin.wrong(wrong, "write IPv4 or IPv6 addresses, such as 192.0.2.1 and 2001:db8::1")
    })
}

/// Random rules, for the test of reading and writing.
#[cfg(test)]
pub fn any() -> impl proptest::strategy::Strategy<Value = Rules> {
    use proptest::prelude::*;
    use ringway_net::MacAddress;
    let station = || any::<[u8; 5]>().prop_map(|[a, b, c, d, e]| MacAddress([2, a, b, c, d, e]));
    let vlan = || (1..=VlanId::MAX).prop_map(|number| VlanId::new(number).expect("in range"));
    let vlans =
        proptest::collection::vec(vlan(), 1..20).prop_map(|list| list.into_iter().collect());
    let rate = (0..=RATE_MAX, 0..=RATE_MAX, any::<u32>()).prop_map(|(bits, packets, burst_us)| {
        ringway_switch::RateLimit { bits_per_second: bits, packets_per_second: packets, burst_us }
    });
    let rest = (
        (rate.clone(), rate, any::<bool>(), 0..3u8, 0..=RATE_MAX),
        proptest::option::of(station()),
        proptest::collection::vec(any::<IpAddr>(), 0..4),
        proptest::collection::vec(station(), 0..4),
    );
    let rest =
        rest.prop_map(|((to, from, drops, role, storm), locked_mac, ips, macs)| PortPolicy {
            rate_to_guest: to,
            rate_from_guest: from,
            when_full: if drops { WhenFull::Drop } else { WhenFull::Hold },
            isolated: role == 1,
            is_uplink: role == 2,
            locked_mac,
            locked_ips: ips,
            storm_packets_per_second: storm,
            static_macs: macs,
            ..PortPolicy::default()
        });
    let which = prop_oneof![
        Just((None, None, None)),
        vlan().prop_map(|vlan| (Some(vlan), None, None)),
        (vlans, vlan()).prop_map(|(trunk, native): (VlanSet, _)| {
            let native = Some(native).filter(|native| !trunk.contains(*native));
            (None, Some(trunk), native)
        }),
    ];
    (rest, which).prop_map(|(mut rest, (vlan, trunk, native))| {
        // A trunk's static addresses are in its native VLAN.
        if trunk.is_some() && native.is_none() {
            rest.static_macs.clear();
        }
        Rules { vlan, trunk, native, rest }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_have_units_and_limits() {
        let origin = Origin::flag("typed");
        let parse = |text: &str| amount(&origin, "rate_to_guest", text).ok();
        assert_eq!(
            ["7", "10k", "100M", "2G", "1T"].map(parse),
            [
                Some(7),
                Some(10_000),
                Some(100_000_000),
                Some(2_000_000_000),
                Some(1_000_000_000_000)
            ]
        );
        for text in ["", "M", "+5", "-1", "1.5G", "1kk", "1 G", "18446744073709551615", "2000T"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn ranges_of_vlans_are_read_and_written() {
        let origin = Origin::flag("typed");
        let read =
            |text: &str| vlans(&origin, "trunk", text).map(|set| ranges(&set).join("+")).ok();
        assert_eq!(read("30+10-12+13").as_deref(), Some("10-13+30"));
        assert_eq!(read("all").as_deref(), Some("1-4094"));
        for text in ["", "0", "4095", "12-10", "1-", "1++2", "a"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
