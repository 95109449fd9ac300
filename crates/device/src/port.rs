//! One queue pair of a guest as a port: its receiveq, transmitq and, for the first, controlq.
//!
//! The ring format is chosen once, here, when the guest has negotiated.

use ringway_net::offload::Segment;
use ringway_net::{ControlState, Counters, DropReason, Negotiated, Packet, PacketSink, Put};
use ringway_virtq::{
    Areas, Arm, Broken, DeviceQueue, Elements, Format, PackedDevice, Position, QueueSetup, Regions,
    RingRecord, SplitDevice, Why,
};

use crate::{ControlQueue, FromGuest, Published, Queue, ReceiveLists, ToGuest};

/// The started queues of one pair of a guest, all in one ring format.
#[derive(Debug)]
pub struct GuestPort<Q> {
    negotiated: Negotiated,
    /// receiveq, while it runs.
    pub to_guest: Option<ToGuest<Q>>,
    /// transmitq, while it runs.
    pub from_guest: Option<FromGuest<Q>>,
    /// controlq, while it runs.
    pub control: Option<ControlQueue<Q>>,
    /// The state that the guest has set through the controlq.
    pub control_state: ControlState,
    counters: [Counters; 2],
    /// Those of the receiveq and of the transmitq, while these do not run.
    lists: (Option<ReceiveLists>, Option<Elements>),
    /// Commands that controlqs have refused which have stopped since.
    refused_commands: u64,
}

impl<Q: DeviceQueue> GuestPort<Q> {
    fn new(negotiated: Negotiated, control_state: ControlState, counters: [Counters; 2]) -> Self {
        Self {
            negotiated,
            to_guest: None,
            from_guest: None,
            control: None,
            control_state,
            counters,
            lists: (Some(ReceiveLists::new()), Some(Elements::readable_only())),
            refused_commands: 0,
        }
    }

    fn start(&mut self, queue: Queue, ring: Q, regions: &Regions) {
        let (regions, negotiated) = (regions.clone(), self.negotiated);
        let [to, from] = self.counters();
        match queue {
            Queue::ToGuest => {
                let lists = self.lists.0.take().unwrap_or_default();
                let mut to_guest = ToGuest::new(ring, regions, negotiated, to, lists);
                to_guest.set_hash(self.control_state.hash.clone());
                self.to_guest = Some(to_guest);
            }
            Queue::FromGuest => {
                let list = self.lists.1.take().unwrap_or_else(Elements::readable_only);
                self.from_guest = Some(FromGuest::new(ring, regions, negotiated, from, list));
            }
            Queue::Control => self.control = Some(ControlQueue::new(ring, regions, negotiated)),
        }
    }

    fn stop(&mut self, queue: Queue) -> Option<Position> {
        self.counters = self.counters();
        if queue == Queue::Control {
            self.refused_commands = self.refused_commands();
        }
        match queue {
            Queue::ToGuest => self.to_guest.take().map(|mut queue| {
                let position = queue.stop();
                queue.lists.clear();
                self.lists.0 = Some(queue.lists);
                position
            }),
            Queue::FromGuest => self.from_guest.take().map(|mut queue| {
                let position = queue.stop();
                self.lists.1 = Some(queue.elements);
                position
            }),
            Queue::Control => self.control.take().map(|mut queue| queue.queue().position()),
        }
    }

    fn discard(&mut self) -> bool {
        self.from_guest.as_mut().is_some_and(FromGuest::discard)
    }

    fn rebind(&mut self, queue: Queue, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        match queue {
            Queue::ToGuest => self.to_guest.as_mut().map(|queue| queue.rebind(areas, regions)),
            Queue::FromGuest => self.from_guest.as_mut().map(|queue| queue.rebind(areas, regions)),
            Queue::Control => self.control.as_mut().map(|queue| queue.rebind(areas, regions)),
        }
        .unwrap_or(Ok(()))
    }

    fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        match &mut self.to_guest {
            Some(to_guest) => to_guest.put_segment(segment),
            None => {
                self.counters[0].count_drop(DropReason::LinkDown);
                Put::Refused
            }
        }
    }

    fn visit_control(&mut self, note: impl FnOnce(&ControlState)) -> bool {
        let Some(control) = &mut self.control else { return false };
        let before = self.control_state.clone();
        let call = control.visit(&mut self.control_state, |state| {
            if *state != before {
                note(state);
            }
        });
        if self.control_state != before {
            self.apply_control_state();
        }
        call
    }

    /// Applies the state that the guest has set to its receiveq, from the next packet on.
    fn apply_control_state(&mut self) {
        let state = &self.control_state;
        self.negotiated = self.negotiated.with_guest_offloads(state.guest_offloads);
        if let Some(to_guest) = &mut self.to_guest {
            to_guest.set_negotiated(self.negotiated);
            to_guest.set_hash(state.hash.clone());
        }
    }

    fn count_drop(&mut self, reason: DropReason) {
        match &mut self.to_guest {
            Some(to_guest) => to_guest.counters.count_drop(reason),
            None => self.counters[0].count_drop(reason),
        }
    }

    fn counters(&self) -> [Counters; 2] {
        [
            self.to_guest.as_ref().map_or(self.counters[0], |queue| queue.counters),
            self.from_guest.as_ref().map_or(self.counters[1], |queue| queue.counters),
        ]
    }

    fn refused_commands(&self) -> u64 {
        self.refused_commands + self.control.as_ref().map_or(0, ControlQueue::refused)
    }

    fn broken(&self, queue: Queue) -> Option<Why> {
        match queue {
            Queue::ToGuest => self.to_guest.as_ref()?.broken(),
            Queue::FromGuest => self.from_guest.as_ref()?.broken(),
            Queue::Control => self.control.as_ref()?.broken(),
        }
    }
}

impl<Q: DeviceQueue> PacketSink for GuestPort<Q> {
    #[inline(always)]
    fn put(&mut self, packet: &Packet<'_>) -> Put {
        match &mut self.to_guest {
            Some(to_guest) if self.control_state.wants(packet) => to_guest.put(packet),
            Some(to_guest) => {
                to_guest.counters.count_drop(DropReason::Filtered);
                Put::Refused
            }
            None => {
                self.counters[0].count_drop(DropReason::LinkDown);
                Put::Refused
            }
        }
    }
}

/// A guest port of either ring format; matched once per stream of packets.
#[derive(Debug)]
pub enum AnyGuestPort {
    /// All queues are split.
    Split(GuestPort<SplitDevice>),
    /// All queues are packed.
    Packed(GuestPort<PackedDevice>),
}

/// Runs one expression on whichever format the port has.
macro_rules! either {
    ($port:expr, $inner:ident => $body:expr) => {
        match $port {
            AnyGuestPort::Split($inner) => $body,
            AnyGuestPort::Packed($inner) => $body,
        }
    };
}
pub(crate) use either;

impl AnyGuestPort {
    /// A port with no queue running; `counters` (to, from the guest) continue from an earlier one.
    pub fn new(
        negotiated: Negotiated,
        control_state: ControlState,
        counters: [Counters; 2],
    ) -> Self {
        match negotiated.format {
            Format::Split => Self::Split(GuestPort::new(negotiated, control_state, counters)),
            Format::Packed => Self::Packed(GuestPort::new(negotiated, control_state, counters)),
        }
    }

    /// Starts one queue.
    ///
    /// # Errors
    /// [`Broken`]: its ring is not where or what it must be.
    pub fn start(
        &mut self,
        queue: Queue,
        setup: &QueueSetup,
        regions: &Regions,
    ) -> Result<(), Broken> {
        either!(self, port => port.start(queue, DeviceQueue::start(setup, regions)?, regions));
        Ok(())
    }

    /// As [`start`](Self::start); where the ring stands is noted in `record`, which outlives this
    /// process.
    ///
    /// # Errors
    /// As of [`start`](Self::start).
    pub fn start_in(
        &mut self,
        queue: Queue,
        setup: &QueueSetup,
        regions: &Regions,
        record: RingRecord,
    ) -> Result<(), Broken> {
        either!(self, port => {
            port.start(queue, DeviceQueue::start_in(setup, regions, record)?, regions);
        });
        Ok(())
    }

    /// Continues one queue where an earlier process has left it, as `record` says.
    ///
    /// # Errors
    /// As of [`DeviceQueue::recover`].
    pub fn recover(
        &mut self,
        queue: Queue,
        setup: &QueueSetup,
        regions: &Regions,
        record: RingRecord,
    ) -> Result<(), Broken> {
        either!(self, port => {
            port.start(queue, DeviceQueue::recover(setup, regions, record)?, regions);
        });
        Ok(())
    }

    /// Stops one queue and says where it stood; `None` if it was not running.
    pub fn stop(&mut self, queue: Queue) -> Option<Position> {
        either!(self, port => port.stop(queue))
    }

    /// Gives back what the guest has sent, without taking it, so much at a time that other guests
    /// need not wait for it; `true`: there is more. For a transmitq that is disabled.
    pub fn discard(&mut self) -> bool {
        either!(self, port => port.discard())
    }

    /// Moves a running queue to other areas or other memory; a queue that is not running ignores
    /// it.
    ///
    /// # Errors
    /// [`Broken`]: the areas are not in that memory; the queue is then broken.
    pub fn rebind(&mut self, queue: Queue, areas: &Areas, regions: &Regions) -> Result<(), Broken> {
        either!(self, port => port.rebind(queue, areas, regions))
    }

    /// Copies one packet to the guest; refused while its receiveq does not run.
    #[inline]
    pub fn put(&mut self, packet: &Packet<'_>) -> Put {
        either!(self, port => port.put(packet))
    }

    /// Copies one segment of a packet that [`put`](Self::put) found unfinished.
    pub fn put_segment(&mut self, segment: &Segment<'_>) -> Put {
        either!(self, port => port.put_segment(segment))
    }

    /// Counts a packet that was meant for the guest and did not get there.
    pub fn count_drop(&mut self, reason: DropReason) {
        either!(self, port => port.count_drop(reason));
    }

    /// Publishes what was put or taken, and says what that is. The controlq publishes by itself.
    #[inline]
    pub fn publish(&mut self, queue: Queue) -> Published {
        either!(self, port => match queue {
            Queue::ToGuest => port.to_guest.as_mut().map(ToGuest::publish).unwrap_or_default(),
            Queue::FromGuest => {
                port.from_guest.as_mut().map(FromGuest::publish).unwrap_or_default()
            }
            Queue::Control => Published::default(),
        })
    }

    /// Whether the guest wants a call about what was published since the last time asked.
    #[inline]
    pub fn must_call(&mut self, queue: Queue) -> bool {
        either!(self, port => match queue {
            Queue::ToGuest => port.to_guest.as_mut().is_some_and(ToGuest::must_call),
            Queue::FromGuest => port.from_guest.as_mut().is_some_and(FromGuest::must_call),
            Queue::Control => false,
        })
    }

    /// See [`DeviceQueue::driver_event`]; `None` of a queue that does not run.
    pub fn driver_event(&self, queue: Queue) -> Option<u32> {
        either!(self, port => match queue {
            Queue::ToGuest => port.to_guest.as_ref()?.driver_event(),
            Queue::FromGuest => port.from_guest.as_ref()?.driver_event(),
            Queue::Control => port.control.as_ref()?.driver_event(),
        })
    }

    /// Tells the guest when to kick a queue; `true`: there is work already, look again.
    pub fn arm_kicks(&mut self, queue: Queue, arm: Arm) -> bool {
        either!(self, port => match queue {
            Queue::ToGuest => port.to_guest.as_mut().is_some_and(|queue| queue.arm_kicks(arm)),
            Queue::FromGuest => port.from_guest.as_mut().is_some_and(|queue| queue.arm_kicks(arm)),
            Queue::Control => port.control.as_mut().is_some_and(|queue| queue.arm_kicks(arm)),
        })
    }

    /// Answers the commands on the controlq; `true`: the guest wants a call on it. `note` is told a
    /// state that has changed, before the guest sees the answers.
    pub fn visit_control(&mut self, note: impl FnOnce(&ControlState)) -> bool {
        either!(self, port => port.visit_control(note))
    }

    /// Takes over what the guest has set through the controlq of another queue pair.
    pub fn set_control_state(&mut self, state: ControlState) {
        either!(self, port => {
            port.control_state = state;
            port.apply_control_state();
        });
    }

    /// How many queue pairs of the guest run: it can set the coalescing of these only.
    pub fn set_running_pairs(&mut self, pairs: u16) {
        either!(self, port => port.control_state.running_pairs = pairs);
    }

    /// Commands of the guest that were answered with an error.
    pub fn refused_commands(&self) -> u64 {
        either!(self, port => port.refused_commands())
    }

    /// Counters to and from the guest.
    pub fn counters(&self) -> [Counters; 2] {
        either!(self, port => port.counters())
    }

    /// Adds what an earlier data plane has counted. Its `long_packets` must be 0: the next
    /// [`publish`](Self::publish) would take them for packets of its own.
    pub fn add_counters(&mut self, [to, from]: &[Counters; 2], refused_commands: u64) {
        either!(self, port => {
            port.refused_commands += refused_commands;
            let [first, second] = &mut port.counters;
            let first = port.to_guest.as_mut().map_or(first, |queue| &mut queue.counters);
            let second = port.from_guest.as_mut().map_or(second, |queue| &mut queue.counters);
            (*first, *second) = (first.plus(to), second.plus(from));
        });
    }

    /// Why a queue is broken, if it is.
    pub fn broken(&self, queue: Queue) -> Option<Why> {
        either!(self, port => port.broken(queue))
    }

    /// The negotiated features, with the receive offloads that are on now.
    pub fn negotiated(&self) -> &Negotiated {
        either!(self, port => &port.negotiated)
    }

    /// The state that the guest has set through the controlq.
    pub fn control_state(&self) -> &ControlState {
        either!(self, port => &port.control_state)
    }

    /// Whether this queue runs.
    pub fn is_running(&self, queue: Queue) -> bool {
        either!(self, port => match queue {
            Queue::ToGuest => port.to_guest.is_some(),
            Queue::FromGuest => port.from_guest.is_some(),
            Queue::Control => port.control.is_some(),
        })
    }
}
