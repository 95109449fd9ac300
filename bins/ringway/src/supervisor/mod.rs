//! The supervisor: names, listeners, taps, the control socket, and a copy of every file descriptor
//! that front-ends have sent. It frames their requests, hands them to the data plane and keeps what
//! the next data plane needs (`docs/supervisor.md`).
//!
//! One `epoll` loop, which never waits for the data plane, a front-end or a client. It maps no
//! guest's memory and reads no payload.

mod bridges;
mod changes;
mod clients;
mod data_planes;
mod front_ends;
mod guests;
mod planes;
mod ports;
mod processes;
mod questions;
mod record;
pub mod run;
mod setup;
mod stores;
mod timers;

use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::bail;
use ringway_host::{Events, Poller};
use ringway_supervisor::wire::ToData;
use tracing::{error, info};

use crate::config::reload::Reload;
use crate::config::{RunConfig, Settings};
use crate::control::{PROTOCOL_VERSION, StopReply, refusal, reply_line};
use crate::spec_text;
use bridges::Bridges;
use bridges::departed::LeftStations;
use bridges::neighbours::Neighbours;
use clients::control_client::ClientId;
use clients::control_clients::LINES_PER_TURN;
use clients::control_socket::ControlSocket;
use clients::requests::{ControlCommand, Refused};
use planes::Planes;
use planes::order::{Order, ReloadReport, Requester};
use ports::Ports;
use processes::descriptors::explained;
use processes::replace::Programs;
use questions::{About, Questions};
use setup::Setup;
use setup::os::Os;
use setup::reload::{Reloading, Reloads};
use setup::surroundings::Surroundings;
use setup::wake::Wake;
use stores::Stores;
use stores::added_ports::AddedPorts;
use stores::fd_store::FdStore;
use stores::station_file::StationFile;
use stores::write_down::View;
use timers::{TIMERS, Timer, next_due};

/// Events handled per turn of the loop.
const EVENTS_MAX: usize = 64;

/// How long guests may read that their link is down before the daemon ends.
const LINK_DOWN_GRACE: Duration = Duration::from_millis(200);

/// How often is looked whether what is owed has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Longest wait for the data plane at the end.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Why a supervisor does not serve any more.
enum Ending {
    Stop,
    /// Another program takes its place.
    Replace,
}

/// The running supervisor: parts that do not know each other, each with its own fields. In here
/// one's news is handed to the next.
pub struct Supervisor {
    os: Os,
    setup: Setup,
    ports: Ports,
    control: ControlSocket,
    planes: Planes,
    programs: Programs,
    questions: Questions,
    reloads: Reloads,
    bridges: Bridges,
    surroundings: Surroundings,
    stores: Stores,
}

impl Supervisor {
    /// One without ports and without a data plane.
    fn new(
        setup: Setup,
        poller: Rc<Poller>,
        control: ControlSocket,
        planes: Planes,
    ) -> anyhow::Result<Self> {
        let os = Os::new(poller, setup.file.as_deref())?;
        os.poller.add(control.as_fd(), Wake::Control.token())?;
        os.poller.add(planes.journal.bell(), Wake::WorkerEnd.token())?;
        let ports = Ports::new(&os)?;
        let bridges = Bridges { departed: LeftStations::new(), neighbours: Neighbours::new() };
        let fds = FdStore::of_environment(vec![]);
        let (added, stations) = (AddedPorts::of_environment(), StationFile::default());
        Ok(Self {
            os,
            setup,
            ports,
            control,
            planes,
            programs: Programs::new()?,
            questions: Questions::default(),
            reloads: Reloads::default(),
            bridges,
            surroundings: Surroundings::new(true),
            stores: Stores { fds, added, stations },
        })
    }

    /// Until the first data plane serves all ports.
    fn wait_for_the_first(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        while !self.planes.has_begun() {
            if !self.turn(&mut events, Some(LOOK_EVERY))? {
                bail!("stopped by a signal");
            }
            if let Some(why) = self.planes.why_ended.take() {
                bail!("{why}");
            }
        }
        Ok(())
    }

    /// Serves until a signal asks to stop, or another program is to take its place.
    ///
    /// # Errors
    /// Waiting failed.
    fn serve(&mut self) -> anyhow::Result<Ending> {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            if self.os.is_to_stop {
                info!("stopping: ringway stop");
                return Ok(Ending::Stop);
            }
            self.run_due();
            self.bridges.neighbours.tell(&self.ports);
            if let Some(reloading) = self.reloads.take_finished(Instant::now()) {
                let reply = reloading.reply(&self.ports.of_file(), &self.setup);
                self.control.answer_client(reloading.client, &reply);
            }
            if !self.turn(&mut events, None)? {
                info!("stopping");
                return Ok(Ending::Stop);
            }
            if self.ports.is_over() {
                info!("stopping: the front-end that it was given has gone");
                return Ok(Ending::Stop);
            }
            if self.is_to_be_replaced() {
                return Ok(Ending::Replace);
            }
        }
    }

    /// One wait and everything it brought; `false`: a signal asked to stop.
    fn turn(&mut self, events: &mut Events, at_most: Option<Duration>) -> anyhow::Result<bool> {
        self.end_closing();
        self.look_after_planes();
        self.stores.fds.give_sign_of_life();
        self.store();
        self.stores.added.keep(&self.ports);
        let soonest = next_due(self);
        let until = soonest.map(|at| at.saturating_duration_since(Instant::now()));
        let timeout = until.into_iter().chain(at_most).min();
        self.os.poller.wait(events, timeout)?;
        for event in events.iter() {
            match Wake::from_token(event.token) {
                Some(Wake::Signal) => {
                    self.os.heed(Wake::Signal);
                    return Ok(false);
                }
                Some(Wake::Reload) if !self.planes.is_holding() => {
                    self.os.heed(Wake::Reload);
                    // There is no file to read again: its terminal was closed.
                    if self.setup.file.is_none() {
                        return Ok(false);
                    }
                    self.stores.fds.tell(&stores::fd_store::reloading());
                    if let Err(errors) = self.reload(&Rc::default()) {
                        errors.iter().for_each(|why| error!("{why}"));
                        error!("{}: nothing has changed", self.setup.shown_file());
                    }
                    self.stores.fds.tell("READY=1");
                }
                Some(Wake::Bell) => drop(self.os.bell.drain()),
                Some(Wake::Control) => self.control.accept(),
                Some(Wake::ControlClient(client)) => self.serve_client(client as usize),
                Some(Wake::Listener(port)) => self.accept(port),
                Some(Wake::Link(port)) => self.serve_link(port),
                Some(Wake::Plane(plane)) => self.hear_plane(plane),
                Some(Wake::PlaneEnd(plane)) => self.on_plane_end(plane),
                Some(Wake::WorkerEnd) => self.on_worker_end(),
                Some(Wake::Child) => {
                    self.os.heed(Wake::Child);
                    self.planes.doubt();
                }
                Some(Wake::Reload) | None => {}
            }
        }
        Ok(true)
    }

    /// Does everything that is due.
    fn run_due(&mut self) {
        for Timer { at, act } in &TIMERS {
            // Asked behind it: what is to be done at once is due at the time of the question.
            if at(self).is_some_and(|at| at <= Instant::now()) {
                act(self);
            }
        }
    }

    /// A client has sent something, or can take more.
    fn serve_client(&mut self, slot: usize) {
        self.control.receive(slot);
        for _ in 0..LINES_PER_TURN {
            let Some((client, line)) = self.control.next_question(slot) else { break };
            let command = ControlCommand::read(&line, &self.ports, &self.setup);
            if let Err(why) = command.and_then(|command| self.carry_out_command(client, command)) {
                why.iter().for_each(|why| self.control.say_refused(why));
                self.control.answer_client(client, &refusal(&why));
            }
        }
        self.control.end_turn(slot);
    }

    /// Carries out a client's command, which is answered now or later.
    fn carry_out_command(
        &mut self,
        client: ClientId,
        command: ControlCommand,
    ) -> Result<(), Refused> {
        let asked = Requester { client: Some(client), ..Requester::default() };
        let all = |why: anyhow::Error| vec![explained(&why)];
        match command {
            ControlCommand::Ask(about) => {
                if matches!(about, About::Stats) {
                    self.ports.see_bridges_of_taps();
                }
                self.questions.ask(client, about);
            }
            ControlCommand::Add(spec, source) => {
                self.open_port(*spec, source, asked).map_err(all)?
            }
            ControlCommand::Remove(id) => self.remove_port(id, asked),
            ControlCommand::Change(id, spec) => {
                let from_file = self.ports.get(&id).and_then(|port| port.from_file.clone());
                self.change_port(id, *spec, from_file, asked).map_err(all)?;
            }
            ControlCommand::Reload => self.begin_reload(client)?,
            ControlCommand::Stop => self.begin_stop(client)?,
            ControlCommand::Upgrade(program) => self.begin_upgrade(client, program.as_deref())?,
        }
        Ok(())
    }

    /// A client asks for the end. A service manager might start it again at once.
    fn begin_stop(&mut self, client: ClientId) -> Result<(), Refused> {
        if self.stores.fds.is_of_service() {
            let advice = "systemctl stop ringway, with --user if it is a user's";
            return Err(vec![format!("a service manager runs it: {advice}")]);
        }
        let (version, pid) = (PROTOCOL_VERSION, std::process::id());
        self.control.answer_client(client, &reply_line(&StopReply { version, ok: true, pid }));
        self.os.is_to_stop = true;
        Ok(())
    }

    /// A client asks to read the file again.
    fn begin_reload(&mut self, client: ClientId) -> Result<(), Refused> {
        if self.reloads.is_any() {
            return Err(vec!["the file is just being carried out: reload once more".to_owned()]);
        }
        let (ports, settings) = (self.ports.of_file(), self.setup.settings.clone());
        let report = Rc::default();
        self.reload(&report)?;
        let since = Instant::now();
        self.reloads.reloading = Some(Reloading { client, report, ports, settings, since });
        Ok(())
    }

    /// Reads the file again, and begins to carry out what it says otherwise; the report says what
    /// cannot be.
    ///
    /// # Errors
    /// Everything that is wrong with it; nothing has changed then.
    fn reload(&mut self, report: &Rc<ReloadReport>) -> Result<(), Refused> {
        let RunConfig { ports, settings, .. } = self.reloads.read(&self.setup, &self.ports)?;
        let asked = Requester::by(report);
        self.stores.added.is_changed |= self.ports.adopt(&ports, &asked);
        let mut reload = Reload::new(ports);
        while let Some(step) = reload.next(&self.ports.running()) {
            self.carry_out_step(step, &asked);
        }
        self.change_settings(settings, &asked);
        info!("{}: read again", self.setup.shown_file());
        Ok(())
    }

    fn change_settings(&mut self, mut settings: Settings, asked: &Requester) {
        self.setup.keep_what_stays(&mut settings, asked);
        if settings == self.setup.settings {
            return;
        }
        let told = spec_text::settings(&settings, self.setup.workers, self.ports.has_routers());
        if let Some(plane) = self.planes.loaded() {
            plane.tell(&ToData::Config { settings: told }, vec![]);
        }
        let moved = self.control.follow(&settings);
        self.setup.follow(settings, moved, asked);
    }

    /// Everything is kept by the service manager, if it can; for a supervisor that goes on when
    /// this process was killed, with another data plane.
    fn store(&mut self) {
        if self.stores.fds.has_store() {
            let mut store = std::mem::take(&mut self.stores.fds);
            View::of(self).store(&mut store);
            self.stores.fds = store;
        }
    }

    /// This machine's resolvers and routes are looked at, and routers hear of what is new.
    fn look_around(&mut self) {
        let (ports, identity) = (&mut self.ports, &self.setup.identity);
        self.stores.stations.write(ports, identity, false);
        for id in self.surroundings.look(ports, identity) {
            self.tell_router(id);
        }
    }

    /// Tells guests that the link is down, gives them a moment, and closes everything.
    pub fn shut_down(mut self) {
        self.programs.stop_check();
        self.stores.fds.tell("STOPPING=1");
        self.stores.fds.keep_only(&[]);
        self.stores.fds.store_nothing();
        let begun = Instant::now();
        let mut events = Events::with_capacity(EVENTS_MAX);
        let message = |order| ToData::LinksDown { order };
        if self.ports.any_linked() && self.planes.order(Order::LinksDown, message, vec![]) {
            let is_over = |this: &Self| {
                let is_waiting = match this.planes.links_down {
                    None => begun.elapsed() < LAST_WAIT,
                    Some(is_told) => is_told && begun.elapsed() < LINK_DOWN_GRACE,
                };
                !is_waiting || !this.ports.any_linked()
            };
            // A second signal means: now.
            while !is_over(&self)
                && matches!(self.turn(&mut events, Some(LOOK_EVERY / 10)), Ok(true))
            {}
        }
        for id in self.ports.ids() {
            self.drop_link(id, None);
        }
        self.bridges.neighbours.take_along();
        self.stores.stations.write(&mut self.ports, &self.setup.identity, true);
        self.planes.finish(LAST_WAIT);
    }
}
