//! Orders of the supervisor, carried out, and questions of the control socket's clients that only
//! the data plane can answer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context;
use ringway_host::{Journal, Worker};
use ringway_supervisor::wire::{BadMessage, Batch, ToData, ToSupervisor};
use ringway_switch::PortId;
use rustix::io::Errno;
use serde::Serialize;
use tracing::error;

use super::DataPlane;
use super::learned::Notes;
use super::questions::{fdb, router, stats, trace};
use super::replay::{Positions, Start};
use super::sessions::Kept;
use super::stations::remember_stations;
use crate::channel::Packet;
use crate::control::{LogReply, PROTOCOL_VERSION, Request, refusal, reply_line};
use crate::log;
use crate::spec_text;

/// Messages handled before others get their turn.
const MESSAGES_PER_TURN: usize = 64;

impl DataPlane {
    /// Takes what the supervisor has sent; `false`: it has ended.
    pub(super) fn serve_supervisor(&mut self) -> anyhow::Result<bool> {
        for _ in 0..MESSAGES_PER_TURN {
            match self.supervisor.receive() {
                Ok(packet) => self.take(packet)?,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(false),
                Err(why) => return Err(why.into()),
            }
        }
        Ok(true)
    }

    fn take(&mut self, packet: Packet) -> anyhow::Result<()> {
        let Packet { bytes, fds, has_lost_fds } = packet;
        match ToData::decode_with(&bytes, fds.len())? {
            ToData::Batch { parts } => {
                for (message, numbers) in Batch::parts(parts.as_slice())? {
                    let fds = self.supervisor.given.take(&numbers)?;
                    self.carry_out_message(message, fds, false)?;
                }
                Ok(())
            }
            message => self.carry_out_message(message, fds, has_lost_fds),
        }
    }

    fn carry_out_message(
        &mut self,
        message: ToData,
        fds: Vec<OwnedFd>,
        has_lost_fds: bool,
    ) -> anyhow::Result<()> {
        match message {
            ToData::Config { settings } => {
                let settings = spec_text::read_settings(settings).ok_or(BadMessage::Value)?;
                self.workers.change(&settings);
            }
            ToData::Port { order, port, spec } => {
                let outcome = match spec_text::read_port(spec) {
                    Some(_) if has_lost_fds => Err(anyhow::anyhow!("no file descriptor is left")),
                    Some(spec) => self.open_port(PortId(port), spec, fds),
                    None => Err(BadMessage::Value.into()),
                };
                self.supervisor.finish(order, outcome.map(|()| false));
            }
            ToData::Remove { order, port } => {
                let is_told = self.remove_port(PortId(port));
                self.supervisor.finish(order, Ok(is_told));
            }
            ToData::Change { order, port, spec } => {
                let spec = spec_text::read_port(spec).ok_or(BadMessage::Value)?;
                // Of Unix sockets that did not come, the port says that they are missing.
                let outcome = self.change_port(PortId(port), spec, fds);
                self.supervisor.finish(order, outcome);
            }
            ToData::Link { order, port, link, spec } => {
                let spec = spec_text::read_port(spec).ok_or(BadMessage::Value)?;
                let outcome = self.link(PortId(port), link, &spec);
                self.supervisor.finish(order, outcome.map(|()| false));
            }
            ToData::Unlink { order, link } => {
                let is_closing = self.unlink(link);
                self.supervisor.unlinked(order, is_closing);
            }
            ToData::Slot { link, slot, bytes } => {
                self.serve_slot(link, slot, Kept { bytes: bytes.into_inner(), fds, has_lost_fds });
            }
            ToData::Frame { link, number, flaw, bytes } => {
                let kept = Kept { bytes: bytes.into_inner(), fds, has_lost_fds };
                self.serve_frame(link, number, flaw, kept);
            }
            ToData::Stations { port, stations } => {
                if let Some(replay) = &mut self.replay {
                    replay.stations.insert(PortId(port), stations.into_inner());
                }
            }
            // The workers do their part of it before a predecessor stops.
            ToData::Replayed {} => {
                self.tell_behind_workers(&ToSupervisor::Ready { refusal: None });
            }
            ToData::Go { is_last, positions } => {
                if let Some(replay) = &mut self.replay {
                    replay.add_positions(positions.into_inner());
                }
                if is_last {
                    self.supervisor.given.close();
                    self.go(fds.into_iter().next());
                }
            }
            ToData::Quiesce {} => self.export(),
            ToData::LinksDown { order } => {
                let is_told = self.ports.tell_links_down();
                self.supervisor.finish(order, Ok(is_told));
            }
            ToData::Ask { ask, bytes } => {
                let text = self.answer(&bytes.into_inner(), fds);
                let answer = |is_last, bytes| ToSupervisor::Answer { ask, is_last, bytes };
                self.supervisor.tell_in_pieces(text.as_bytes(), answer);
            }
            ToData::EndTransfers {} => self.ports.end_transfers(),
            ToData::DoesItGoOn {} => self.tell_behind_workers(&ToSupervisor::GoesOn {}),
            // They stand alone: before the settings, and around others.
            _ => return Err(BadMessage::Value.into()),
        }
        Ok(())
    }

    /// The workers have done all that they were told. Every one is woken for that.
    fn tell_behind_workers(&self, message: &ToSupervisor) {
        self.workers.catch_up();
        self.supervisor.tell(message);
    }

    /// Everything that was noted is done: this process serves from now on.
    fn go(&mut self, journal: Option<OwnedFd>) {
        let Some(replay) = self.replay.take() else { return };
        let journal = journal.and_then(|file| self.take_journal(&file));
        let positions: Positions = serde_json::from_slice(&replay.positions).unwrap_or_default();
        let (ports, workers) = (&mut self.ports, &self.workers);
        positions.restore(ports);
        let follows = !replay.starts.is_empty();
        replay.starts.iter().for_each(|start| workers.set_stopped(start.port, false));
        let (receiving, sending): (Vec<Start>, Vec<Start>) =
            replay.starts.into_iter().partition(|start| start.is_receiving(ports));
        positions.start_all(receiving, ports, workers);
        for (id, fds) in replay.taps {
            let Some(port) = ports.port_mut(id) else { continue };
            match port.attach_tap(fds, workers) {
                Ok(()) => ports.announce_all(workers.shared()),
                Err(why) => port.complain(format_args!("its tap cannot be served: {why:#}")),
            }
        }
        for id in replay.routers {
            let Some(port) = ports.port_mut(id) else { continue };
            match port.nat.open(&port.spec, follows, workers) {
                Ok(()) => {
                    let known = replay.stations.get(&id).map_or(&[][..], Vec::as_slice);
                    remember_stations(id, known, workers);
                    ports.tell_router(id, workers);
                }
                Err(why) => port.complain(format_args!("the router cannot be opened: {why:#}")),
            }
        }
        workers.send_all(Worker::deliver_handed_over);
        self.notes.remember(ports, workers.shared());
        positions.start_all(sending, ports, workers);
        for discard in replay.discards {
            if let Some(link) = ports.link(discard.port) {
                positions.discard(discard, link, workers);
            }
        }
        // Asked for their counters, the workers go on from those in the journal.
        workers.ask_all(Worker::snapshots);
        if let Some(journal) = journal {
            journal.settle();
        }
        self.supervisor.tell(&ToSupervisor::Running {});
        self.guests().resume();
    }

    /// The workers note what they do in it. Without one rings go on where they show it themselves.
    fn take_journal(&mut self, file: &OwnedFd) -> Option<Arc<Journal>> {
        let opened = Journal::open(file).and_then(|journal| {
            let journal = Arc::new(journal);
            self.process.replayed = journal.interrupted() as u64;
            // The notes in it count only for the data plane that follows at once.
            let noted = journal.clone();
            let set = self.workers.ask_all(move |worker| worker.set_journal(Some(noted)));
            let set: Result<(), _> = set.into_iter().collect();
            set.inspect_err(|_| journal.settle()).map(|()| journal)
        });
        match opened {
            Ok(journal) => {
                self.notes = Notes::of(journal.clone());
                Some(journal)
            }
            Err(why) => {
                // None may hand over in it what another one looks for in its own memory.
                self.workers.ask_all(|worker| worker.set_journal(None));
                error!("{why}: after the end of this process rings cannot all go on");
                None
            }
        }
    }

    /// Tells where all rings stand, which stop for good: nothing else is sent, called or told from
    /// now on.
    fn export(&mut self) {
        self.is_frozen = true;
        self.workers.stop_reading_taps();
        self.ports.iter_mut().for_each(|port| port.nat.stop_listening(&self.workers));
        let positions = Positions::of_stopped(&mut self.ports, &self.workers);
        self.notes.leave(self.workers.shared());
        self.supervisor.tell_all(self.station_news.take_all(&self.ports, &self.workers));
        self.workers.ask_all(|worker| worker.set_journal(None));
        let text = serde_json::to_vec(&positions).unwrap_or_default();
        let export = |is_last, positions| ToSupervisor::Export { is_last, positions };
        self.supervisor.tell_in_pieces(&text, export);
    }

    /// The answer to a line, without the newline.
    fn answer(&mut self, line: &[u8], fds: Vec<OwnedFd>) -> String {
        let (ports, workers, shared) = (&self.ports, &self.workers, self.workers.shared());
        match Request::parse(&String::from_utf8_lossy(line)) {
            Ok(Request::Stats | Request::PortList) => {
                reply_line(&stats::report(ports, workers, &self.process))
            }
            Ok(Request::Fdb(question)) => reply(fdb::addresses(&question, ports, shared)),
            Ok(Request::FdbFlush(question)) => {
                let flushed = fdb::flush(&question, ports, shared);
                // The next data plane is to know of it, too.
                reply(flushed.inspect(|_| self.notes.is_changed()))
            }
            Ok(Request::PortShow(question)) => reply(router::show(&question, ports, workers)),
            Ok(Request::Log(question)) => reply(set_level(&question.level)),
            Ok(Request::Trace(question)) => {
                reply(trace::trace(&question, ports, &self.mirrors, workers))
            }
            Ok(Request::Capture(question)) => {
                let new = self.captures.prepare(&question, fds, ports);
                reply(new.and_then(|new| self.captures.start(new, ports, &self.wakes, workers)))
            }
            Ok(_) => refusal(&["the data plane is not asked this".to_owned()]),
            Err(why) => refusal(&[why]),
        }
    }
}

fn set_level(level: &str) -> anyhow::Result<LogReply> {
    let before = log::set_level(level).context("the log has no such level")?;
    Ok(LogReply { version: PROTOCOL_VERSION, ok: true, level: level.to_owned(), before })
}

fn reply(reply: anyhow::Result<impl Serialize>) -> String {
    match reply {
        Ok(reply) => reply_line(&reply),
        Err(why) => refusal(&[format!("{why:#}")]),
    }
}
