//! Ports change and go, and orders of the data plane are done, or settled without it.

use std::collections::BTreeMap;
use std::time::Duration;

use ringway_supervisor::changes::Change;
use ringway_supervisor::front_ends::Event;
use ringway_supervisor::wire::ToData;

use super::Machine;
use super::plane::Order;

const LINK_DOWN_GRACE: Duration = Duration::from_millis(200);

impl Machine {
    pub fn remove_port(&mut self, id: u16, client: Option<u32>) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let grace = if port.link.is_some() { LINK_DOWN_GRACE } else { Duration::ZERO };
        port.leaves_at = Some(self.now + grace);
        port.queue = 0;
        self.happens_at(id, Event::Close);
        let message = |order| ToData::Remove { order, port: id };
        if !self.order(Order::Remove { port: id, client }, message, &[]) {
            client.into_iter().for_each(|client| self.answers(client));
        }
        self.finish_leaving_ports();
    }

    pub fn finish_leaving_ports(&mut self) {
        let now = self.now;
        for id in self.ports_of(|port| port.leaves_at.is_some_and(|at| at <= now)) {
            self.finish_leaving(id);
        }
    }

    pub fn finish_leaving(&mut self, id: u16) {
        if self.ports.get(&id).is_some_and(|port| port.link.is_some()) {
            return self.drop_link(id, None);
        }
        if let Some(port) = self.ports.remove(&id) {
            self.restarts.release(id);
            port.asked.into_iter().for_each(|client| self.answers(client));
        }
    }

    /// Gives a port another value; an even one is a link that is up.
    pub fn change_port(&mut self, id: u16, value: u8, client: Option<u32>) {
        let Some(port) = self.ports.get_mut(&id) else { return };
        let before = port.spec.clone();
        port.spec.value = value;
        let spec = port.spec.clone();
        let from_file = match client {
            Some(_) => port.from_file.clone(),
            None => port.from_file.replace(spec.clone()),
        };
        if value.is_multiple_of(2) {
            self.release(id);
        }
        let (name, is_of_file) = (before.name.clone(), client.is_none());
        let change = Change { port: id, name, before, from_file, is_of_file };
        let message = |order| ToData::Change { order, port: id, spec: spec.told() };
        if !self.order(Order::Change { change, client }, message, &[]) {
            client.into_iter().for_each(|client| self.answers(client));
        }
    }

    pub fn finish(&mut self, order: Order, is_told: bool, is_closing: bool, is_refused: bool) {
        match order {
            Order::Open { client, .. } => {
                client.into_iter().for_each(|client| self.answers(client));
            }
            Order::Change { change, client } => self.changed(change, client, is_refused),
            Order::Remove { port, client } => {
                client.into_iter().for_each(|client| self.answers(client));
                if !is_told && self.ports.get(&port).is_some_and(|it| it.leaves_at.is_some()) {
                    self.finish_leaving(port);
                }
            }
            Order::Link { port } => {
                if is_refused {
                    self.drop_link(port, None);
                }
            }
            Order::Unlink { port } => self.happens_at(port, Event::PlaneCloses(is_closing)),
        }
    }

    fn changed(&mut self, change: Change<super::Spec>, client: Option<u32>, is_refused: bool) {
        if is_refused {
            let (id, name) = (change.port, change.name.clone());
            let plane = self.serving().and_then(|number| self.planes.get_mut(&number));
            let orders = plane.into_iter().flat_map(|plane| plane.orders.values_mut());
            let later = orders.filter_map(|order| match order {
                Order::Change { change, .. } => Some(change),
                _ => None,
            });
            let undo = change.is_refused(later.filter(|later| later.is_of(id, &name)));
            if let Some(port) = self.ports.get_mut(&id).filter(|port| port.spec.name == name) {
                undo.apply(&mut port.spec, &mut port.from_file);
            }
        }
        client.into_iter().for_each(|client| self.answers(client));
    }

    /// Settles orders: the next data plane is told of them with everything else.
    pub fn settle_orders(&mut self, orders: BTreeMap<u32, Order>) {
        for order in orders.into_values() {
            match order {
                Order::Open { port, client } => {
                    // Another port may have its number by now.
                    let asked = self.ports.get_mut(&port).map(|port| &mut port.asked);
                    let before = asked.map_or(client, |asked| std::mem::replace(asked, client));
                    before.into_iter().for_each(|client| self.answers(client));
                }
                Order::Change { client, .. } | Order::Remove { client, .. } => {
                    client.into_iter().for_each(|client| self.answers(client));
                }
                Order::Unlink { .. } | Order::Link { .. } => {}
            }
        }
        for id in self.ports.keys().copied().collect::<Vec<_>>() {
            self.happens_at(id, Event::PlaneCloses(false));
            if self.ports.get(&id).is_some_and(|port| port.leaves_at.is_some()) {
                self.finish_leaving(id);
            }
        }
    }
}
