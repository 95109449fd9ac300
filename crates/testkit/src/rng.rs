//! Deterministic random numbers for tests: SplitMix64 with a seed that is printed and replays.
//!
//! Limits: not for secrets.

use std::env;

/// Name of the environment variable that replays a seed.
const SEED_VARIABLE: &str = "RINGWAY_SEED";

/// A SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Starts at a seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Starts at the seed in `RINGWAY_SEED` (decimal, or hexadecimal after `0x`), else at
    /// `default`. Prints the seed, which the test harness shows when the test fails.
    pub fn from_environment(name: &str, default: u64) -> Self {
        let seed = env::var(SEED_VARIABLE).ok().and_then(|text| parse(&text)).unwrap_or(default);
        println!("{name}: replay with {SEED_VARIABLE}={seed:#x}");
        Self::new(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        // The bias of the remainder is far below what a test could notice.
        self.bits() % limit
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// `true` once in `times` on average.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Fills with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
    }

    /// 16 random bits.
    pub fn word(&mut self) -> u16 {
        let bytes = self.bits().to_le_bytes();
        u16::from_le_bytes([bytes[0], bytes[1]])
    }

    /// 32 random bits.
    pub fn double_word(&mut self) -> u32 {
        let bytes = self.bits().to_le_bytes();
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

fn parse(text: &str) -> Option<u64> {
    match text.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.trim().parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_splitmix64() {
        // First outputs for seed 0, as published with the algorithm.
        let mut rng = Rng::new(0);
        assert_eq!(rng.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(rng.bits(), 0x6e78_9e6a_a1b9_65f4);
    }

    #[test]
    fn seeds_are_read_in_both_notations() {
        assert_eq!(parse("0x10"), Some(16));
        assert_eq!(parse(" 10\n"), Some(10));
        assert_eq!(parse("ten"), None);
    }
}
