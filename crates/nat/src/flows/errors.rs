//! ICMP errors that a guest sends about what was sent to it.

use crate::frame::{TCP, TCP_HEADER_LEN, UDP, ip_header_len, low_word};
use crate::packet::{Incoming, array, quoted, word};
use crate::refusal::Refusal;
use crate::table::{FlowKey, Protocol};
use crate::tcp::Seq;

const ICMP_HEADER_LEN: usize = 8;

/// Where the number is by which a segment's sender knows it.
const SEQ_AT: usize = 4;

/// An error, about what was sent in a flow.
pub(super) enum GuestError {
    /// The guest has no socket for it.
    PortClosed(FlowKey),
    /// A link behind the guest carries only segments with so much data; the one with that number
    /// was longer.
    CarriesLess { key: FlowKey, mss: u16, seq: Seq },
}

impl GuestError {
    pub fn parse(incoming: &Incoming<'_>) -> Result<Self, Refusal> {
        let payload = incoming.ip.payload;
        let kind = payload.first_chunk::<2>().ok_or(Refusal::Malformed)?;
        let is_ipv4 = incoming.ip.from.is_ipv4();
        match (is_ipv4, kind) {
            (true, [3, 3]) | (false, [1, 4]) => {
                let (key, _) = quoted_flow(incoming, Protocol::Udp)?;
                Ok(Self::PortClosed(key))
            }
            (true, [3, 4]) => {
                let mtu = word(payload, 6).ok_or(Refusal::Malformed)?;
                Self::carries_less(incoming, usize::from(mtu))
            }
            (false, [2, 0]) => {
                let mtu = array(payload, 4).map(u32::from_be_bytes).ok_or(Refusal::Malformed)?;
                Self::carries_less(incoming, mtu as usize)
            }
            _ => Err(Refusal::Malformed),
        }
    }

    fn carries_less(incoming: &Incoming<'_>, mtu: usize) -> Result<Self, Refusal> {
        let (key, segment) = quoted_flow(incoming, Protocol::Tcp)?;
        let seq = array(segment, SEQ_AT).map(u32::from_be_bytes).ok_or(Refusal::Malformed)?;
        let headers_len = ip_header_len(incoming.ip.from.is_ipv4()) + TCP_HEADER_LEN;
        let mss = low_word(mtu.saturating_sub(headers_len));
        Ok(Self::CarriesLess { key, mss, seq: Seq(seq) })
    }
}

/// The flow to whose guest that was sent which the error is about, and the bytes of it behind its
/// IP header.
fn quoted_flow<'a>(
    incoming: &Incoming<'a>,
    protocol: Protocol,
) -> Result<(FlowKey, &'a [u8]), Refusal> {
    let number = if protocol == Protocol::Tcp { TCP } else { UDP };
    let quote = incoming.ip.payload.get(ICMP_HEADER_LEN..).ok_or(Refusal::Malformed)?;
    let (from, to, bytes) = quoted(number, quote).ok_or(Refusal::Malformed)?;
    Ok((FlowKey { guest: incoming.guest, protocol, from: to, to: from }, bytes))
}
