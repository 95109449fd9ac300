//! Forwarding while packets are captured or mirrored: one packet at a time, and what became of it
//! is noted.

use ringway_net::{DropReason, Packet, PacketSource};
use ringway_switch::PortId;

use crate::forward::budget::BUDGET_UNITS;
use crate::forward::delivery::Delivery;
use crate::forward::receivers::Receivers;
use crate::forward::{Fabric, Open, VisitEnd};
use crate::port::pair_map::PairOwner;
use crate::port::queue_pair::{Drops, PayloadLifetime};

/// As [`forward`](crate::forward::forward), packet by packet.
#[cold]
pub(crate) fn forward_observed<S: PacketSource>(
    source: &mut S,
    fabric: &mut Fabric<'_>,
) -> VisitEnd {
    // A tap writes at once: only then is it known what becomes of a packet.
    fabric.delivery.lifetime = PayloadLifetime::CallOnly;
    while fabric.delivery.work < BUDGET_UNITS {
        let before = source.dropped();
        let is_lent = source.peek().is_some();
        fabric.note_dropped(&before, &source.dropped());
        let Some(packet) = source.peek().filter(|_| is_lent) else { return VisitEnd::Idle };
        let open = Open::Routed(fabric.route(&packet));
        if let Some(visit) = fabric.deliver_one(source, open) {
            return visit;
        }
    }
    VisitEnd::More
}

impl Delivery<'_> {
    /// As [`put`](Self::put), and what came of it is noted. What goes to another worker is noted
    /// there.
    #[cold]
    pub(super) fn put_observed(
        &mut self,
        receivers: &mut Receivers<'_>,
        to: PortId,
        packet: &Packet<'_>,
        may_hold: bool,
    ) -> Result<bool, VisitEnd> {
        let Some(port) = receivers.port(to) else { return Ok(false) };
        let (pair, owner) = port.owner_for(self.pair, packet);
        let slot = match owner {
            PairOwner::Here(slot) => slot,
            // A packet that cannot be handed over is counted at the first slot.
            PairOwner::There(_) => to,
        };
        let before = drops_of(receivers, slot);
        let is_taken = self.put_unseen(receivers, to, packet, may_hold)?;
        let dropped = grown(&before, &drops_of(receivers, slot));
        let is_here = matches!(owner, PairOwner::Here(_));
        if let Some(observers) = &mut self.observers
            && (dropped.is_some() || is_taken)
        {
            observers.went_to(to, dropped);
            if dropped.is_some() || is_here {
                observers.given((to, pair), packet, dropped);
            }
        }
        if is_taken {
            self.mirror(receivers, to, packet);
        }
        Ok(is_taken)
    }

    /// A copy for the mirror of a port, if it has one. It never waits, and has no mirror itself.
    fn mirror(&mut self, receivers: &mut Receivers<'_>, of: PortId, packet: &Packet<'_>) {
        let Some(to) = self.observers.as_ref().and_then(|it| it.mirror_of(of)) else { return };
        let Some(pair) = receivers.port(to).map(|port| port.owner_for(self.pair, packet).0) else {
            return;
        };
        self.position = 0;
        let put = self.put_unseen(receivers, to, packet, false);
        if let (Ok(true), Some(observers)) = (put, &mut self.observers) {
            observers.copied((to, pair), packet);
        }
    }

    /// A packet for that port goes no further.
    pub(super) fn drop_at(
        &mut self,
        receivers: &mut Receivers<'_>,
        to: PortId,
        packet: &Packet<'_>,
        reason: DropReason,
    ) {
        receivers.count_drop_at(to, reason);
        if let Some(observers) = &mut self.observers {
            observers.went_to(to, Some(reason));
            observers.given((to, 0), packet, Some(reason));
        }
    }

    /// Whether a port gets copies, and so no floods of its own.
    pub(super) fn is_mirror(&self, port: PortId) -> bool {
        self.observers.as_ref().is_some_and(|observers| observers.is_mirror(port))
    }
}

impl Fabric<'_> {
    /// The drops of refused packets so far, if they matter.
    pub(crate) fn refused_before(&self) -> Option<Drops> {
        self.delivery.observers.is_some().then_some(*self.refused)
    }

    /// The packet that is lent is done with.
    #[cold]
    pub(crate) fn note_taken(&mut self, packet: &Packet<'_>, refused_before: &Drops) {
        let refused = grown(refused_before, self.refused);
        if let Some(observers) = &mut self.delivery.observers {
            observers.taken((self.from, self.delivery.pair.pair), packet, refused);
        }
        self.delivery.mirror(&mut self.receivers, self.from, packet);
    }

    /// Notes everything that came between two looks at a source and was no packet.
    fn note_dropped(&mut self, before: &Drops, now: &Drops) {
        let from = (self.from, self.delivery.pair.pair);
        let Some(observers) = &mut self.delivery.observers else { return };
        for ((reason, before), now) in DropReason::ALL.into_iter().zip(before).zip(now) {
            (*before..*now).for_each(|_| observers.refused(from, reason));
        }
    }
}

fn drops_of(receivers: &mut Receivers<'_>, slot: PortId) -> Drops {
    receivers.slot(slot).map_or_else(Drops::default, |pair| pair.drops())
}

/// The reason that was counted meanwhile.
pub(crate) fn grown(before: &Drops, now: &Drops) -> Option<DropReason> {
    let at = before.iter().zip(now).position(|(before, now)| now > before)?;
    DropReason::ALL.get(at).copied()
}
