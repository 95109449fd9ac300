//! A port as the worker owns it: what is at its end, and what it is waiting for.

pub(crate) mod hold_credit;
pub(crate) mod notify_fds;
pub(crate) mod queue_mode;

use std::time::Instant;

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::Nanos;
use ringway_net::moderation::Policy;
use ringway_net::offload::Segment;
use ringway_net::{
    Counters, DropReason, FromPair, MacAddress, Packet, PacketSink, PacketSource, Put, Steering,
};
use ringway_switch::PortId;

use crate::forward::run::{Run, RunEnd};
use crate::os::clock::now;
use crate::pace::{Flush, FlushOutcome, Pace};
use crate::port::hold_credit::{HOLD_MAX, HoldCredit, Taken};
use crate::port::notify_fds::NotifyFds;
use crate::{GuestMemory, Tap};

/// One port of the worker: what it owns of it, which is one queue pair.
///
/// A guest with more pairs than there are workers has further *slots*, numbered from
/// [`PORTS_MAX`](ringway_switch::PORTS_MAX) on; the first has the number of the port itself.
#[derive(Debug)]
pub(crate) struct Port {
    /// The number of the slot.
    pub(crate) id: PortId,
    /// The port as the switch knows it.
    pub(crate) of: PortId,
    /// The queue pair in this slot.
    pub(crate) pair: FromPair,
    /// In the first slot: how packets are spread over the pairs.
    pub(crate) steering: Steering,
    /// In the first slot: where each pair is.
    pub(crate) places: Vec<PairOwner>,
    /// In the first slot: the first so many receive queues run.
    pub(crate) running_pairs: u16,
    /// In the first slot: the guest's controlq runs, so it says how many pairs it uses.
    pub(crate) has_control: bool,
    /// In the first slot: the control thread was told that the guest has set something.
    pub(crate) is_change_told: bool,
    /// A tap's packets are read here; another worker may only write to it.
    pub(crate) is_read: bool,
    /// Packets from other workers wait for room in it.
    pub(crate) backlog: Option<Backlog>,
    pub(crate) end: End,
    /// In the list of ports to visit.
    pub(crate) is_ready: bool,
    /// Commands wait on its controlq that no kick will announce.
    pub(crate) has_commands: bool,
    /// Work of its last visit beyond the budget, in units.
    pub(crate) debt: u32,
    /// In the list of ports to flush.
    pub(crate) is_dirty: bool,
    /// Its guest posted no buffers for a whole hold: nobody waits for it until it does.
    pub(crate) is_stuck: bool,
    /// How long others still wait for it.
    pub(crate) credit: HoldCredit,
    /// Goes up whenever the number of the port is given to another one.
    pub(crate) generation: u8,
    /// While it is not, nothing goes in or out: packets are taken and dropped.
    pub(crate) is_link_up: bool,
    /// How its guest is notified, from its next attachment on.
    pub(crate) notify: Policy,
    /// Packets from this port that the switch sent nowhere.
    pub(crate) refused: Drops,
    /// In the first slot: the address that its guest was told is its own.
    pub(crate) told_mac: Option<MacAddress>,
    /// Steps in its guest's memory are timed.
    pub(crate) is_watched: bool,
    /// For so long the worker slept in them while it watched, in nanoseconds.
    pub(crate) stalled_ns: u64,
}

/// Who owns a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PairOwner {
    /// This worker, in this slot.
    Here(PortId),
    /// The worker with this number.
    There(u16),
}

/// Packets that stay in the rings of other workers until there is room.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backlog {
    /// Then the receiver counts as stuck.
    pub(crate) until: Instant,
    pub(crate) packets: usize,
    pub(crate) bytes: usize,
}

/// What a packet waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RoomAt {
    /// Buffers of the guest in this slot, or the tap's queue.
    Port(PortId),
    /// The ring to this worker.
    Worker(u16),
}

/// For how long the bytes of a packet stay where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PayloadLifetime {
    /// For the call only.
    CallOnly,
    /// Until the receiver's port is flushed.
    UntilFlush,
}

/// Dropped packets by [`DropReason`].
pub(crate) type Drops = [u64; DropReason::ALL.len()];

/// What is at the end of a port.
#[derive(Debug)]
pub(crate) enum End {
    /// A slot without a port.
    Absent,
    Guest(Box<GuestEnd>),
    Tap(Box<Tap>),
}

/// A guest's queues with everything that must live as long as they do.
#[derive(Debug)]
pub(crate) struct GuestEnd {
    /// Dropped before the memory that its rings point into.
    pub(crate) queues: AnyGuestPort,
    pub(crate) memory: GuestMemory,
    pub(crate) fds: [NotifyFds; Queue::ALL.len()],
    pub(crate) pace: Pace,
    /// A queue runs without a kick fd: when it is looked at next.
    pub(crate) poll_at: Option<Nanos>,
    /// Its transmitq was left so that the guest kicks, or a timer ends; `false`: it is looked at.
    pub(crate) is_armed: bool,
}

/// Between two looks at a queue whose guest cannot kick, in nanoseconds.
const POLL_PAUSE_NS: u64 = 1_000_000;

impl GuestEnd {
    /// Calls the guest about a queue; `true`: see [`call_again`](Self::call_again), later.
    pub(crate) fn call(&mut self, queue: Queue) -> bool {
        let event = self.queues.driver_event(queue);
        self.fds[queue as usize].call(event)
    }

    /// Calls the guest again about each queue whose last call it may have slept through; `true`:
    /// another round is needed.
    pub(crate) fn call_again(&mut self, now: Nanos) -> bool {
        let mut is_needed = false;
        for (queue, fds) in Queue::ALL.into_iter().zip(&mut self.fds) {
            is_needed |= fds.call_again(self.queues.driver_event(queue), now);
        }
        is_needed
    }

    /// Something was published in a queue of which the guest does not want to be told: perhaps
    /// because it slept through all calls (see `uml`).
    #[inline]
    pub(crate) fn remind(&mut self, queue: Queue, now: Nanos) {
        let fds = &mut self.fds[queue as usize];
        if fds.is_given_up() {
            fds.repeat(self.queues.driver_event(queue), now);
        }
    }

    /// Whether a queue runs whose guest cannot kick it.
    pub(crate) fn is_polled(&self, queue: Queue) -> bool {
        let fds = &self.fds[queue as usize];
        fds.areas.is_some() && fds.kick.is_none()
    }

    /// Queues or their kick fds are others now, or have just been looked at.
    pub(crate) fn plan_poll(&mut self) {
        let is_any = Queue::ALL.into_iter().any(|queue| self.is_polled(queue));
        self.poll_at = is_any.then(|| now().plus(POLL_PAUSE_NS));
    }
}

impl Port {
    pub(crate) fn new(id: PortId, end: End) -> Self {
        Self {
            id,
            of: id,
            pair: FromPair { pair: 0, of: 1 },
            steering: Steering::ONE_PAIR,
            places: vec![PairOwner::Here(id)],
            running_pairs: 0,
            has_control: false,
            is_change_told: false,
            is_read: true,
            backlog: None,
            end,
            is_ready: false,
            has_commands: false,
            debt: 0,
            is_dirty: false,
            is_stuck: false,
            credit: HoldCredit::new(),
            generation: 0,
            is_link_up: true,
            notify: Policy::default(),
            refused: Drops::default(),
            told_mac: None,
            is_watched: false,
            stalled_ns: 0,
        }
    }

    /// Who owns a pair. Steering never gives one that has no place.
    #[inline]
    pub(crate) fn owner_of(&self, pair: u16) -> PairOwner {
        self.places.get(usize::from(pair)).copied().unwrap_or(PairOwner::Here(self.id))
    }

    /// A packet waits for room here: until when.
    pub(crate) fn wait_until(&mut self, now: Instant) -> Instant {
        let End::Guest(guest) = &self.end else { return now + HOLD_MAX };
        let [Counters { packets, bytes, .. }, _] = guest.queues.counters();
        self.credit.wait(now, Taken { packets, bytes })
    }

    /// Hands one packet to whatever is at the end.
    #[inline]
    pub(crate) fn put(&mut self, packet: &Packet<'_>, lifetime: PayloadLifetime) -> Put {
        if !self.is_link_up {
            self.count_drop(DropReason::LinkDown);
            return Put::Refused;
        }
        let step = self.step();
        let put = match &mut self.end {
            End::Guest(guest) => guest.queues.put(packet),
            End::Tap(tap) if lifetime == PayloadLifetime::UntilFlush => tap.stage(packet),
            End::Tap(tap) => tap.put(packet),
            End::Absent => Put::Refused,
        };
        self.step_over(step);
        put
    }

    /// As [`put`](Self::put), for what a source lends, from the packet that is lent on, as long as
    /// the stream scope: who takes it is chosen once.
    #[inline(always)]
    pub(crate) fn put_stream(
        &mut self,
        source: &mut impl PacketSource,
        lifetime: PayloadLifetime,
        run: &mut Run,
    ) -> RunEnd {
        if !self.is_link_up {
            self.count_drop(DropReason::LinkDown);
            return RunEnd::Put(Put::Refused);
        }
        let step = self.step();
        let ended = match &mut self.end {
            End::Guest(guest) => match &mut guest.queues {
                AnyGuestPort::Split(queues) => run.forward_run(source, queues),
                AnyGuestPort::Packed(queues) => run.forward_run(source, queues),
            },
            End::Tap(tap) if lifetime == PayloadLifetime::UntilFlush => {
                run.forward_run(source, &mut Staging(tap))
            }
            End::Tap(tap) => run.forward_run(source, &mut **tap),
            End::Absent => RunEnd::Put(Put::Refused),
        };
        self.step_over(step);
        ended
    }

    /// Hands over one segment of a packet that `put` found unfinished.
    pub(crate) fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        let step = self.step();
        let put = match &mut self.end {
            End::Guest(guest) => guest.queues.put_segment(segment),
            End::Tap(tap) => tap.put_segment(segment),
            End::Absent => Put::Refused,
        };
        self.step_over(step);
        put
    }

    /// Whether whatever is at the end takes partial checksums.
    pub(crate) fn accepts_csum(&self) -> bool {
        match &self.end {
            End::Guest(guest) => guest.queues.negotiated().guest_csum,
            End::Tap(_) => true,
            End::Absent => false,
        }
    }

    pub(crate) fn count_drop(&mut self, reason: DropReason) {
        match &mut self.end {
            End::Guest(guest) => guest.queues.count_drop(reason),
            End::Tap(tap) => tap.to_tap.count_drop(reason),
            End::Absent => {}
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
            End::Absent => FlushOutcome::default(),
        };
        self.step_over(step);
        flushed
    }

    /// Gives everything taken back to its owner, and notifies if it is time to.
    #[inline]
    pub(crate) fn flush_from(&mut self, flush: Flush) -> FlushOutcome {
        let step = self.step();
        let flushed = match &mut self.end {
            End::Guest(guest) => guest.flush(Queue::FromGuest, flush),
            End::Tap(_) | End::Absent => FlushOutcome::default(),
        };
        self.step_over(step);
        flushed
    }
}

/// A tap that gets packets which stay until it is flushed.
struct Staging<'a>(&'a mut Tap);

impl PacketSink for Staging<'_> {
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        self.0.stage(packet)
    }
}
