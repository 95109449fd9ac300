//! Orders of the supervisor, carried out.

use std::os::fd::OwnedFd;

use ringway_supervisor::wire::{BadMessage, Batch, Bytes, ToData, ToSupervisor};
use ringway_switch::PortId;

use super::DataPlane;
use super::replay::Replay;
use crate::channel::Packet;
use crate::spec_text;
use rustix::io::Errno;

/// Messages handled before others get their turn.
const MESSAGES_PER_TURN: usize = 64;

/// Most bytes of positions: 2,048 rings have fewer.
const POSITIONS_LEN_MAX: usize = 1 << 20;

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
                self.worker.shared().set_age_max(u64::from(settings.fdb_age_s) * 1000);
                self.worker.change(&settings);
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
            ToData::Slot { link, .. } if has_lost_fds => {
                if let Some(id) = self.links.get(&link).copied() {
                    self.let_go(id, None, "cannot be taken over: no file descriptor is left");
                }
            }
            ToData::Slot { link, slot, bytes } => {
                self.serve_slot(link, slot, (bytes.into_inner(), fds));
            }
            ToData::Frame { link, number, flaw, bytes } => {
                let lost = has_lost_fds.then_some(ringway_supervisor::wire::Flaw::LostFds);
                self.serve_frame((link, number), flaw.or(lost), (bytes.into_inner(), fds));
            }
            ToData::Stations { port, stations } => self.note_stations(PortId(port), stations),
            ToData::Replayed {} => self.is_ready(),
            ToData::Go { is_last, positions } => {
                self.take_positions(positions);
                if is_last {
                    self.supervisor.given.close();
                    self.go(fds.into_iter().next());
                }
            }
            ToData::Quiesce {} => self.export(),
            ToData::LinksDown { order } => {
                let is_told = self.tell_link_down() > 0;
                self.supervisor.finish(order, Ok(is_told));
            }
            ToData::Ask { ask, bytes } => {
                let text = self.answer(&bytes.into_inner(), fds);
                let answer = |is_last, bytes| ToSupervisor::Answer { ask, is_last, bytes };
                self.supervisor.tell_in_pieces(text.as_bytes(), answer);
            }
            ToData::DoesItGoOn {} => self.says_that_it_goes_on(),
            // They stand alone: before the settings, and around others.
            ToData::Given { .. } | ToData::Batch { .. } => return Err(BadMessage::Value.into()),
        }
        Ok(())
    }

    /// Every worker is woken for that.
    fn says_that_it_goes_on(&self) {
        self.worker.catch_up();
        self.supervisor.tell(&ToSupervisor::GoesOn {});
    }

    fn take_positions<const MAX: usize>(&mut self, positions: Bytes<MAX>) {
        if let Some(Replay { positions: text, .. }) = &mut self.replay {
            let piece = positions.into_inner();
            if text.len() + piece.len() <= POSITIONS_LEN_MAX {
                text.extend(piece);
            }
        }
    }

    fn export(&mut self) {
        let positions = self.quiesce();
        let text = serde_json::to_vec(&positions).unwrap_or_default();
        let export = |is_last, positions| ToSupervisor::Export { is_last, positions };
        self.supervisor.tell_in_pieces(&text, export);
    }
}
