//! The journal notes what the switch has learned, so that the next data plane need not flood:
//! addresses, and which ports want which multicast groups.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ringway_host::{Journal, NotedAddress};
use ringway_switch::{GroupNote, MACS_MAX, Shared, VlanId};

use super::ports::Ports;
use super::ports::uplinks::now_ms;

/// From the news that something was learned until all is noted: stations answer each other.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// Until all is noted again, with the times at which stations were heard since.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Where it is noted, and when next.
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

    /// The journal notes from now on what is learned.
    pub(super) fn of(journal: Arc<Journal>) -> Self {
        Self { journal: Some(journal), due: None }
    }

    /// All ports are there: what the data plane before had learned is known again.
    pub(super) fn remember(&self, ports: &Ports, shared: &Shared) {
        let Some(journal) = &self.journal else { return };
        let now_ms = now_ms();
        for noted in journal.addresses().iter().filter(|it| ports.contains(it.port)) {
            let NotedAddress { address, vlan, port, seen_ms } = *noted;
            shared.remember(port, VlanId::new(vlan), address, seen_ms.min(now_ms));
        }
        let is_here = |note: &GroupNote| note.port().is_none_or(|id| ports.contains(id));
        for note in journal.groups().into_iter().filter(is_here) {
            shared.remember_group(note, now_ms);
        }
    }

    /// Nothing is noted any more: another process goes on.
    pub(super) fn leave(&mut self, shared: &Shared) {
        self.note(shared);
        *self = Self::default();
    }

    pub(super) fn note(&mut self, shared: &Shared) {
        let Some(journal) = &self.journal else { return };
        shared.take_change();
        let now_ms = now_ms();
        let page = shared.addresses(0, MACS_MAX, now_ms, |known| known.age_ms.is_some());
        let noted = page.addresses.iter().map(|known| NotedAddress {
            address: known.address,
            vlan: known.vlan.map_or(0, VlanId::raw),
            port: known.port,
            seen_ms: now_ms.saturating_sub(known.age_ms.unwrap_or(0)),
        });
        let noted: Vec<NotedAddress> = noted.collect();
        journal.note_addresses(&noted);
        let groups = shared.group_notes(now_ms);
        journal.note_groups(&groups);
        let is_any = !noted.is_empty() || !groups.is_empty();
        self.due = is_any.then(|| Instant::now() + AGAIN_AFTER);
    }
}
