//! A breadth-first search through every order of acts: each state is visited once.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::panic::{UnwindSafe, catch_unwind};

/// A model that checks itself: it panics where something is wrong.
pub trait World: Clone + UnwindSafe {
    type Act: Copy + Debug + UnwindSafe;

    /// All that may happen now.
    fn acts(&self) -> Vec<Self::Act>;

    fn act(&mut self, act: Self::Act);

    /// Everything goes its usual way from here on, and comes to a good end.
    fn settle(self);

    /// The same for two worlds that differ in times and numbers only.
    fn key(&self) -> String;
}

/// Tries every order of so many acts, and lets each state come to its end; the number of states.
///
/// # Panics
/// Something is wrong: with the acts that have led there.
pub fn search<W: World>(start: W, steps: usize) -> usize {
    let mut seen = BTreeSet::new();
    let mut worlds = VecDeque::from([(start, Vec::new())]);
    while let Some((world, history)) = worlds.pop_front() {
        let copy = world.clone();
        assert!(catch_unwind(move || copy.settle()).is_ok(), "after {history:?}");
        if history.len() == steps {
            continue;
        }
        for act in world.acts() {
            let history: Vec<W::Act> = [&history[..], &[act]].concat();
            let mut next = world.clone();
            let outcome = catch_unwind(move || {
                next.act(act);
                next
            });
            let Ok(next) = outcome else { panic!("{history:?}") };
            if seen.insert(next.key()) {
                worlds.push_back((next, history));
            }
        }
    }
    seen.len()
}
