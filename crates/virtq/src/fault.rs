//! Ends what a test runs between any two stores to shared memory, as a kill ends a process.
//!
//! How: each store counts down first, and the one at which nothing is left unwinds instead. And
//! leaves out marks of written pages, so that a test can show that it would notice. Limits: without
//! the feature `fault-points`, which only tests have, there is nothing of it.

#[cfg(feature = "fault-points")]
extern crate std;

#[cfg(feature = "fault-points")]
std::thread_local! {
    static LEFT: core::cell::Cell<u64> = const { core::cell::Cell::new(u64::MAX) };
    static LEFT_OUT: core::cell::Cell<Option<Mark>> = const { core::cell::Cell::new(None) };
}

/// A place where pages are marked as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(not(feature = "fault-points"), allow(unreachable_pub, reason = "a test names it"))]
pub enum Mark {
    /// Buffers that become used.
    Buffers,
    /// Used entries of a split ring.
    UsedEntries,
    /// The index of a split ring.
    UsedIndex,
    /// Used descriptors of a packed ring.
    Descriptors,
    /// The word that says when to kick.
    Armed,
    /// The parts of a ring that starts.
    Start,
    /// The buffers in it.
    Posted,
    /// Memory that is written and will not become used.
    Unused,
}

#[cfg(feature = "fault-points")]
impl Mark {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Buffers,
        Self::UsedEntries,
        Self::UsedIndex,
        Self::Descriptors,
        Self::Armed,
        Self::Start,
        Self::Posted,
        Self::Unused,
    ];
}

/// From now on this thread makes all marks but that one.
#[cfg(feature = "fault-points")]
pub fn leave_out(mark: Option<Mark>) {
    LEFT_OUT.set(mark);
}

/// Whether a test wants to do without that mark.
#[inline(always)]
pub(crate) fn is_left_out(_mark: Mark) -> bool {
    #[cfg(feature = "fault-points")]
    return LEFT_OUT.get() == Some(_mark);
    #[cfg(not(feature = "fault-points"))]
    false
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
