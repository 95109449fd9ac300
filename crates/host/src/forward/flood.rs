//! One packet to many ports.
//!
//! Limits: a flood never waits: a port without room goes without. Nor does it go on for ever: one
//! packet takes at most [`FLOOD_UNITS_MAX`], and a little more for the last receiver that gets it.

use ringway_net::{DropReason, Packet};
use ringway_switch::{Flood, Room};

use crate::forward::Fabric;

/// Work for the copies of one packet, in units. The longest packet to 255 ports that accept it
/// takes 2,300; one that each of them needs cut into segments of 60 bytes would take 260,000, and
/// keep all other ports waiting for 30 ms.
const FLOOD_UNITS_MAX: u32 = 4096;

impl Fabric<'_> {
    /// To all ports but the one that it comes from.
    pub(crate) fn flood(&mut self, packet: &Packet<'_>) {
        let work_before = self.delivery.work;
        for port in self.receivers.ports {
            let to = port.id;
            if to == self.from || self.delivery.is_mirror(to) {
                continue;
            }
            if !self.floods_on(work_before) {
                return;
            }
            self.delivery.position = 0;
            let _ = self.delivery.put(&mut self.receivers, to, packet, false);
        }
    }

    /// Whether the packet goes to further ports; if not, that is counted.
    fn floods_on(&mut self, work_before: u32) -> bool {
        let is_enough = self.delivery.work - work_before >= FLOOD_UNITS_MAX;
        if is_enough {
            self.refused[DropReason::Storm as usize] += 1;
        }
        !is_enough
    }

    /// To those that the switch allows, each in the form that it is allowed in.
    pub(crate) fn flood_guarded(&mut self, flood: &Flood, packet: &Packet<'_>, head: &[u8]) {
        let (mut laid_out, work_before) = (None, self.delivery.work);
        for to in self.switch.ports() {
            let Some(change) = self.switch.goes_to(flood, to) else { continue };
            if self.delivery.is_mirror(to) {
                continue;
            }
            if self.switch.room_at(to, self.now.0) != Room::Yes {
                self.delivery.drop_at(&mut self.receivers, to, packet, DropReason::RateLimit);
                continue;
            }
            if !self.floods_on(work_before) {
                return;
            }
            if laid_out != Some(change) {
                if self.rewriter.lay_out(packet, head, change).is_none() {
                    self.refused[DropReason::Malformed as usize] += 1;
                    return;
                }
                laid_out = Some(change);
            }
            self.delivery.position = 0;
            if let Ok(true) =
                self.delivery.put_laid_out(&mut self.receivers, to, self.rewriter, false)
            {
                self.switch.delivered(to, packet.len, self.now.0);
            }
        }
    }
}
