//! Operations that jobs call: ports, the switch, the journal, captures.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use ringway_device::{AnyGuestPort, Queue};
use ringway_net::moderation::Policy;
use ringway_net::{ControlState, FromPair, MacAddress, Negotiated, PollOptions};
use ringway_switch::{PolicyError, PortId, PortPolicy, Shared};

use crate::capture::{CaptureFile, CaptureOptions};
use crate::journal::worker_line::WorkerLine;
use crate::journal::{Journal, Unfit};
use crate::memory::GuestMemory;
use crate::nat::NatPort;
use crate::nat::options::NatOptions;
use crate::os::clock::now;
use crate::port::guest_end::GuestEnd;
use crate::port::queue_pair::End;
use crate::port::room::RoomAt;
use crate::port::{Carrier, Port};
use crate::tap::Tap;
use crate::worker::Worker;
use crate::worker::announce::{AnnounceTo, announce};
use crate::worker::bridge::SwitchCopy;
use crate::worker::poll_token::PollToken;
use crate::worker::snapshot::{PortSnapshot, snapshots};

impl Worker {
    /// Notes what the next data plane has to know in this journal from now on; to be called before
    /// any queue starts. Packets of other workers wait until
    /// [`deliver_handed_over`](Self::deliver_handed_over). `None`: nothing is noted any more, and
    /// the line is given back, because another data plane will have it; after all queues have
    /// stopped.
    ///
    /// # Errors
    /// This worker's line is missing, or another process holds it.
    pub fn set_journal(&mut self, journal: Option<Arc<Journal>>) -> Result<(), Unfit> {
        self.note_counts();
        // Before another data plane can have the line.
        self.peers.use_journal(None);
        let take = |journal| WorkerLine::take(journal, self.peers.index());
        self.journal = journal.map(take).transpose()?;
        if let Some(line) = &self.journal {
            self.effort.before = line.spent();
        }
        self.peers.use_journal(self.journal.as_ref().map(|line| &line.journal));
        self.note_counts();
        Ok(())
    }

    /// Delivers what other workers have handed over from now on: the receiving queues run.
    pub fn deliver_handed_over(&mut self) {
        self.peers.begin_delivery();
    }

    /// Lets the worker poll before it sleeps, or not, from now on.
    pub fn set_poll(&mut self, options: PollOptions) {
        self.idle.policy.set_options(options);
    }

    /// The state that the guest of a port has set; `None`: there is no guest.
    pub fn take_control_state(&mut self, port: PortId) -> Option<ControlState> {
        self.ports.take_control_state(port)
    }

    /// Takes over all that a guest has set through its controlq, which another worker owns.
    pub fn set_control_state(&mut self, port: PortId, state: &ControlState) {
        self.schedule.after_call(self.ports.set_control_state(port, state));
    }

    /// Says that the first `running` receive queues of a guest run, on all workers together; with
    /// `has_control` its controlq runs too, so it says how many of them it uses.
    pub fn set_pairs(&mut self, port: PortId, running: u16, has_control: bool) {
        self.ports.set_pairs(port, running, has_control);
    }

    /// Notes queues of a port that start from now on in the journal; they continue where they were
    /// left if an earlier data plane has noted them. `link` is the connection of its front-end: no
    /// other one's rings are continued. `None`: they are not noted.
    pub fn note_rings(&mut self, port: PortId, link: Option<u32>) {
        self.ports.port(port).link = link;
    }

    /// Counters of all ports, one for each queue pair. They are noted as well: the next data plane
    /// goes on from there.
    pub fn snapshots(&mut self) -> Vec<PortSnapshot> {
        self.note_counts();
        let second = self.effort.second();
        snapshots(&self.ports, &self.schedule.holds, &self.bridge.switch, second)
    }

    /// Tells other stations where a guest is that has moved here (live migration, fail-over), or
    /// that is silent.
    pub fn announce(&mut self, port: PortId, mac: MacAddress, to: AnnounceTo) {
        let (switch, rewriter) = (&mut self.bridge.switch, &mut self.buffers.rewriter);
        let call_again = announce((port, mac), to, switch, &mut self.ports, rewriter);
        self.schedule.after_call(call_again);
    }

    /// Attaches a guest that has connected, or negotiated anew: a port with up to `pairs` queue
    /// pairs, at least 1, of which no queue runs. `mac` is its address until it sets another. Its
    /// stations stay known: a front-end that stops its guest may let it go on.
    pub fn attach_guest(
        &mut self,
        id: PortId,
        negotiated: Negotiated,
        (mac, pairs): (MacAddress, u16),
        memory: &GuestMemory,
    ) {
        let state = ControlState::new(mac, &negotiated).with_queue_pairs_max(pairs);
        self.let_go(id);
        self.ports.port(id).told_mac = Some(state.mac);
        let before = self.ports.counters_of(id);
        self.ports.place_pairs(id, state.queue_pairs_max, self.peers.worker_index());
        let Port { notify, counts_waits, .. } = *self.ports.port(id);
        for (number, slot) in self.ports.slots_of(id).into_iter().enumerate() {
            let counters = before.get(number).copied().unwrap_or_default();
            let queues = AnyGuestPort::new(negotiated, state.clone(), counters);
            let guest = GuestEnd::new(queues, memory.clone(), notify);
            let pair = self.ports.at(slot);
            pair.faults.use_memory(memory.is_on_disk());
            pair.end = End::Guest(Box::new(guest));
        }
        self.ports.count_waits(id, counts_waits);
        self.join(id);
    }

    /// Attaches a tap, or one queue of it, also in the place of one whose interface is gone: what
    /// was counted goes on. `queue`: which of its queues it is, and how many there are; `None`: it
    /// is only written to here, and read by another worker.
    ///
    /// # Errors
    /// It cannot be watched, and is closed.
    pub fn attach_tap(
        &mut self,
        id: PortId,
        tap: Box<Tap>,
        queue: Option<FromPair>,
    ) -> io::Result<()> {
        if queue.is_some() {
            self.poller.add_edge(tap.as_fd(), PollToken::Readable(id).token())?;
        }
        self.ports.port(id);
        let pair = self.ports.at(id);
        let before = std::mem::replace(&mut pair.end, End::Tap(tap));
        pair.is_read = queue.is_some();
        pair.pair = queue.unwrap_or(pair.pair);
        if let (End::Tap(before), End::Tap(tap)) = (before, &mut pair.end) {
            (tap.to_tap, tap.from_tap) = (before.to_tap, before.from_tap);
            let _ = self.poller.remove(before.as_fd());
        }
        self.join(id);
        self.bridge.switch.leads_to_a_network(id);
        self.ports.refresh_tap_offloads(self.peers.index());
        if queue.is_some() {
            self.schedule.ready.add(id);
        }
        Ok(())
    }

    /// Attaches a router. Only the first worker has one; `None`: packets for it go there.
    ///
    /// # Errors
    /// It cannot be watched, and is closed.
    pub fn attach_nat(&mut self, id: PortId, nat: Option<Box<NatPort>>) -> io::Result<()> {
        self.ports.place_pairs(id, 1, self.peers.worker_index());
        if let Some(mut nat) = nat {
            nat.begin_at(now());
            self.poller.add(nat.as_fd(), PollToken::Readable(id).token())?;
            self.ports.add_router(id, nat);
            self.schedule.ready.add(id);
        }
        self.join(id);
        Ok(())
    }

    /// Gives a router other options.
    pub fn set_nat(&mut self, id: PortId, options: NatOptions) {
        if let Some(nat) = self.nat(id) {
            nat.set_options(options);
            self.schedule.ready.add(id);
        }
    }

    /// A router, to be asked or told something; `None`: it is gone, or another worker has it.
    pub fn nat(&mut self, id: PortId) -> Option<&mut NatPort> {
        match &mut self.ports.get(id)?.end {
            End::Nat(nat) => Some(nat),
            _ => None,
        }
    }

    /// Says what a port is called, which routers tell its guests.
    pub fn name_port(&mut self, id: PortId, name: String) {
        self.ports.name(id, name);
    }

    fn join(&mut self, id: PortId) {
        // A guest that attaches again already has its place in the switch.
        let _ = self.bridge.switch.add_port(id);
        self.refresh_cable();
    }

    /// Ends a port: its guest is detached, its tap or router closed, its addresses are forgotten.
    /// Afterwards its id can be used for another one.
    pub fn remove_port(&mut self, id: PortId) {
        self.detach(id);
        self.ports.place_pairs(id, 1, self.peers.worker_index());
        match std::mem::replace(&mut self.ports.at(id).end, End::Absent) {
            End::Tap(tap) => drop(self.poller.remove(tap.as_fd())),
            End::Nat(nat) => drop(self.poller.remove(nat.as_fd())),
            End::Guest(_) | End::Absent => {}
        }
        self.ports.forget_guest(id);
        self.journal.iter_mut().for_each(|line| line.forget_counts(id));
        self.ports.reset(id);
        self.observers.forget(id);
        self.bridge.switch.remove_port(id);
        self.refresh_cable();
        self.ports.refresh_tap_offloads(self.peers.index());
    }

    /// Lets a port's link go up or down; afterwards the port carries packets, or nothing goes
    /// through it any more.
    pub fn set_link(&mut self, id: PortId, carrier: Carrier) {
        let is_up = carrier.is_up();
        self.ports.set_link(id, carrier);
        for slot in self.ports.slots_of(id) {
            if let End::Tap(tap) = &self.ports.at(slot).end {
                // The host sees it too, if its kernel can show it.
                let _ = tap.set_link(is_up);
            }
            // Packets that wait for this slot find out that they may go on.
            self.schedule.release_slot(slot, &mut self.ports, &mut self.peers);
            self.schedule.ready.add(slot);
        }
        self.bridge.switch.set_link(id, is_up);
        self.bridge.refresh_claim(id, &self.ports);
    }

    /// All queues of a guest have stopped, on all workers, or one runs again: its stations may be
    /// elsewhere meanwhile.
    pub fn set_stopped(&mut self, id: PortId, is_stopped: bool) {
        self.bridge.switch.set_stopped(id, is_stopped);
    }

    /// Reads no packet from any tap any more: another process will. `false`: not everything that
    /// was read has been delivered; what is left is visited again.
    pub fn stop_reading(&mut self) -> bool {
        let mut is_done = true;
        for pair in &mut self.ports.slots {
            let End::Tap(tap) = &mut pair.end else { continue };
            tap.flush();
            if !tap.stop_reading() {
                is_done = false;
                self.schedule.ready.add(pair.slot);
            }
        }
        is_done
    }

    /// Completes checksums and segments of all packets before they go to a tap, or only of those
    /// that the kernel does not take as they are.
    pub fn complete_for_tap(&mut self, id: PortId, is_on: bool) {
        if let Some(End::Tap(tap)) = self.ports.get(id).map(|pair| &mut pair.end) {
            tap.complete_all(is_on);
        }
    }

    /// Gives another policy to a port, which need not be attached yet; it stays until
    /// [`remove_port`](Self::remove_port).
    ///
    /// # Errors
    /// It cannot be followed.
    pub fn set_policy(&mut self, id: PortId, policy: PortPolicy) -> Result<(), PolicyError> {
        let result = self.bridge.switch.set_port(id, policy);
        self.refresh_cable();
        // Packets that wait for the old policy try the new one.
        for slot in self.ports.slots_of(id) {
            self.schedule.release(RoomAt::Slot(slot), &mut self.ports);
            self.schedule.forget_hold(slot, &mut self.ports);
            self.schedule.ready.add(slot);
        }
        result
    }

    /// Says how the guest of a port is notified from now on, also the one that is attached.
    pub fn set_notify(&mut self, port: PortId, policy: Policy) {
        self.schedule.after_call(self.ports.set_notify(port, policy));
    }

    /// Counts from now on how long packets of a guest wait, or does not, also of the one that is
    /// attached.
    pub fn count_waits(&mut self, port: PortId, is_on: bool) {
        self.ports.count_waits(port, is_on);
    }

    /// A switch like this one, over a copy of what the workers' switches have in common, to try
    /// something on; nothing changes here.
    pub fn copy_switch(&self, shared: Arc<Shared>) -> SwitchCopy {
        self.bridge.copy_over(shared)
    }

    /// Copies packets to a file from now on: each worker has a ring in it. `id`: the number of the
    /// capture.
    pub fn start_capture(&mut self, id: u32, options: Arc<CaptureOptions>, file: Arc<CaptureFile>) {
        self.observers.start(id, options, file, self.peers.index());
    }

    /// Ends the capture with that number.
    pub fn end_capture(&mut self, id: u32) {
        self.observers.end(id);
    }

    /// Mirrors these ports from now on, each to the other one of its pair, and no others.
    pub fn set_mirrors(&mut self, mirrors: Vec<(PortId, PortId)>) {
        self.observers.mirrors = mirrors;
    }

    /// Lets multicast go only to ports that asked for it, or to all.
    pub fn snoop_multicast(&mut self, is_on: bool) {
        self.bridge.switch.snoop_multicast(is_on);
        self.refresh_cable();
    }

    fn refresh_cable(&mut self) {
        if !self.bridge.refresh_cable() {
            self.schedule.release_endless();
        }
    }

    /// Stops all queues of a guest and stops using anything of it, its memory as well; the counters
    /// stay. Its stations may turn up elsewhere.
    pub fn detach(&mut self, id: PortId) {
        self.let_go(id);
        self.bridge.switch.forget(id);
    }

    fn let_go(&mut self, id: PortId) {
        for slot in self.ports.slots_of(id) {
            for queue in Queue::ALL {
                self.stop_queue_at(slot, queue);
            }
            self.schedule.release_slot(slot, &mut self.ports, &mut self.peers);
            self.schedule.forget_hold(slot, &mut self.ports);
            self.ports.at(slot).room.is_stuck = false;
            if let Some(guest) = self.ports.guest(slot) {
                guest.memory = GuestMemory::empty();
            }
        }
        self.ports.refresh_tap_offloads(self.peers.index());
    }
}
