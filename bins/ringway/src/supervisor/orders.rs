//! Orders to the data plane, and what follows when they are done.

use ringway_supervisor::front_ends::Event;
use ringway_supervisor::wire::ToData;
use ringway_switch::PortId;
use tracing::{error, info, warn};

use super::Supervisor;
use super::order::{Order, OrderOutcome, Requester};
use super::plane::{OutgoingFd, Plane};
use super::ports::Port;
use crate::config::PortSpec;
use crate::control::{ChangeReply, PROTOCOL_VERSION, refusal, reply_line};

/// QEMU, for one, does not read a network card's configuration again.
const CANNOT_TELL: &str =
    "its front-end cannot tell the guest, which sees no change of its carrier";

impl Supervisor {
    /// Gives an order to that data plane.
    pub(super) fn order(
        plane: &mut Plane,
        number: &mut u32,
        order: Order,
        (message, fds): (impl FnOnce(u32) -> ToData, Vec<OutgoingFd>),
    ) {
        *number = number.wrapping_add(1);
        plane.orders.insert(*number, order);
        plane.tell(&message(*number), fds);
    }

    /// Gives an order to the running data plane, and to the one that is to follow it if that has
    /// all that there is; without any the next one gets everything. `false`: there is none.
    pub(super) fn order_now(
        &mut self,
        order: Order,
        message: impl Fn(u32) -> ToData,
        fds: Vec<OutgoingFd>,
    ) -> bool {
        if let Some(next) = self.planes.loaded_next() {
            let unasked = order.clone().unasked();
            Self::order(next, &mut self.next_order, unasked, (&message, fds.clone()));
        }
        let Some(plane) = self.planes.loaded() else { return false };
        Self::order(plane, &mut self.next_order, order, (message, fds));
        true
    }

    /// An order is done.
    pub(super) fn finish(&mut self, order: Order, done: &OrderOutcome) {
        self.added.is_changed |= done.refusal.is_some();
        match order {
            Order::Open { port, asked } => self.opened(port, asked, done),
            Order::Change { port, before, from_file, mut asked } => {
                // The sockets that it leaves may be those that the next change goes back to.
                let is_last = self.later_change(port, &before.name).is_none();
                if done.refusal.is_some() {
                    self.take_back(port, (*before).clone(), from_file.map(|spec| *spec));
                }
                if is_last {
                    self.close_other_sockets(port);
                }
                if let Some(why) = &done.refusal {
                    return self.refuse_change(port, &asked, why);
                }
                info!(port = self.name(port), "changed");
                let is_silent = self.ports.get(&port).is_some_and(|port| {
                    port.is_linked() && port.spec.is_link_up != before.is_link_up
                });
                if is_silent && !done.is_told {
                    asked.warnings.push(CANNOT_TELL.to_owned());
                }
                self.changed(&asked, done.is_told);
            }
            Order::Remove { port, asked } => {
                self.changed(&asked, false);
                if !done.is_told && self.ports.get(&port).is_some_and(Port::is_leaving) {
                    self.finish_leaving(port);
                }
            }
            Order::Link { port } => {
                if let Some(why) = &done.refusal {
                    self.complain(port, format_args!("link: {why}"));
                    self.drop_link(port, None);
                }
            }
            Order::Unlink { port } => {
                self.happens_at(port, Event::PlaneCloses(done.is_closing));
            }
            Order::LinksDown => self.links_down = Some(done.is_told),
        }
    }

    /// A change of that port that was ordered later, and is not done yet.
    fn later_change(&mut self, id: PortId, name: &str) -> Option<&mut Order> {
        let is_it = |order: &&mut Order| match order {
            Order::Change { port, before, .. } => *port == id && before.name == name,
            _ => false,
        };
        self.planes.serving()?.orders.values_mut().find(is_it)
    }

    /// The data plane has refused a change: everything is as before. Where another one was ordered
    /// meanwhile, that decides, and goes back behind both if it is refused, too.
    fn take_back(&mut self, id: PortId, before: PortSpec, from_file: Option<PortSpec>) {
        if let Some(Order::Change { before: its, from_file: its_file, asked, .. }) =
            self.later_change(id, &before.name)
        {
            let is_of_file = asked.client.is_none();
            (**its, *its_file) = (before, from_file.clone().map(Box::new));
            if let Some(port) = self.ports.get_mut(&id).filter(|_| !is_of_file) {
                port.from_file = from_file;
            }
            return;
        }
        // Its number may be another port's by now.
        let port = self.ports.get_mut(&id).filter(|port| port.spec.name == before.name);
        let Some(port) = port else { return };
        let refused = std::mem::replace(&mut port.spec, before);
        let _ = Self::change_end(port, &refused);
        if port.from_file.is_some() {
            // The next time it may be possible, so the file still says something new.
            port.from_file = from_file;
        }
        if let Some(vm) = &mut port.vm {
            vm.mac = self.identity.mac_of(&port.spec);
        }
    }

    fn opened(&mut self, id: PortId, asked: Requester, done: &OrderOutcome) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let Some(why) = &done.refusal else {
            if port.is_new() {
                info!(port = port.spec.name, "open: {}", port.spec.kind);
            }
            port.is_served = true;
            port.tap.is_reopened(&port.spec.name);
            return self.changed(&asked, false);
        };
        if asked.client.is_some() {
            if let Some(port) = self.ports.remove(&id) {
                self.close_port(&port);
            }
            return self.refuse_change(id, &asked, why);
        }
        let name = &port.spec.name;
        error!(port = name, "{why}");
        asked.has_failed(|| format!("port {name} does not work: {why}"));
        port.fail(why.clone());
    }

    /// A change was carried out: who asked for it is told.
    pub(super) fn changed(&mut self, asked: &Requester, guest_told: bool) {
        let late = &asked.at_next_connection;
        let Some(client) = asked.client else { return };
        let reply = ChangeReply {
            version: PROTOCOL_VERSION,
            ok: true,
            guest_told,
            at_next_connection: late.iter().map(ToString::to_string).collect(),
            warnings: asked.warnings.clone(),
        };
        self.answer_client(client, &reply_line(&reply));
    }

    fn refuse_change(&mut self, id: PortId, asked: &Requester, why: &str) {
        let Some(client) = asked.client else {
            let name = self.name(id);
            error!(port = name, "{why}");
            return asked.has_failed(|| format!("port {name} stays as it was: {why}"));
        };
        self.control.chatter.say_of(None, || warn!("refused: {why}"));
        self.answer_client(client, &refusal(&[why.to_owned()]));
    }
}
