//! The stations that routers know outlive this data plane: the supervisor is told, and tells
//! the next one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_host::{Worker, now};
use ringway_nat::{Guest, Note};
use ringway_net::MacAddress;
use ringway_supervisor::wire::{KNOWN_STATIONS_MAX, KnownStation, List, ToSupervisor};
use ringway_switch::PortId;

use super::{DataPlane, Port};
use crate::config::PortKind;

/// As often as this at most: a guest cannot keep the supervisor busy.
const SOONEST: Duration = Duration::from_millis(100);

/// Routers of which something is to be told, and when; and when something was told last.
pub(super) struct StationNews {
    /// The supervisor knows of stations.
    is_known: bool,
    due: BTreeMap<PortId, Instant>,
    last: Option<Instant>,
}

impl StationNews {
    /// `is_known`: the supervisor knows of stations.
    pub(super) fn new(is_known: bool) -> Self {
        Self { is_known, due: BTreeMap::new(), last: None }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.due.values().copied().min()
    }

    /// A router knows something else than before.
    pub(super) fn note(&mut self, router: PortId) {
        if !self.is_known {
            return;
        }
        let now = Instant::now();
        let at = self.last.map_or(now, |last| now.max(last + SOONEST));
        self.due.entry(router).or_insert(at);
    }
}

impl DataPlane {
    pub(super) fn tell_due_stations(&mut self) {
        let now = Instant::now();
        let due = self.station_news.due.iter().filter(|(_, at)| **at <= now);
        let due: Vec<PortId> = due.map(|(router, _)| *router).collect();
        due.into_iter().for_each(|router| self.tell_stations(router));
    }

    /// Another process goes on with what is known now, also with what no worker has told of yet.
    pub(super) fn tell_all_stations(&mut self) {
        let is_router = |port: &Port| port.spec.kind == PortKind::Nat;
        let routers = self.ports.iter().filter(|(_, port)| is_router(port));
        let routers: Vec<PortId> = routers.map(|(id, _)| *id).collect();
        if self.station_news.is_known {
            routers.into_iter().for_each(|router| self.tell_stations(router));
        }
    }

    fn tell_stations(&mut self, router: PortId) {
        self.station_news.due.remove(&router);
        self.station_news.last = Some(Instant::now());
        let take = move |worker: &mut Worker| Some(worker.nat(router)?.take_notes(now()));
        let mut notes = match self.worker.first().ask(take) {
            Some(Some(notes)) => notes,
            // The router is gone.
            Some(None) => return,
            None => return self.station_news.note(router),
        };
        notes.truncate(KNOWN_STATIONS_MAX);
        let known = notes.into_iter().map(|note| KnownStation {
            port: note.guest.0,
            address: note.mac.0,
            ip: note.address,
            is_leased: note.is_leased,
        });
        let stations = List::new(known.collect()).unwrap_or_default();
        self.supervisor.tell(&ToSupervisor::Stations { port: router.0, stations });
    }

    /// The stations that were known of a router count when rings start.
    pub(super) fn note_stations(
        &mut self,
        router: PortId,
        stations: List<KnownStation, KNOWN_STATIONS_MAX>,
    ) {
        if let Some(replay) = &mut self.replay {
            replay.stations.insert(router, stations.into_inner());
        }
    }

    /// A router that was just opened goes on with that.
    pub(super) fn remember_stations(&self, router: PortId, stations: &[KnownStation]) {
        let note = |known: &KnownStation| Note {
            guest: Guest(known.port),
            mac: MacAddress(known.address),
            address: known.ip,
            is_leased: known.is_leased,
        };
        let notes: Vec<Note> = stations.iter().map(note).collect();
        self.worker.first().send(move |worker| {
            if let Some(nat) = worker.nat(router) {
                nat.remember(&notes, now());
            }
        });
    }
}
