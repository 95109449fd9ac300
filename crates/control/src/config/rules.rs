//! The rules of the switch for a port: each option sets a part, and all parts together become one
//! [`PortPolicy`].

use std::net::IpAddr;

use ringway_net::MacAddress;
use ringway_switch::{PortPolicy, Vlan, VlanId, VlanSet};

use super::error::{Origin, SpecError};
use super::kind::{OptionText, SEPARATOR};
use super::literal::Literal;
use super::values::parse_mac;

/// The rules of one port.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// The VLAN of a port that sends and receives without tags.
    pub(super) vlan: Option<VlanId>,
    /// The VLANs of a port that tells them apart by tags.
    pub(super) trunk: Option<VlanSet>,
    /// The VLAN of what a trunk sends without a tag.
    pub(super) native: Option<VlanId>,
    /// Everything else; its VLAN is not used.
    pub(super) rest: PortPolicy,
}

impl Rules {
    /// The policy for the switch.
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
}

/// One VLAN.
pub(super) fn vlan(text: &OptionText<'_>) -> Result<Option<VlanId>, SpecError> {
    text.parse(|origin, typed| parse_vlan(origin, text.key, typed))
}

/// As it is written.
pub(super) fn written_vlan(vlan: &Option<VlanId>) -> Option<Literal> {
    vlan.map(|vlan| Literal::Number(vlan.raw().into()))
}

/// Several VLANs.
pub(super) fn trunk(text: &OptionText<'_>) -> Result<Option<VlanSet>, SpecError> {
    text.parse(|origin, typed| parse_vlans(origin, text.key, typed))
}

/// As they are written.
pub(super) fn written_trunk(vlans: &Option<VlanSet>) -> Option<Literal> {
    vlans.as_ref().map(|vlans| Literal::List(ranges(vlans)))
}

/// IP addresses.
pub(super) fn ips(text: &OptionText<'_>) -> Result<Vec<IpAddr>, SpecError> {
    text.list(|origin, text| {
        text.parse().map_err(|_| {
            let wrong = format!("{text:?} is not an IP address");
            origin.wrong(wrong, "write IPv4 or IPv6 addresses, such as 192.0.2.1 and 2001:db8::1")
        })
    })
}

/// MAC addresses.
pub(super) fn macs(text: &OptionText<'_>) -> Result<Vec<MacAddress>, SpecError> {
    text.list(parse_mac)
}

fn parse_vlan(origin: &Origin, key: &str, text: &str) -> Result<VlanId, SpecError> {
    text.parse().ok().and_then(VlanId::new).ok_or_else(|| {
        let example = origin.assign(key, "10");
        let advice = format!("write a number from 1 to {}, such as {example}", VlanId::MAX);
        origin.wrong(format!("{text:?} is not a VLAN"), advice)
    })
}

/// Numbers and ranges of numbers, or all.
fn parse_vlans(origin: &Origin, key: &str, text: &str) -> Result<VlanSet, SpecError> {
    if text == "all" {
        return Ok(VlanSet::all());
    }
    let mut set = VlanSet::none();
    for part in text.split(SEPARATOR) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (parse_vlan(origin, key, first)?, parse_vlan(origin, key, last)?);
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

/// Random rules, for the test of reading and writing.
#[cfg(test)]
pub fn any() -> impl proptest::strategy::Strategy<Value = Rules> {
    use proptest::prelude::*;
    use ringway_switch::WhenFull;

    use super::values::AMOUNT_MAX;

    let station = || any::<[u8; 5]>().prop_map(|[a, b, c, d, e]| MacAddress([2, a, b, c, d, e]));
    let vlan = || (1..=VlanId::MAX).prop_map(|number| VlanId::new(number).expect("in range"));
    let vlans =
        proptest::collection::vec(vlan(), 1..20).prop_map(|list| list.into_iter().collect());
    let rate =
        (0..=AMOUNT_MAX, 0..=AMOUNT_MAX, any::<u32>()).prop_map(|(bits, packets, burst_us)| {
            ringway_switch::RateLimit {
                bits_per_second: bits,
                packets_per_second: packets,
                burst_us,
            }
        });
    let rest = (
        (rate.clone(), rate, any::<bool>(), 0..3u8, 0..=AMOUNT_MAX),
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
    fn ranges_of_vlans_are_read_and_written() {
        let origin = Origin::flag("typed");
        let read =
            |text: &str| parse_vlans(&origin, "trunk", text).map(|set| ranges(&set).join("+")).ok();
        assert_eq!(read("30+10-12+13").as_deref(), Some("10-13+30"));
        assert_eq!(read("all").as_deref(), Some("1-4094"));
        for text in ["", "0", "4095", "12-10", "1-", "1++2", "a"] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
