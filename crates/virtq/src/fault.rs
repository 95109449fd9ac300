//! Ends what a test runs between any two stores to shared memory, as a kill ends a process.
//!
//! How: each store counts down first, and the one at which nothing is left unwinds instead. Limits:
//! without the feature `fault-points`, which only tests have, there is nothing of it.

#[cfg(feature = "fault-points")]
extern crate std;

#[cfg(feature = "fault-points")]
std::thread_local! {
    static LEFT: core::cell::Cell<u64> = const { core::cell::Cell::new(u64::MAX) };
}

/// The payload that a store unwinds with.
#[cfg(feature = "fault-points")]
struct Killed;

/// Before a store.
#[inline(always)]
pub(crate) fn point() {
    #[cfg(feature = "fault-points")]
    LEFT.with(|left| match left.get() {
        0 => std::panic::resume_unwind(std::boxed::Box::new(Killed)),
        u64::MAX => {}
        more => left.set(more - 1),
    });
}

/// Runs what may be killed, with so many stores of this thread left; `Err`: it was. `Ok`: how many
/// of them it made.
#[cfg(feature = "fault-points")]
#[allow(clippy::result_unit_err, reason = "only for tests")]
pub fn kill_after(stores: u64, run: impl FnOnce()) -> Result<u64, ()> {
    assert!(stores < u64::MAX, "too many");
    LEFT.set(stores);
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    let left = LEFT.replace(u64::MAX);
    match ended {
        Ok(()) => Ok(stores - left),
        Err(why) if why.is::<Killed>() => Err(()),
        Err(why) => std::panic::resume_unwind(why),
    }
}
