//! The state of the workers as a supervisor sees it: who is dead, who stands still, whom they
//! served.
//!
//! How: it maps the lines of the workers only. A data plane can write anything there: the worst
//! that it gets by that is to be ended and started again. Limits: `wait` blocks its thread.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ringway_virtq::SharedSlice;
use rustix::io::Errno;
use rustix::thread::futex;
use rustix::time::Timespec;

use crate::journal::owner::futex_at;
use crate::journal::worker_line::{BEAT_AT, BUSY_AT, Busy, OWNER_AT};
use crate::journal::{LINE, Mapped, Sizes, Unfit};

/// Looks at one death, however often the word changes meanwhile.
const ROUNDS_MAX: u32 = 1000;

/// The holder of a worker's line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// No worker has taken it yet, or the last one has ended in peace.
    Free,
    /// A worker that lives.
    Alive,
    /// A worker that has ended, whatever it was doing.
    Dead,
}

/// How far a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Beat {
    /// Goes up with each turn: the same number twice means that it made none.
    pub number: u64,
    /// It does not wait for anything.
    pub is_awake: bool,
}

/// The lines of the workers, for a supervisor.
#[derive(Debug)]
pub struct JournalWatch {
    mapped: Mapped,
    pub(super) sizes: Sizes,
}

impl JournalWatch {
    /// Maps the lines of a journal's workers.
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn open(file: impl AsFd) -> Result<Self, Unfit> {
        Self::map(&file, Sizes::of(&file)?)
    }

    /// As [`open`](Self::open), of a journal that a data plane uses and whose head it may have
    /// destroyed: the journal was made with so many workers and rings, in [this
    /// layout](super::JOURNAL_LAYOUT).
    ///
    /// # Errors
    /// See [`Unfit`].
    pub fn resume(file: impl AsFd, workers: u16, rings: u32) -> Result<Self, Unfit> {
        let sizes = Sizes::new(workers.into(), rings).ok_or(Unfit::NoJournal)?;
        Self::map(&file, sizes.checked(&file)?)
    }

    fn map(file: impl AsFd, sizes: Sizes) -> Result<Self, Unfit> {
        let mapped = Mapped::new(file, Sizes::worker_at(sizes.workers))?;
        Ok(Self { mapped, sizes })
    }

    /// Makes the journal fit for the next data plane, whatever a hostile one has written there.
    /// `are_gone`: no other process uses it any more, or says that it does. Then a line that still
    /// seems to be held is freed: the kernel has freed all that threads held.
    pub fn repair(&self, are_gone: bool) {
        self.mapped.part(0, LINE).write_array(0, &self.sizes.head());
        for line in (0..self.sizes.workers).map(Sizes::worker_at) {
            self.mapped.part(line + BEAT_AT, 8).store_u64(0, 0);
            let futex = futex_at(self.mapped.part(line + OWNER_AT, 4));
            if are_gone && owner_of(futex.load(Ordering::Acquire)) == Owner::Alive {
                futex.store(0, Ordering::Release);
                let _ = futex::wake(futex, futex::Flags::empty(), u32::MAX >> 1);
            }
        }
    }

    /// The holder of the line of a worker.
    pub fn owner(&self, worker: u16) -> Owner {
        let word = self.part(worker, OWNER_AT, 4);
        word.map_or(Owner::Free, |word| owner_of(futex_at(word).load(Ordering::Acquire)))
    }

    /// Waits until the worker does not hold its line any more, or until the time is up; gives who
    /// holds it then. To be called for each worker of a data plane that was killed.
    ///
    /// # Errors
    /// From the operating system.
    pub fn wait(&self, worker: u16, at_most: Duration) -> io::Result<Owner> {
        let Some(word) = self.part(worker, OWNER_AT, 4) else { return Ok(Owner::Free) };
        let futex = futex_at(word);
        let time = Timespec::try_from(at_most).map_err(io::Error::other)?;
        for _ in 0..ROUNDS_MAX {
            let alive = |word| (owner_of(word) == Owner::Alive).then_some(word | futex::WAITERS);
            let Ok(word) = futex.fetch_update(Ordering::AcqRel, Ordering::Acquire, alive) else {
                break;
            };
            // Not private: the kernel looks for who waits in the file.
            let wait =
                futex::wait(futex, futex::Flags::empty(), word | futex::WAITERS, Some(&time));
            match wait {
                Ok(()) | Err(Errno::AGAIN) => {}
                Err(Errno::TIMEDOUT | Errno::INTR) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.owner(worker))
    }

    /// How far a worker is; `None`: there is no such line.
    pub fn beat(&self, worker: u16) -> Option<Beat> {
        let number = self.part(worker, BEAT_AT, 8)?.load_u64(0);
        Some(Beat { number, is_awake: number & 1 == 1 })
    }

    /// The port that a worker serves, or served when it died.
    pub fn busy(&self, worker: u16) -> Option<Busy> {
        Busy::from_word(self.part(worker, BUSY_AT, 8)?.load_u64(0))
    }

    fn part(&self, worker: u16, at: usize, len: usize) -> Option<SharedSlice> {
        let worker = usize::from(worker);
        (worker < self.sizes.workers).then(|| self.mapped.part(Sizes::worker_at(worker) + at, len))
    }
}

fn owner_of(word: u32) -> Owner {
    match word {
        0 => Owner::Free,
        word if word & futex::OWNER_DIED != 0 => Owner::Dead,
        _ => Owner::Alive,
    }
}

const _: () = assert!(BUSY_AT + 8 <= LINE);
