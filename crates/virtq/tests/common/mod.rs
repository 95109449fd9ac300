//! Parts that the ring tests share: memory, random numbers, and a ring with both ends in one
//! process.
#![allow(dead_code, reason = "each test binary uses its part")]

use ringway_virtq::{Region, Regions, SharedSlice};

const PAGE: usize = 4096;

#[repr(align(4096))]
#[derive(Clone)]
struct Page([u8; PAGE]);

/// Memory that both ends see, in one region at [`Memory::BASE`].
pub struct Memory {
    pages: Vec<Page>,
}

impl Memory {
    pub const BASE: u64 = 0x4000_0000;

    pub fn new(len: usize) -> Self {
        Self { pages: vec![Page([0; PAGE]); len.div_ceil(PAGE)] }
    }

    pub fn share(&mut self) -> SharedSlice {
        let len = self.pages.len() * PAGE;
        // SAFETY: the pages are mapped while `self` lives, tests keep it until their end, and
        // no code touches them except through the slice.
        unsafe { SharedSlice::new(self.pages.as_mut_ptr().cast(), len) }
    }

    pub fn regions(&mut self) -> Regions {
        let memory = self.share();
        Regions::new(vec![Region { guest_address: Self::BASE, memory }]).expect("one region")
    }
}

/// Random numbers from a seed (SplitMix64).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// 0 to `bound - 1`.
    pub fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(((self.next() >> 32) * u64::from(bound)) >> 32).expect("below the bound")
    }

    pub fn index(&mut self, bound: usize) -> usize {
        self.below(u32::try_from(bound).expect("small")) as usize
    }

    pub fn small(&mut self, bound: u32) -> u16 {
        u16::try_from(self.below(bound)).expect("small")
    }

    pub fn word(&mut self) -> u16 {
        self.small(0x1_0000)
    }

    pub fn one_in(&mut self, bound: u32) -> bool {
        self.below(bound) == 0
    }
}

/// The seed from `RINGWAY_SEED`, or the given one; printed if the test fails.
pub struct Seed {
    pub value: u64,
    pub case: String,
}

impl Seed {
    pub fn new(value: u64) -> Self {
        let set = std::env::var("RINGWAY_SEED").ok();
        let value = set.map_or(value, |seed| seed.parse().expect("RINGWAY_SEED: a number"));
        Self { value, case: String::new() }
    }
}

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to replay: RINGWAY_SEED={} (failed in {})", self.value, self.case);
        }
    }
}
