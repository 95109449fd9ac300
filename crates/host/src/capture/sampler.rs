//! One packet in so many.

/// Takes one packet in `every` on average. The distances are random, up to about twice that: so no
/// pattern of packets is always met, or always missed.
#[derive(Debug)]
pub(super) struct Sampler {
    every: u64,
    /// Packets to be left out before the next that is taken.
    left: u64,
    /// Packets since the last that was taken.
    seen: u32,
    /// Of xorshift64* (Vigna, 2014).
    random: u64,
}

impl Sampler {
    pub(super) fn new(every: u32, seed: u64) -> Self {
        let mut sampler = Self { every: every.max(1).into(), left: 0, seen: 0, random: seed | 1 };
        sampler.left = sampler.gap();
        sampler
    }

    /// `Some`: the packet in hand is taken, and stands for so many since the last one.
    pub(super) fn take(&mut self) -> Option<u32> {
        self.seen = self.seen.saturating_add(1);
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.left = self.gap();
        Some(std::mem::take(&mut self.seen))
    }

    /// From 0 to twice what is left out on average.
    fn gap(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let high = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        high % (2 * self.every - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_so_many_is_taken_and_stands_for_the_others() {
        for every in [0, 1, 2, 10, 1000] {
            let mut sampler = Sampler::new(every, 7);
            let seen = 2000 * u64::from(every.max(1));
            let taken: Vec<u32> = (0..seen).filter_map(|_| sampler.take()).collect();
            assert!((1900..=2100).contains(&taken.len()), "{} at {every}", taken.len());
            assert!(taken.iter().all(|it| *it < 2 * every.max(1)));
            let stood_for: u64 = taken.iter().map(|it| u64::from(*it)).sum();
            assert!(stood_for <= seen && stood_for + 2 * u64::from(every) >= seen);
        }
    }
}
