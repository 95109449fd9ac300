//! How much of this process's mappings and addresses each guest's memory may take.
//!
//! A process can guard [`REGIONS_MAX`] mappings, and has 2^47 bytes of addresses (x86-64). A file
//! may claim to be longer than any memory there is: mapping it takes no memory, but addresses, and
//! without a bound one front-end could take them all. So each of [`PORTS_MAX`] ports has a reserve
//! that nothing else uses, half of all; the other half is for those that need more. There, one may
//! take only as much as it leaves: a greedy front-end is refused, and a guest that comes after it
//! finds room.
//!
//! Limits: old tables and new count until the old one is unmapped. A guest that takes more than its
//! reserve depends on what others have taken.

use std::sync::{Arc, Mutex, PoisonError};

use ringway_switch::PORTS_MAX;

/// Most mappings at a time.
pub(crate) const REGIONS_MAX: usize = 16_384;

/// Most bytes of addresses that are mapped at a time: half of all.
const LEN_MAX: u64 = 1 << 46;

/// Of the regions, and of the addresses in bytes, so many are kept for each port.
const RESERVE: Amount = Amount { regions: REGIONS_MAX as u64 / HALVES, len: LEN_MAX / HALVES };

/// The half that is not reserved.
const COMMON: Amount = Amount { regions: REGIONS_MAX as u64 / 2, len: LEN_MAX / 2 };

const HALVES: u64 = 2 * PORTS_MAX as u64;

/// The amount that all accounts together have taken of [`COMMON`].
static TAKEN: Mutex<Amount> = Mutex::new(Amount { regions: 0, len: 0 });

/// Regions and addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Amount {
    regions: u64,
    /// In bytes.
    len: u64,
}

/// The amount that one guest has taken, for as long as a front-end is connected.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account(Arc<Mutex<Amount>>);

/// One region of so many bytes, given back on drop.
#[derive(Debug)]
pub(crate) struct Share {
    of: Account,
    len: u64,
}

/// The resource that there is not enough of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shortage {
    Regions,
    Addresses,
}

impl Amount {
    fn plus(self, len: u64) -> Self {
        Self { regions: self.regions + 1, len: self.len.saturating_add(len) }
    }

    fn minus(self, len: u64) -> Self {
        Self { regions: self.regions - 1, len: self.len - len }
    }

    /// The part that is beyond the reserve.
    fn common(self) -> Self {
        Self {
            regions: self.regions.saturating_sub(RESERVE.regions),
            len: self.len.saturating_sub(RESERVE.len),
        }
    }
}

/// The amount that all have taken if one account goes from `before` to `after`.
fn moved(taken: Amount, before: Amount, after: Amount) -> Amount {
    let (before, after) = (before.common(), after.common());
    Amount {
        regions: taken.regions - before.regions + after.regions,
        len: (taken.len - before.len).saturating_add(after.len),
    }
}

/// # Errors
/// The resource of which one account would take more than it would leave.
fn judge(taken: Amount, own: Amount) -> Result<(), Shortage> {
    let own = own.common();
    let fits = |own: u64, taken: u64, all: u64| {
        own == 0 || all.checked_sub(taken).is_some_and(|left| own <= left)
    };
    if !fits(own.regions, taken.regions, COMMON.regions) {
        return Err(Shortage::Regions);
    }
    if !fits(own.len, taken.len, COMMON.len) {
        return Err(Shortage::Addresses);
    }
    Ok(())
}

impl Account {
    /// One region more, of that many bytes.
    pub(crate) fn take(&self, len: u64) -> Result<Share, Shortage> {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = own.plus(len);
        let taken_after = moved(*taken, *own, after);
        judge(taken_after, after)?;
        (*taken, *own) = (taken_after, after);
        Ok(Share { of: self.clone(), len })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let mut own = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        let after = own.minus(self.len);
        (*taken, *own) = (moved(*taken, *own, after), after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accounts with a common pool of their own.
    #[derive(Default)]
    struct Bench {
        taken: Amount,
        accounts: Vec<Amount>,
    }

    impl Bench {
        fn take(&mut self, at: usize, len: u64) -> Result<(), Shortage> {
            self.accounts.resize(self.accounts.len().max(at + 1), Amount::default());
            let after = self.accounts[at].plus(len);
            let taken = moved(self.taken, self.accounts[at], after);
            judge(taken, after)?;
            (self.taken, self.accounts[at]) = (taken, after);
            Ok(())
        }

        /// As many as possible; how many those are.
        fn take_all(&mut self, at: usize, len: u64) -> u64 {
            std::iter::from_fn(|| self.take(at, len).ok()).count() as u64
        }
    }

    #[test]
    fn whatever_others_take_each_port_has_its_reserve() {
        let mut bench = Bench::default();
        let greedy: u64 = (0..PORTS_MAX - 1).map(|at| bench.take_all(at, 1)).sum();
        let last = PORTS_MAX - 1;
        assert!(bench.take_all(last, RESERVE.len / RESERVE.regions) >= RESERVE.regions);
        assert!(greedy + RESERVE.regions <= REGIONS_MAX as u64);
        assert!(bench.accounts.iter().map(|account| account.len).sum::<u64>() <= LEN_MAX);
    }

    #[test]
    fn a_port_takes_no_more_than_it_leaves() {
        let mut bench = Bench::default();
        let half = COMMON.regions / 2;
        assert_eq!(bench.take_all(0, 1), RESERVE.regions + half);
        assert_eq!(bench.take(0, 1), Err(Shortage::Regions));
        assert_eq!(bench.take_all(1, 1), RESERVE.regions + half / 2);
        // Two full tables at a time, as while one is replaced, and nine others that have one.
        let mut bench = Bench::default();
        for at in 0..9 {
            assert!((0..509).all(|_| bench.take(at, 1 << 30).is_ok()), "{at}");
        }
        assert!((0..1018).all(|_| bench.take(9, 1 << 30).is_ok()));
    }

    #[test]
    fn a_guest_that_claims_endless_files_leaves_addresses_to_others() {
        const TIB: u64 = 1 << 40;
        let mut bench = Bench::default();
        let taken = [16_u8, 8, 4, 2].map(|tib| bench.take(usize::from(tib), u64::from(tib) * TIB));
        assert_eq!(taken, [Ok(()); 4]);
        assert_eq!(bench.take(16, TIB), Err(Shortage::Addresses));
        assert_eq!(bench.take(99, u64::MAX), Err(Shortage::Addresses));
        assert_eq!(bench.take(99, TIB), Ok(()));
        assert!((100..PORTS_MAX).all(|at| bench.take(at, RESERVE.len).is_ok()));
    }

    #[test]
    fn what_is_dropped_is_given_back() {
        let account = Account::default();
        let shares: Vec<Share> = (0..100).map(|_| account.take(1 << 32).expect("room")).collect();
        assert_eq!(*account.0.lock().expect("no panic"), Amount { regions: 100, len: 100 << 32 });
        drop(shares);
        assert_eq!(*account.0.lock().expect("no panic"), Amount::default());
    }
}
