//! The machine around routers: its resolvers and routes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_nat::Plan;
use ringway_switch::PortId;

use crate::config::nat::Dns;
use crate::config::resolver::Resolver;
use crate::config::{PortKind, PortSpec};
use crate::identity::Identity;
use crate::supervisor::ports::Ports;
use crate::{host_routes, resolvers};

/// How often resolvers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The same of this machine's routes, of which there may be very many; besides, when a router has
/// changed.
const ROUTES_EVERY: Duration = Duration::from_secs(60);

pub struct Surroundings {
    /// This machine's resolvers, when they were looked at last.
    resolvers: resolvers::Listed,
    /// Those that routers' options name, with the numbers that their interfaces had then.
    named_resolvers: BTreeMap<PortId, Vec<Resolver>>,
    looked_at: Instant,
    /// When its routes were looked at last.
    routes_at: Option<Instant>,
}

impl Surroundings {
    /// As they are told to data planes at the start: `are_known`. If not, routers are told of them
    /// at the first look.
    pub fn new(are_known: bool) -> Self {
        let resolvers =
            if are_known { resolvers::at_start() } else { resolvers::Listed::default() };
        let (named_resolvers, looked_at) = (BTreeMap::new(), Instant::now());
        Self { resolvers, named_resolvers, looked_at, routes_at: None }
    }

    /// A router that is given no network gets one that is free on this machine, and keeps it.
    pub fn choose_network(&mut self, spec: &PortSpec, identity: &mut Identity) {
        if spec.kind != PortKind::Nat {
            return;
        }
        self.routes_at = None;
        let needs_one = spec.nat.prefix4.is_none();
        if needs_one && identity.network_of(&spec.name).is_none() {
            let network = host_routes::free_network();
            if network != Plan::default().prefix4 {
                let port = &spec.name;
                tracing::info!(port, "guests have {network}: the usual one is this machine's");
            }
            identity.choose_network(&spec.name, network);
        }
    }

    /// Says once that a network of guests has come to overlap with one of this machine.
    fn warn_of_overlaps(&mut self, ports: &mut Ports, identity: &Identity) {
        if self.routes_at.is_some_and(|at| at.elapsed() < ROUTES_EVERY) {
            return;
        }
        self.routes_at = Some(Instant::now());
        let routes = host_routes::routes();
        for port in ports.values_mut().filter(|port| port.spec.kind == PortKind::Nat) {
            let name = &port.spec.name;
            let own = identity.network_of(name).filter(|_| port.spec.nat.prefix4.is_none());
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
    pub fn next_look(&self, ports: &Ports) -> Option<Instant> {
        ports.has_routers().then_some(self.looked_at + LOOK_EVERY)
    }

    /// Routers to tell of something: this machine's resolvers have changed, the interface of one
    /// that they name has come again, or a Unix socket was made that could not be made before.
    pub fn look(&mut self, ports: &mut Ports, identity: &Identity) -> Vec<PortId> {
        self.looked_at = Instant::now();
        self.warn_of_overlaps(ports, identity);
        let have_changed = self.look_at_resolvers();
        let mut to_tell = Vec::new();
        for (&id, port) in ports.iter_mut() {
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
                to_tell.push(id);
            }
        }
        to_tell
    }

    /// Whether this machine has other resolvers than at the last look.
    fn look_at_resolvers(&mut self) -> bool {
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
        have_changed
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
