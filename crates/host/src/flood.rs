//! One packet to many ports.
//!
//! Limits: a flood never waits: who has no room goes without.

use ringway_net::{DropReason, Packet};
use ringway_switch::{Flood, PortId, Room};

use crate::forward::{Fabric, port_of};

impl Fabric<'_> {
    /// To all ports but the one that it comes from.
    pub(crate) fn flood(&mut self, packet: &Packet<'_>) {
        for at in 0..self.before.len() + 1 + self.after.len() {
            let Ok(to) = u16::try_from(at).map(PortId) else { return };
            let Some(port) = port_of(self.before, self.after, to) else { continue };
            // The other slots of a port are reached through its first one.
            if port.of != to || to == self.from {
                continue;
            }
            self.delivery.position = 0;
            let _ = self.delivery.put((self.before, self.after), to, packet, false);
        }
    }

    /// To those that the switch allows, each in the form that it is allowed in.
    pub(crate) fn flood_guarded(&mut self, flood: &Flood, packet: &Packet<'_>, head: &[u8]) {
        let mut laid_out = None;
        for to in self.switch.ports() {
            let Some(change) = self.switch.goes_to(flood, to) else { continue };
            if self.switch.room_at(to, self.now_ns) != Room::Yes {
                self.count_drop_at(to, DropReason::RateLimit);
                continue;
            }
            if laid_out != Some(change) {
                if self.rewriter.lay_out(packet, head, change).is_none() {
                    return self.refuse(DropReason::Malformed);
                }
                laid_out = Some(change);
            }
            self.delivery.position = 0;
            if let Ok(true) = self.put_laid_out(to, false) {
                self.switch.delivered(to, packet.len, self.now_ns);
            }
        }
    }
}
