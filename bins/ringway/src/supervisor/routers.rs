//! The supervisor's part in routers: it tells them this machine's resolvers, and sees to it that
//! there is a data plane that may open sockets.

use std::time::{Duration, Instant};

use ringway_nat::Plan;
use ringway_supervisor::wire::ToData;
use ringway_switch::PortId;

use super::Supervisor;
use super::order::{Order, OrderOutcome, Requester};
use crate::config::forward::ForwardSpec;
use crate::config::nat::Dns;
use crate::config::resolver::Resolver;
use crate::config::{PortKind, PortSpec};
use crate::{host_routes, resolvers, spec_text};

/// How often resolvers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The same of this machine's routes, of which there may be very many; besides, when a router has
/// changed.
const ROUTES_EVERY: Duration = Duration::from_secs(60);

impl Supervisor {
    /// Whether some port is a router.
    pub(super) fn has_routers(&self) -> bool {
        self.specs().any(|spec| spec.kind == PortKind::Nat)
    }

    /// A router was added, and the data plane may open no sockets: another one is started, which
    /// gets the port with all others. `false`: it can be told as usual.
    pub(super) fn opens_first_router(&mut self, id: PortId, asked: &Requester) -> bool {
        let is_router = self.ports.get(&id).is_some_and(|port| port.spec.kind == PortKind::Nat);
        let is_sandboxed = self.settings.sandbox;
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
                let refusal = Some(format!("{why:#}"));
                let done = OrderOutcome { is_told: false, is_closing: false, refusal };
                self.finish(Order::Open { port: id, asked: asked.clone() }, &done);
            }
        }
        true
    }

    /// The data plane that was started for a router serves, or has failed.
    pub(super) fn answer_routers(&mut self, why: Option<&str>) {
        for port in self.ids() {
            let asked = self.ports.get_mut(&port).and_then(|port| port.asked.take());
            let Some(asked) = asked else { continue };
            let done =
                OrderOutcome { is_told: false, is_closing: false, refusal: why.map(str::to_owned) };
            self.finish(Order::Open { port, asked }, &done);
        }
    }

    /// Routers give up places that others get, so that these find them free.
    pub(super) fn release_places(&mut self, wanted: &[PortSpec], asked: &Requester) {
        for id in self.ids() {
            let Some(port) = self.ports.get(&id).filter(|it| !it.is_leaving()) else { continue };
            let is_own = |spec: &&PortSpec| spec.name == port.spec.name;
            let Some(own) = wanted.iter().find(is_own) else { continue };
            let moves = |forward: &ForwardSpec| {
                let mut others = wanted.iter().filter(|spec| !is_own(spec));
                !own.nat.forwards.contains(forward) && others.any(|it| self.gains(it, forward))
            };
            let (mut spec, mut left) = (port.spec.clone(), port.from_file.clone());
            spec.nat.forwards.retain(|forward| !moves(forward));
            left.iter_mut().for_each(|it| it.nat.forwards.retain(|forward| !moves(forward)));
            if spec == port.spec {
                continue;
            }
            let from_file = port.from_file.clone();
            // An error here hinders the whole change, too, which says so.
            if self.change_port(id, spec, from_file, asked.clone()).is_ok()
                && let Some(port) = self.ports.get_mut(&id)
            {
                // So the file as it was before says something else again.
                port.from_file = left;
            }
            self.close_other_sockets(id);
        }
    }

    /// Whether the port of that name gets a place that this forward is in the way of.
    fn gains(&self, wanted: &PortSpec, forward: &ForwardSpec) -> bool {
        let own = self.specs().find(|spec| spec.name == wanted.name);
        let has = |it: &&ForwardSpec| own.is_some_and(|own| own.nat.forwards.contains(it));
        wanted.nat.forwards.iter().filter(|it| !has(it)).any(|it| it.is_in_way_of(forward))
    }

    /// A router that is given no network gets one that is free on this machine, and keeps it.
    pub(super) fn choose_network(&mut self, spec: &PortSpec) {
        if spec.kind != PortKind::Nat {
            return;
        }
        self.routes_at = None;
        let needs_one = spec.nat.prefix4.is_none();
        if needs_one && self.identity.network_of(&spec.name).is_none() {
            let network = host_routes::free_network();
            if network != Plan::default().prefix4 {
                let port = &spec.name;
                tracing::info!(port, "guests have {network}: the usual one is this machine's");
            }
            self.identity.choose_network(&spec.name, network);
        }
    }

    /// Says once that a network of guests has come to overlap with one of this machine.
    fn warn_of_overlaps(&mut self) {
        if self.routes_at.is_some_and(|at| at.elapsed() < ROUTES_EVERY) {
            return;
        }
        self.routes_at = Some(Instant::now());
        let routes = host_routes::routes();
        for id in self.ids() {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            let name = &port.spec.name;
            if port.spec.kind != PortKind::Nat {
                continue;
            }
            let own = self.identity.network_of(name).filter(|_| port.spec.nat.prefix4.is_none());
            let mut ranges = port.spec.nat.ranges().to_vec();
            ranges.extend(own.map(|network| network.to_string()));
            let overlap = host_routes::overlapping(&ranges, &routes);
            if let Some(why) = overlap.as_ref().filter(|_| port.overlap != overlap) {
                tracing::warn!(
                    port = name,
                    "{why}: guests do not reach what is there; ringway port set {name} range=… \
                     moves them"
                );
            }
            port.overlap = overlap;
        }
    }

    /// When this machine's resolvers are looked at again.
    pub(super) fn next_look_around(&self) -> Option<Instant> {
        self.has_routers().then_some(self.looked_around + LOOK_EVERY)
    }

    /// Tells routers when this machine's resolvers have changed, when the interface of one that
    /// they name has come again, or when a Unix socket was made that could not be made before.
    pub(super) fn look_around(&mut self) {
        if self.next_look_around().is_none_or(|at| at > Instant::now()) {
            return;
        }
        self.looked_around = Instant::now();
        self.write_stations(false);
        self.warn_of_overlaps();
        let now = resolvers::of_this_machine();
        let before = std::mem::replace(&mut self.resolvers, now.clone());
        let have_changed = before.resolvers != now.resolvers;
        if have_changed {
            let names: Vec<String> = now.resolvers.iter().map(ToString::to_string).collect();
            match names.is_empty() {
                true => tracing::warn!(
                    "no resolver is left in /etc/resolv.conf: guests get no answers about names"
                ),
                false => tracing::info!("resolvers: {names:?}"),
            }
        }
        for named in now.unusable.iter().filter(|named| !before.unusable.contains(*named)) {
            tracing::warn!(
                "/etc/resolv.conf: nameserver {named} cannot be asked: it is no address, or of a \
                 link that is not there"
            );
        }
        for id in self.ids() {
            let Some(port) = self.ports.get_mut(&id) else { continue };
            // One that waits for another data plane is told when that is there.
            let is_away = port.is_leaving() || port.failure.is_some() || port.asked.is_some();
            if port.spec.kind != PortKind::Nat || is_away {
                continue;
            }
            // Why not was said the first time.
            let is_more = port.sockets.open(&port.spec, |_| ());
            let named = numbered(&port.spec.nat.dns);
            let before = self.named_resolvers.insert(id, named.clone());
            // At the first look too: a link may have come since the router was opened.
            let have_moved = before.unwrap_or_default() != named;
            if have_changed || have_moved || is_more {
                self.tell_router(id);
            }
        }
    }

    fn tell_router(&mut self, id: PortId) {
        let Some(port) = self.ports.get(&id) else { return };
        let Ok(spec) = spec_text::port(&port.spec, None, &self.identity) else { return };
        let message = |order| ToData::Change { order, port: id.0, spec: spec.clone() };
        let before = Box::new(port.spec.clone());
        let (from_file, asked) = (port.from_file.clone().map(Box::new), Requester::default());
        let order = Order::Change { port: id, before, from_file, asked };
        let sockets = port.sockets.sent().collect();
        self.order_now(order, message, sockets);
    }
}

/// The resolvers of an option that are behind links, with the numbers that these have now.
fn numbered(dns: &Dns) -> Vec<Resolver> {
    match dns {
        Dns::Servers(servers) => {
            let behind_links = servers.iter().filter(|it| it.interface.is_some());
            behind_links.filter_map(|it| it.with_number(resolvers::interface)).collect()
        }
        Dns::Host | Dns::Off => Vec::new(),
    }
}
