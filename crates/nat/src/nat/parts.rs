//! Datagrams in parts, from guests and to them.

use std::net::IpAddr;

use ringway_net::{ETHERNET_HEADER_LEN, MacAddress, Nanos};

use super::from_guest::{FromGuest, Incoming, Refusal, Verdict, WHOLE_LEN_MAX};
use super::{Nat, guests::GuestState};
use crate::emit::Emit;
use crate::fragments::{Assembly, cut};
use crate::frame::{ICMP, ICMPV6, TYPE_IPV4, TYPE_IPV6, UDP};
use crate::packet::Part;
use crate::table::Guest;

impl Nat {
    /// A part of a datagram came from a guest.
    pub(super) fn part(
        &mut self,
        packet: &FromGuest<'_>,
        incoming: &Incoming<'_>,
        (part, destination): (Part, MacAddress),
    ) -> Verdict {
        if let Err(why) = self.check_source(incoming, destination) {
            return Verdict::Refused(why);
        }
        let ip = &incoming.ip;
        let is_carried = match ip.from {
            IpAddr::V4(_) => [UDP, ICMP].contains(&part.protocol),
            IpAddr::V6(_) => [UDP, ICMPV6].contains(&part.protocol),
        };
        if !is_carried || packet.len as usize > WHOLE_LEN_MAX {
            return Verdict::Refused(Refusal::Fragment);
        }
        if !ip.is_all_here() {
            return Verdict::Whole;
        }
        let Some(guest) = self.guest_mut(incoming.guest) else {
            return Verdict::Refused(Refusal::NotForUs);
        };
        let assembly = guest.assembler.put(ip, part, incoming.now);
        let deadline = guest.assembler.deadline();
        // One that is too early does no harm.
        self.parts_until = self.parts_until.into_iter().chain(deadline).min();
        match assembly {
            Assembly::Waits => Verdict::Done,
            Assembly::Refused => Verdict::Refused(Refusal::Fragment),
            Assembly::Done(packet) => {
                let ethertype = if ip.from.is_ipv4() { TYPE_IPV4 } else { TYPE_IPV6 };
                let mut frame = [destination.0, incoming.mac.0].concat();
                frame.extend(ethertype.to_be_bytes());
                frame.extend(packet);
                self.assembled = Some(frame);
                Verdict::Assembled
            }
        }
    }

    /// The frame whose last part came, to be given to [`Self::from_guest`] next, once.
    pub fn take_assembled(&mut self) -> Option<Vec<u8>> {
        self.assembled.take()
    }

    /// Parts whose others did not come are dropped.
    pub(super) fn forget_parts(&mut self, now: Nanos) {
        let guests = self.guests.iter_mut().flatten();
        let deadline = |guest: &mut GuestState| {
            guest.assembler.forget(now);
            guest.assembler.deadline()
        };
        self.parts_until = guests.filter_map(deadline).min();
    }

    /// Takes a message that was read for a frame and is not put behind its head: it goes to the
    /// guest as a whole, or in parts if it is longer than a packet.
    pub fn cut(&mut self, emit: &Emit, message: &[u8]) {
        if let Some(frame) = emit.whole(message) {
            self.reply_in_parts(emit.guest(), frame);
        }
    }

    /// A frame for a guest, cut if its packet is longer than the network's MTU.
    pub(super) fn reply_in_parts(&mut self, guest: Guest, frame: Vec<u8>) {
        let mtu = self.plan().mtu;
        self.cut_count = self.cut_count.wrapping_add(1);
        let id = self.cut_count;
        if let Some(guest) = self.guest_mut(guest) {
            let is_long = frame.len() > ETHERNET_HEADER_LEN + usize::from(mtu);
            let parts = if is_long { cut(&frame, mtu, id) } else { vec![frame] };
            guest.reply_all(parts);
        }
    }
}
