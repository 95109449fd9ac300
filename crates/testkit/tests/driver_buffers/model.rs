//! The buffers that a scheme takes for a workload, their cost, and the least possible cost.

use std::collections::BTreeMap;

use ringway_driver::rx_buffer::{ADAPTIVE_LEN_MAX, Adaptive, BUFFER_ALIGN, buffers_for};
use ringway_driver::rx_buffer::{ENTRY_COST_BYTES, packet_cost};
use ringway_driver::{RxBufferSizer, RxScheme};

use crate::workloads::Workload;
use crate::{HEADER_LEN, RING_SIZE};

/// Ring entries of a big buffer without indirect tables: its header and 17 pages.
const BIG_ENTRIES: u64 = 18;

/// How often each length comes, header included.
pub struct Counts(BTreeMap<u32, u64>);

impl Counts {
    pub fn of(lengths: &[u32]) -> Self {
        let mut counts = BTreeMap::new();
        lengths.iter().for_each(|len| *counts.entry(len + HEADER_LEN).or_insert(0) += 1);
        Self(counts)
    }

    /// Cost of all of them in buffers of one length, when an entry costs `entry_cost` bytes.
    pub fn cost(&self, buffer_len: u32, entry_cost: u32) -> u64 {
        let each = u64::from(buffer_len + entry_cost);
        let cost = |len: u32| u64::from(buffers_for(len, buffer_len)) * each;
        debug_assert!(
            entry_cost != ENTRY_COST_BYTES || cost(9000) == packet_cost(9000, buffer_len)
        );
        self.0.iter().map(|(len, count)| count * cost(*len)).sum()
    }

    /// The best length of all that `adaptive` may choose, by trying them all.
    pub fn search(&self, entry_cost: u32) -> (u32, u64) {
        let lower = Adaptive::new(HEADER_LEN, RING_SIZE).len_min();
        let candidates = (lower..=ADAPTIVE_LEN_MAX).step_by(BUFFER_ALIGN as usize);
        let costs = candidates.map(|buffer_len| (buffer_len, self.cost(buffer_len, entry_cost)));
        costs.min_by_key(|(_, cost)| *cost).expect("candidates")
    }
}

/// The payload, memory and ring entries of one scheme with one workload.
#[derive(Default)]
pub struct Outcome {
    pub payload: u64,
    pub memory: u64,
    pub entries: u64,
}

impl Outcome {
    pub fn of(scheme: RxScheme, workload: &Workload, lengths: &[u32]) -> Self {
        let mut sizer = RxBufferSizer::new(scheme, HEADER_LEN, RING_SIZE);
        let mut outcome = Self::default();
        for (at, &len) in lengths.iter().enumerate() {
            if at >= workload.warm_up() {
                outcome.count(scheme, len, sizer.next_len());
            }
            sizer.on_packet(len);
        }
        outcome
    }

    fn count(&mut self, scheme: RxScheme, len: u32, buffer_len: u32) {
        let buffers = u64::from(buffers_for(len + HEADER_LEN, buffer_len));
        self.payload += u64::from(len);
        self.memory += buffers * u64::from(buffer_len);
        self.entries += if scheme == RxScheme::Big { BIG_ENTRIES } else { buffers };
    }

    /// Its cost when an entry costs `entry_cost` bytes.
    pub fn cost(&self, entry_cost: u32) -> u64 {
        self.memory + u64::from(entry_cost) * self.entries
    }
}

/// Most packets from a change until the length that a scheme chooses is within 5 % of the new
/// optimum; `None`: it never was.
pub fn settles(scheme: RxScheme, workload: &Workload, lengths: &[u32]) -> Option<usize> {
    let mut sizer = RxBufferSizer::new(scheme, HEADER_LEN, RING_SIZE);
    let mut most = Some(0);
    for phase in workload.phases(lengths) {
        let counts = Counts::of(phase);
        let (_, least) = counts.search(ENTRY_COST_BYTES);
        let (mut settled, mut judged) = (None, 0);
        for (at, &len) in phase.iter().enumerate() {
            let buffer_len = sizer.next_len();
            sizer.on_packet(len);
            if settled.is_none() && buffer_len != judged {
                judged = buffer_len;
                let cost = counts.cost(buffer_len, ENTRY_COST_BYTES);
                settled = (cost * 100 <= least * 105).then_some(at);
            }
        }
        most = most.and_then(|most| Some(most.max(settled?)));
    }
    most
}

/// The least cost of all packets that are counted, and the best length where one is best for all.
pub fn optimum(workload: &Workload, lengths: &[u32], entry_cost: u32) -> (Option<u32>, u64) {
    let counted = &lengths[workload.warm_up()..];
    let optima: Vec<_> =
        workload.phases(counted).map(|phase| Counts::of(phase).search(entry_cost)).collect();
    let least = optima.iter().map(|(_, cost)| cost).sum();
    match optima.as_slice() {
        [(len, _)] => (Some(*len), least),
        _ => (None, least),
    }
}

/// How much more `cost` is than `least`, in hundredths of a per cent.
pub fn above(cost: u64, least: u64) -> u64 {
    (10_000 * cost.saturating_sub(least)) / least
}

/// How much less `cost` is than `than`, in hundredths of a per cent.
pub fn saved(cost: u64, than: u64) -> u64 {
    10_000 * than.saturating_sub(cost) / than
}

/// A quotient with two digits.
pub fn per(sum: u64, of: u64) -> String {
    let hundredths = (100 * sum + of / 2) / of;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}
