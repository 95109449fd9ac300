//! Several things at once, each of which mostly waits.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::tally::Tally;

/// Four keep two processors busy, as most tests wait, and all meet their time limits.
pub const LANES: usize = 4;

/// Runs `one` on each item in order, at most `lanes` at a time; returns the sum.
pub fn run<T: Sync>(items: &[T], lanes: usize, one: impl Fn(&T) -> Tally + Sync) -> Tally {
    let (next, sum) = (Mutex::new(items.iter()), Mutex::new(Tally::default()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(item) = take() {
                    let tally = one(item);
                    *sum.lock().unwrap_or_else(PoisonError::into_inner) += tally;
                }
            });
        }
    });
    sum.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn so_many_run_at_once_and_all_are_counted() {
        let barrier = Barrier::new(2);
        let tally = run(&["", "b", "", ""], 2, |failed| {
            // Never passed by one alone.
            barrier.wait();
            if failed.is_empty() { Tally::passed() } else { Tally::failed(failed, "why") }
        });
        assert_eq!(tally.end(), "FAILED: b\n    why\n3 passed, 1 failed, 0 skipped");
    }
}
