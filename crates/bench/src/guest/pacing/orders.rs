//! In which order policies take turns.
//!
//! How: of many shuffles of the entrants, that one comes next which puts them behind those that they
//! were behind least often. Nobody comes behind itself, nor, within a visit, behind the same policy.
//! Every other stream is the one before it backwards: who was in front is behind.
//!
//! Limits: the two that are the same meet between visits only, and so more rarely than others. Of three
//! entrants, two are the same, and the third is always between them.

use ringway_testkit::Rng;

use super::{POLICIES, SAME};

/// Shuffles to choose from: of three entrants, one shuffle in six is the only one that is admitted.
const SHUFFLES: usize = 256;

/// How often each (second place) came right behind each (first place).
#[derive(Debug, Default)]
struct Behind([[usize; POLICIES.len()]; POLICIES.len()]);

impl Behind {
    fn add(&mut self, before: Option<usize>, order: &[usize]) {
        pairs(before, order).for_each(|(one, other)| self.0[one][other] += 1);
    }

    /// The lower, the better: first whether it breaks a rule, then how often its pairs were there.
    fn cost(&self, before: Option<usize>, order: &[usize]) -> (bool, usize) {
        let is_twice_the_same = pairs(None, order).any(|(one, other)| one.min(other) >= SAME);
        let is_behind_itself = before == order.first().copied();
        let often = pairs(before, order).map(|(one, other)| self.0[one][other]).sum();
        (is_twice_the_same || is_behind_itself, often)
    }
}

/// Each with who comes right behind, in an order and at its start.
fn pairs(before: Option<usize>, order: &[usize]) -> impl Iterator<Item = (usize, usize)> {
    let first = before.zip(order.first().copied());
    first.into_iter().chain(order.windows(2).map(|two| (two[0], two[1])))
}

/// The orders of all visits of one stream; each is of all of these entrants.
pub(super) fn orders(entrants: &[usize], stream: usize, visits: usize) -> Vec<Vec<usize>> {
    let mut random = Rng::new((stream / 2) as u64);
    let mut behind = Behind::default();
    let mut orders: Vec<Vec<usize>> = Vec::with_capacity(visits);
    for _ in 0..visits {
        let before = orders.last().and_then(|order| order.last().copied());
        let shuffles = (0..SHUFFLES).map(|_| shuffled(entrants, &mut random));
        let Some(order) = shuffles.min_by_key(|order| behind.cost(before, order)) else { break };
        behind.add(before, &order);
        orders.push(order);
    }
    if !stream.is_multiple_of(2) {
        orders.reverse();
        orders.iter_mut().for_each(|order| order.reverse());
    }
    orders
}

fn shuffled(entrants: &[usize], random: &mut Rng) -> Vec<usize> {
    let mut order = entrants.to_vec();
    for left in (1..order.len()).rev() {
        // Fisher and Yates: the last of those that are left is any of them.
        let limit = left as u64 + 1;
        order.swap(left, usize::try_from(random.below(limit)).unwrap_or(left));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of so many visits each: 400 visits.
    const STREAMS: usize = 40;
    const VISITS: usize = 10;

    /// Ours twice, and as many of the others as make `count`.
    fn entrants(count: usize) -> Vec<usize> {
        (POLICIES.len() - count..POLICIES.len()).collect()
    }

    fn streams(entrants: &[usize]) -> Vec<Vec<Vec<usize>>> {
        (0..STREAMS).map(|stream| orders(entrants, stream, VISITS)).collect()
    }

    #[test]
    fn everybody_is_in_each_visit_and_ours_never_beside_itself() {
        for count in 3..=POLICIES.len() {
            let entrants = entrants(count);
            let visits: Vec<Vec<usize>> = streams(&entrants).concat();
            assert_eq!(visits.len(), STREAMS * VISITS);
            for order in visits {
                assert!(pairs(None, &order).all(|(one, other)| one.min(other) < SAME), "{order:?}");
                let mut all = order;
                all.sort_unstable();
                assert_eq!(all, entrants);
            }
        }
    }

    #[test]
    fn everybody_is_about_equally_often_behind_everybody_else() {
        for count in 3..=POLICIES.len() {
            let entrants = entrants(count);
            let mut behind = Behind::default();
            for stream in streams(&entrants) {
                behind.add(None, &stream.concat());
            }
            for &row in &entrants {
                let often = |other: usize| behind.0[other][row];
                let all: usize = entrants.iter().map(|&other| often(other)).sum();
                assert_eq!(often(row), 0, "{row} behind itself");
                let equal = all / (count - 1);
                for &other in entrants.iter().filter(|other| **other != row) {
                    // Ours twice in a row, between visits only, may be rarer.
                    let least = if row.min(other) < SAME { equal * 3 / 4 } else { 0 };
                    let seen = often(other);
                    let is_fair = (least..=equal * 5 / 4).contains(&seen);
                    assert!(is_fair, "{count}: {row} behind {other}: {seen} of {all}");
                }
            }
        }
    }

    #[test]
    fn one_stream_is_another_one_backwards() {
        let [one, mut other] = [4, 5].map(|stream| orders(&entrants(5), stream, VISITS).concat());
        other.reverse();
        assert_eq!(one, other);
        assert_ne!(one, orders(&entrants(5), 6, VISITS).concat());
    }
}
