//! The data planes that there are: the one that serves, the one that is to follow it, and those
//! that were killed and have not ended yet.

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_supervisor::wire::{Bytes, ToData, pieces};
use ringway_switch::PortId;

use super::descriptors::explained;
use super::order::{Asked, Order};
use super::plane::{Plane, Sent, Stage};
use super::ports::Port;
use super::record::{Fds, PlaneRecord};
use super::{LOOK_EVERY, Supervisor, Wake};
use crate::spec_text;

/// Until a data plane must have said what it speaks, and until it must have everything.
const LOADED_WITHIN: Duration = Duration::from_secs(10);

/// The line of the log about a port that is held back.
const HELD: &str = "its front-end waits a few seconds: data planes end again and again, the last \
                    one while it served this port";

/// All of them, by number.
#[derive(Default)]
pub(super) struct Planes {
    pub(super) serving: Option<(u32, Plane)>,
    pub(super) coming: Option<(u32, Plane)>,
    ending: Vec<(u32, Plane)>,
    pub(super) next: u32,
    /// The first one has served.
    is_begun: bool,
    /// Why the first one cannot.
    pub(super) why_ended: Option<String>,
}

/// For statistics.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) deaths: u64,
    pub(super) upgrades: u64,
    pub(super) down_since: Option<Instant>,
    /// The last system call that the sandbox has forbidden.
    pub(super) forbidden_call: Option<u32>,
}

impl Planes {
    /// The one that serves, or is about to.
    pub(super) fn serving(&mut self) -> Option<&mut Plane> {
        self.serving.as_mut().map(|(_, plane)| plane)
    }

    pub(super) fn current(&self) -> Option<&Plane> {
        self.serving.as_ref().map(|(_, plane)| plane)
    }

    pub(super) fn coming(&mut self) -> Option<&mut Plane> {
        self.coming.as_mut().map(|(_, plane)| plane)
    }

    pub(super) fn is_coming(&self, number: u32) -> bool {
        self.coming.as_ref().is_some_and(|(at, _)| *at == number)
    }

    pub(super) fn is_serving(&self, number: u32) -> bool {
        self.serving.as_ref().is_some_and(|(at, _)| *at == number)
    }

    pub(super) fn get(&mut self, number: u32) -> Option<&mut Plane> {
        let all = self.serving.iter_mut().chain(&mut self.coming).chain(&mut self.ending);
        all.into_iter().find(|(at, _)| *at == number).map(|(_, plane)| plane)
    }

    pub(super) fn is_running(&self) -> bool {
        self.current().is_some_and(|plane| plane.stage == Stage::Running)
    }

    /// The first one serves all ports that could be opened.
    pub(super) fn has_begun(&mut self) -> bool {
        let opens =
            |plane: &Plane| plane.orders.values().any(|order| matches!(order, Order::Open { .. }));
        let is_done =
            self.current().is_some_and(|plane| plane.stage == Stage::Running && !opens(plane));
        self.is_begun |= is_done;
        self.is_begun
    }

    pub(super) fn is_begun(&self) -> bool {
        self.is_begun
    }

    /// The one that was to follow serves from now on; the one before is ended.
    pub(super) fn succeed(&mut self) {
        let Some(next) = self.coming.take() else { return };
        self.end_serving();
        self.serving = Some(next);
    }

    pub(super) fn end_serving(&mut self) {
        if let Some((number, mut plane)) = self.serving.take() {
            plane.kill();
            self.ending.push((number, plane));
        }
    }

    pub(super) fn end_coming(&mut self) {
        if let Some((number, mut plane)) = self.coming.take() {
            plane.kill();
            self.ending.push((number, plane));
        }
    }

    /// One that has served before another program took the place of this process's own.
    pub(super) fn resume(&mut self, number: u32, plane: Plane) {
        (self.serving, self.is_begun) = (Some((number, plane)), true);
    }

    /// What the next supervisor needs of the one that serves.
    pub(super) fn record<'a>(&'a self, fds: &mut Fds<'a>) -> Option<PlaneRecord> {
        let (number, plane) = self.serving.as_ref()?;
        let (pid, channel) = (plane.pid().try_into().ok()?, fds.put(plane.channel.as_fd()));
        let (may_route, speaks) = (plane.may_route, Some(plane.speaks));
        Some(PlaneRecord { number: *number, pid, channel, may_route, speaks })
    }

    /// There is one, which serves, and no other.
    pub(super) fn is_alone(&self) -> bool {
        let knows_all = |plane: &Plane| plane.is_told() && plane.without.is_empty();
        self.current().is_some_and(knows_all) && self.is_running() && self.others_are_gone()
    }

    /// There is none beside the one that serves, or is about to.
    pub(super) fn others_are_gone(&self) -> bool {
        self.coming.is_none() && self.ending.is_empty()
    }

    /// It has ended.
    pub(super) fn remove(&mut self, number: u32) -> Option<Plane> {
        let is_it = |(at, _): &mut (u32, Plane)| *at == number;
        let found = self.serving.take_if(is_it).or_else(|| self.coming.take_if(is_it));
        let at = self.ending.iter().position(|(at, _)| *at == number);
        found.or_else(|| at.map(|at| self.ending.swap_remove(at))).map(|(_, plane)| plane)
    }

    /// At the end of everything.
    pub(super) fn finish(self, at_most: Duration) {
        let Self { serving, coming, ending, .. } = self;
        for (_, mut plane) in ending.into_iter().chain(coming) {
            plane.kill();
            plane.finish(Duration::ZERO);
        }
        if let Some((_, plane)) = serving {
            plane.finish(at_most);
        }
    }
}

impl Supervisor {
    /// Starts a data plane, which serves from now on.
    pub(super) fn start_plane(&mut self) -> anyhow::Result<()> {
        self.start_at = None;
        let program = self.program.try_clone()?;
        let plane = Plane::start(&program, self.all_descriptors())?;
        self.planes.serving = Some(self.watched(plane)?);
        Ok(())
    }

    /// Starts one that is to follow.
    pub(super) fn start_next_plane(&mut self, program: &std::fs::File) -> anyhow::Result<()> {
        let plane = Plane::start(program, self.all_descriptors())?;
        self.planes.coming = Some(self.watched(plane)?);
        Ok(())
    }

    /// Whether it was started with file descriptors.
    pub(super) fn was_given_any(&mut self, number: u32) -> bool {
        self.planes.get(number).is_some_and(|plane| !plane.given.is_empty())
    }

    /// One that cannot be told what it was started with would keep it open, whatever guests do: its
    /// program is started once more, with nothing.
    pub(super) fn start_without_descriptors(&mut self, number: u32) {
        let is_next = self.planes.is_coming(number);
        self.end_plane(number, "");
        let place = if is_next { Planes::end_coming } else { Planes::end_serving };
        place(&mut self.planes);
        let program = self.upgrade_program().filter(|_| is_next).unwrap_or(&self.program);
        let started = Plane::start(program, vec![]).and_then(|plane| self.watched(plane));
        match started {
            Ok(plane) if is_next => self.planes.coming = Some(plane),
            Ok(plane) => self.planes.serving = Some(plane),
            Err(why) if is_next => self.upgrade_fails(&explained(&why)),
            Err(why) => {
                tracing::error!("{}", explained(&why));
                self.start_at = Some(Instant::now() + Duration::from_secs(1));
            }
        }
    }

    /// All file descriptors that a data plane gets.
    fn all_descriptors(&self) -> Vec<Sent> {
        let served = self.ports.values().filter(|port| port.failure.is_none());
        let of_ports = served.flat_map(|port| {
            let slots = port.link().into_iter().flat_map(|link| link.kept.replay());
            let of_front_end = slots.flat_map(|(_, frame)| frame.fds.iter().cloned());
            port.sent().into_iter().chain(of_front_end.map(Sent::FrontEnd))
        });
        of_ports.chain([Sent::Own(self.journal.file().clone())]).collect()
    }

    fn watched(&mut self, plane: Plane) -> anyhow::Result<(u32, Plane)> {
        self.planes.next += 1;
        let number = self.planes.next;
        self.poller.add(plane.channel.as_fd(), Wake::Plane(number).token())?;
        self.poller.add(plane.pidfd.as_fd(), Wake::PlaneEnd(number).token())?;
        Ok((number, plane))
    }

    /// It closed its end, or said what cannot be.
    pub(super) fn end_plane(&mut self, number: u32, why: &str) {
        let Some(plane) = self.planes.get(number).filter(|plane| plane.stage != Stage::Ending)
        else {
            return;
        };
        if !why.is_empty() {
            tracing::error!("the data plane {why}: it is ended");
            plane.is_condemned = true;
        }
        let _ = self.poller.remove(plane.channel.as_fd());
        plane.kill();
    }

    /// Gives a data plane everything that there is: ports, front-ends and what was kept of them.
    pub(super) fn load(&mut self, number: u32) {
        let settings = spec_text::settings(&self.settings, self.workers, self.has_routers());
        let (is_next, now) = (self.planes.is_coming(number), Instant::now());
        if !self.planes.has_begun() {
            self.recall_stations();
        }
        let Some(mut plane) = self.planes.remove(number) else { return };
        plane.enters(Stage::Loading);
        plane.may_route = self.has_routers();
        plane.begin_filling(&ToData::Config { settings });
        for (&id, port) in &mut self.ports {
            if port.failure.is_some() || port.is_leaving() {
                continue;
            }
            let asked =
                if is_next { Asked::default() } else { port.asked.take().unwrap_or_default() };
            let Ok(spec) = spec_text::port(&port.spec, port.tap.name(), &self.identity) else {
                continue;
            };
            let message = |order| ToData::Port { order, port: id.0, spec };
            let order = Order::Open { port: id, asked };
            let message = (message, port.sent());
            Self::order(&mut plane, &mut self.next_order, order, message);
            let Some(link) = port.link() else { continue };
            if self.restarts.is_held(id.0, now) {
                plane.without.insert(id);
                continue;
            }
            let (link_number, spec) = (link.number, link.spec.clone());
            let message = |order| ToData::Link { order, port: id.0, link: link_number, spec };
            let order = Order::Link { port: id };
            Self::order(&mut plane, &mut self.next_order, order, (message, vec![]));
            for (slot, frame) in link.kept.replay() {
                let bytes = Bytes::new(frame.bytes.clone()).unwrap_or_default();
                let fds = frame.fds.iter().cloned().map(Sent::FrontEnd).collect();
                plane.tell(&ToData::Slot { link: link_number, slot, bytes }, fds);
            }
        }
        self.tell_of_stations(&mut plane);
        plane.tell(&ToData::Replayed {}, vec![]);
        plane.is_filled();
        let held: Vec<PortId> = plane.without.iter().copied().collect();
        let place = match is_next {
            true => &mut self.planes.coming,
            false => &mut self.planes.serving,
        };
        *place = Some((number, plane));
        for id in held {
            self.complain(id, HELD);
        }
    }

    /// Whether a front-end that has just come has to wait, because its port is held back: it may be
    /// the one that was there when the data plane ended.
    pub(super) fn holds_back(&mut self, id: PortId) -> bool {
        let is_held = self.restarts.is_held(id.0, Instant::now());
        let plane = self.planes.serving().filter(|plane| is_held && plane.is_loaded());
        let is_new = plane.map(|plane| plane.without.insert(id));
        if is_new.is_some() {
            self.complain(id, HELD);
        }
        is_new.is_some()
    }

    /// Rings may start, there where those positions say.
    pub(super) fn go(plane: &mut Plane, positions: &[u8], journal: &Arc<OwnedFd>) {
        plane.enters(Stage::Going);
        for (is_last, positions) in pieces(positions) {
            let fds = is_last.then(|| Sent::Own(journal.clone()));
            plane.tell(&ToData::Go { is_last, positions }, fds.into_iter().collect());
        }
        plane.forget_given();
    }

    /// A child was stopped, goes on or has ended.
    pub(super) fn on_child(&mut self) {
        let _ = (&self.child_signals).read(&mut [0; 16]);
        if let Some(plane) = self.planes.serving() {
            plane.watch.doubts();
        }
    }

    /// Sends what waits, notices who does not answer, starts a new one when its time has come.
    pub(super) fn look_after_planes(&mut self) {
        let now = Instant::now();
        if let Some(plane) = self.planes.serving() {
            plane.flush();
            plane.look(now, &self.journal.beats());
            let is_late = plane.since + LOADED_WITHIN < now;
            if is_late && !matches!(plane.stage, Stage::Running | Stage::Ending) {
                plane.is_condemned = true;
                plane.kill();
            }
        }
        if let Some(plane) = self.planes.coming() {
            plane.flush();
        }
        self.serve_held_ports(now);
        self.take_back_unsent(now);
        self.look_after_upgrade(now);
        self.look_after_replacing(now);
        self.drop_links_that_waited(now);
        if self.start_at.is_some_and(|at| at <= now)
            && let Err(why) = self.start_plane()
        {
            tracing::error!("{}", explained(&why));
            self.start_at = Some(now + Duration::from_secs(1));
        }
    }

    /// When to do that again.
    pub(super) fn next_look_at_planes(&self) -> Option<Instant> {
        let now = Instant::now();
        let is_owed = self.upgrade.is_some()
            || self.replacing.is_some()
            || !self.questions.is_empty()
            || self.reloading.is_some()
            || self.ports.values().any(Port::is_owed)
            || self
                .planes
                .current()
                .is_none_or(|plane| plane.stage != Stage::Running || !plane.orders.is_empty());
        let look = is_owed.then(|| now + LOOK_EVERY);
        let planes = [&self.planes.serving, &self.planes.coming];
        let flush = planes.into_iter().flatten().filter_map(|(_, plane)| plane.next_flush());
        let at = self.planes.current().and_then(|plane| plane.look_at);
        flush
            .chain(look)
            .chain(at)
            .chain(self.start_at)
            .chain(self.next_handing_over())
            .chain(self.next_serving_held_ports(now))
            .min()
    }
}
