//! Round trips at half the load that is possible, where the machine may become slower meanwhile.
//!
//! How: what is possible is measured before and after. Where the load was more than most of what was
//! possible in the end, or did not come back, the times say how long the queue was and nothing about
//! the row: all of it is measured again.
//!
//! Limits: a machine that is slower for a part of the time only is seen in the tail.

/// How often half the load is tried.
const ATTEMPTS: usize = 3;

/// Share of what is possible that a load may come to.
const LOAD_MAX: f64 = 0.75;

/// Share of the load that must be achieved.
const ACHIEVED_MIN: f64 = 0.95;

/// What was found at a load, in packets per second there and back.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AtLoad<T> {
    pub load: f64,
    pub achieved: f64,
    pub times: T,
}

/// Measures at half of what is possible; `None`: it was too much each time.
///
/// # Errors
/// As what it is given.
pub(super) fn at_half_load<T>(
    mut possible: impl FnMut() -> anyhow::Result<f64>,
    mut measure: impl FnMut(f64) -> anyhow::Result<(f64, T)>,
) -> anyhow::Result<Option<AtLoad<T>>> {
    let mut before = possible()?;
    for _ in 0..ATTEMPTS {
        let load = before / 2.0;
        let (achieved, times) = measure(load)?;
        let after = possible()?;
        if load <= LOAD_MAX * after && achieved >= ACHIEVED_MIN * load {
            return Ok(Some(AtLoad { load, achieved, times }));
        }
        before = after;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures on a machine on which so much is possible, one time after the other.
    fn on(possible: &[f64]) -> Option<AtLoad<usize>> {
        let mut left = possible.iter().copied();
        let now = std::cell::Cell::new(0.0);
        let look = || {
            now.set(left.next().expect("no more attempts"));
            Ok(now.get())
        };
        let mut attempts = 0;
        let measure = |load: f64| {
            attempts += 1;
            Ok((load.min(now.get()), attempts))
        };
        at_half_load(look, measure).expect("nothing fails")
    }

    #[test]
    fn a_machine_that_became_slower_is_measured_again() {
        assert_eq!(on(&[10.0, 9.0]), Some(AtLoad { load: 5.0, achieved: 5.0, times: 1 }));
        assert_eq!(on(&[10.0, 2.0, 2.0]), Some(AtLoad { load: 1.0, achieved: 1.0, times: 2 }));
        assert_eq!(on(&[10.0, 5.0, 2.0, 1.0]), None);
    }

    #[test]
    fn a_load_that_did_not_come_back_is_measured_again() {
        let achieved = [4.0, 5.0];
        let mut attempts = 0;
        let found = at_half_load(
            || Ok(10.0),
            |_| {
                attempts += 1;
                Ok((achieved[attempts - 1], attempts))
            },
        );
        assert_eq!(found.ok().flatten().map(|found| found.times), Some(2));
    }
}
