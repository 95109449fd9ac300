//! Slots of scrapers: those who ask are served, those who only connect make room.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::{SCRAPERS_MAX, Scraper};

/// The slots of scrapers that are served at the same time.
#[derive(Default)]
pub(super) struct ScraperSlots {
    scrapers: Mutex<Scrapers>,
    is_free: Condvar,
}

#[derive(Default)]
struct Scrapers {
    /// Scrapers so far.
    serial: u64,
    taken: usize,
    /// Those that have not asked yet, the oldest first.
    silent: BTreeMap<u64, Scraper>,
}

/// The slot of one scraper; it is free again when this goes.
pub(super) struct ScraperSlot {
    slots: Arc<ScraperSlots>,
    number: u64,
}

impl ScraperSlots {
    fn lock(&self) -> MutexGuard<'_, Scrapers> {
        self.scrapers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a free one.
    pub(super) fn take(slots: &Arc<Self>, scraper: Option<Scraper>) -> ScraperSlot {
        let mut scrapers = slots.lock();
        while scrapers.taken >= SCRAPERS_MAX {
            if let Some((_, oldest)) = scrapers.silent.pop_first() {
                oldest.hang_up();
            }
            scrapers = slots.is_free.wait(scrapers).unwrap_or_else(PoisonError::into_inner);
        }
        scrapers.taken += 1;
        scrapers.serial += 1;
        let number = scrapers.serial;
        scrapers.silent.extend(scraper.map(|scraper| (number, scraper)));
        ScraperSlot { slots: Arc::clone(slots), number }
    }
}

impl ScraperSlot {
    /// It is served now, however many come.
    pub(super) fn has_asked(&self) {
        self.slots.lock().silent.remove(&self.number);
    }
}

impl Drop for ScraperSlot {
    fn drop(&mut self) {
        let mut scrapers = self.slots.lock();
        scrapers.silent.remove(&self.number);
        scrapers.taken -= 1;
        self.slots.is_free.notify_one();
    }
}
