//! ICMP errors that a guest sends about what was sent to it, and what they change.

use std::net::IpAddr;

use super::from_guest::{Incoming, Refusal};
use super::{Nat, State, TCP_HEADER_LEN};
use crate::actions::Actions;
use crate::frame::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, TCP, UDP, low_word};
use crate::packet::{array, quoted, word};
use crate::socket::Close;
use crate::table::{FlowId, FlowKey, Protocol};
use crate::tcp::{Seq, Todo};

const ICMP_HEADER_LEN: usize = 8;

/// Where the number is by which a segment's sender knows it.
const SEQ_AT: usize = 4;

impl Nat {
    pub(super) fn error_from_guest(
        &mut self,
        incoming: &Incoming<'_>,
        actions: &mut Actions,
    ) -> Result<(), Refusal> {
        let payload = incoming.ip.payload;
        let kind = payload.first_chunk::<2>().ok_or(Refusal::Malformed)?;
        let is_ipv4 = incoming.ip.from.is_ipv4();
        match (is_ipv4, kind) {
            (true, [3, 3]) | (false, [1, 4]) => self.port_closed(incoming, actions),
            (true, [3, 4]) => {
                let mtu = word(payload, 6).ok_or(Refusal::Malformed)?;
                self.carries_less(incoming, usize::from(mtu), actions)
            }
            (false, [2, 0]) => {
                let mtu = array(payload, 4).map(u32::from_be_bytes).ok_or(Refusal::Malformed)?;
                self.carries_less(incoming, mtu as usize, actions)
            }
            _ => Err(Refusal::Malformed),
        }
    }

    /// The guest has no socket for what was sent to it: then the host has none for the other end,
    /// which its next datagram tells it.
    fn port_closed(
        &mut self,
        incoming: &Incoming<'_>,
        actions: &mut Actions,
    ) -> Result<(), Refusal> {
        let (flow, _) = self.quoted_flow(incoming, Protocol::Udp)?;
        self.end(flow, Close::Gracefully, actions);
        Ok(())
    }

    /// A link behind the guest carries only so many bytes: shorter segments go there.
    fn carries_less(
        &mut self,
        incoming: &Incoming<'_>,
        mtu: usize,
        actions: &mut Actions,
    ) -> Result<(), Refusal> {
        let (flow, segment) = self.quoted_flow(incoming, Protocol::Tcp)?;
        let seq = array(segment, SEQ_AT).map(u32::from_be_bytes).ok_or(Refusal::Malformed)?;
        let ip_len = match incoming.ip.from {
            IpAddr::V4(_) => IPV4_HEADER_LEN,
            IpAddr::V6(_) => IPV6_HEADER_LEN,
        };
        let mss = low_word(mtu.saturating_sub(ip_len + TCP_HEADER_LEN));
        let entry = self.table.entry_mut(flow).ok_or(Refusal::NoFlow)?;
        if let State::Tcp(tcp) = &mut entry.state {
            tcp.carries_at_most(mss, Seq(seq), incoming.now);
        }
        self.apply(flow, Todo::default(), 0, actions);
        Ok(())
    }

    /// The flow to whose guest that was sent which the error is about.
    fn quoted_flow<'a>(
        &self,
        incoming: &Incoming<'a>,
        protocol: Protocol,
    ) -> Result<(FlowId, &'a [u8]), Refusal> {
        let number = if protocol == Protocol::Tcp { TCP } else { UDP };
        let quote = incoming.ip.payload.get(ICMP_HEADER_LEN..).ok_or(Refusal::Malformed)?;
        let (from, to, bytes) = quoted(number, quote).ok_or(Refusal::Malformed)?;
        let key = FlowKey { guest: incoming.guest, protocol, from: to, to: from };
        Ok((self.table.find(&key).ok_or(Refusal::NoFlow)?, bytes))
    }
}
