//! Requests of front-ends and kicks of their guests: a session decides, and its effects are carried
//! out.

use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::Context;
use ringway_host::QueueFds;
use ringway_nat::Rings;
use ringway_net::MacAddress;
use ringway_supervisor::keep::Changes;
use ringway_supervisor::wire::{Bytes, Flaw, List, Offence, ToSupervisor};
use ringway_switch::PortId;
use ringway_vhost_user::{
    Applied, Effect, LogArea, Message, WhyMalformed, base_from_position, codec,
};
use ringway_virtq::Position;
use tracing::{debug, info};

use super::DataPlane;
use super::departed::departed;
use super::device_state;
use super::links::effects::Moved;
use super::links::kicks::Kicked;
use super::links::presence::RingBase;
use super::ports::Port;
use super::replay::{Discard, Start};
use super::whereabouts::Guests;

const BLOCKED: &str = "the front-end blocked a notification fd and filled it";

/// A request's bytes and file descriptors.
pub(super) struct Kept {
    pub(super) bytes: Vec<u8>,
    pub(super) fds: Vec<OwnedFd>,
    /// Some are missing.
    pub(super) has_lost_fds: bool,
}

/// A request that a session has handled.
struct Handled {
    reply: Option<Vec<u8>>,
    is_remembered: bool,
    applied: Applied,
}

impl DataPlane {
    /// A request, and what is wrong with it that only the supervisor can see.
    pub(super) fn serve_frame(
        &mut self,
        link_number: u32,
        number: u32,
        flaw: Option<Flaw>,
        kept: Kept,
    ) {
        let Some(id) = self.ports.served(link_number) else { return };
        let (len, lost) = (kept.bytes.len(), kept.has_lost_fds.then_some(Flaw::LostFds));
        let Some(message) = self.decode(id, kept) else {
            return self.let_go(id, None, "connection ended: not a vhost-user message");
        };
        let message = match flaw.or(lost) {
            Some(Flaw::LostFds) => message.refused(WhyMalformed::LostFds),
            Some(Flaw::OwnSocket) => message.refused(WhyMalformed::OwnSocket),
            None => message,
        };
        let Ok((link, spec)) = self.ports.linked(id) else { return };
        debug!(port = spec.name, request = ?message, "request");
        link.kicks.last_request = Instant::now();
        if let Some(message) = link.state.postpone(number, message) {
            self.finish_frame(id, number, len, message);
        }
    }

    /// Carries a request out, and says what came of it.
    fn finish_frame(&mut self, id: PortId, number: u32, len: usize, message: Message) {
        let Some(link) = self.ports.link(id) else { return };
        let (message, intent) = match link.keeper.intend(&message.request, len) {
            Ok(intent) => (message, Some(intent)),
            Err(_) => (message.refused(WhyMalformed::NotKept), None),
        };
        let Some(Handled { reply, is_remembered, applied }) = self.carry_out(id, message) else {
            return;
        };
        let Some(link) = self.ports.link(id) else { return };
        let link_number = link.number;
        let changes = intent.map(|intent| {
            let is_taken = intent.is_taken(is_remembered, &applied);
            link.keeper.settle(intent, is_taken, &link.session)
        });
        let Changes { drops, keep } = changes.unwrap_or_default();
        let done = ToSupervisor::Done {
            link: link_number,
            number,
            is_closing: self.waits_for_closing(id),
            reply: reply.and_then(Bytes::new),
            keep,
            drops: List::new(drops).unwrap_or_default(),
        };
        self.supervisor.tell(&done);
        device_state::begin(id, &mut self.ports, &self.workers);
    }

    /// Front-ends that have waited for the end of a transfer are answered.
    pub(super) fn end_transfers(&mut self) {
        for id in self.ports.ids() {
            let asked = device_state::end(id, &mut self.ports, &self.workers);
            asked.into_iter().for_each(|(number, it)| self.finish_frame(id, number, 0, it));
        }
    }

    /// A request that was kept, as the predecessor of this process had carried it out.
    pub(super) fn serve_slot(&mut self, link: u32, slot: u16, kept: Kept) {
        let Some(id) = self.ports.served(link) else { return };
        if kept.has_lost_fds {
            return self.let_go(id, None, "cannot be taken over: no file descriptor is left");
        }
        let len = kept.bytes.len();
        let Some(message) = self.decode(id, kept) else { return };
        let Some(link) = self.ports.link(id) else { return };
        if let Err(why) = link.keeper.restore(slot, &message.request, len) {
            return self.let_go(id, None, &format!("cannot be taken over: {why}"));
        }
        let _ = self.carry_out(id, message);
    }

    fn decode(&self, id: PortId, kept: Kept) -> Option<Message> {
        let closer = &self.ports.port(id)?.vm.as_ref()?.closing.closer;
        let fds = kept.fds.into_iter().map(|fd| closer.keep(fd)).collect();
        codec::decode(&kept.bytes, fds).ok()
    }

    /// The parts that hear of guests which come and leave.
    pub(super) fn guests(&mut self) -> Guests<'_> {
        let Self { ports, workers, supervisor, told_ips, .. } = self;
        Guests { ports, workers, supervisor, told_ips }
    }

    /// Lets the session handle a request.
    fn carry_out(&mut self, id: PortId, message: Message) -> Option<Handled> {
        let before = self.ports.link(id)?.before();
        let outcome = self.ports.link(id)?.session.handle(message);
        if let Some(why) = &outcome.refused {
            self.ports.complain(id, format_args!("refused: {why}"));
        }
        let applied = self.apply(id, outcome.effects);
        let reply = self.ports.link(id)?.session.complete(outcome.pending, applied.clone());
        if self.replay.is_none() {
            self.guests().follow(id, &before);
        }
        Some(Handled { reply, is_remembered: outcome.is_remembered, applied })
    }

    /// Carries out the effects in order. After one fails, only effects that stop or release
    /// something still run.
    fn apply(&mut self, id: PortId, effects: Vec<Effect>) -> Applied {
        let mut applied = Applied { ok: true, is_set_up: false, stopped: Vec::new() };
        let moved = self.ports.link(id).map(|link| link.moved(&effects)).unwrap_or_default();
        let has_effects = !effects.is_empty();
        let mut started = Vec::new();
        for effect in effects {
            match effect {
                Effect::StopQueue { index } => applied.stopped.extend(self.stop_queue(id, index)),
                Effect::DiscardPackets { index, setup, call } => {
                    self.discard(Discard { port: id, index, setup, call }, &mut applied);
                }
                _ if !applied.ok => {}
                Effect::SetLog(area) => self.set_log(id, area, &moved, &mut applied),
                effect => {
                    if let Effect::StartQueue { index, .. } = effect {
                        started.push(index);
                    }
                    let done = self.apply_one(id, effect, &moved);
                    applied.is_set_up |= done.is_ok();
                    applied.ok = done.inspect_err(|why| self.ports.complain(id, why)).is_ok();
                }
            }
        }
        if !applied.ok {
            // The session takes what one outcome has started before for stopped.
            applied.stopped.extend(started.into_iter().filter_map(|it| self.stop_queue(id, it)));
        }
        if has_effects && self.replay.is_none() {
            // No front-end gives the workers more to do than they do.
            self.workers.catch_up();
        }
        applied
    }

    /// Written pages are marked there from now on. Where that cannot be, queues stop that would
    /// write unseen, and mark before that what they have written.
    fn set_log(&mut self, id: PortId, area: LogArea, moved: &Moved, applied: &mut Applied) {
        let moved = self.replay.is_none().then_some(moved);
        let Ok((link, _)) = self.ports.linked(id) else { return };
        let Err(why) = link.set_log(area, moved, &self.workers) else {
            applied.is_set_up = true;
            return;
        };
        applied.ok = false;
        let running = link.session.log_failed();
        self.ports.complain(id, format_args!("log of written pages: {why:#}"));
        applied.stopped.extend(running.into_iter().filter_map(|it| self.stop_queue(id, it)));
        if let Ok((link, _)) = self.ports.linked(id) {
            let nothing = self.replay.is_none().then_some(&[][..]);
            let _ = link.drop_log(nothing, &self.workers);
        }
    }

    fn apply_one(&mut self, id: PortId, effect: Effect, moved: &Moved) -> anyhow::Result<()> {
        let (link, spec) = self.ports.linked(id)?;
        match effect {
            Effect::StartQueue { index, setup, is_told, kick, call, error, .. } => {
                let fds = QueueFds::new(&link.callee, kick, call, error);
                let fds = fds.context("notification fd")?;
                self.start_queue(Start { port: id, index, setup, is_told, fds })
            }
            Effect::WatchKicks(fds) => {
                if let Err(why) = link.kicks.watch(fds, id, &self.wakes) {
                    let why = format_args!("cannot watch the kicks of stopped queues: {why}");
                    self.ports.complain(id, why);
                }
                Ok(())
            }
            Effect::TransferState { direction, fd } => {
                device_state::accept(id, direction, fd, &mut self.ports, &self.workers)
            }
            effect => {
                let announced = match effect {
                    Effect::AnnounceMac(mac) => Some(MacAddress(mac)),
                    _ => None,
                };
                let moved = self.replay.is_none().then_some(moved);
                link.carry_out(effect, moved, spec, &self.workers)?;
                if let Some(mac) = announced.filter(|_| link.running.is_any()) {
                    self.ports.tell_routers(id, Rings::Start(mac), &self.workers);
                }
                Ok(())
            }
        }
    }

    fn start_queue(&mut self, mut start: Start) -> anyhow::Result<()> {
        let (id, index) = (start.port, start.index);
        let (link, spec) = self.ports.linked(id)?;
        link.attach_if_needed(spec, &self.workers);
        let queue = link.queue(index)?;
        let told = start.setup.position;
        let at = RingBase { index, base: base_from_position(told, link.format()) };
        link.presence.starts_at(at, told == Position::FRESH);
        if let Some(replay) = &mut self.replay {
            replay.starts.push(start);
            self.ports.note_running(id, queue, true, &self.workers);
            return Ok(());
        }
        device_state::take_arrived(id, &mut self.ports, &self.workers);
        if start.is_told {
            let shown = self.workers.position_by_ring(id, queue, start.setup).of(queue)?;
            if shown != start.setup.position {
                let place = shown.used;
                let why = "its front-end did not know where the ring stood, as after a restart";
                let what = format_args!("{queue}: starts at entry {place}: {why} of ringway");
                self.ports.complain(id, what);
            }
            start.setup.position = shown;
        }
        self.workers.start_queue(id, queue, start.setup, start.fds).of(queue)?;
        self.ports.note_running(id, queue, true, &self.workers);
        self.ports.note_start(id, queue, self.workers.shared());
        Ok(())
    }

    fn stop_queue(&mut self, id: PortId, index: u16) -> Option<(u16, Position)> {
        let vm = self.ports.vm(id)?;
        let queue = vm.link.as_ref()?.queue(index).ok()?;
        vm.note_stop(queue);
        // No packet is to be sent to a queue that is about to stop.
        self.ports.note_running(id, queue, false, &self.workers);
        if let Some(replay) = &mut self.replay {
            replay.cancel(id, index);
            return None;
        }
        Some((index, self.workers.stop_queue(id, queue).wait()??))
    }

    /// A transmitq that is disabled is emptied. One that cannot be is left alone: it does not run.
    fn discard(&mut self, mut discard: Discard, applied: &mut Applied) {
        if let Some(replay) = &mut self.replay {
            return replay.discards.push(discard);
        }
        let index = discard.index;
        if let Some((_, stood)) = applied.stopped.iter().rfind(|(stopped, _)| *stopped == index) {
            discard.setup.position = *stood;
        }
        let Some(link) = self.ports.link(discard.port) else { return };
        let position = link.discard(discard, &self.workers);
        applied.stopped.extend(position.map(|position| (index, position)));
    }

    /// The guest has kicked queues that are watched.
    pub(super) fn on_kicks(&mut self, id: PortId) {
        if self.waits_for_closing(id) {
            return;
        }
        let kicked = self.ports.link(id).and_then(|link| link.kicks.take(&link.session));
        kicked.into_iter().for_each(|kicked| self.go_on(id, &kicked));
    }

    /// Kicks that waited for their front-end to be quiet lead to something now, and rings that need
    /// none go on.
    pub(super) fn look_at_kicks(&mut self) {
        let now = Instant::now();
        for id in self.ports.ids() {
            let kicked =
                self.ports.link(id).and_then(|link| link.kicks.take_due(now, &link.session));
            kicked.into_iter().for_each(|kicked| self.go_on(id, &kicked));
        }
    }

    fn go_on(&mut self, id: PortId, kicked: &Kicked) {
        let Some(link) = self.ports.link(id) else { return };
        let (running, before) = (link.session.running().count(), link.before());
        let outcome = link.session.kicked(&kicked.queues, kicked.is_quiet);
        if let Some(why) = &outcome.refused {
            let why = format_args!("a stopped queue was kicked and cannot start: {why}");
            self.ports.complain(id, why);
        }
        let applied = self.apply(id, outcome.effects);
        let Some(link) = self.ports.link(id) else { return };
        // Nothing is to be replied to a kick.
        let _ = link.session.complete(outcome.pending, applied);
        let went_on = link.session.running().count().saturating_sub(running);
        let (link, drops) = (link.number, link.keeper.went_on(&link.session));
        self.guests().follow(id, &before);
        if !drops.is_empty() {
            let drops = List::new(drops).unwrap_or_default();
            self.supervisor.tell(&ToSupervisor::Forget { link, drops });
        }
        let why = match kicked.queues[..] {
            [] => "the front-end has only asked where they stand",
            _ => "the guest kicked them",
        };
        if let Some(port) = self.ports.port_mut(id).filter(|_| went_on > 0) {
            port.say(|port| info!(port, "{went_on} stopped queues run again: {why}"));
        }
    }

    /// Whether something that the port's front-end sent is still being closed. The supervisor is
    /// told when that is over.
    pub(super) fn waits_for_closing(&mut self, id: PortId) -> bool {
        let bell = self.workers.bell();
        self.ports.vm(id).is_some_and(|vm| vm.waits_for_closing(&bell, &self.wakes))
    }

    pub(super) fn let_go(&mut self, id: PortId, offence: Option<Offence>, why: &str) {
        let Some(link) = self.ports.port(id).and_then(Port::link) else { return };
        self.supervisor.let_go(link.number, offence, why);
        self.drop_link(id);
    }

    /// Stops using anything of a front-end; the supervisor disconnects it.
    pub(super) fn drop_link(&mut self, id: PortId) {
        let Some(vm) = self.ports.vm(id) else { return };
        let Some(link) = vm.link.take() else { return };
        vm.announcer.goes_down();
        if let Some(watch) = &link.kicks.watch {
            self.wakes.forget(watch);
        }
        if let Some(replay) = &mut self.replay {
            replay.forget(id);
        }
        // The bridges have heard before of one that had stopped.
        let left = link.presence.runs.then(|| departed(id, &self.ports, self.workers.shared()));
        self.workers.ask_all(move |worker| {
            worker.detach(id);
            worker.set_stopped(id, true);
        });
        self.ports.tell_routers(id, Rings::End, &self.workers);
        self.have_left(left.flatten());
        // Asked only now: it may have gone before it was disconnected, and no worker calls it any
        // more.
        if link.callee.has_blocked() {
            self.supervisor.let_go(link.number, Some(Offence::Blocked), BLOCKED);
        }
    }

    /// No packet of these stations goes anywhere any more.
    pub(super) fn have_left(&mut self, departed: Option<ToSupervisor>) {
        self.told_ips.is_changed();
        self.supervisor.tell_all(departed);
    }
}
