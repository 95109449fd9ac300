//! Data planes come and go: events go to the value that decides, and its effects are carried out
//! here.

use std::mem::take;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::bail;
use ringway_supervisor::front_ends;
use ringway_supervisor::succession::{Effect, Event, PlaneNumber, Program};
use ringway_supervisor::wire::{List, ToData, ToSupervisor};
use ringway_switch::PortId;
use tracing::{error, info, warn};

use super::Supervisor;
use super::clients::control_client::ClientId;
use super::front_ends::front_end::Done;
use super::planes::order::OrderOutcome;
use super::planes::plane::{MESSAGES_PER_TURN, Plane};
use super::processes::descriptors::explained;
use super::processes::replace::asked;
use super::processes::upgrade::chosen_program;
use super::questions::stats::stats;
use super::record::file;
use super::stores::station_file::StationFile;
use super::stores::write_down::View;
use crate::control::refusal;

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
            Effect::Load { plane } => {
                if !self.planes.has_begun() {
                    StationFile::recall(&mut self.ports, &self.setup.identity);
                }
                let loaded = self.planes.load(plane, &mut self.ports, &self.setup);
                loaded.unwrap_or_else(|why| self.refuses(plane, &why));
            }
            Effect::Go { plane, positions, is_alone } => {
                self.planes.go(plane, &positions, is_alone, &self.ports);
            }
            Effect::Quiesce { plane } => {
                let plane = self.planes.get(plane);
                plane.into_iter().for_each(|plane| plane.tell(&ToData::Quiesce {}, vec![]));
            }
            Effect::Kill { plane, is_condemned } => self.planes.kill(plane, is_condemned),
            Effect::NoteDeath { plane } => {
                let busy = self.planes.note_death(&mut self.ports);
                let suspects = (busy, self.planes.requests.take_back());
                if let Some(plane) = self.planes.get(plane) {
                    plane.debts.suspects = Some(suspects);
                }
            }
            Effect::Settle { plane } => {
                let debts = self.planes.get(plane).map(|plane| take(&mut plane.debts.orders));
                self.settle_orders(debts.unwrap_or_default());
            }
            Effect::Serves { .. } => {
                self.ports.forget_seen_ips(self.planes.tells_of_guests());
                self.planes.note_serving();
            }
            Effect::Succeeds { by, stall, .. } => self.next_serves(by, stall),
            Effect::SwapPrograms => self.programs.swap(),
            Effect::Fails { by, why } => self.refuse_upgrade(by, &why),
            Effect::Hold(is_holding) => self.hold(is_holding),
            Effect::Check { by, stall } => self.check_program(by, stall),
            Effect::StopCheck => self.programs.stop_check(),
            Effect::Stays { by, why } => self.stays(by, why),
        }
    }

    fn start_plane(&mut self, number: PlaneNumber, program: Program, is_bare: bool) {
        let other = self.programs.other.as_ref().filter(|_| program == Program::Other);
        let program = other.unwrap_or(&self.programs.running);
        let given = if is_bare { vec![] } else { self.planes.all_descriptors(&self.ports) };
        let started = Plane::start(program, given);
        if let Err(why) = started.and_then(|plane| self.planes.add(number, plane)) {
            let why = explained(&why);
            error!("{why}");
            if !self.planes.is_begun() {
                self.planes.why_ended = Some(why.clone());
            }
            self.happens(Event::NotStarted { plane: number, why });
        }
    }

    fn next_serves(&mut self, by: Option<ClientId>, stall: Duration) {
        self.ports.forget_seen_ips(self.planes.tells_of_guests());
        self.planes.counts.upgrades += 1;
        if by.is_none() {
            info!("another data plane serves from now on: packets waited {stall:.1?}");
        }
        self.answer_routers(None);
    }

    /// Takes what a data plane has sent.
    pub(super) fn hear_plane(&mut self, number: PlaneNumber) {
        for _ in 0..MESSAGES_PER_TURN {
            let plane = self.planes.get(number).filter(|it| !it.process.is_killed);
            let Some(plane) = plane else { return };
            let why = match plane.receive() {
                Ok(None) => return,
                Ok(Some(message)) => match self.take(number, message) {
                    Ok(()) => continue,
                    Err(why) => format!("says what cannot be ({why:#})"),
                },
                // Its end of the socket is closed when it ends: there is no more to say about it.
                Err(_) => String::new(),
            };
            let event = self.planes.lost(number, &why);
            return self.happens(event);
        }
    }

    pub(super) fn take(
        &mut self,
        number: PlaneNumber,
        message: ToSupervisor,
    ) -> anyhow::Result<()> {
        let is_serving = self.planes.is_serving(number);
        match message {
            ToSupervisor::Hello { wire, journal } => {
                match self.planes.hello(number, wire, journal) {
                    Ok(event) => self.happens(event),
                    Err(why) => self.refuses(number, &why),
                }
            }
            ToSupervisor::Ready { refusal: Some(why) } => self.refuses(number, why.as_str()),
            ToSupervisor::Ready { refusal: None } => self.happens(Event::Ready { plane: number }),
            ToSupervisor::Running {} => self.happens(Event::Running { plane: number }),
            ToSupervisor::Finished { order, is_told, is_closing, refusal } => {
                let order = self.planes.take_order(number, order)?;
                let refusal = refusal.map(|why| why.as_str().to_owned());
                match refusal {
                    refusal if is_serving => {
                        self.finish(order, &OrderOutcome { is_told, is_closing, refusal });
                    }
                    Some(why) => self.refuses(number, &why),
                    None => {}
                }
            }
            ToSupervisor::Forbidden { .. } | ToSupervisor::GoesOn {} => {
                self.planes.get(number).into_iter().for_each(|plane| plane.notes(&message));
            }
            message if is_serving => self.take_of_serving(number, message)?,
            // All ports are settled when it serves.
            ToSupervisor::Closed { .. } if self.planes.is_next(number) => {}
            _ => bail!("it does not serve"),
        }
        Ok(())
    }

    /// A message of the data plane that carries packets.
    fn take_of_serving(
        &mut self,
        number: PlaneNumber,
        message: ToSupervisor,
    ) -> anyhow::Result<()> {
        match message {
            ToSupervisor::Done { link, number: request, is_closing, reply, keep, drops } => {
                let done = Done { request, drops: drops.into_inner(), keep, is_closing };
                self.frame_is_done(link, done, reply.map(List::into_inner))?;
            }
            ToSupervisor::Forget { link, drops } => {
                self.forget(link, &drops.into_inner());
                self.happens(Event::Overtaken);
            }
            ToSupervisor::LetGo { link, offence, why } => {
                self.let_go(link, offence, why.as_str());
                self.happens(Event::Overtaken);
            }
            ToSupervisor::Closed { port } => {
                self.happens_at(PortId(port), front_ends::Event::PlaneCloses(false));
            }
            ToSupervisor::Export { is_last, positions } => {
                let event = self.planes.positions(number, positions.into_inner(), is_last)?;
                event.into_iter().for_each(|event| self.happens(event));
            }
            ToSupervisor::Answer { ask, is_last, bytes } => {
                self.planes.answer(ask, bytes.into_inner())?;
                if is_last {
                    self.answered(ask);
                }
            }
            ToSupervisor::TapGone { port } => self.ports.on_tap_gone(PortId(port)),
            ToSupervisor::Departed { stations } => {
                self.bridges.departed.add(stations.into_inner(), Instant::now());
            }
            ToSupervisor::Stations { port, stations } => self.ports.know(port, stations),
            ToSupervisor::SeenIps { port, ips } => self.ports.see_ips(PortId(port), ips),
            message => self.ports.hear_of_guest(&message)?,
        }
        Ok(())
    }

    fn answered(&mut self, ask: u32) {
        let Some((question, text)) = self.questions.answered(ask, &mut self.planes) else { return };
        let (Self { ports, planes, setup, .. }, failed) = (&*self, self.reloads.failed);
        let complete = |told| stats(told, ports, planes, setup, failed);
        let client = question.client;
        let (reply, fds) = question.reply(&text, ports, complete);
        self.control.answer_with(client, &reply, fds);
    }

    fn refuses(&mut self, plane: PlaneNumber, why: &str) {
        let event = self.planes.refuses(plane, why);
        self.happens(event);
    }

    /// A data plane has ended.
    pub(super) fn on_plane_end(&mut self, number: PlaneNumber) {
        let Some(end) = self.planes.get(number).and_then(|plane| plane.end()) else { return };
        let was_serving = self.planes.is_serving(number);
        let Some(mut plane) = self.planes.remove(number) else { return };
        let _ = self.os.poller.remove(plane.process.pidfd.as_fd());
        plane.hear_last_words();
        let (how, now) = (self.planes.shown(end, &plane), Instant::now());
        if let Some((busy, in_hand)) = plane.debts.suspects {
            error!("the data plane ended: {how}: a new one was started at once");
            let verdict = self.planes.restarts.died(now, end, &busy, &in_hand);
            self.happens(Event::Ended { plane: number, how, start_at: now });
            return self.follow(verdict);
        }
        if !was_serving || !self.planes.is_begun() {
            if was_serving {
                let why = plane.process.refusal.take();
                let why = why.unwrap_or_else(|| format!("the data plane ended: {how}"));
                self.planes.why_ended.get_or_insert(why);
            }
            return self.happens(Event::Ended { plane: number, how, start_at: now });
        }
        let busy = self.planes.note_death(&mut self.ports);
        let in_hand = self.planes.requests.take_back();
        let verdict = self.planes.restarts.died(now, end, &busy, &in_hand);
        let (start_at, wait) = (verdict.start_at, verdict.start_at - now);
        let again = if wait.is_zero() { "at once".to_owned() } else { format!("in {wait:?}") };
        error!("the data plane ended: {how}: a new one is started {again}");
        self.settle_orders(plane.debts.orders);
        self.happens(Event::Ended { plane: number, how, start_at });
        self.follow(verdict);
    }

    /// Workers have ended: the rest of the process follows when all memory of guests is unmapped.
    /// The first one is not waited for; how others ended, and so when the next one may start, is
    /// known only then.
    pub(super) fn on_worker_end(&mut self) {
        self.planes.journal.drain();
        if !(self.planes.is_running() && self.planes.journal.is_dead()) {
            return;
        }
        let Some(plane) = self.planes.succession.serving() else { return };
        let may_start = self.planes.is_begun()
            && self.planes.restarts.is_first(Instant::now())
            && self.planes.journal.all_have_ended();
        self.happens(Event::WorkersEnded { plane, may_start });
    }

    /// Sends what waits, notices who does not answer, starts a new one when its time has come.
    pub(super) fn look_after_planes(&mut self) {
        let now = Instant::now();
        self.planes.look(now);
        if self.planes.is_held_port_due(now)
            && let Err(why) = self.renew_plane()
        {
            info!("ports that are held back wait: {why:#}");
        }
        self.planes.take_back_unsent(now, &mut self.ports);
        if let Some(outcome) = self.programs.look_at_check() {
            self.happens(Event::Checked(outcome));
        }
        if self.planes.succession.wake_at().is_some_and(|at| at <= now) {
            self.happens(Event::Due);
        }
        if self.planes.succession.waits_for_rest() && self.planes.is_at_rest() {
            self.happens(Event::AtRest);
        }
        self.planes.hand_over(now, &self.ports);
        self.questions.hand_over(&mut self.planes);
        self.drop_links_that_waited(now);
    }

    /// A data plane stops reading requests, or all are read again.
    fn hold(&mut self, is_holding: bool) {
        for id in self.ports.ids() {
            self.happens_at(id, front_ends::Event::Hold(is_holding));
        }
        self.planes.hold(is_holding);
        self.control.hold(is_holding);
        self.os.hold(is_holding);
    }

    /// Begins to replace the data plane by that program, or by the one that is now where this
    /// process's own program was.
    pub(super) fn begin_upgrade(
        &mut self,
        client: ClientId,
        program: Option<&str>,
    ) -> Result<(), Vec<String>> {
        self.planes.succession.may_hand_over().map_err(|why| vec![why.to_owned()])?;
        if program.is_some() && !self.control.is_trusted(client) {
            return Err(vec![
                "not permitted: only ringway's own user and root may name one".into(),
            ]);
        }
        let (path, file) = chosen_program(program).map_err(|why| vec![why])?;
        self.programs.other = Some(file);
        info!(program = %path.display(), "upgrading");
        self.happens(Event::HandOver { by: Some(client) });
        Ok(())
    }

    /// Begins to replace the data plane by another one of the same program, which may do what this
    /// one may not.
    ///
    /// # Errors
    /// It is being replaced already, or started anew.
    pub(super) fn renew_plane(&mut self) -> anyhow::Result<()> {
        self.planes.succession.may_hand_over().map_err(anyhow::Error::msg)?;
        self.happens(Event::HandOver { by: None });
        Ok(())
    }

    /// The next one cannot follow.
    fn refuse_upgrade(&mut self, client: Option<ClientId>, why: &str) {
        match client {
            Some(_) => self.programs.other = None,
            None => self.answer_routers(Some(why)),
        }
        let why = format!("not upgraded: the new program: {why}: the old one goes on");
        warn!("{why}");
        if let Some(client) = client {
            self.control.answer_client(client, &refusal(&[why]));
        }
    }

    /// The new data plane works: its program is to take the supervisor's place.
    fn check_program(&mut self, client: ClientId, stall: Duration) {
        let pid = self.planes.current().map(Plane::pid);
        info!(pid, "upgraded: packets waited {stall:.1?}");
        let records = View::of(self).records(Some(asked(client, stall)));
        let record = records.and_then(|records| file::write(&records));
        if let Err(why) = record.and_then(|record| self.programs.begin_check(record)) {
            self.happens(Event::Checked(Err(format!("{why:#}"))));
        }
    }

    /// Why this moment is not one to replace the supervisor, if it is not.
    fn hindrance(&self) -> Option<String> {
        let is_owed = !self.questions.is_empty() || self.reloads.is_any();
        if !self.planes.is_alone() || !self.planes.is_at_rest() || is_owed {
            return Some("the data plane is busy".to_owned());
        }
        if !self.ports.refused.is_idle() {
            return Some("what a front-end sent is still being closed".to_owned());
        }
        let busy = self.ports.values().find_map(|port| Some((port, port.is_changing()?)));
        busy.map(|(port, why)| format!("port {}: {why}", port.spec.name))
    }

    /// Whether another program is to be started in place now.
    pub(super) fn is_to_be_replaced(&self) -> bool {
        self.planes.succession.waits_to_give_place() && self.hindrance().is_none()
    }

    /// Starts the new program in place, and returns only if that fails; `before` is called last of
    /// all.
    pub(super) fn give_place(&mut self, before: impl FnOnce()) {
        let Some((client, stall)) = self.planes.succession.replacement() else { return };
        let records = View::of(self).records(Some(asked(client, stall)));
        let started = records.and_then(|records| self.programs.start_in_place(&records, before));
        let why = match started {
            Ok(never) => match never {},
            Err(why) => format!("{why:#}"),
        };
        self.happens(Event::NotReplaced { why });
    }

    /// This supervisor goes on.
    fn stays(&mut self, client: ClientId, why: Option<String>) {
        let why = why.or_else(|| self.hindrance()).unwrap_or_default();
        let why = format!("the data plane was upgraded; the old supervisor goes on: {why}");
        warn!("{why}");
        self.control.answer_client(client, &refusal(&[why]));
    }
}
