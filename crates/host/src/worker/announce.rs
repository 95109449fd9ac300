//! A guest has moved here, or is silent: other stations shall learn where it is now.

use ringway_net::{DropReason, MacAddress, NetHeader, Packet, Put};
use ringway_switch::{Decision, PortId, Room, Switch};
use ringway_virtq::SharedSlice;

use crate::forward::rewrite::Rewriter;
use crate::os::clock::now;
use crate::pace::Flush;
use crate::port::queue_pair::{End, PayloadLifetime};
use crate::port::table::PortTable;

/// The receivers that are told where a guest is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnounceTo {
    /// All that its broadcasts reach.
    All,
    /// Of those, what is behind taps and ports that are uplinks.
    Uplinks,
}

/// Bytes of the shortest Ethernet frame, without its checksum.
const ANNOUNCEMENT_LEN: u32 = 60;

/// RFC 903: who has my IP address, asked by and about `mac`; padded to the shortest frame.
fn announcement(mac: MacAddress) -> [u8; ANNOUNCEMENT_LEN as usize] {
    const RARP: [u8; 2] = [0x80, 0x35];
    const ETHERNET_IPV4_REQUEST_REVERSE: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
    let mut frame = [0; ANNOUNCEMENT_LEN as usize];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac.0);
    frame[12..14].copy_from_slice(&RARP);
    frame[14..22].copy_from_slice(&ETHERNET_IPV4_REQUEST_REVERSE);
    frame[22..28].copy_from_slice(&mac.0);
    frame[32..38].copy_from_slice(&mac.0);
    frame
}

/// Sends a reverse ARP request in the name of a port's guest, from which every switch on the way
/// learns where the guest is; `true`: a guest was called that may sleep through it.
pub(crate) fn announce(
    (id, mac): (PortId, MacAddress),
    to: AnnounceTo,
    switch: &mut Switch,
    ports: &mut PortTable,
    rewriter: &mut Rewriter,
) -> bool {
    if ports.ports.get(usize::from(id.0)).is_none_or(|port| !port.carrier.is_up()) {
        return false;
    }
    let is_told = |switch: &Switch, port: PortId, end: &End| {
        let is_uplink = switch.policy(port).is_some_and(|policy| policy.is_uplink);
        port != id && (to == AnnounceTo::All || is_uplink || matches!(end, End::Tap(_)))
    };
    let mut others = ports.ports.iter().zip(&ports.slots);
    if !others.any(|(port, pair)| is_told(switch, port.id, &pair.end)) {
        return false;
    }
    let (mut frame, now_ns) = (announcement(mac), now().0);
    // As if the guest had sent it: the same VLAN, and nothing that it may not say, or not yet.
    let decision = switch.decide(id, &frame, now_ns);
    if !matches!(decision, Decision::Wait(_)) {
        // It is not the guest that was heard.
        switch.charge(id, ANNOUNCEMENT_LEN, &decision, now_ns);
    }
    let Decision::Flood(flood) = decision else { return false };
    // SAFETY: `frame` lives until the end of this function and is used through this only.
    let payload = [unsafe { SharedSlice::new(frame.as_mut_ptr(), frame.len()) }];
    let header = NetHeader { num_buffers: 1, ..NetHeader::default() };
    let packet = Packet { header: &header, payload: &payload, len: ANNOUNCEMENT_LEN };
    let mut call_again = false;
    // The first pair of every port is this worker's, which is the first.
    for (port, pair) in ports.ports.iter().zip(&mut ports.slots) {
        if !is_told(switch, port.id, &pair.end) {
            continue;
        }
        let Some(change) = switch.goes_to(&flood, port.id) else { continue };
        if switch.room_at(port.id, now_ns) != Room::Yes {
            pair.count_drop(DropReason::RateLimit);
            continue;
        }
        if rewriter.lay_out(&packet, &announcement(mac), change).is_none() {
            continue;
        }
        match pair.put(&rewriter.packet(), PayloadLifetime::CallOnly) {
            Put::Done => {
                switch.delivered(port.id, ANNOUNCEMENT_LEN, now_ns);
                call_again |= pair.flush_to(Flush::at_end()).call_again;
            }
            Put::NoRoom => pair.count_drop(DropReason::NoRoom),
            Put::Refused | Put::Unfinished => {}
        }
    }
    call_again
}
