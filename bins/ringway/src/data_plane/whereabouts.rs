//! Guests come, stop and go elsewhere: the workers, the supervisor and the log hear of it.
//!
//! A guest whose rings have stopped is not behind its port: packets for its stations go to all
//! ports, as if nothing were known of them, and bridges that ask for it forget them. The switch
//! remembers them, so that they are there at once when the guest goes on (a driver that is reset, a
//! migration that fails), and so that they move without a packet of the guest to another port of
//! this ringway at which it goes on.
//!
//! Limits: a data plane that ends forgets what was to be announced later, and that a guest which
//! has stopped did so for its migration.

use std::time::Instant;

use ringway_host::{AnnounceTo, Worker};
use ringway_net::MacAddress;
use ringway_supervisor::wire::{STATIONS_MAX, ToSupervisor, WIRE_VERSION_LOGS};
use ringway_switch::{KnownAddress, PortId, Shared, VlanId};
use tracing::{debug, info};

use super::departed::departed;
use super::links::presence::{Before, News, RingBase};
use super::ports::uplinks::now_ms;
use super::ports::{Port, Ports};
use super::seen_ips::LastIps;
use super::supervisor::SupervisorEnd;
use super::workers::Workers;

/// The parts that hear of guests which come and leave.
pub(super) struct Guests<'a> {
    pub(super) ports: &'a mut Ports,
    pub(super) workers: &'a Workers,
    pub(super) supervisor: &'a SupervisorEnd,
    pub(super) told_ips: &'a mut LastIps,
}

impl Guests<'_> {
    /// A request of a front-end, or a kick, was carried out: whether its guest is here now.
    pub(super) fn follow(&mut self, id: PortId, before: &Before) {
        let Some(link) = self.ports.link(id) else { return };
        let view = link.view(before.was_logging);
        let news = link.presence.follow(view, Instant::now());
        news.into_iter().for_each(|news| self.spread(id, news, before));
    }

    /// Guests whose rings could have gone on by themselves, and did not.
    pub(super) fn look_at_stopped(&mut self) {
        for id in self.ports.ids() {
            if let Some(link) = self.ports.link(id).filter(|link| link.presence.leaves_at.is_some())
            {
                let before = link.before();
                self.follow(id, &before);
            }
        }
    }

    /// This data plane has begun: the supervisor hears of all guests.
    pub(super) fn resume(&mut self) {
        for id in self.ports.ids() {
            let Some(link) = self.ports.link(id) else { continue };
            let view = link.view(link.session.is_logging());
            link.presence.resume(view);
            let (link, runs) = (link.number, link.presence.runs);
            self.workers.set_stopped(id, !runs);
            self.tell_of_guest(&match runs {
                true => ToSupervisor::Runs { link, goes_on_at: None },
                false => ToSupervisor::Stopped { link, is_migrating: false },
            });
        }
    }

    fn spread(&mut self, id: PortId, news: News, before: &Before) {
        match news {
            News::Begins => self.say_that_it_begins(id),
            News::Stays => self.say(id, "migration ended, the guest stays"),
            News::Runs { goes_on_at } => self.comes(id, goes_on_at),
            News::Stopped { is_migrating } => self.leaves(id, is_migrating, before),
        }
    }

    fn comes(&mut self, id: PortId, goes_on_at: Option<RingBase>) {
        let Some(link) = self.ports.link(id) else { return };
        let (number, later) = (link.number, link.presence.take_later());
        self.workers.set_stopped(id, false);
        if let Some(from) = goes_on_at.and_then(|at| left_by(id, at, self.ports)) {
            follow_stations(id, from, self.ports, self.workers.shared());
        }
        self.told_ips.is_changed();
        let goes_on_at = goes_on_at.map(|at| at.base);
        self.tell_of_guest(&ToSupervisor::Runs { link: number, goes_on_at });
        for mac in later {
            if is_at_another(id, mac, self.ports, self.workers) {
                debug!(port = self.ports.name(id), "{mac} runs at another port: not announced");
                continue;
            }
            let announce = move |worker: &mut Worker| worker.announce(id, mac, AnnounceTo::All);
            self.workers.first().send(announce);
        }
    }

    fn leaves(&mut self, id: PortId, is_migrating: bool, before: &Before) {
        let Some(link) = self.ports.port(id).and_then(Port::link) else { return };
        let number = link.number;
        if is_migrating {
            let memory = before.memory.as_ref().unwrap_or(&link.memory);
            let line = match memory.marked_pages() {
                Some((pages, true)) => {
                    format!("guest stopped for migration, {pages} pages marked")
                }
                Some((pages, false)) => {
                    format!("guest stopped for migration, at least {pages} pages marked")
                }
                None => "guest stopped for migration".to_owned(),
            };
            self.say(id, &line);
        }
        let departed = departed(id, self.ports, self.workers.shared());
        self.workers.set_stopped(id, true);
        self.tell_of_guest(&ToSupervisor::Stopped { link: number, is_migrating });
        self.told_ips.is_changed();
        self.supervisor.tell_all(departed);
    }

    fn say_that_it_begins(&mut self, id: PortId) {
        let pages = self.ports.link(id).and_then(|link| link.memory.log_pages());
        self.say(
            id,
            &match pages {
                Some(pages) => format!("migration begins (log of {pages} pages)"),
                None => "migration begins (no log yet: its rings wait)".to_owned(),
            },
        );
    }

    fn say(&mut self, id: PortId, line: &str) {
        if let Some(port) = self.ports.port_mut(id) {
            port.say(|port| info!(port, "{line}"));
        }
    }

    /// An older supervisor does not know these messages.
    fn tell_of_guest(&self, message: &ToSupervisor) {
        if self.supervisor.speaks >= WIRE_VERSION_LOGS {
            self.supervisor.tell(message);
        }
    }
}

impl Port {
    /// A guest is here, and its queues run.
    pub(super) fn has_running_guest(&self) -> bool {
        self.link().is_some_and(|link| link.presence.runs)
    }
}

impl Workers {
    /// A guest's queues have all stopped, or one runs; returns when all workers go by that.
    pub(super) fn set_stopped(&self, port: PortId, is_stopped: bool) {
        self.ask_all(move |worker| worker.set_stopped(port, is_stopped));
    }
}

/// The port of a guest that has stopped for its migration, if the one that goes on here must be it:
/// its ring stood where this one goes on, and no other one's did.
fn left_by(id: PortId, RingBase { index, base }: RingBase, ports: &Ports) -> Option<PortId> {
    let stood_there = |port: &&Port| {
        let stood = port.link().and_then(|link| link.session.stood(index));
        stood.is_some_and(|(stood, _)| stood == base)
    };
    let has_left = |port: &&Port| port.link().is_some_and(|link| link.presence.may_be_elsewhere());
    let is_one = |port: &&Port| port.id != id && has_left(port) && stood_there(port);
    let mut all = ports.iter().filter(is_one);
    let first = all.next()?;
    all.next().is_none().then_some(first.id)
}

/// The stations of a guest that has moved are behind its new port, in the VLAN that it has there;
/// not those that are configured at a port, and none where only one address may be used.
fn follow_stations(to: PortId, from: PortId, ports: &Ports, shared: &Shared) {
    let Some(policy) = ports.port(to).map(|port| port.spec.rules.policy()) else { return };
    let vlan = policy.vlan.of_untagged().filter(|_| policy.locked_mac.is_none());
    let Some(vlan) = vlan else { return };
    let is_its = |known: &KnownAddress| {
        known.age_ms.is_some() && known.vlan.map_or(0, VlanId::raw) == vlan.raw()
    };
    for known in shared.addresses_at(from, STATIONS_MAX, now_ms(), is_its) {
        shared.follow(to, vlan, known.address, from);
    }
}

/// Whether that station is known at another port whose guest runs, in the VLAN of this one.
fn is_at_another(id: PortId, mac: MacAddress, ports: &Ports, workers: &Workers) -> bool {
    let vlan = ports.port(id).and_then(|port| port.spec.rules.policy().vlan.of_untagged());
    let is_it = |known: &KnownAddress| {
        let in_vlan = known.vlan.map_or(0, VlanId::raw);
        let runs = ports.port(known.port).is_some_and(Port::has_running_guest);
        known.port != id && known.address == mac && Some(in_vlan) == vlan.map(VlanId::raw) && runs
    };
    !workers.shared().addresses(0, 1, now_ms(), is_it).addresses.is_empty()
}
