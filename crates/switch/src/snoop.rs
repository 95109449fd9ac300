//! Messages of hosts and routers about multicast groups: IGMP versions 1 to 3 (RFC 1112, 2236,
//! 3376) and MLD versions 1 and 2 (RFC 2710, 3810).
//!
//! Limits: whole groups only, sources are not told apart. Checksums are not verified: a host that
//! lies can compute one. What lies behind the copied bytes is [`Message::TooMany`].

use crate::VlanId;
use crate::frame::{Frame, IPV4, IPV6, array, word};
use crate::groups::{Family, Group};
use crate::ipv6;

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
/// Records of one report that are read.
const RECORDS_MAX: usize = 64;

/// One thing that a packet says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Message {
    Join(Group),
    Leave(Group),
    /// There are more records than can be read.
    TooMany,
}

/// The kind of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    Query(Family),
    /// For routers only (RFC 4541 §2.1.1): other hosts would hold their own reports back.
    Report(Family),
}

/// Takes a packet apart; each of its messages goes to `tell`.
pub(crate) fn listen(vlan: VlanId, frame: &Frame<'_>, tell: impl FnMut(Message)) -> Heard {
    let heard = match frame.ethertype {
        Some(IPV4) => igmp(vlan, frame.payload, tell),
        Some(IPV6) => mld(vlan, frame.payload, tell),
        _ => None,
    };
    heard.unwrap_or(Heard::Nothing)
}

fn igmp(vlan: VlanId, ip: &[u8], mut tell: impl FnMut(Message)) -> Option<Heard> {
    let version_and_len = *ip.first()?;
    let header_len = usize::from(version_and_len & 0xf) * 4;
    let is_whole = word(ip, 6)? & 0x3fff == 0;
    if version_and_len >> 4 != 4 || header_len < 20 || *ip.get(9)? != IGMP || !is_whole {
        return None;
    }
    let message = ip.get(header_len..)?;
    let group = |address| Group::of_v4(vlan, address);
    match *message.first()? {
        0x11 => return Some(Heard::Query(Family::V4)),
        0x12 | 0x16 => group(array(message, 4)?).into_iter().for_each(|at| tell(Message::Join(at))),
        0x17 => group(array(message, 4)?).into_iter().for_each(|at| tell(Message::Leave(at))),
        0x22 => records::<4>(message, group, tell),
        _ => return None,
    }
    Some(Heard::Report(Family::V4))
}

fn mld(vlan: VlanId, ip: &[u8], mut tell: impl FnMut(Message)) -> Option<Heard> {
    let upper = ipv6::upper(ip)?;
    if upper.protocol != ICMPV6 || upper.is_fragment {
        return None;
    }
    let message = upper.bytes;
    let group = |address| Group::of_v6(vlan, address);
    match *message.first()? {
        130 => return Some(Heard::Query(Family::V6)),
        131 => group(array(message, 8)?).into_iter().for_each(|at| tell(Message::Join(at))),
        132 => group(array(message, 8)?).into_iter().for_each(|at| tell(Message::Leave(at))),
        143 => records::<16>(message, group, tell),
        _ => return None,
    }
    Some(Heard::Report(Family::V6))
}

/// The records of a report of IGMPv3 or MLDv2 (RFC 3376 §4.2.4), with addresses of `N` bytes.
fn records<const N: usize>(
    message: &[u8],
    group: impl Fn([u8; N]) -> Option<Group>,
    mut tell: impl FnMut(Message),
) {
    const HEADER_LEN: usize = 8;
    const RECORD_LEN: usize = 4;
    let count = usize::from(word(message, 6).unwrap_or(0));
    let mut at = HEADER_LEN;
    for _ in 0..count.min(RECORDS_MAX) {
        let Some([kind, auxiliary, sources @ ..]) = array::<RECORD_LEN>(message, at) else {
            return tell(Message::TooMany);
        };
        let Some(address) = array::<N>(message, at + RECORD_LEN) else {
            return tell(Message::TooMany);
        };
        let sources = usize::from(u16::from_be_bytes(sources));
        // "Include nothing" is how a group is left; "exclude" and sources of any kind want it.
        let meaning = match kind {
            1 | 3 if sources == 0 => Some(Message::Leave as fn(Group) -> Message),
            1..=5 => Some(Message::Join as fn(Group) -> Message),
            _ => None,
        };
        if let (Some(meaning), Some(group)) = (meaning, group(address)) {
            tell(meaning(group));
        }
        at += RECORD_LEN + N + sources * N + usize::from(auxiliary) * 4;
    }
    if count > RECORDS_MAX {
        tell(Message::TooMany);
    }
}
