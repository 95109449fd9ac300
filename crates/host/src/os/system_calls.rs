//! System calls of the data path, counted where they are made: one counter for each thread.

use std::cell::Cell;

thread_local! {
    static SYSTEM_CALLS: Cell<u64> = const { Cell::new(0) };
}

/// A system call is made on the data path.
#[inline]
pub(crate) fn count_system_call() {
    SYSTEM_CALLS.set(SYSTEM_CALLS.get() + 1);
}

pub(crate) fn system_calls() -> u64 {
    SYSTEM_CALLS.get()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_counts_its_own_system_calls() {
        let before = system_calls();
        count_system_call();
        let elsewhere = std::thread::spawn(|| {
            count_system_call();
            system_calls()
        });
        assert_eq!(elsewhere.join().unwrap(), 1);
        assert_eq!(system_calls(), before + 1);
    }
}
