//! Learned addresses are noted in the journal, so that the next data plane need not flood.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_host::{Journal, NotedAddress};
use ringway_switch::{MACS_MAX, VlanId};

use super::DataPlane;

/// From the news that something was learned until all is noted: stations answer each other.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// Until all is noted again, with the times at which stations were heard since.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

const NS_PER_MS: u64 = 1_000_000;

/// Where addresses are noted, and when next.
#[derive(Default)]
pub(super) struct Notes {
    journal: Option<Arc<Journal>>,
    due: Option<Instant>,
}

impl Notes {
    pub(super) fn next(&self) -> Option<Instant> {
        self.due.filter(|_| self.journal.is_some())
    }

    /// The switch has learned or forgotten something.
    pub(super) fn is_changed(&mut self) {
        let soon = Instant::now() + SETTLED_AFTER;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }
}

impl DataPlane {
    /// What is learned from now on is noted there.
    pub(super) fn set_notes(&mut self, journal: Arc<Journal>) {
        self.notes = Notes { journal: Some(journal), due: None };
    }

    /// All ports are there: what the data plane before had learned is known again.
    pub(super) fn remember_addresses(&mut self) {
        let Some(journal) = &self.notes.journal else { return };
        let now_ms = ringway_host::now().0 / NS_PER_MS;
        for noted in journal.addresses().iter().filter(|it| self.ports.contains_key(&it.port)) {
            let NotedAddress { address, vlan, port, seen_ms } = *noted;
            let seen_ms = seen_ms.min(now_ms);
            self.worker.shared().remember(port, VlanId::new(vlan), address, seen_ms);
        }
    }

    pub(super) fn note_due_addresses(&mut self) {
        if self.notes.next().is_some_and(|at| at <= Instant::now()) {
            self.note_addresses();
        }
    }

    /// Nothing is noted any more: another process goes on.
    pub(super) fn leave_notes(&mut self) {
        self.note_addresses();
        self.notes = Notes::default();
    }

    fn note_addresses(&mut self) {
        let Some(journal) = &self.notes.journal else { return };
        let shared = self.worker.shared();
        shared.take_change();
        let now_ms = ringway_host::now().0 / NS_PER_MS;
        let page = shared.addresses(0, MACS_MAX, now_ms, |known| known.age_ms.is_some());
        let noted = page.addresses.iter().map(|known| NotedAddress {
            address: known.address,
            vlan: known.vlan.map_or(0, VlanId::raw),
            port: known.port,
            seen_ms: now_ms.saturating_sub(known.age_ms.unwrap_or(0)),
        });
        let noted: Vec<NotedAddress> = noted.collect();
        journal.note_addresses(&noted);
        self.notes.due = (!noted.is_empty()).then(|| Instant::now() + AGAIN_AFTER);
    }
}
