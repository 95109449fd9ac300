//! The stations that routers know outlive this data plane: the supervisor is told, and tells
//! the next one.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ringway_host::{Worker, now};
use ringway_nat::{Guest, Note};
use ringway_net::MacAddress;
use ringway_supervisor::wire::{KNOWN_STATIONS_MAX, KnownStation, List, ToSupervisor};
use ringway_switch::PortId;

use super::ports::{Port, Ports};
use super::workers::Workers;
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

    /// Routers whose time has come: what the supervisor is to hear.
    pub(super) fn take_due(&mut self, workers: &Workers) -> Vec<ToSupervisor> {
        let now = Instant::now();
        let due = self.due.iter().filter(|(_, at)| **at <= now);
        let due: Vec<PortId> = due.map(|(router, _)| *router).collect();
        due.into_iter().filter_map(|router| self.take(router, workers)).collect()
    }

    /// Another process goes on with what is known now, also with what no worker has told of yet.
    pub(super) fn take_all(&mut self, ports: &Ports, workers: &Workers) -> Vec<ToSupervisor> {
        let is_router = |port: &&Port| self.is_known && port.spec.kind == PortKind::Nat;
        let routers: Vec<PortId> = ports.iter().filter(is_router).map(|port| port.id).collect();
        routers.into_iter().filter_map(|router| self.take(router, workers)).collect()
    }

    fn take(&mut self, router: PortId, workers: &Workers) -> Option<ToSupervisor> {
        self.due.remove(&router);
        self.last = Some(Instant::now());
        let take = move |worker: &mut Worker| Some(worker.nat(router)?.take_notes(now()));
        let Some(notes) = workers.first().ask(take) else {
            self.note(router);
            return None;
        };
        // The router may be gone.
        let mut notes = notes?;
        notes.truncate(KNOWN_STATIONS_MAX);
        let known = notes.into_iter().map(|note| KnownStation {
            port: note.guest.0,
            address: note.mac.0,
            ip: note.address,
            is_leased: note.is_leased,
        });
        let stations = List::new(known.collect()).unwrap_or_default();
        Some(ToSupervisor::Stations { port: router.0, stations })
    }
}

/// A router that was just opened goes on with the stations that were known.
pub(super) fn remember_stations(router: PortId, known: &[KnownStation], workers: &Workers) {
    let note = |known: &KnownStation| Note {
        guest: Guest(known.port),
        mac: MacAddress(known.address),
        address: known.ip,
        is_leased: known.is_leased,
    };
    let notes: Vec<Note> = known.iter().map(note).collect();
    workers.first().send(move |worker| {
        if let Some(nat) = worker.nat(router) {
            nat.remember(&notes, now());
        }
    });
}
