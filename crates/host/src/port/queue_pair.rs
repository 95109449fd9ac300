//! A queue pair as the worker owns it: what is at its end, and what it is waiting for.

use ringway_device::Queue;
use ringway_net::moderation::Policy;
use ringway_net::offload::Segment;
use ringway_net::{Counters, DropReason, FromPair, Nanos, Packet, PacketSink, Put};
use ringway_switch::PortId;

use crate::journal::counts::Counts;
use crate::nat::NatPort;
use crate::os::page_faults::{FaultTime, Step};
use crate::pace::Flush;
use crate::port::Carrier;
use crate::port::guest_end::{FlushOutcome, GuestEnd, TimersEnded};
use crate::port::hold_credit::{HOLD_MAX_NS, Taken};
use crate::port::room::ReceiverRoom;
use crate::tap::Tap;

/// One queue pair of this worker, in its slot.
#[derive(Debug)]
pub(crate) struct QueuePair {
    /// The number of the slot.
    pub(crate) slot: PortId,
    /// The port that it belongs to.
    pub(crate) port: PortId,
    /// The place of the pair among those of the port.
    pub(crate) pair: FromPair,
    pub(crate) end: End,
    /// A tap's packets are read here; another worker may only write to it.
    pub(crate) is_read: bool,
    /// As of its port.
    pub(crate) carrier: Carrier,
    pub(crate) room: ReceiverRoom,
    /// Work of its last visit beyond the budget, in units.
    pub(crate) debt: u32,
    /// Packets from here that the switch sent nowhere.
    pub(crate) refused: Drops,
    /// How long the worker slept in its guest's memory.
    pub(crate) faults: FaultTime,
}

/// For how long the bytes of a packet stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadLifetime {
    /// For the call only.
    CallOnly,
    /// Until the receiver is flushed.
    UntilFlush,
}

/// Dropped packets by [`DropReason`].
pub(crate) type Drops = [u64; DropReason::ALL.len()];

/// The guest, the tap or the router at the end of a port.
#[derive(Debug)]
pub(crate) enum End {
    /// The slot is free.
    Absent,
    Guest(Box<GuestEnd>),
    Tap(Box<Tap>),
    Nat(Box<NatPort>),
}

impl QueuePair {
    /// A slot without anything in it. As a port's first slot it has the port's number.
    pub(crate) fn absent(slot: PortId) -> Self {
        Self {
            slot,
            port: slot,
            pair: FromPair { pair: 0, of: 1 },
            end: End::Absent,
            is_read: true,
            carrier: Carrier::Up,
            room: ReceiverRoom::new(),
            debt: 0,
            refused: Drops::default(),
            faults: FaultTime::default(),
        }
    }

    /// A packet waits for room here: until when.
    pub(crate) fn wait_until(&mut self, now: Nanos) -> Nanos {
        let End::Guest(guest) = &self.end else { return now.plus(HOLD_MAX_NS) };
        let [Counters { packets, bytes, .. }, _] = guest.queues.counters();
        self.room.credit.wait(now, Taken { packets, bytes })
    }

    /// A step in its guest's memory begins, which is timed while the worker watches.
    #[inline]
    pub(crate) fn step(&self) -> Option<Step> {
        self.faults.step()
    }

    /// Hands one packet to what is at the end.
    #[inline]
    pub(crate) fn put(&mut self, packet: &Packet<'_>, lifetime: PayloadLifetime) -> Put {
        if !self.carrier.takes() {
            self.count_drop(DropReason::LinkDown);
            return Put::Refused;
        }
        let step = self.step();
        let put = match &mut self.end {
            End::Guest(guest) => guest.queues.put(packet),
            End::Tap(tap) if lifetime == PayloadLifetime::UntilFlush => tap.stage(packet),
            End::Tap(tap) => tap.put(packet),
            End::Nat(nat) => nat.put(packet),
            End::Absent => Put::Refused,
        };
        self.faults.step_over(step);
        put
    }

    /// Hands over one segment of a packet that `put` found unfinished.
    pub(crate) fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        let step = self.step();
        let put = match &mut self.end {
            End::Guest(guest) => guest.queues.put_segment(segment),
            End::Tap(tap) => tap.put_segment(segment),
            // It takes every packet as it is.
            End::Nat(_) | End::Absent => Put::Refused,
        };
        self.faults.step_over(step);
        put
    }

    /// The units that the look at a guest's buffers has taken since the last time asked.
    #[inline]
    pub(crate) fn take_extra_units(&mut self) -> u32 {
        match &mut self.end {
            End::Guest(guest) => guest.queues.take_extra_units(),
            End::Tap(_) | End::Nat(_) | End::Absent => 0,
        }
    }

    /// Whether the end takes partial checksums.
    pub(crate) fn accepts_csum(&self) -> bool {
        match &self.end {
            End::Guest(guest) => guest.queues.negotiated().guest_csum,
            End::Tap(tap) => tap.accepts_csum(),
            End::Nat(_) => true,
            End::Absent => false,
        }
    }

    /// The counts of this pair, without addresses; `None`: there are none.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let mut counts = match &self.end {
            End::Guest(guest) => guest.counts(),
            End::Tap(tap) => Counts { ways: [tap.to_tap, tap.from_tap], ..Counts::default() },
            End::Nat(nat) => nat.counts(),
            End::Absent => return None,
        };
        for (drops, refused) in counts.ways[1].drops.iter_mut().zip(self.refused) {
            *drops += refused;
        }
        Some(counts)
    }

    /// Goes on from what a data plane before has counted.
    pub(crate) fn add_counts(&mut self, past: &Counts) {
        let [to, from] = &past.ways;
        match &mut self.end {
            End::Guest(guest) => guest.add_counts(past),
            End::Tap(tap) => {
                (tap.to_tap, tap.from_tap) = (tap.to_tap.plus(to), tap.from_tap.plus(from));
            }
            End::Nat(nat) => nat.add_counts(past),
            End::Absent => {}
        }
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        match &mut self.end {
            End::Guest(guest) => guest.queues.count_drop(reason),
            End::Tap(tap) => tap.to_tap.count_drop(reason),
            End::Nat(nat) => nat.to_nat.count_drop(reason),
            End::Absent => {}
        }
    }

    /// The packets that were dropped on the way to the end.
    pub(crate) fn drops(&self) -> Drops {
        match &self.end {
            End::Guest(guest) => guest.queues.counters()[0].drops,
            End::Tap(tap) => tap.to_tap.drops,
            End::Nat(nat) => nat.to_nat.drops,
            End::Absent => Drops::default(),
        }
    }

    /// Makes everything put visible, and notifies if it is time to.
    #[inline]
    pub(crate) fn flush_to(&mut self, flush: Flush) -> FlushOutcome {
        let step = self.step();
        let flushed = match &mut self.end {
            End::Guest(guest) => guest.flush(Queue::ToGuest, flush),
            End::Tap(tap) => {
                tap.flush();
                FlushOutcome::default()
            }
            // Its answers go out in the next turn.
            End::Nat(nat) => FlushOutcome { visit: nat.takes_visit(), call_again: false },
            End::Absent => FlushOutcome::default(),
        };
        self.faults.step_over(step);
        flushed
    }

    /// Gives everything taken back to its owner, and notifies if it is time to.
    #[inline]
    pub(crate) fn flush_from(&mut self, flush: Flush) -> FlushOutcome {
        let step = self.step();
        let flushed = match &mut self.end {
            End::Guest(guest) => guest.flush(Queue::FromGuest, flush),
            End::Tap(_) | End::Nat(_) | End::Absent => FlushOutcome::default(),
        };
        self.faults.step_over(step);
        flushed
    }

    /// The transmitq is idle: the guest is asked to kick; `false`: something came meanwhile.
    pub(crate) fn arm_idle(&mut self) -> bool {
        let step = self.step();
        let End::Guest(guest) = &mut self.end else { return true };
        let is_armed = guest.arm_idle();
        self.faults.step_over(step);
        is_armed
    }

    /// When the worker has to come back to it.
    pub(crate) fn wake_at(&self) -> Option<Nanos> {
        match &self.end {
            End::Guest(guest) => guest.wake_at(),
            End::Nat(nat) => nat.wake_at(),
            End::Tap(_) | End::Absent => None,
        }
    }

    /// Does what was put off until now or earlier.
    pub(crate) fn end_timers(&mut self, now: Nanos) -> TimersEnded {
        match &mut self.end {
            End::Guest(guest) => guest.end_timers(now),
            End::Nat(nat) => {
                let visit = nat.wake_at().is_some_and(|wake_at| wake_at <= now);
                TimersEnded { visit, ..TimersEnded::default() }
            }
            End::Tap(_) | End::Absent => TimersEnded::default(),
        }
    }

    /// Another policy of notification; `true`: see [`FlushOutcome::call_again`].
    pub(crate) fn follow_policy(&mut self, policy: Policy) -> bool {
        match &mut self.end {
            End::Guest(guest) => guest.follow_policy(policy),
            End::Tap(_) | End::Nat(_) | End::Absent => false,
        }
    }

    /// The guest has said how seldom it wants to be called; `true`: see
    /// [`FlushOutcome::call_again`].
    pub(crate) fn follow_coalescing(&mut self) -> bool {
        let pair = self.pair.pair;
        match &mut self.end {
            End::Guest(guest) => guest.follow_coalescing(pair),
            End::Tap(_) | End::Nat(_) | End::Absent => false,
        }
    }
}
