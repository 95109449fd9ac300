//! Several things at once, each of which mostly waits.

use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::counts::Counts;

/// Three keep two processors busy, and tests still meet their time limits.
pub const LANES: usize = 3;

/// Runs `one` on each item in order, at most `lanes` at a time; returns the sum of the counts.
pub fn run<T: Sync>(items: &[T], lanes: usize, one: impl Fn(&T) -> Counts + Sync) -> Counts {
    let (next, sum) = (Mutex::new(items.iter()), Mutex::new(Counts::default()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some(item) = take() {
                    let counts = one(item);
                    *sum.lock().unwrap_or_else(PoisonError::into_inner) += counts;
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
        let counts = run(&[true, false, true, true], 2, |passed| {
            // Never passed by one alone.
            barrier.wait();
            Counts::one(*passed)
        });
        assert_eq!(counts, Counts { passed: 3, failed: 1, skipped: 0 });
    }
}
