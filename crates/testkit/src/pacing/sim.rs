//! The simulation: two processors, three directions, one remote end.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ringway_device::Queue;
use ringway_host::Pace;
use ringway_net::moderation::Policy;
use ringway_net::{LONG_LEN, Nanos, PollMode, PollOptions, Polling};
use ringway_virtq::Arm;

use super::load::{Flows, Load};
use super::parts::{Done, Long, NEVER, Packet, Processor};
use super::{Costs, Outcome, RingModel, Waits};
use crate::Rng;

/// Entries of both queues.
const RING_SIZE: u16 = 256;
/// Packets per visit, as in the worker.
pub(super) const BUDGET_PACKETS: usize = 64;

/// Runs one load under one policy; the device looks for work as `poll` says before it sleeps.
pub fn simulate(load: &Load, policy: Policy, poll: PollMode, costs: Costs, seed: u64) -> Outcome {
    let mut sim = Sim::new(load, policy, poll, costs, seed);
    sim.run(load.packets);
    sim.outcome()
}

/// An event outside the two processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum NetworkEvent {
    /// A flow would like to send.
    Ready(usize),
    /// A packet from the remote end reaches the device: (flow, is an answer).
    Arrives(usize, bool),
    /// The sender of a flow hears an answer at the remote end.
    Answered(usize),
}

pub(super) struct Flow {
    shape: Flows,
    unanswered: u32,
    heard: u32,
    sent: u32,
    is_waiting: bool,
}

impl Flow {
    /// Whether the packet's sender may wait for an answer; see [`ringway_net::is_request`].
    pub(super) fn is_request(&self, packet: &Packet) -> bool {
        packet.len < LONG_LEN && !(packet.is_answer && self.shape.answer_every > 1)
    }
}

pub(super) struct Sim {
    pub(super) costs: Costs,
    pub(super) flows: Vec<Flow>,
    rng: Rng,
    events: BinaryHeap<Reverse<(u64, u64, NetworkEvent)>>,
    event_count: u64,
    pub(super) guest: Processor,
    pub(super) device: Processor,
    outbox: VecDeque<Packet>,
    pub(super) inbox: VecDeque<Packet>,
    pub(super) from_guest: RingModel<Packet>,
    pub(super) to_guest: RingModel<Packet>,
    pub(super) returns: RingModel<()>,
    in_flight: usize,
    pub(super) pace: Pace,
    pub(super) polling: Polling,
    /// The device has looked for a while, and nothing is armed.
    pub(super) is_looking: bool,
    /// The device looks for requests to the guest.
    pub(super) is_watching: bool,
    pub(super) is_every: bool,
    pub(super) long: Long,
    taken_by_guest: usize,
    /// A call came that the guest has not looked after.
    pub(super) is_called: bool,
    /// The guest takes packets until there are none, then says when to be called.
    is_receiving: bool,
    /// The visit of the device that is going on.
    pub(super) visit: Option<Done>,
    /// The kicks that the device last asked for.
    pub(super) armed: Arm,
    latencies: Vec<u64>,
    /// Of packets that may be requests.
    asked: Vec<u64>,
    took_ns: u64,
    pub(super) waits: Waits,
    /// The guest's time for its longest packet, in nanoseconds.
    pub(super) guest_sends_ns_max: u64,
    /// Since when packets to the guest, and used buffers, are held back.
    pub(super) held_since: [Option<u64>; 2],
    is_ending: bool,
}

impl Sim {
    fn new(load: &Load, policy: Policy, poll: PollMode, costs: Costs, seed: u64) -> Self {
        let flows = load.flows.iter().flat_map(|shape| std::iter::repeat_n(*shape, shape.count));
        let new_flow = |shape| Flow { shape, unanswered: 0, heard: 0, sent: 0, is_waiting: false };
        let guest_packet_ns = costs.guest_packet_ns + load.slow_guest_ns;
        let longest = load.flows.iter().map(|shape| costs.guest_copy_ns(shape.len)).max();
        let mut sim = Self {
            costs: Costs { guest_packet_ns, ..costs },
            guest_sends_ns_max: guest_packet_ns + longest.unwrap_or(0),
            flows: flows.map(new_flow).collect(),
            rng: Rng::new(seed),
            events: BinaryHeap::new(),
            event_count: 0,
            guest: Processor::default(),
            device: Processor::default(),
            outbox: VecDeque::new(),
            inbox: VecDeque::new(),
            from_guest: RingModel::default(),
            to_guest: RingModel::default(),
            returns: RingModel::default(),
            in_flight: 0,
            pace: Pace::new(policy),
            polling: Polling::new(PollOptions { mode: poll, ..PollOptions::default() }, Nanos(0)),
            is_looking: false,
            is_watching: false,
            is_every: policy == Policy::Every,
            long: Long::default(),
            taken_by_guest: 0,
            is_called: false,
            is_receiving: false,
            visit: None,
            armed: Arm::Next,
            latencies: Vec::new(),
            asked: Vec::new(),
            took_ns: 0,
            waits: Waits::default(),
            held_since: [None; 2],
            is_ending: false,
        };
        sim.pace.start(Queue::ToGuest, RING_SIZE);
        sim.pace.start(Queue::FromGuest, RING_SIZE);
        sim.guest.sleep(None);
        sim.device.sleep(None);
        for flow in 0..sim.flows.len() {
            sim.next_packet_of(flow, 0);
        }
        sim
    }

    fn run(&mut self, packets: u64) {
        loop {
            self.is_ending = self.latencies.len() as u64 >= packets;
            let event_at = self.events.peek().map_or(NEVER, |Reverse((at, ..))| *at);
            let now = event_at.min(self.guest.turn_at).min(self.device.turn_at);
            if now == NEVER {
                return;
            }
            if event_at == now {
                if let Some(Reverse((_, _, event))) = self.events.pop() {
                    self.happen(event, now);
                }
            } else if self.device.turn_at == now {
                // A timer ends a sleep as late as a notification does.
                match self.device.is_asleep {
                    true => self.device.wake(now + self.costs.wake_ns),
                    false => self.device_turn(now),
                }
            } else {
                match self.guest.is_asleep {
                    true => self.guest.wake(now + self.costs.wake_ns),
                    false => self.guest_turn(now),
                }
            }
        }
    }

    fn schedule(&mut self, at: u64, event: NetworkEvent) {
        self.event_count += 1;
        self.events.push(Reverse((at, self.event_count, event)));
    }

    /// Asks for the next packet of a flow, as soon as its shape allows.
    fn next_packet_of(&mut self, at: usize, now: u64) {
        let flow = &mut self.flows[at];
        if flow.is_waiting || flow.unanswered >= flow.shape.window || self.is_ending {
            return;
        }
        flow.is_waiting = true;
        let gap_ns = match flow.shape.is_random {
            true => self.rng.below(2 * flow.shape.gap_ns),
            false => flow.shape.gap_ns,
        };
        let is_burst_over =
            flow.shape.burst > 0 && flow.sent > 0 && flow.sent.is_multiple_of(flow.shape.burst);
        let off_ns = if is_burst_over { flow.shape.off_ns } else { 0 };
        self.schedule(now + gap_ns + off_ns, NetworkEvent::Ready(at));
    }

    fn happen(&mut self, event: NetworkEvent, now: u64) {
        match event {
            NetworkEvent::Ready(at) => {
                let flow = &mut self.flows[at];
                flow.is_waiting = false;
                flow.unanswered += 1;
                flow.sent += 1;
                self.send(at, false, now);
                self.next_packet_of(at, now);
            }
            NetworkEvent::Arrives(flow, is_answer) => {
                let packet = self.packet(flow, is_answer, now);
                self.inbox.push_back(packet);
                self.device.wake(now + self.costs.wake_ns);
            }
            NetworkEvent::Answered(flow) => self.answered(flow, now),
        }
    }

    fn packet(&self, flow: usize, is_answer: bool, ready_at: u64) -> Packet {
        let shape = &self.flows[flow].shape;
        let len = if is_answer { shape.answer_len } else { shape.len };
        Packet { flow, is_answer, len, ready_at, given_at: ready_at }
    }

    /// One end of a flow sends: the request its sender, the answer its receiver.
    fn send(&mut self, flow: usize, is_answer: bool, now: u64) {
        if self.flows[flow].shape.remote_sends == is_answer {
            let packet = self.packet(flow, is_answer, now);
            self.outbox.push_back(packet);
            self.guest.wake(now);
        } else {
            self.schedule(now, NetworkEvent::Arrives(flow, is_answer));
        }
    }

    fn answered(&mut self, at: usize, now: u64) {
        let flow = &mut self.flows[at];
        flow.unanswered = flow.unanswered.saturating_sub(flow.shape.answer_every);
        self.next_packet_of(at, now);
    }

    /// A packet got to its end at `now`; that end reacts.
    pub(super) fn delivered(&mut self, packet: Packet, now: u64, to_remote: bool) {
        self.latencies.push(now - packet.ready_at);
        self.took_ns = self.took_ns.max(now);
        if self.flows[packet.flow].is_request(&packet) {
            self.asked.push(now - packet.ready_at);
        }
        let flow = &mut self.flows[packet.flow];
        // Jitter: without it, timers and round trips lock into step, which no machine shows.
        let remote_ns = self.rng.between(self.costs.remote_ns / 2, self.costs.remote_ns * 3 / 2);
        let reacts_at = now + if to_remote { remote_ns } else { 0 };
        if packet.is_answer {
            return self.schedule(reacts_at, NetworkEvent::Answered(packet.flow));
        }
        flow.heard += 1;
        if flow.heard.is_multiple_of(flow.shape.answer_every) {
            match to_remote {
                true => self.schedule(reacts_at, NetworkEvent::Arrives(packet.flow, true)),
                false => self.send(packet.flow, true, reacts_at),
            }
        }
    }

    fn guest_turn(&mut self, now: u64) {
        let mut end = now;
        let mut taken = 0;
        let room = if self.is_receiving || self.is_called { BUDGET_PACKETS } else { 0 };
        self.is_receiving |= std::mem::take(&mut self.is_called);
        while taken < room {
            let Some(packet) = self.to_guest.take() else { break };
            end += self.costs.guest_packet_ns + self.costs.guest_copy_ns(packet.len);
            self.delivered(packet, end, false);
            taken += 1;
        }
        self.taken_by_guest += taken;
        self.guest_reclaims();
        if taken > 0 {
            self.guest.turn_at = end;
        } else if self.in_flight < usize::from(RING_SIZE)
            && let Some(packet) = self.outbox.pop_front()
        {
            self.guest_sends(packet, &mut end);
            self.guest.turn_at = end;
        } else {
            self.guest_rests(end);
        }
    }

    /// Takes used buffers back. Linux then says anew when it wants to hear of the next ones.
    fn guest_reclaims(&mut self) {
        let before = self.in_flight;
        while self.returns.take().is_some() {
            self.in_flight -= 1;
        }
        if self.in_flight < before {
            self.arm_returns();
        }
    }

    /// Linux asks for a call after three quarters of what is in flight.
    fn arm_returns(&mut self) {
        let quarters = u16::try_from(self.in_flight * 3 / 4).unwrap_or(u16::MAX);
        self.returns.arm(Arm::After(quarters.max(1)));
    }

    fn guest_sends(&mut self, packet: Packet, end: &mut u64) {
        if !packet.is_answer {
            *end += self.costs.guest_packet_ns + self.costs.guest_copy_ns(packet.len);
        }
        self.from_guest.give(Packet { given_at: *end, ..packet });
        self.in_flight += 1;
        self.arm_returns();
        if self.from_guest.must_notify() {
            *end += self.costs.kick_ns;
            self.device.wake(*end + self.costs.wake_ns);
        }
    }

    /// Nothing to do: says when to be called, looks once more, sleeps.
    fn guest_rests(&mut self, now: u64) {
        let has_taken = std::mem::take(&mut self.taken_by_guest) > 0;
        let mut is_more = false;
        if std::mem::take(&mut self.is_receiving) || has_taken {
            is_more = self.to_guest.arm(Arm::Next);
            self.is_receiving = is_more;
        }
        let is_full = !self.outbox.is_empty();
        if is_more || (is_full && self.returns.arm(Arm::Next)) {
            self.guest.turn_at = now;
            return;
        }
        self.guest.sleep(None);
    }

    fn outcome(mut self) -> Outcome {
        self.latencies.sort_unstable();
        self.asked.sort_unstable();
        let at = |percent: usize| self.latencies[(self.latencies.len() - 1) * percent / 100];
        let waiting =
            [self.outbox.len(), self.inbox.len(), self.from_guest.len(), self.to_guest.len()];
        Outcome {
            packets: self.latencies.len() as u64,
            long: self.long.from + self.long.to,
            lost: waiting.iter().sum::<usize>() as u64,
            kicks: self.from_guest.notifications,
            calls: self.to_guest.notifications,
            return_calls: self.returns.notifications,
            device_wakes: self.device.wakes,
            p50_ns: at(50),
            p99_ns: at(99),
            max_ns: at(100),
            asked_p99_ns: self.asked.get(self.asked.len().saturating_sub(1) * 99 / 100).copied(),
            took_ns: self.took_ns,
            waits: self.waits,
            hits: self.polling.counters().hits,
        }
    }
}
