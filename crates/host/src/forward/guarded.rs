//! The way of packets that a policy has a say in: one copy of their first bytes, one judgement,
//! and receivers get the bytes that were judged.

use ringway_net::{DropReason, Nanos, Packet};
use ringway_switch::{Decision, PEEK_LEN, PortId, Room, TagChange, WhenFull, spares_judged};

use crate::forward::{Fabric, VisitEnd};
use crate::port::hold_credit::HOLD_MAX_NS;

impl Fabric<'_> {
    /// Delivers one packet; `Some`: not yet.
    #[cold]
    pub(crate) fn deliver_guarded(&mut self, packet: &Packet<'_>) -> Option<VisitEnd> {
        let mut head = [0; PEEK_LEN];
        let len = packet.copy_out(&mut head);
        let head = &head[..len];
        let decision = match self.switch.decide(self.from, head, self.now.0) {
            // The receiver would be made to write into what was judged.
            Decision::One(..) | Decision::Flood(_) if !spares_judged(head, packet.header) => {
                Decision::Drop(DropReason::Malformed)
            }
            decision => decision,
        };
        match decision {
            Decision::One(to, change) => {
                if let Some(visit) = self.put_guarded(to, packet, head, change) {
                    return Some(visit);
                }
            }
            Decision::Flood(flood) => self.flood_guarded(&flood, packet, head),
            Decision::Drop(reason) => self.refused[reason as usize] += 1,
            Decision::Wait(at_ns) => return Some(VisitEnd::Wait(Nanos(at_ns))),
        }
        self.switch.taken(self.from, packet.len, &decision, self.now.0);
        None
    }

    fn put_guarded(
        &mut self,
        to: PortId,
        packet: &Packet<'_>,
        head: &[u8],
        change: TagChange,
    ) -> Option<VisitEnd> {
        let may_hold = self.switch.when_full(to) == WhenFull::Hold;
        if let Room::At(at_ns) = self.switch.room_at(to, self.now.0) {
            if may_hold && at_ns - self.now.0 <= HOLD_MAX_NS {
                return Some(VisitEnd::Wait(Nanos(at_ns)));
            }
            self.delivery.drop_at(&mut self.receivers, to, packet, DropReason::RateLimit);
            return None;
        }
        if self.rewriter.lay_out(packet, head, change).is_none() {
            self.refused[DropReason::Malformed as usize] += 1;
            return None;
        }
        match self.delivery.put_laid_out(&mut self.receivers, to, self.rewriter, may_hold) {
            Ok(true) => self.switch.delivered(to, packet.len, self.now.0),
            Ok(false) => {}
            Err(visit) => return Some(visit),
        }
        None
    }
}
