//! Random numbers by seed. Without one nothing happens by chance.

use std::time::Duration;

#[derive(Debug, Clone, Default)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 16
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.bits() % limit as u64).expect("a small number")
    }

    pub fn one_in(&mut self, times: usize) -> bool {
        self.0 != 0 && self.below(times) == 0
    }

    pub fn up_to_ms(&mut self, most: usize) -> Duration {
        Duration::from_millis(self.below(most) as u64 + 1)
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| all[self.below(all.len())])
    }
}

/// The seeds of a test: `RINGWAY_SEED` asks for one alone. One that fails is printed.
pub struct Seed(pub u64);

impl Seed {
    pub fn all(count: u64) -> impl Iterator<Item = Self> {
        let set = std::env::var("RINGWAY_SEED").ok();
        let set = set.map(|seed| seed.parse().expect("RINGWAY_SEED: a number"));
        set.map_or(0..count, |seed| seed..seed + 1).map(Self)
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: RINGWAY_SEED={}", self.0);
        }
    }
}
