//! Kinds of traffic: the length of one packet after the other.

use ringway_testkit::Rng;

/// Packets before anything is counted on steady rows.
pub const WARM_UP: usize = 2000;
/// Packets counted.
const PACKETS: usize = 20_000;
const PACKETS_U32: u32 = 20_000;
/// Packets of one phase on changing rows.
const PHASE: usize = 1000;
/// A TCP segment of 45 × 1448 bytes with its headers: what Linux calls 64 KiB.
const LARGE: u32 = 65_226;

/// The fit of receive buffers as long as an average packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    /// Most packets fit into buffers as long as the average, or as the limits of `ewma`.
    Fits,
    /// One kind of packet, and a good part of it is longer than average.
    Exceeded,
    /// There are several kinds of packet, and none of them is average.
    Mixed,
}

/// One workload: the length of each packet, and whether it changes.
pub struct Workload {
    pub name: &'static str,
    pub average: Average,
    pub steady: bool,
    packet: fn(&mut Rng, usize) -> u32,
}

const fn steady(
    name: &'static str,
    average: Average,
    packet: fn(&mut Rng, usize) -> u32,
) -> Workload {
    Workload { name, average, steady: true, packet }
}

const fn changing(name: &'static str, packet: fn(&mut Rng, usize) -> u32) -> Workload {
    Workload { name, average: Average::Mixed, steady: false, packet }
}

pub const WORKLOADS: [Workload; 14] = [
    steady("64 B", Average::Fits, |_, _| 64),
    steady("MTU", Average::Fits, |_, _| 1514),
    steady("uniform 64-1500", Average::Fits, |rng, _| between(rng, 64, 1500)),
    steady("uniform 3000-4000", Average::Exceeded, |rng, _| between(rng, 3000, 4000)),
    steady("4 KiB with header", Average::Fits, |_, _| 4084),
    steady("4 KiB mean, 2-6 KiB", Average::Exceeded, |rng, _| between(rng, 2048, 6144)),
    steady("64 KiB stream", Average::Fits, |_, _| LARGE),
    steady("90 % 64 B, 10 % 64 KiB", Average::Mixed, |rng, _| either(rng.one_in(10), LARGE, 64)),
    steady("50 % 64 B, 50 % 9000", Average::Mixed, |rng, _| either(rng.one_in(2), 9014, 64)),
    steady("80 % MTU, 20 % 64 KiB", Average::Mixed, |rng, _| either(rng.one_in(5), LARGE, 1514)),
    changing("64 B / 64 KiB by turns", |_, at| either(is_odd_phase(at), LARGE, 64)),
    changing("MTU / 64 KiB by turns", |_, at| either(is_odd_phase(at), LARGE, 1514)),
    changing("2-6 KiB / 64 KiB by turns", |rng, at| {
        if is_odd_phase(at) { LARGE } else { between(rng, 2048, 6144) }
    }),
    changing("slow ramp", |_, at| {
        let up = 64 + u32::try_from(at).expect("small") * (LARGE - 64) / PACKETS_U32;
        up.min(LARGE)
    }),
];

impl Workload {
    /// The length of each packet, those before the count included.
    pub fn lengths(&self, seed: u64) -> Vec<u32> {
        let mut rng = Rng::new(seed);
        (0..self.warm_up() + PACKETS).map(|at| (self.packet)(&mut rng, at)).collect()
    }

    /// Packets that are not counted.
    pub fn warm_up(&self) -> usize {
        if self.steady { WARM_UP } else { 0 }
    }

    /// The phases a clairvoyant would choose a length for.
    pub fn phases<'a>(&self, lengths: &'a [u32]) -> impl Iterator<Item = &'a [u32]> {
        lengths.chunks(if self.steady { lengths.len() } else { PHASE })
    }
}

fn between(rng: &mut Rng, low: u64, high: u64) -> u32 {
    u32::try_from(rng.between(low, high)).expect("small")
}

fn either(is_first: bool, first: u32, second: u32) -> u32 {
    if is_first { first } else { second }
}

fn is_odd_phase(at: usize) -> bool {
    !(at / PHASE).is_multiple_of(2)
}
