//! How the worker carries out what the control thread asks.

use std::os::fd::AsFd;
use std::time::Instant;

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::{ControlState, Counters, MacAddress, Negotiated};
use ringway_switch::{PORTS_MAX, PolicyError, PortId, PortPolicy};
use ringway_virtq::{Areas, Arm, Broken, Position, QueueSetup, Why};

use crate::command::{Command, PortSnapshot, QueueFds, Wire};
use crate::pace::Pace;
use crate::port::{End, GuestEnd, Port, Wires};
use crate::tap::TapOffloads;
use crate::worker::{Wake, Worker};
use crate::{GuestMemory, KickFd, Tap, TapError};

impl Worker {
    pub(crate) fn carry_out(&mut self, command: Command) {
        // A dropped answer means the control thread stopped waiting, which is its own business.
        match command {
            Command::AttachGuest { port, negotiated, mac, memory } => {
                self.attach_guest(port, negotiated, mac, memory);
            }
            Command::AttachTap { port, tap } => self.attach_tap(port, tap),
            Command::Detach { port, done } => {
                self.detach(port);
                let _ = done.send(());
            }
            Command::SetMemory { port, memory, done } => {
                let _ = done.send(self.set_memory(port, memory));
            }
            Command::StartQueue { port, queue, setup, fds, done } => {
                let _ = done.send(self.start_queue(port, queue, &setup, fds));
            }
            Command::StopQueue { port, queue, done } => {
                let _ = done.send(self.stop_queue(port, queue));
            }
            Command::RebindQueue { port, queue, areas, done } => {
                let _ = done.send(self.rebind_queue(port, queue, &areas));
            }
            Command::SetWire { port, queue, wire } => self.set_wire(port, queue, wire),
            Command::Snapshot { done } => {
                let _ = done.send(self.ports.iter().filter_map(snapshot).collect());
            }
            Command::Announce { port, mac } => self.announce(port, mac),
            Command::SetLink { port, is_up } => self.set_link(port, is_up),
            Command::SetTapMtu { port, mtu, done } => {
                let _ = done.send(self.set_tap_mtu(port, mtu));
            }
            Command::SetPolicy { port, policy, done } => {
                let _ = done.send(self.set_policy(port, *policy));
            }
            Command::SnoopMulticast { is_on } => {
                self.switch.snoop_multicast(is_on);
                self.refresh_cable();
            }
            Command::SetNotify { port, policy } => self.slot(port).notify = policy,
            Command::RemovePort { port, done } => {
                self.remove_port(port);
                let _ = done.send(());
            }
            Command::Stop => {}
        }
    }

    fn slot(&mut self, id: PortId) -> &mut Port {
        let at = usize::from(id.0);
        assert!(at < PORTS_MAX, "port ids come from the control thread");
        while let Ok(next) = u16::try_from(self.ports.len())
            && next <= id.0
        {
            self.ports.push(Port::new(PortId(next), End::Absent));
        }
        &mut self.ports[at]
    }

    fn attach_guest(
        &mut self,
        id: PortId,
        negotiated: Negotiated,
        mac: MacAddress,
        memory: GuestMemory,
    ) {
        let counters = match &self.slot(id).end {
            End::Guest(guest) => guest.queues.counters(),
            _ => [Counters::default(); 2],
        };
        self.detach(id);
        let state = ControlState::new(mac, &negotiated);
        let queues = AnyGuestPort::new(negotiated, state, counters);
        let wires = std::array::from_fn(|_| Wires::default());
        let pace = Pace::new(self.slot(id).notify);
        self.slot(id).end = End::Guest(Box::new(GuestEnd { queues, memory, wires, pace }));
        self.join(id);
    }

    fn attach_tap(&mut self, id: PortId, tap: Box<Tap>) {
        let added = self.poller.add_edge(tap.as_fd(), Wake::Readable(id).token());
        self.slot(id).end = End::Tap(tap);
        self.join(id);
        if added.is_ok() {
            self.refresh_tap_offloads();
            self.make_ready(id);
        }
    }

    fn join(&mut self, id: PortId) {
        // A guest that attaches again already has its place in the switch.
        let _ = self.switch.add_port(id);
        self.refresh_cable();
    }

    fn remove_port(&mut self, id: PortId) {
        self.detach(id);
        self.release_holds(id);
        self.forget_hold(id);
        if let End::Tap(tap) = std::mem::replace(&mut self.slot(id).end, End::Absent) {
            let _ = self.poller.remove(tap.as_fd());
        }
        // The next port with this id starts afresh; it may still be in the list of ready ones.
        let is_ready = self.slot(id).is_ready;
        *self.slot(id) = Port { is_ready, ..Port::new(id, End::Absent) };
        self.switch.remove_port(id);
        self.refresh_cable();
        self.refresh_tap_offloads();
    }

    fn set_link(&mut self, id: PortId, is_up: bool) {
        let port = self.slot(id);
        port.is_link_up = is_up;
        if let End::Tap(tap) = &port.end {
            // The host sees it too, if its kernel can show it.
            let _ = tap.set_link(is_up);
        }
        if !is_up {
            self.switch.forget(id);
        }
        // Whoever waits for this port finds out that it may go on.
        self.release_holds(id);
        self.make_ready(id);
    }

    fn set_tap_mtu(&mut self, id: PortId, mtu: u16) -> Result<(), TapError> {
        match &mut self.slot(id).end {
            End::Tap(tap) => tap.set_mtu(mtu),
            End::Guest(_) | End::Absent => Ok(()),
        }
    }

    fn set_policy(&mut self, id: PortId, policy: PortPolicy) -> Result<(), PolicyError> {
        let result = self.switch.set_port(id, policy);
        self.refresh_cable();
        // What waits for the old policy tries the new one.
        self.release_holds(id);
        self.forget_hold(id);
        self.make_ready(id);
        result
    }

    /// With exactly two ports the switch is a cable, unless there is anything to decide.
    fn refresh_cable(&mut self) {
        let mut ids = self.switch.ports();
        self.cable = match (ids.next(), ids.next(), ids.next()) {
            (Some(one), Some(other), None) if self.switch.is_plain() => Some((one, other)),
            _ => None,
        };
    }

    /// Stops all queues of a guest and lets go of its memory; the counters stay.
    fn detach(&mut self, id: PortId) {
        for queue in Queue::ALL {
            self.stop_queue(id, queue);
        }
        self.release_holds(id);
        self.forget_hold(id);
        self.slot(id).is_stuck = false;
        if let End::Guest(guest) = &mut self.slot(id).end {
            guest.memory = GuestMemory::empty();
        }
        self.refresh_tap_offloads();
    }

    fn guest(&mut self, id: PortId) -> Option<&mut GuestEnd> {
        match &mut self.slot(id).end {
            End::Guest(guest) => Some(guest),
            _ => None,
        }
    }

    fn set_memory(&mut self, id: PortId, memory: GuestMemory) -> Result<(), Broken> {
        let Some(guest) = self.guest(id) else { return Ok(()) };
        let regions = memory.regions();
        let mut result = Ok(());
        for queue in Queue::ALL {
            let Some(areas) = guest.wires[queue as usize].areas else { continue };
            result = result.and(guest.queues.rebind(queue, &areas, &regions));
        }
        // Only now may the old mappings go: no ring points into them any more.
        guest.memory = memory;
        self.report_broken(id);
        result
    }

    fn start_queue(
        &mut self,
        id: PortId,
        queue: Queue,
        setup: &QueueSetup,
        fds: QueueFds,
    ) -> Result<(), Broken> {
        self.stop_queue(id, queue);
        let Some(guest) = self.guest(id) else { return Err(Broken(Why::BadArea)) };
        let regions = guest.memory.regions();
        guest.queues.start(queue, setup, &regions)?;
        guest.pace.start(queue, setup.size);
        let arm = match queue {
            Queue::ToGuest => Arm::Never,
            Queue::FromGuest | Queue::Control => Arm::Next,
        };
        guest.queues.arm_kicks(queue, arm);
        let wires = &mut guest.wires[queue as usize];
        wires.areas = Some(setup.areas);
        wires.is_broken_reported = false;
        wires.call = fds.call;
        wires.error = fds.error;
        self.set_kick(id, queue, fds.kick);
        self.refresh_tap_offloads();
        self.after_start(id, queue);
        Ok(())
    }

    /// A kick may have been sent before anybody listened, so every new queue is visited once.
    fn after_start(&mut self, id: PortId, queue: Queue) {
        match queue {
            Queue::FromGuest => self.make_ready(id),
            Queue::Control => self.visit_control(id),
            Queue::ToGuest => {
                self.slot(id).is_stuck = false;
                self.release_holds(id);
                for at in 0..self.ports.len() {
                    if matches!(self.ports[at].end, End::Tap(_)) {
                        self.make_ready(self.ports[at].id);
                    }
                }
            }
        }
    }

    fn stop_queue(&mut self, id: PortId, queue: Queue) -> Option<Position> {
        self.set_kick(id, queue, None);
        if queue == Queue::FromGuest {
            self.forget_hold(id);
        }
        let position = self.stop_ring(id, queue);
        if queue == Queue::ToGuest {
            self.release_holds(id);
        }
        position
    }

    fn stop_ring(&mut self, id: PortId, queue: Queue) -> Option<Position> {
        let guest = self.guest(id)?;
        guest.flush_last(queue);
        let wires = &mut guest.wires[queue as usize];
        wires.areas = None;
        wires.call = None;
        wires.error = None;
        guest.queues.stop(queue)
    }

    fn rebind_queue(&mut self, id: PortId, queue: Queue, areas: &Areas) -> Result<(), Broken> {
        let Some(guest) = self.guest(id) else { return Ok(()) };
        let regions = guest.memory.regions();
        let result = guest.queues.rebind(queue, areas, &regions);
        if guest.queues.is_running(queue) {
            guest.wires[queue as usize].areas = Some(*areas);
        }
        self.report_broken(id);
        result
    }

    fn set_wire(&mut self, id: PortId, queue: Queue, wire: Wire) {
        if let Wire::Kick(kick) = wire {
            self.set_kick(id, queue, kick);
            return self.after_start(id, queue);
        }
        let Some(guest) = self.guest(id) else { return };
        let wires = &mut guest.wires[queue as usize];
        match wire {
            Wire::Call(call) => {
                wires.call = call;
                // Whatever was used while the old fd was going away would never be told.
                if wires.call() {
                    self.second_calls.expect(Instant::now());
                }
            }
            Wire::Error(error) => wires.error = error,
            Wire::Kick(_) => {}
        }
    }

    fn set_kick(&mut self, id: PortId, queue: Queue, kick: Option<KickFd>) {
        let at = usize::from(id.0);
        let Some(Port { end: End::Guest(guest), .. }) = self.ports.get_mut(at) else { return };
        let wires = &mut guest.wires[queue as usize];
        if let Some(old) = wires.kick.take() {
            let _ = self.poller.remove(old.as_fd());
        }
        if let Some(kick) = kick
            && self.poller.add_edge(kick.as_fd(), Wake::Kick(id, queue).token()).is_ok()
        {
            wires.kick = Some(kick);
        }
    }

    /// A tap may leave undone what any running guest accepts: for the others it is completed on
    /// delivery.
    pub(crate) fn refresh_tap_offloads(&mut self) {
        let mut wanted = TapOffloads::default();
        for port in &self.ports {
            let End::Guest(guest) = &port.end else { continue };
            if !guest.queues.is_running(Queue::ToGuest) {
                continue;
            }
            wanted = wanted.or(TapOffloads::accepted_by(guest.queues.negotiated()));
        }
        for port in &mut self.ports {
            if let End::Tap(tap) = &mut port.end {
                // What is not granted is only slower, never wrong.
                let _ = tap.set_offloads(wanted);
            }
        }
    }
}

fn snapshot(port: &Port) -> Option<PortSnapshot> {
    let mut snapshot = match &port.end {
        End::Absent => return None,
        End::Tap(tap) => PortSnapshot {
            port: port.id,
            to_end: tap.to_tap,
            from_end: tap.from_tap,
            running: Vec::new(),
            broken: Vec::new(),
            mac: None,
            pacing: Vec::new(),
        },
        End::Guest(guest) => guest_snapshot(port.id, guest),
    };
    for (drops, refused) in snapshot.from_end.drops.iter_mut().zip(port.refused) {
        *drops += refused;
    }
    Some(snapshot)
}

fn guest_snapshot(port: PortId, guest: &GuestEnd) -> PortSnapshot {
    let queues = &guest.queues;
    let [mut to_end, mut from_end] = queues.counters();
    for (counters, queue) in [(&mut to_end, Queue::ToGuest), (&mut from_end, Queue::FromGuest)] {
        counters.kicks = guest.wires[queue as usize].kicks;
        counters.calls = guest.wires[queue as usize].calls;
    }
    let running = Queue::ALL.into_iter().filter(|&queue| queues.is_running(queue));
    let broken = Queue::ALL.into_iter().filter_map(|queue| Some((queue, queues.broken(queue)?)));
    PortSnapshot {
        port,
        to_end,
        from_end,
        running: running.collect(),
        broken: broken.collect(),
        mac: Some(queues.control_state().mac),
        pacing: guest.pace.snapshot().to_vec(),
    }
}
