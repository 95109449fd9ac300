//! Events of data planes go to the value that decides; its effects are carried out here.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use ringway_supervisor::succession::{Effect, Event, PlaneNumber, Program};
use ringway_supervisor::wire::ToData;
use tracing::{error, info};

use super::Supervisor;
use super::control_client::ClientId;
use super::descriptors::explained;
use super::plane::Plane;

impl Supervisor {
    /// Takes an event, and does what follows from it; one that happens meanwhile comes behind it.
    pub(super) fn happens(&mut self, event: Event<ClientId>) {
        self.planes.events.push_back(event);
        if std::mem::replace(&mut self.planes.is_busy, true) {
            return;
        }
        while let Some(event) = self.planes.events.pop_front() {
            let mut effects = Vec::new();
            self.planes.succession.on(event, Instant::now(), &mut effects);
            effects.into_iter().for_each(|effect| self.carry_out(effect));
        }
        self.planes.is_busy = false;
    }

    fn carry_out(&mut self, effect: Effect<ClientId>) {
        match effect {
            Effect::Start { plane, program, is_bare } => self.start_plane(plane, program, is_bare),
            Effect::Load { plane } => self.load(plane),
            Effect::Go { plane, positions, is_alone } => self.go(plane, &positions, is_alone),
            Effect::Quiesce { plane } => {
                let plane = self.planes.get(plane);
                plane.into_iter().for_each(|plane| plane.tell(&ToData::Quiesce {}, vec![]));
            }
            Effect::Kill { plane, is_condemned } => self.kill_plane(plane, is_condemned),
            Effect::NoteDeath { plane } => {
                let suspects = (self.note_death(), self.requests.take_back());
                if let Some(plane) = self.planes.get(plane) {
                    plane.suspects = Some(suspects);
                }
            }
            Effect::Settle { plane } => {
                let orders = self.planes.get(plane).map(|plane| std::mem::take(&mut plane.orders));
                self.settle_orders(orders.unwrap_or_default());
            }
            Effect::Serves { .. } => self.plane_serves(),
            Effect::Succeeds { by, stall, .. } => self.next_serves(by, stall),
            Effect::SwapPrograms => {
                if let Some(other) = &mut self.other_program {
                    std::mem::swap(other, &mut self.program);
                }
            }
            Effect::Fails { by, why } => self.refuse_upgrade(by, &why),
            Effect::Hold(is_holding) => self.hold(is_holding),
            Effect::Check { by, stall } => self.check_program(by, stall),
            Effect::StopCheck => self.check = None,
            Effect::Stays { by, why } => self.stays(by, why),
        }
    }

    fn start_plane(&mut self, number: PlaneNumber, program: Program, is_bare: bool) {
        let program = match (program, &self.other_program) {
            (Program::Other, Some(other)) => other,
            _ => &self.program,
        };
        let given = if is_bare { vec![] } else { self.all_descriptors() };
        let started = Plane::start(program, given).and_then(|plane| {
            self.watch_plane(number, &plane)?;
            Ok(plane)
        });
        match started {
            Ok(plane) => self.planes.insert(number, plane),
            Err(why) => {
                let why = explained(&why);
                error!("{why}");
                if !self.planes.is_begun() {
                    self.planes.why_ended = Some(why.clone());
                }
                self.happens(Event::NotStarted { plane: number, why });
            }
        }
    }

    fn kill_plane(&mut self, number: PlaneNumber, is_condemned: bool) {
        let Some(plane) = self.planes.get(number).filter(|plane| !plane.is_killed) else { return };
        if is_condemned && !std::mem::replace(&mut plane.is_condemned, true) {
            error!("the data plane did not do what was its turn: it is ended");
        }
        plane.kill();
        let channel = plane.channel.as_fd();
        let _ = self.poller.remove(channel);
    }

    /// Rings may start, there where those positions say.
    fn go(&mut self, number: PlaneNumber, positions: &[u8], is_alone: bool) {
        self.journal.repair(is_alone);
        let Some(mut plane) = self.planes.remove(number) else { return };
        if self.planes.is_next(number) {
            // The old one has said what it knows by now.
            self.tell_of_stations(&mut plane);
        }
        plane.go(positions, self.journal.file());
        self.planes.insert(number, plane);
    }

    fn plane_serves(&mut self) {
        self.forget_seen_ips();
        if let Some(since) = self.counts.down_since.take() {
            let ms = since.elapsed().as_millis();
            info!("a new data plane serves, {ms} ms after the end of the last one");
        }
    }

    fn next_serves(&mut self, by: Option<ClientId>, stall: Duration) {
        self.forget_seen_ips();
        self.counts.upgrades += 1;
        if by.is_none() {
            info!("another data plane serves from now on: packets waited {stall:.1?}");
        }
        self.answer_routers(None);
    }
}
