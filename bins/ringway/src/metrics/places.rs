//! Places of scrapers: those who ask are served, those who only connect make room.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{SCRAPERS_MAX, Scraper};

/// All that are taken.
#[derive(Default)]
pub(super) struct Places {
    state: Mutex<State>,
    is_free: Condvar,
}

#[derive(Default)]
struct State {
    /// Scrapers so far.
    serial: u64,
    taken: usize,
    /// Those that have not asked yet, the oldest first.
    silent: BTreeMap<u64, Scraper>,
}

/// One of them; it is free again when this goes.
pub(super) struct Taken {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free one.
    pub(super) fn take(places: &Arc<Self>, scraper: Option<Scraper>) -> Taken {
        let mut state = places.lock();
        while state.taken >= SCRAPERS_MAX {
            if let Some((_, oldest)) = state.silent.pop_first() {
                oldest.hang_up();
            }
            state = places.is_free.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.taken += 1;
        state.serial += 1;
        let number = state.serial;
        state.silent.extend(scraper.map(|scraper| (number, scraper)));
        Taken { places: Arc::clone(places), number }
    }
}

impl Taken {
    /// It is served now, however many come.
    pub(super) fn has_asked(&self) {
        self.places.lock().silent.remove(&self.number);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut state = self.places.lock();
        state.silent.remove(&self.number);
        state.taken -= 1;
        self.places.is_free.notify_one();
    }
}
