//! Ports come, change and go: the supervisor's part at once, and an order to the data plane.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;
use ringway_supervisor::changes::Change;
use ringway_supervisor::front_ends::Event;
use ringway_supervisor::wire::ToData;
use ringway_switch::PortId;
use serde_json::{Map, Value};
use tracing::{error, info, warn};

use super::planes::order::{Order, OrderOutcome, Requester};
use super::ports::forward_sockets::ForwardSockets;
use super::ports::port::{SupervisedPort, TOO_MANY};
use super::processes::descriptors::explained;
use super::setup::source::PortSource;
use super::stores::added_ports::{again, name_of};
use super::{LINK_DOWN_GRACE, Supervisor};
use crate::config::reload::ReloadStep;
use crate::config::{PortKind, PortSpec};
use crate::{socket_reach, spec_text};

/// QEMU, for one, does not read a network card's configuration again.
const CANNOT_TELL: &str =
    "its front-end cannot tell the guest, which sees no change of its carrier";

impl Supervisor {
    /// The ports that were there when ringway ended, beside those of the configuration, which count
    /// more.
    pub(super) fn open_added(&mut self) {
        for object in self.stores.added.recall_all() {
            if let Err(why) = self.open_again(&object) {
                let name = name_of(&object);
                warn!(port = name, "it was added, and is not there any more: {why:#}");
                self.stores.added.unopened.push(object);
            }
        }
        self.stores.added.is_changed = true;
    }

    fn open_again(&mut self, object: &Map<String, Value>) -> anyhow::Result<()> {
        let Some(spec) = again(object, &self.ports, &self.setup)? else { return Ok(()) };
        let id = self.ports.free_id().context(TOO_MANY)?;
        let name = spec.name.clone();
        let mut port = SupervisedPort::new(spec, None);
        port.source = PortSource::Added;
        // Its interface may come later: it is kept, as a port of the configuration would be.
        if self.open_or_keep(id, port, &Requester::default()) {
            info!(port = name, "added before ringway was started again");
        }
        Ok(())
    }

    /// Opens a port of the configuration. If that fails it is kept, with the reason.
    pub(super) fn open_configured(&mut self, spec: PortSpec, asked: &Requester) {
        let from_file = self.setup.file.is_some().then(|| spec.clone());
        let Some(id) = self.ports.free_id() else {
            error!(port = spec.name, "{TOO_MANY}");
            return asked.has_failed(|| format!("port {} does not work: {TOO_MANY}", spec.name));
        };
        let port = SupervisedPort::new(spec, from_file);
        asked.warns(self.setup.warn_of_shared_mac(&port.spec, &self.ports));
        if let Some(why) = socket_reach::barrier(&port.spec) {
            warn!(port = port.spec.name, "{why}");
            asked.warns([format!("port {}: {why}", port.spec.name)]);
        }
        self.open_or_keep(id, port, asked);
    }

    /// `false`: it cannot be opened, and is kept with the reason.
    fn open_or_keep(&mut self, id: PortId, mut port: SupervisedPort, asked: &Requester) -> bool {
        let opened = self.open_end(id, &mut port);
        if let Err(why) = &opened {
            let (name, why) = (&port.spec.name, explained(why));
            error!(port = name, "{why}");
            asked.has_failed(|| format!("port {name} does not work: {why}"));
            port.failure = Some(why);
        }
        self.ports.insert(id, port);
        if opened.is_ok() {
            self.order_open(id, asked.clone());
        }
        opened.is_ok()
    }

    /// Opens a port that was asked for.
    ///
    /// # Errors
    /// It cannot be opened; nothing is left of it.
    pub(super) fn open_port(
        &mut self,
        spec: PortSpec,
        source: PortSource,
        mut asked: Requester,
    ) -> anyhow::Result<()> {
        let id = self.ports.free_id().context(TOO_MANY)?;
        let mut port = SupervisedPort::new(spec, None);
        port.source = source;
        self.open_end(id, &mut port)?;
        asked.warnings = self.setup.warnings_about(&port.spec, &self.ports);
        self.ports.insert(id, port);
        self.stores.added.is_changed = true;
        self.order_open(id, asked);
        Ok(())
    }

    pub(super) fn open_end(&mut self, id: PortId, port: &mut SupervisedPort) -> anyhow::Result<()> {
        self.surroundings.choose_network(&port.spec, &mut self.setup.identity);
        let is_start = !self.planes.is_begun();
        self.setup.open_end(id, port, &self.os.poller, is_start)
    }

    /// The data plane is told of a port. Without a data plane the next one will be.
    pub(super) fn order_open(&mut self, id: PortId, asked: Requester) {
        if self.opens_first_router(id, &asked) {
            return;
        }
        let Some(port) = self.ports.get_mut(&id) else { return };
        let (spec, identity) = (&port.spec, &self.setup.identity);
        let Ok(spec) = spec_text::port(spec, port.tap.name(), identity) else { return };
        let message = |order| ToData::Port { order, port: id.0, spec: spec.clone() };
        let order = Order::Open { port: id, asked: asked.clone() };
        if !self.planes.order(order, message, port.sent()) {
            port.asked = Some(asked);
        }
    }

    /// A router was added, and the data plane may open no sockets: another one is started, which
    /// gets the port with all others. `false`: it can be told as usual.
    fn opens_first_router(&mut self, id: PortId, asked: &Requester) -> bool {
        let is_router = self.ports.get(&id).is_some_and(|port| port.spec.kind == PortKind::Nat);
        let is_sandboxed = self.setup.settings.sandbox;
        let may_not = self.planes.loaded().is_some_and(|plane| !plane.may_route);
        if !(is_router && is_sandboxed && may_not) {
            return false;
        }
        // One that was begun for another router gets this one, too.
        let begun = if self.planes.succession.is_renewing() { Ok(()) } else { self.renew_plane() };
        match begun {
            Ok(()) => {
                if let Some(port) = self.ports.get_mut(&id) {
                    port.asked = Some(asked.clone());
                }
            }
            Err(why) => {
                let done = OrderOutcome::of(Some(format!("{why:#}")));
                self.finish(Order::Open { port: id, asked: asked.clone() }, &done);
            }
        }
        true
    }

    /// The data plane that was started for a router serves, or has failed.
    pub(super) fn answer_routers(&mut self, why: Option<&str>) {
        for port in self.ports.ids() {
            let asked = self.ports.get_mut(&port).and_then(|port| port.asked.take());
            let Some(asked) = asked else { continue };
            let done = OrderOutcome::of(why.map(str::to_owned));
            self.finish(Order::Open { port, asked }, &done);
        }
    }

    /// Taps whose time has come are opened again.
    pub(super) fn reopen_due_taps(&mut self) {
        for id in self.ports.reopen_due_taps(self.setup.workers, Instant::now()) {
            self.order_open(id, Requester::default());
        }
    }

    /// Removes a port; a connected guest is told first, and has a moment to see it.
    pub(super) fn remove_port(&mut self, id: PortId, asked: Requester) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        info!(port = port.spec.name, "removed");
        if let Some(asked) = port.asked.take() {
            let name = &port.spec.name;
            asked.is_refused(&mut self.control, name, "it was removed before it was open");
        }
        self.stores.added.is_changed = true;
        let grace = if port.is_linked() { LINK_DOWN_GRACE } else { Duration::ZERO };
        port.leaves_at = Some(Instant::now() + grace);
        port.sockets = ForwardSockets::default();
        self.happens_at(id, Event::Close);
        if let Some(vm) = self.ports.vm(id) {
            vm.close();
        }
        let message = |order| ToData::Remove { order, port: id.0 };
        let order = Order::Remove { port: id, asked: asked.clone() };
        if !self.planes.order(order, message, vec![]) {
            asked.is_answered(&mut self.control, false);
        }
        self.finish_leaving_ports();
    }

    /// Gives a port other options; its kind stays. `from_file`: as the file had it before.
    ///
    /// # Errors
    /// The operating system refuses; then nothing has changed.
    pub(super) fn change_port(
        &mut self,
        id: PortId,
        spec: PortSpec,
        from_file: Option<PortSpec>,
        mut asked: Requester,
    ) -> anyhow::Result<()> {
        self.surroundings.choose_network(&spec, &mut self.setup.identity);
        let told = spec_text::port(&spec, None, &self.setup.identity)?;
        self.stores.added.is_changed = true;
        let port = self.ports.get_mut(&id).context("the port is gone")?;
        let before = port.change(spec, &self.setup.identity)?;
        let now = port.spec.clone();
        self.setup.warn_of_change(&now, &before, &self.ports, &mut asked);
        if now.is_link_up {
            self.release(id);
        }
        let message = |order| ToData::Change { order, port: id.0, spec: told.clone() };
        let order = Order::change(id, before, from_file, asked.clone());
        let Some(port) = self.ports.get_mut(&id) else { return Ok(()) };
        let sockets = port.sockets.sent().collect();
        if port.failure.is_some() || !self.planes.order(order, message, sockets) {
            port.close_other_sockets();
            asked.is_answered(&mut self.control, false);
        }
        Ok(())
    }

    /// A step of a file that is read again.
    pub(super) fn carry_out_step(&mut self, step: ReloadStep, asked: &Requester) {
        match step {
            ReloadStep::Remove(number) => self.remove_port(PortId(number), Requester::default()),
            ReloadStep::GiveUp { number, spec, from_file } => {
                self.give_up(PortId(number), *spec, from_file.map(|it| *it), asked);
            }
            ReloadStep::BringAbout(spec) => self.bring_about(*spec, asked),
        }
    }

    /// A router gives up places that others get, so that these find them free. `left`: as the file
    /// has it from then on.
    fn give_up(&mut self, id: PortId, spec: PortSpec, left: Option<PortSpec>, asked: &Requester) {
        let from_file = self.ports.get(&id).and_then(|port| port.from_file.clone());
        // An error here hinders the whole change, too, which says so.
        let is_done = self.change_port(id, spec, from_file, asked.clone()).is_ok();
        let Some(port) = self.ports.get_mut(&id) else { return };
        if is_done {
            port.from_file = left;
        }
        port.close_other_sockets();
    }

    /// A port that is there gets the file's options if those have changed; others are opened.
    fn bring_about(&mut self, spec: PortSpec, asked: &Requester) {
        let name = spec.name.clone();
        let id = self.ports.find(&name);
        let Some((id, port)) = id.and_then(|id| Some((id, self.ports.get_mut(&id)?))) else {
            return self.open_configured(spec, asked);
        };
        if port.spec.kind != spec.kind {
            let kind = port.spec.kind.to_string();
            if let Err(why) = self.move_port(id, spec, asked) {
                asked.is_told_of(&name, &format!("stays {kind}: {}", explained(&why)));
            }
            return;
        }
        let before = port.from_file.replace(spec.clone());
        if before.as_ref() == Some(&spec) {
            return;
        }
        if let Err(why) = self.change_port(id, spec, before.clone(), asked.clone()) {
            asked.is_told_of(&name, &format!("stays as it was: {}", explained(&why)));
            // The next time it may be possible, so the file still says something new.
            if let Some(port) = self.ports.get_mut(&id) {
                port.from_file = before;
            }
        }
    }

    /// Opens a port of the configuration that leads elsewhere than the one of its name, which goes
    /// then.
    ///
    /// # Errors
    /// It cannot be opened; the other one stays.
    fn move_port(&mut self, from: PortId, spec: PortSpec, asked: &Requester) -> anyhow::Result<()> {
        let id = self.ports.free_id().context(TOO_MANY)?;
        let mut port = SupervisedPort::new(spec.clone(), Some(spec));
        self.open_end(id, &mut port)?;
        self.remove_port(from, Requester::default());
        self.ports.insert(id, port);
        self.order_open(id, asked.clone());
        Ok(())
    }

    /// A router hears of this machine's resolvers with its options.
    pub(super) fn tell_router(&mut self, id: PortId) {
        let Some(port) = self.ports.get(&id) else { return };
        let Ok(spec) = spec_text::port(&port.spec, None, &self.setup.identity) else { return };
        let message = |order| ToData::Change { order, port: id.0, spec: spec.clone() };
        let (before, from_file) = (port.spec.clone(), port.from_file.clone());
        let order = Order::change(id, before, from_file, Requester::default());
        self.planes.order(order, message, port.sockets.sent().collect());
    }

    /// An order is done.
    pub(super) fn finish(&mut self, order: Order, done: &OrderOutcome) {
        self.stores.added.is_changed |= done.refusal.is_some();
        match order {
            Order::Open { port, asked } => self.opened(port, &asked, done),
            Order::Change { change, asked } => self.changed(*change, asked, done),
            Order::Remove { port, asked } => {
                asked.is_answered(&mut self.control, false);
                if !done.is_told && self.ports.get(&port).is_some_and(SupervisedPort::is_leaving) {
                    self.finish_leaving(port);
                }
            }
            Order::Link { port } => {
                if let Some(why) = &done.refusal {
                    self.ports.complain(port, format_args!("link: {why}"));
                    self.drop_link(port, None);
                }
            }
            Order::Unlink { port } => {
                self.happens_at(port, Event::PlaneCloses(done.is_closing));
            }
            Order::LinksDown => self.planes.links_down = Some(done.is_told),
        }
    }

    fn opened(&mut self, id: PortId, asked: &Requester, done: &OrderOutcome) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(why) = &done.refusal else {
            port.note_serving();
            return asked.is_answered(&mut self.control, false);
        };
        let name = port.spec.name.clone();
        if asked.client.is_some() {
            self.drop_link(id, None);
            self.finish_leaving(id);
            return asked.is_refused(&mut self.control, &name, why);
        }
        error!(port = name, "{why}");
        asked.has_failed(|| format!("port {name} does not work: {why}"));
        port.fail(why.clone());
    }

    fn changed(&mut self, change: Change<PortSpec>, mut asked: Requester, done: &OrderOutcome) {
        let (number, name) = (change.port, change.name.clone());
        let was_up = change.before.is_link_up;
        // Its number may be another port's by now.
        let port = self.ports.get_mut(&PortId(number));
        let mut port = port.filter(|port| port.spec.name == name);
        let is_silent =
            port.as_ref().is_some_and(|it| it.is_linked() && it.spec.is_link_up != was_up);
        // The sockets that it leaves may be those that the next change goes back to.
        let is_last = self.planes.changes(number, &name).next().is_none();
        if done.refusal.is_some() {
            let undo = change.is_refused(self.planes.changes(number, &name));
            if let Some(port) = &mut port {
                port.take_back(undo, &self.setup.identity);
            }
        }
        if let Some(port) = port.filter(|_| is_last) {
            port.close_other_sockets();
        }
        if let Some(why) = &done.refusal {
            return asked.is_refused(&mut self.control, &name, why);
        }
        info!(port = name, "changed");
        if is_silent && !done.is_told {
            asked.warnings.push(CANNOT_TELL.to_owned());
        }
        asked.is_answered(&mut self.control, done.is_told);
    }

    /// Settles orders: the next data plane is told of them with everything else.
    pub(super) fn settle_orders(&mut self, orders: BTreeMap<u32, Order>) {
        for order in orders.into_values() {
            match order {
                Order::Open { port, asked } => {
                    if let Some(port) = self.ports.get_mut(&port) {
                        port.asked = Some(asked);
                    }
                }
                Order::Change { asked, .. } | Order::Remove { asked, .. } => {
                    asked.is_answered(&mut self.control, false);
                }
                Order::Unlink { .. } | Order::Link { .. } => {}
                Order::LinksDown => self.planes.links_down = Some(false),
            }
        }
        for id in self.ports.ids() {
            self.happens_at(id, Event::PlaneCloses(false));
            let Some(port) = self.ports.get_mut(&id) else { continue };
            port.close_other_sockets();
            if port.is_leaving() {
                self.finish_leaving(id);
            }
        }
    }
}
